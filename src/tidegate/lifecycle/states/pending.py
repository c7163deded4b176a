"""PENDING: waits for cleanup, for its retry, or for a worker with a free slot.

It may wait without limit, and always states the reason.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import JobObservation, Unplaceable
from tidegate.lifecycle.retry import backoff_ms, backoff_ms_max
from tidegate.lifecycle.stopping import first_command, target_worker
from tidegate.model.records import DriverCommand, Failure, JobStatus

NAME = JobStatus.PENDING
GOES_TO = frozenset(
    {
        JobStatus.SCHEDULED,
        JobStatus.RECOVERING,
        JobStatus.CANCELING,
        JobStatus.CANCELED,
        JobStatus.FAILING,
        JobStatus.FAILED,
        JobStatus.SAVEPOINT_DONE,
    }
)
DEADLINE: Deadline | None = None


def decide(view: JobObservation) -> Decision:
    """Schedule the job once nothing older runs: an older driver must be proven dead first."""
    if view.stop_requested:
        if view.driver_may_live:
            return Transition(
                to=JobStatus.CANCELING, command=first_command(view), worker=target_worker(view)
            )
        return Transition(to=JobStatus.CANCELED, reason="canceled while it waited")
    if view.driver_may_live:
        reason = "an older driver of this job may still be alive: it is killed first"
        return Transition(
            to=JobStatus.RECOVERING,
            command=DriverCommand.KILL,
            worker=target_worker(view),
            reason=reason,
        )
    if view.stop_savepoint_done:
        return Transition(to=JobStatus.SAVEPOINT_DONE)
    if _waits(view):
        return NoTransition(reason=_why(view))
    if isinstance(view.placement, Unplaceable):
        return (
            _rejected(view, view.placement.reason)
            if view.placement.rejected
            else NoTransition(reason=view.placement.reason)
        )
    return Transition(to=JobStatus.SCHEDULED, worker=view.placement.worker)


def _waits(view: JobObservation) -> bool:
    """Whether the retry time is not reached, but never longer than the longest pause.

    The limit protects against a wall clock that was set back.
    """
    return view.now_ms < view.state.not_before_ms and view.state_age_ms < backoff_ms_max(
        view.record.plan.env.retry_interval_s
    )


def _why(view: JobObservation) -> str:
    env, number = view.record.plan.env, view.state.restarts
    after = f": {view.state.failures[-1].message}" if view.state.failures else ""
    return (
        f"retry {number} of {env.retry_times} starts"
        f" {backoff_ms(env.retry_interval_s, number) / 1000:g} s after the failure{after}"
    )


def _rejected(view: JobObservation, reason: str) -> Transition:
    """Fail at once: no driver of the job lives, so there is nothing to wait for."""
    failure = Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition="no-place",
        domain="external",
        message=reason,
    )
    return Transition(to=JobStatus.FAILED, reason=reason, failure=failure)
