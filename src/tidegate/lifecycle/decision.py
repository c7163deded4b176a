"""The decisions of the states, as values.

Recorded by coordinator/transitions, each in one transaction.
"""

from dataclasses import dataclass

from tidegate.model.records import DriverCommand, Failure, JobStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class NoTransition:
    """The status stays; command, worker or reason may change.

    Repeated until the effect is observed.

    If `command` and `worker` are given and nothing is assigned, an assignment is made under the
    generation of the driver on record, so that the command is carried out. Reasons contain no ages,
    so that a repeated decision equals the one before and writes nothing.
    """

    command: DriverCommand | None = None  # None: unchanged
    worker: str | None = None  # another worker adopts the running driver; None: unchanged
    reason: str = ""
    savepoint: str = ""  # why the requested savepoint is abandoned


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """A change to another status. The transaction also writes what belongs to that status:

        SCHEDULED                generation + 1 in the job and in every pipeline, the restore point,
                                 an assignment to `worker`
        RECOVERING, FAILING,     the command; `worker` only if it is another one or nothing is
        CANCELING                assigned (see NoTransition)
        PENDING                  `not_before_ms`; the assignment is removed
        RUNNING, DOING_SAVEPOINT nothing more
        terminal                 outcome, cleanup record, running-job-info removed, generation + 1
                                 in every pipeline that stays, the result of a pending savepoint

    The number of restarts becomes (0 if healed, else unchanged) + (1 if restart).
    """

    to: JobStatus
    reason: str = ""
    command: DriverCommand | None = None
    worker: str | None = None
    failure: Failure | None = None  # added to the history
    restart: bool = False  # counts against the budget
    healed: bool = False  # resets the budget
    not_before_ms: int = 0
    savepoint: str = ""  # why the requested savepoint is abandoned
    proof: str = ""  # why the driver counts as dead although no worker saw it; ends its record


Decision = NoTransition | Transition
