"""The state machine of a job, pure: no clock, no files, no store.

Called by the reconciler, which observes a job, calls `machine.decide`, and records the decision.

    observation     what is known of a job at one moment
    decision        NoTransition | Transition
    states/         one file per state, one for the terminal ones: name, exits, deadline, decide()
    machine         the table of all states; rejects an exit that a state does not list
    deadline        how long a state may last
    stopping        whether a driver is dead, and the next command of a stop
    recovery        what follows the end of a driver
    retry           budget and backoff of restarts
    recheck         which jobs need no attention, and for how long
    health          OK, LATE, STALLED, and why
    placement       which worker may take which job, and why none can
    final_statuses  how the pipelines of an ended job ended

Every act of a leader is a write to the store: a decision is recorded in one transaction together
with the command for the worker. So no crash can fall between deciding and acting, and
`NoTransition` repeats its command until the effect is observed.
"""
