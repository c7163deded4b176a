"""All facts about a job that its next decision depends on.

Made by the reconciler; read by the states.
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
    """Which worker supervises the driver of a job."""

    NONE = "none"  # nothing is assigned
    ALIVE = "alive"  # the assigned worker holds its lease
    # It does not, and another worker on the same host and boot can adopt the driver.
    REPLACEABLE = "replaceable"
    GONE = "gone"  # it does not, and no other worker can see that host


@dataclass(frozen=True, slots=True)
class Placement:
    """A worker with a free slot for the job."""

    worker: str


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why the job cannot start yet, for users."""

    reason: str
    rejected: bool = False  # it must not wait either: it fails


@dataclass(frozen=True, slots=True)
class JobHealth:
    """Whether a RUNNING job makes progress, and if not, the likely cause."""

    level: CheckpointHealth = CheckpointHealth.OK
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LifecycleLimits:
    """Deadlines from the engine's settings, in milliseconds."""

    start_ms: int = 120_000  # SCHEDULED: from the assignment to the driver's name in the store
    stop_ms: int = 30_000  # a stop: time limit of each step before the next one
    interrupt_ms: int = 10_000
    terminate_ms: int = 5_000
    kill_ms: int = 60_000  # until every process of a killed session must be dead
    exit_ms: int = 30_000  # until a driver must exit whose pipelines have all ended
    accept_ms: int = 60_000  # INITIALIZING, CREATED
    savepoint_ms: int = 600_000  # DOING_SAVEPOINT: a whole batch may come before it


@dataclass(frozen=True, kw_only=True, slots=True)
class JobObservation:
    """One job at one moment.

    Ages are measured on the leader's monotonic clock, so that no change of a wall clock can end a
    deadline.
    """

    now_ms: int
    record: JobRecord
    state: JobState
    pipelines: tuple[PipelineState, ...] = ()
    driver: DriverRecord | None = None  # of the newest generation that has registered one
    assignment: Assignment | None = None
    supervision: DriverSupervision = DriverSupervision.NONE
    adopter: str = ""  # with REPLACEABLE: the worker that can adopt the driver
    driver_silent: bool = False  # no heartbeat for longer than its lease
    state_age_ms: int = 0  # how long it has been in this state, as far as this leader knows
    command_age_ms: int = 0  # since the current command was given
    savepoint: SavepointRequest | None = None  # the last request to this incarnation
    savepoint_age_ms: int = 0  # since that request changed
    health: JobHealth = JobHealth()
    log_retention: LogRetentionStatus = field(default_factory=LogRetentionStatus)
    placement: Placement | Unplaceable = Unplaceable("no worker was chosen yet")
    limits: LifecycleLimits = field(default_factory=LifecycleLimits)
    desired_age_ms: int = 0  # since this leader first saw the desired state
    # Of a job that `tidegate run` leads: whether that process is alive; None if servers lead it, or
    # it runs on another host.
    embedded_alive: bool | None = None

    @property
    def desired(self) -> DesiredState:
        return self.record.intent.desired

    @property
    def stop_requested(self) -> bool:
        """Whether users requested a stop without a savepoint."""
        return self.desired in (DesiredState.CANCEL, DesiredState.FORCE_STOP)

    @property
    def savepoint_wanted(self) -> bool:
        """Whether a savepoint is requested and not complete."""
        return self.savepoint is not None and self.savepoint.status is SavepointStatus.WANTED

    @property
    def stops_with_savepoint(self) -> bool:
        """Whether a savepoint is requested and the job ends with it."""
        return self.savepoint_wanted and self.savepoint is not None and self.savepoint.stop

    @property
    def stop_savepoint_done(self) -> bool:
        """Whether the job was to end with a savepoint, and that is done."""
        return (
            self.savepoint is not None
            and self.savepoint.stop
            and self.savepoint.status is SavepointStatus.DONE
        )

    @property
    def current_command(self) -> DriverCommand | None:
        """The command that worker and driver can read now; None if nothing is assigned."""
        return self.assignment.command if self.assignment else None

    @property
    def has_driver(self) -> bool:
        """Whether the current generation has a driver on record, alive or not."""
        return self.driver is not None and self.driver.generation == self.state.generation

    @property
    def driver_may_live(self) -> bool:
        """Whether a driver process of this or an older generation may still be alive."""
        return self.driver is not None and self.driver.end is None

    @property
    def outcome(self) -> PipelineStatus | None:
        """The combined status of the pipelines; None while one of them has not ended."""
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
        """The number of checkpoints that all pipelines have completed in this lineage."""
        return sum(p.checkpoints for p in self.pipelines)

    @property
    def latest(self) -> Mapping[int, int]:
        """The newest completed checkpoint of every pipeline that has one."""
        return {p.pipeline: p.latest.checkpoint for p in self.pipelines if p.latest}
