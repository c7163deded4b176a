"""RECOVERING: the driver died or must be killed; once it is dead, the job can restart."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import fail, pipeline_failure
from tidegate.lifecycle.retry import backoff_ms
from tidegate.lifecycle.stopping import (
    Gone,
    KillOverdue,
    driver_liveness,
    escalate,
    first_command,
    target_worker,
)
from tidegate.model.records import DriverCommand, JobStatus, PipelineStatus

NAME = JobStatus.RECOVERING
GOES_TO = frozenset({JobStatus.PENDING, JobStatus.FINISHED, JobStatus.FAILING, JobStatus.CANCELING})
DEADLINE: Deadline | None = Deadline(
    ms=lambda limits: limits.kill_ms,
    then=frozenset({JobStatus.FAILING}),
    what="from the kill command to the proof that the old driver is dead",
)


def decide(view: JobObservation) -> Decision:
    """Restart only after the old driver is proven dead.

    What the driver reported before its end still counts.
    """
    gone = driver_liveness(view)
    # The records of an earlier incarnation say nothing about this one.
    outcome = view.outcome if view.has_driver else None
    if isinstance(gone, Gone) and outcome is PipelineStatus.FINISHED:
        return Transition(to=JobStatus.FINISHED, proof=gone.proof)
    if view.stop_requested:
        return Transition(
            to=JobStatus.CANCELING, command=first_command(view), worker=target_worker(view)
        )
    if isinstance(gone, Gone):
        if outcome is PipelineStatus.FAILED:
            return fail(view, pipeline_failure(view), command=DriverCommand.KILL, proof=gone.proof)
        pause_ms = backoff_ms(view.record.plan.env.retry_interval_s, view.state.restarts)
        return Transition(
            to=JobStatus.PENDING,
            reason=view.state.reason,
            not_before_ms=view.now_ms + pause_ms if pause_ms else 0,
            proof=gone.proof,
        )
    escalated = escalate(view, DriverCommand.KILL)
    return (
        fail(view, escalated.failure, command=DriverCommand.KILL)
        if isinstance(escalated, KillOverdue)
        else escalated
    )
