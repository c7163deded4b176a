"""The agent on a host: assignments in the store become driver processes, and what becomes of those
becomes facts there. Called by server and command line.

A worker holds the lease `worker/<its id>`; every write of it names that lease. It looks at the
assignments that bear its id, and for each of them:

    no driver on record     starts one, once; if it dies before it could register, that is reported too
    a driver on record      watches it: its own child, or, where another worker of this host has started it, an adopted one
    order terminate, kill   carries it out. Stop and interrupt are read by the driver itself
    the driver has died     proves that its whole session is empty, reports that with the exit code where it is known, removes the scratch files

Drivers do not depend on it: they outlive it, and the worker that comes after it adopts them. One
whose assignment is gone, so that nobody wants it, is killed. A worker that was taken for dead finds
its lease gone, takes it anew, and goes on with what is still assigned to it.

    agent       the decisions, one turn at a time: no processes, threads or clock of its own
    launcher    what the agent needs of a host
    host        this host: real processes
    slots       how many drivers fit
"""
