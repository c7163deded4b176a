"""What shall be: the answers of the states, as values.

Recorded by coordinator/transitions, each in one transaction.
"""

from dataclasses import dataclass

from tidegate.model.records import DriverCommand, Failure, JobStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class NoTransition:
    """Nothing changes but, perhaps, the order, the worker that carries it out, and the reason that
    people read. Repeated until a fact is seen.

    Where `order` and `worker` are given and nothing is assigned, an assignment is made, under the
    generation of the driver on record: so that somebody carries the order out. Reasons hold no
    ages, so that a repeated Stay is the same one and writes nothing.
    """

    order: DriverCommand | None = None  # None: as it stands
    worker: str | None = (
        None  # another worker takes the driver over, as it runs; None: as it stands
    )
    reason: str = ""
    savepoint: str = ""  # why the savepoint that is wanted is given up


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """To another status. The transaction also writes what belongs to that status:

    SCHEDULED                    generation + 1 in the job and in every pipeline, the restore point, an assignment to `worker`
    RECOVERING, FAILING,
    CANCELING                    the order; `worker` only where it is another one, or nothing is assigned (see Stay)
    PENDING                      `not_before_ms`; the assignment is taken back
    RUNNING, DOING_SAVEPOINT     nothing more
    terminal                     outcome, cleanup record, running-job-info removed, generation + 1 in every pipeline that stays;
                                 the answer to a savepoint that is still wanted

    The number of restarts becomes (0 if healed else as it was) + (1 if restart).
    """

    to: JobStatus
    reason: str = ""
    order: DriverCommand | None = None
    worker: str | None = None
    failure: Failure | None = None  # added to the history
    restart: bool = False  # counts against the budget
    healed: bool = False  # the budget is full again
    not_before_ms: int = 0
    savepoint: str = ""  # why the savepoint that is wanted is given up
    proof: str = ""  # why the driver counts as dead although nobody saw it die; ends its record


Decision = NoTransition | Transition
