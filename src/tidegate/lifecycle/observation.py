"""What is known of a job when its next step is decided.

Made by coordinator/observe; read by the states.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.model.log_retention import LogRetentionStatus
from tidegate.model.records import (
    Assignment,
    CheckpointHealth,
    DesiredState,
    DriverCommand,
    DriverRecord,
    JobRecord,
    JobState,
    PipelineState,
    PipelineStatus,
    SavepointRequest,
    SavepointStatus,
)


class DriverSupervision(StrEnum):
    """Who looks after the driver of a job."""

    NONE = "none"  # nothing is assigned
    ALIVE = "alive"  # the assigned worker holds its lease
    # it does not, and another worker on the same host and boot can adopt the driver
    REPLACEABLE = "replaceable"
    GONE = "gone"  # it does not, and nobody else can see that host


@dataclass(frozen=True, slots=True)
class Placement:
    """A worker that can take the job."""

    worker: str


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why the job cannot start yet, for a person."""

    reason: str
    rejected: bool = False  # nor shall it wait: it fails


@dataclass(frozen=True, slots=True)
class JobHealth:
    """Whether RUNNING means progress, and if not, what is known about why."""

    level: CheckpointHealth = CheckpointHealth.OK
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LifecycleLimits:
    """Deadlines, from the engine's settings; all in milliseconds."""

    start_ms: int = 120_000  # SCHEDULED: from the assignment to the driver's name in the store
    ask_ms: int = 30_000  # a stop: how long each step may take before the next one
    interrupt_ms: int = 10_000
    terminate_ms: int = 5_000
    kill_ms: int = 60_000  # until a killed session must be gone
    linger_ms: int = 30_000  # a driver whose pipelines have all ended
    accept_ms: int = 60_000  # INITIALIZING, CREATED
    savepoint_ms: int = 600_000  # DOING_SAVEPOINT: a whole batch may come before it


@dataclass(frozen=True, kw_only=True, slots=True)
class JobObservation:
    """One job at one moment.

    Ages are measured on the leader's monotonic clock, so that no step of a wall clock can end a
    deadline.
    """

    now_ms: int
    record: JobRecord
    state: JobState
    pipelines: tuple[PipelineState, ...] = ()
    driver: DriverRecord | None = None  # of the newest generation that has registered one
    assignment: Assignment | None = None
    watcher: DriverSupervision = DriverSupervision.NONE
    adopter: str = ""  # with REPLACEABLE: who
    driver_silent: bool = False  # no sign of life for longer than its lease
    state_age_ms: int = 0  # how long it has been in this state, as far as this leader knows
    order_age_ms: int = 0  # how long the standing order has been given
    savepoint: SavepointRequest | None = None  # the last one that was asked for of this incarnation
    savepoint_age_ms: int = 0  # how long it has been as it is
    health: JobHealth = JobHealth()
    log_retention: LogRetentionStatus = field(default_factory=LogRetentionStatus)
    place: Placement | Unplaceable = Unplaceable("not looked for yet")
    limits: LifecycleLimits = field(default_factory=LifecycleLimits)
    wish_age_ms: int = 0  # how long the standing wish has been known to this leader
    embedded_alive: bool | None = (
        # of a job that `tidegate run` leads: whether that process lives; None where servers lead,
        # or it cannot be seen from here
        None
    )

    @property
    def wish(self) -> DesiredState:
        return self.record.intent.desired

    @property
    def stop_wanted(self) -> bool:
        """Whether people want it to end without more ado."""
        return self.wish in (DesiredState.CANCEL, DesiredState.FORCE_STOP)

    @property
    def saving(self) -> bool:
        """Whether a savepoint is wanted."""
        return self.savepoint is not None and self.savepoint.status is SavepointStatus.WANTED

    @property
    def stops_saved(self) -> bool:
        """Whether a savepoint is wanted, and the job is to end with it."""
        return self.saving and self.savepoint is not None and self.savepoint.stop

    @property
    def saved(self) -> bool:
        """Whether the job was to end with a savepoint, and that is done."""
        return (
            self.savepoint is not None
            and self.savepoint.stop
            and self.savepoint.status is SavepointStatus.DONE
        )

    @property
    def standing(self) -> DriverCommand | None:
        """The order that the worker and the driver can read now; None where nothing is assigned."""
        return self.assignment.order if self.assignment else None

    @property
    def driven(self) -> bool:
        """Whether the current generation has a driver on record, alive or not."""
        return self.driver is not None and self.driver.generation == self.state.generation

    @property
    def driver_lives(self) -> bool:
        """Whether a process may still be there, of the current generation or an older one."""
        return self.driver is not None and self.driver.end is None

    @property
    def outcome(self) -> PipelineStatus | None:
        """What the pipelines amount to; None while one of them has not ended."""
        statuses = {p.status for p in self.pipelines}
        if not statuses or statuses & {PipelineStatus.CREATED, PipelineStatus.RUNNING}:
            return PipelineStatus.FAILED if PipelineStatus.FAILED in statuses else None
        if PipelineStatus.FAILED in statuses:
            return PipelineStatus.FAILED
        return (
            PipelineStatus.CANCELED
            if PipelineStatus.CANCELED in statuses
            else PipelineStatus.FINISHED
        )

    @property
    def checkpoints(self) -> int:
        """Completed checkpoints of all pipelines, ever."""
        return sum(p.checkpoints for p in self.pipelines)

    @property
    def latest(self) -> Mapping[int, int]:
        """The newest completed checkpoint of every pipeline that has one."""
        return {p.pipeline: p.latest.checkpoint for p in self.pipelines if p.latest}
