"""RUNNING: a driver is on record and alive, as far as can be observed.

The state lasts as long as there is progress.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import DriverSupervision, JobObservation
from tidegate.lifecycle.recovery import after_driver_end, fail, pipeline_failure, restart, resume
from tidegate.lifecycle.stopping import (
    Gone,
    KillOverdue,
    driver_liveness,
    escalate,
    first_command,
    target_worker,
)
from tidegate.model.records import (
    CheckpointHealth,
    DriverCommand,
    Failure,
    JobStatus,
    PipelineStatus,
)

NAME = JobStatus.RUNNING
GOES_TO = frozenset(
    {
        JobStatus.FINISHED,
        JobStatus.FAILING,
        JobStatus.RECOVERING,
        JobStatus.CANCELING,
        JobStatus.DOING_SAVEPOINT,
    }
)
DEADLINE: Deadline | None = None


def decide(view: JobObservation) -> Decision:
    """Check facts about the driver first, then the desired state, then health.

    A savepoint is the driver's own work; this only waits for its end.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone) and view.outcome is PipelineStatus.FINISHED:
        return after_driver_end(view, gone.proof)
    if view.stop_requested:
        return Transition(
            to=JobStatus.CANCELING, command=first_command(view), worker=target_worker(view)
        )
    if view.stop_savepoint_done:
        return Transition(to=JobStatus.DOING_SAVEPOINT)
    if isinstance(gone, Gone):
        return after_driver_end(view, gone.proof)
    if view.outcome is not None:
        return _ended(view, view.outcome)
    if view.health.level is CheckpointHealth.STALLED:
        return restart(view, stall_failure(view))
    if view.stops_with_savepoint:
        return Transition(to=JobStatus.DOING_SAVEPOINT)
    return supervise(view)


def stall_failure(view: JobObservation) -> Failure:
    """Describe missing progress as a failure."""
    message = f"stalled: {view.health.reason}" if view.health.reason else "stalled"
    return Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition="stalled",
        domain="external",
        message=message,
    )


def _ended(view: JobObservation, outcome: PipelineStatus) -> Decision:
    """The pipelines have ended and the driver still runs: it gets some time to exit by itself."""
    if outcome is PipelineStatus.FAILED:
        return fail(view, pipeline_failure(view), command=DriverCommand.STOP)
    if outcome is PipelineStatus.CANCELED:
        return resume(view)
    escalated = escalate(view, DriverCommand.STOP, stop_ms=view.limits.exit_ms)
    return (
        Transition(to=JobStatus.FINISHED, failure=escalated.failure)
        if isinstance(escalated, KillOverdue)
        else escalated
    )


def supervise(view: JobObservation) -> NoTransition:
    """Keep a worker assigned to the driver.

    A lost worker takes nothing with it: another one on the host adopts the driver. Without one, the
    driver's heartbeats are enough.
    """
    match view.supervision:
        case DriverSupervision.REPLACEABLE:
            return NoTransition(worker=view.adopter)
        case DriverSupervision.GONE:
            worker = view.assignment.worker if view.assignment else "its worker"
            return NoTransition(
                reason=(
                    f"{worker} is gone and no other worker sees that host; the driver still sends"
                    " heartbeats and continues"
                )
            )
        case DriverSupervision.NONE:
            return NoTransition(command=DriverCommand.RUN, worker=target_worker(view))
        case _:
            return NoTransition()
