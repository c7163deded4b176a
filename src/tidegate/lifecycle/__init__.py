"""THE STATE MACHINE of a job, pure: no clock, no files, no store. Called by the reconciler, which
observes, asks here, and records the answer.

    view       what is known of a job at one moment
    decision   Stay | Go: what shall be
    states/    one file a state: its name, its allowed exits, its deadline, decide(view)
    machine    the table of all states; refuses an exit that a state does not list; draws the diagram
    deadline   how long a state may last
    stopping   whether a driver is gone, and how hard to press next
    recovery   what follows from the end of a driver
    retry      budget and backoff of restarts
    health     OK, LATE, STALLED, and why
    placement  which worker may take which job, and why none can

Every act of a leader is a write into the store: a decision is recorded in one transaction together
with the order for the worker. So there is no moment between deciding and acting at which a crash
could forget something, and `Stay` repeats its order until the fact is seen.
"""
