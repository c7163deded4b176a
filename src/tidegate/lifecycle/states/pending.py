"""PENDING: waits for its turn, for its retry, or for a worker with a free slot.

It may wait for ever, and always says for what.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import JobObservation, Unplaceable
from tidegate.lifecycle.retry import backoff_ms, backoff_ms_max
from tidegate.lifecycle.stopping import first_order, target_worker
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
    """An older driver without proof of its death comes first: nothing starts beside it."""
    if view.stop_wanted:
        if view.driver_lives:
            return Transition(
                to=JobStatus.CANCELING, order=first_order(view), worker=target_worker(view)
            )
        return Transition(to=JobStatus.CANCELED, reason="canceled while it waited")
    if view.driver_lives:
        reason = "an older driver of this job has not been proven dead: it is ended first"
        return Transition(
            to=JobStatus.RECOVERING,
            order=DriverCommand.KILL,
            worker=target_worker(view),
            reason=reason,
        )
    if view.saved:
        return Transition(to=JobStatus.SAVEPOINT_DONE)
    if _waits(view):
        return NoTransition(reason=_why(view))
    if isinstance(view.place, Unplaceable):
        return (
            _rejected(view, view.place.reason)
            if view.place.rejected
            else NoTransition(reason=view.place.reason)
        )
    return Transition(to=JobStatus.SCHEDULED, worker=view.place.worker)


def _waits(view: JobObservation) -> bool:
    """Until the time on the wall, but never longer than the longest pause: a clock that was set
    back must not hold a job.
    """
    return view.now_ms < view.state.not_before_ms and view.state_age_ms < backoff_ms_max(
        view.record.plan.env.retry_interval_s
    )


def _why(view: JobObservation) -> str:
    env, number = view.record.plan.env, view.state.restarts
    after = f": {view.state.failures[-1].message}" if view.state.failures else ""
    return (
        f"retry {number} of {env.retry_times} comes"
        f" {backoff_ms(env.retry_interval_s, number) / 1000:g} s after the failure{after}"
    )


def _rejected(view: JobObservation, reason: str) -> Transition:
    """Nothing of it lives, so there is nothing to wait for."""
    failure = Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition="no-place",
        domain="external",
        message=reason,
    )
    return Transition(to=JobStatus.FAILED, reason=reason, failure=failure)
