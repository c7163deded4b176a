"""RECOVERING: the driver died, or has to; once that is proven, the job waits for its next start."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import fail, pipeline_failure
from tidegate.lifecycle.retry import backoff_ms
from tidegate.lifecycle.stopping import (
    Gone,
    Overdue,
    driver_liveness,
    escalate,
    first_order,
    target_worker,
)
from tidegate.model.records import DriverCommand, JobStatus, PipelineStatus

NAME = JobStatus.RECOVERING
GOES_TO = frozenset({JobStatus.PENDING, JobStatus.FINISHED, JobStatus.FAILING, JobStatus.CANCELING})
DEADLINE: Deadline | None = Deadline(
    ms=lambda limits: limits.kill_ms,
    then=frozenset({JobStatus.FAILING}),
    what="from the order to kill the old driver to the proof that it is dead",
)


def decide(view: JobObservation) -> Decision:
    """Nothing starts before the old driver is dead.

    What it has managed to say in its last moments holds.
    """
    gone = driver_liveness(view)
    outcome = (
        view.outcome if view.driven else None
    )  # what an earlier incarnation left says nothing about this one
    if isinstance(gone, Gone) and outcome is PipelineStatus.FINISHED:
        return Transition(to=JobStatus.FINISHED, proof=gone.proof)
    if view.stop_wanted:
        return Transition(
            to=JobStatus.CANCELING, order=first_order(view), worker=target_worker(view)
        )
    if isinstance(gone, Gone):
        if outcome is PipelineStatus.FAILED:
            return fail(view, pipeline_failure(view), order=DriverCommand.KILL, proof=gone.proof)
        pause_ms = backoff_ms(view.record.plan.env.retry_interval_s, view.state.restarts)
        return Transition(
            to=JobStatus.PENDING,
            reason=view.state.reason,
            not_before_ms=view.now_ms + pause_ms if pause_ms else 0,
            proof=gone.proof,
        )
    pressed = escalate(view, DriverCommand.KILL)
    return (
        fail(view, pressed.failure, order=DriverCommand.KILL)
        if isinstance(pressed, Overdue)
        else pressed
    )
