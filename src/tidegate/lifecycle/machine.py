"""The table of all states, and the one door to them. Called by the reconciler; asks a state, and
refuses what the state does not list.

Jobs that `tidegate run` leads are left alone while that process lives, or cannot be seen from here;
when it has died, they fail, and can be resumed.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from tidegate.lifecycle.deadline import Deadline, ladder_ms
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import fail
from tidegate.lifecycle.states import (
    canceled,
    canceling,
    created,
    doing_savepoint,
    failed,
    failing,
    finished,
    initializing,
    pending,
    recovering,
    running,
    savepoint_done,
    scheduled,
    unknowable,
)
from tidegate.lifecycle.stopping import Gone, driver_liveness
from tidegate.model.errors import TerminalError
from tidegate.model.records import DesiredState, DriverCommand, Failure, JobStatus

OBEYED_MS = 15_000  # a force stop kills the driver at once


class State(Protocol):
    """What every module of states/ has."""

    @property
    def NAME(self) -> JobStatus: ...

    @property
    def GOES_TO(self) -> frozenset[JobStatus]: ...

    @property
    def DEADLINE(self) -> Deadline | None:
        """How long it may last."""

    def decide(self, view: JobObservation, /) -> Decision: ...


_ALL: tuple[State, ...] = (
    initializing,
    created,
    pending,
    scheduled,
    running,
    recovering,
    doing_savepoint,
    canceling,
    failing,
    finished,
    savepoint_done,
    canceled,
    failed,
    unknowable,
)
STATES: dict[JobStatus, State] = {state.NAME: state for state in _ALL}


class IllegalTransition(TerminalError):
    """A state wants to go where it may not: our mistake, and only this job stops moving."""

    condition = "illegal-transition"

    def __init__(self, job_id: int, before: JobStatus, after: JobStatus) -> None:
        super().__init__(f"job {job_id} may not go from {before} to {after}")
        self.job_id = job_id
        self.before = before
        self.after = after


def decide(view: JobObservation) -> Decision:
    """The next step of a job. Pure: the same view gives the same answer."""
    decision = _decide(view)
    if isinstance(decision, Transition):
        check(view.record.job_id, view.state.status, decision.to)
    elif _too_late(view):
        return replace(decision, savepoint=doing_savepoint.overdue(view))
    return decision


def _too_late(view: JobObservation) -> bool:
    """Whether a savepoint is wanted that does not come, whatever the job does meanwhile.

    Who leads it with `tidegate run` sees to that himself.
    """
    return (
        view.saving
        and view.savepoint_age_ms >= view.limits.savepoint_ms
        and view.state.leader is None
    )


def check(job_id: int, before: JobStatus, after: JobStatus) -> None:
    """Refuse an exit that the state does not list."""
    if after not in STATES[before].GOES_TO:
        raise IllegalTransition(job_id, before, after)


def edges() -> Iterator[tuple[JobStatus, JobStatus]]:
    """Every allowed step, in the order of the table."""
    order = list(STATES)
    for state in _ALL:
        yield from ((state.NAME, to) for to in sorted(state.GOES_TO, key=order.index))


def diagram() -> str:
    """All states and exits as Mermaid text."""
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {JobStatus.CREATED}",
        *(f"    {before} --> {after}" for before, after in edges()),
    ]
    ends = [
        state.NAME
        for state in _ALL
        if state.NAME.terminal and any(after is state.NAME for _, after in edges())
    ]
    return "\n".join([*lines, *(f"    {end} --> [*]" for end in ends)]) + "\n"


def _overdue(view: JobObservation) -> bool:
    """Whether the `tidegate run` that leads a job has not obeyed a stop for longer than its own
    steps of a stop take: it hangs, or is stopped (SIGSTOP).
    """
    patience_ms = OBEYED_MS if view.wish is DesiredState.FORCE_STOP else ladder_ms(view.limits)
    can_be_ended = view.driver is None or bool(view.adopter) or not view.driver_lives
    return view.stop_wanted and can_be_ended and view.wish_age_ms >= patience_ms


def _disobeyed(view: JobObservation) -> Decision:
    """The servers end it themselves: a worker of its host kills the driver, and the run finds the
    job ended when it wakes.
    """
    leader, status = view.state.leader, view.state.status
    assert leader is not None
    if status is JobStatus.CANCELING:
        gone = driver_liveness(view)
        if isinstance(gone, Gone):
            return Transition(to=JobStatus.CANCELED, reason=view.state.reason, proof=gone.proof)
        return NoTransition(
            order=DriverCommand.KILL, worker=view.adopter or None, reason=view.state.reason
        )
    if JobStatus.CANCELING not in STATES[status].GOES_TO:
        return NoTransition()
    reason = (
        f"process {leader.pid} on {leader.host}, which leads this job with `tidegate run`, does not"
        " obey the stop: its driver is killed"
    )
    return Transition(
        to=JobStatus.CANCELING, order=DriverCommand.KILL, worker=view.adopter or None, reason=reason
    )


def _decide(view: JobObservation) -> Decision:
    state = STATES[view.state.status]
    if view.state.leader is None or view.state.status.terminal:
        return state.decide(view)
    leader = view.state.leader
    if view.embedded_alive is not False:
        return _disobeyed(view) if _overdue(view) else NoTransition()
    if view.stop_wanted or JobStatus.FAILING not in state.GOES_TO:
        return state.decide(view)
    message = (
        f"process {leader.pid} on {leader.host}, which led this job with `tidegate run`, has died."
        " The job can be resumed"
    )
    return fail(
        view,
        Failure(
            at_ms=view.now_ms,
            generation=view.state.generation,
            condition="leader-died",
            domain="external",
            message=message,
        ),
        order=DriverCommand.KILL,
    )
