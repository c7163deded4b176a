"""What shall be: the answers of the states, as values. Recorded by coordinator/transitions, each in one transaction."""

from dataclasses import dataclass

from tidegate.model.records import Failure, JobStatus, Order


@dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """Nothing changes but, perhaps, the order, the worker that carries it out, and the reason that people read. Repeated until a fact is seen."""

    order: Order | None = None  # None: as it stands
    worker: str | None = None  # another worker takes the driver over, as it runs
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Go:
    """To another status. The transaction also writes what belongs to that status:

    SCHEDULED                    generation + 1 in the job and in every pipeline, the restore point, an assignment to `worker`
    RECOVERING, FAILING,
    CANCELING, DOING_SAVEPOINT   the order
    PENDING                      `not_before_ms`; the assignment is taken back
    terminal                     outcome, cleanup record, running-job-info removed, generation + 1 in every pipeline that stays
    """

    to: JobStatus
    reason: str = ""
    order: Order | None = None
    worker: str | None = None
    failure: Failure | None = None  # added to the history
    restart: bool = False  # counts against the budget
    healed: bool = False  # the budget is full again
    not_before_ms: int = 0
    proof: str = ""  # why the driver counts as dead although nobody saw it die; ends its record


Decision = Stay | Go
