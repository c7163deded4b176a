"""The table of all states, and the only way to call them.

Called by the reconciler. Calls the current state, and rejects transitions that it does not list.
Jobs that `tidegate run` leads are left alone while that process is alive or cannot be seen from
here; when it has died, they fail and can be resumed.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from tidegate.lifecycle.deadline import Deadline, escalation_ms
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import fail
from tidegate.lifecycle.states import (
    canceling,
    created,
    doing_savepoint,
    failing,
    initializing,
    pending,
    recovering,
    running,
    scheduled,
)
from tidegate.lifecycle.states.terminal import TERMINAL_STATES
from tidegate.lifecycle.stopping import Gone, driver_liveness
from tidegate.model.errors import TerminalError
from tidegate.model.records import DesiredState, DriverCommand, Failure, JobStatus

FORCE_STOP_TIMEOUT_MS = 15_000  # a force stop kills the driver at once


class State(Protocol):
    """The interface of the modules of states/, and of the terminal states."""

    @property
    def NAME(self) -> JobStatus: ...

    @property
    def GOES_TO(self) -> frozenset[JobStatus]: ...

    @property
    def DEADLINE(self) -> Deadline | None:
        """The longest time that the state may last."""

    def decide(self, view: JobObservation, /) -> Decision: ...


ALL_STATES: tuple[State, ...] = (
    initializing,
    created,
    pending,
    scheduled,
    running,
    recovering,
    doing_savepoint,
    canceling,
    failing,
    *TERMINAL_STATES,
)
STATES: dict[JobStatus, State] = {state.NAME: state for state in ALL_STATES}


class IllegalTransition(TerminalError):
    """A state decided on an exit that it does not list: a bug, which stops only this job."""

    condition = "illegal-transition"

    def __init__(self, job_id: int, before: JobStatus, after: JobStatus) -> None:
        super().__init__(f"job {job_id} may not go from {before} to {after}")
        self.job_id = job_id
        self.before = before
        self.after = after


def decide(view: JobObservation) -> Decision:
    """Decide the next step of a job. Pure: equal observations give equal decisions."""
    decision = _decide(view)
    if isinstance(decision, Transition):
        check_transition(view.record.job_id, view.state.status, decision.to)
    elif _savepoint_overdue(view):
        return replace(decision, savepoint=doing_savepoint.overdue_reason(view))
    return decision


def _savepoint_overdue(view: JobObservation) -> bool:
    """Whether a requested savepoint is overdue, whatever the job does meanwhile.

    A run that leads its job with `tidegate run` checks this itself.
    """
    return (
        view.savepoint_wanted
        and view.savepoint_age_ms >= view.limits.savepoint_ms
        and view.state.leader is None
    )


def check_transition(job_id: int, before: JobStatus, after: JobStatus) -> None:
    """Raise IllegalTransition for an exit that the state does not list."""
    if after not in STATES[before].GOES_TO:
        raise IllegalTransition(job_id, before, after)


def edges() -> Iterator[tuple[JobStatus, JobStatus]]:
    """Yield every allowed transition, in the order of the table."""
    order = list(STATES)
    for state in ALL_STATES:
        yield from ((state.NAME, to) for to in sorted(state.GOES_TO, key=order.index))


def diagram() -> str:
    """Return all states and transitions as Mermaid text."""
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {JobStatus.CREATED}",
        *(f"    {before} --> {after}" for before, after in edges()),
    ]
    ends = [
        state.NAME
        for state in ALL_STATES
        if state.NAME.terminal and any(after is state.NAME for _, after in edges())
    ]
    return "\n".join([*lines, *(f"    {end} --> [*]" for end in ends)]) + "\n"


def _stop_overdue(view: JobObservation) -> bool:
    """Whether the `tidegate run` that leads a job has ignored a stop for too long.

    The process hangs, or is stopped (SIGSTOP). The limit is that of its own escalation.
    """
    timeout_ms = (
        FORCE_STOP_TIMEOUT_MS
        if view.desired is DesiredState.FORCE_STOP
        else escalation_ms(view.limits)
    )
    can_be_ended = view.driver is None or bool(view.adopter) or not view.driver_may_live
    return view.stop_requested and can_be_ended and view.desired_age_ms >= timeout_ms


def _end_unresponsive_run(view: JobObservation) -> Decision:
    """End a run that does not respond to a stop.

    A worker on its host kills the driver; the run finds the job ended when it wakes up.
    """
    leader, status = view.state.leader, view.state.status
    assert leader is not None
    if status is JobStatus.CANCELING:
        gone = driver_liveness(view)
        if isinstance(gone, Gone):
            return Transition(to=JobStatus.CANCELED, reason=view.state.reason, proof=gone.proof)
        return NoTransition(
            command=DriverCommand.KILL, worker=view.adopter or None, reason=view.state.reason
        )
    if JobStatus.CANCELING not in STATES[status].GOES_TO:
        return NoTransition()
    reason = (
        f"process {leader.pid} on {leader.host}, which leads this job with `tidegate run`, does not"
        " respond to the stop: its driver is killed"
    )
    return Transition(
        to=JobStatus.CANCELING,
        command=DriverCommand.KILL,
        worker=view.adopter or None,
        reason=reason,
    )


def _decide(view: JobObservation) -> Decision:
    state = STATES[view.state.status]
    if view.state.leader is None or view.state.status.terminal:
        return state.decide(view)
    leader = view.state.leader
    if view.embedded_alive is not False:
        return _end_unresponsive_run(view) if _stop_overdue(view) else NoTransition()
    if view.stop_requested or JobStatus.FAILING not in state.GOES_TO:
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
        command=DriverCommand.KILL,
    )
