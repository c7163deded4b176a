"""The worker: runs driver processes for assignments in the store, and reports how they exit.

Called by server and command line. A worker holds the lease `worker/<its id>`, and every write of it
is conditioned on that lease. It reads the assignments with its id, and for each of them:

    no registered driver    starts one, once; reports it if it exits before it could register
    registered driver       supervises it: its own child, or one that it adopts because another
                            worker of this host has started it
    command terminate, kill applies it. The driver itself reads stop and interrupt
    driver has exited       confirms that its whole session is empty, reports that with the exit
                            code if it is known, removes the scratch files

Drivers do not depend on their worker: they outlive it, and its successor adopts them. A driver
whose assignment was deleted is killed. A worker that was considered dead finds its lease gone,
acquires it again, and continues with what is still assigned to it.

    agent           the decisions, one cycle at a time: no processes, threads or clock of its own
    driver_handle   what the agent needs of a host
    host            this host: real processes
    slots           how many drivers fit
"""
