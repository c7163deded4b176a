"""How a driver is stopped: whether it is dead, and which command comes next.

Called by the states that wait for an end; decides, and acts on nothing. A stop escalates: stop,
interrupt, terminate, kill. Each command has a time limit on the leader's monotonic clock from the
moment it was given. The current command is in the store, so the next leader continues from the same
step. The driver reads the first two itself; the last two need a worker that sees its host.
"""

from dataclasses import dataclass

from tidegate.lifecycle.deadline import escalation_ms
from tidegate.lifecycle.decision import NoTransition
from tidegate.lifecycle.observation import DriverSupervision, JobObservation, LifecycleLimits
from tidegate.model.records import DesiredState, DriverCommand, Failure, ProcessRef

ESCALATION = (
    DriverCommand.RUN,
    DriverCommand.STOP,
    DriverCommand.INTERRUPT,
    DriverCommand.TERMINATE,
    DriverCommand.KILL,
)  # each stronger than the one before
LEASE_EXPIRED = "lease expired"


@dataclass(frozen=True, slots=True)
class MaybeAlive:
    """A process of the driver may still be alive."""


@dataclass(frozen=True, slots=True)
class Gone:
    """No process of the driver can be alive.

    `proof` if this is concluded now and not yet on record.
    """

    proof: str = ""


@dataclass(frozen=True, slots=True)
class KillOverdue:
    """The driver was killed and is still alive. `failure` names it."""

    failure: Failure


def driver_liveness(view: JobObservation) -> MaybeAlive | Gone:
    """Decide whether the driver is alive.

    A driver that no worker can see, and that has sent no heartbeat for its lease, counts as dead:
    its generation is fenced next.
    """
    if not view.driver_may_live:
        return Gone()
    if view.supervision in (DriverSupervision.GONE, DriverSupervision.NONE) and view.driver_silent:
        return Gone(LEASE_EXPIRED)
    return MaybeAlive()


def first_command(view: JobObservation) -> DriverCommand:
    """Return the first command of a requested stop, never weaker than the current one."""
    return stronger(
        DriverCommand.KILL if view.desired is DesiredState.FORCE_STOP else DriverCommand.STOP,
        view.current_command,
    )


def stronger(command: DriverCommand, other: DriverCommand | None) -> DriverCommand:
    """Return the stronger of two commands."""
    return command if other is None else max(command, other, key=ESCALATION.index)


def escalate(
    view: JobObservation, first: DriverCommand, *, stop_ms: int | None = None
) -> NoTransition | KillOverdue:
    """Return the next step of the escalation, beginning with `first`.

    NoTransition with the command that applies now, assigned to a worker that can carry it out.
    """
    if view.supervision is DriverSupervision.REPLACEABLE:
        return NoTransition(
            command=stronger(first, view.current_command),
            worker=view.adopter,
            reason=view.state.reason,
        )
    if _overdue(view):
        return KillOverdue(unkillable_failure(view))
    return NoTransition(
        command=_due(view, first, stop_ms), worker=target_worker(view), reason=view.state.reason
    )


def target_worker(view: JobObservation) -> str | None:
    """Return the worker that started the driver, if nothing is assigned; else None: unchanged."""
    if view.assignment is not None or view.driver is None or not view.driver_may_live:
        return None
    return view.driver.worker or None


def unkillable_failure(view: JobObservation) -> Failure:
    """Return the failure that names the driver process that survives a kill."""
    process = view.driver.process if view.driver else None
    return unkillable(process, view.limits, view.now_ms, view.state.generation)


def unkillable(
    process: ProcessRef | None, limits: LifecycleLimits, now_ms: int, generation: int
) -> Failure:
    """Return the failure that names a killed process that is still alive."""
    who = f"process {process.pid} on {process.host}" if process else "the driver"
    message = (
        f"{who} did not end within {limits.kill_ms // 1000} s after the kill. "
        "Its generation is fenced, so it can make nothing visible any more; end it manually"
    )
    return Failure(
        at_ms=now_ms,
        generation=generation,
        condition="driver-undead",
        domain="external",
        message=message,
    )


def next_command(command: DriverCommand) -> DriverCommand:
    """Return the next stronger command; KILL stays KILL."""
    return ESCALATION[min(ESCALATION.index(command) + 1, len(ESCALATION) - 1)]


def _due(view: JobObservation, first: DriverCommand, stop_ms: int | None) -> DriverCommand:
    command = stronger(first, view.current_command)
    if command is view.current_command and view.command_age_ms >= command_timeout_ms(
        command, view.limits, stop_ms
    ):
        return next_command(command)
    return command


def command_timeout_ms(
    command: DriverCommand, limits: LifecycleLimits, stop_ms: int | None = None
) -> int:
    """Return how long to wait for a command before the next stronger one."""
    steps = {
        DriverCommand.STOP: stop_ms if stop_ms is not None else limits.stop_ms,
        DriverCommand.INTERRUPT: limits.interrupt_ms,
        DriverCommand.TERMINATE: limits.terminate_ms,
    }
    return steps.get(command, 0)


def _overdue(view: JobObservation) -> bool:
    # Without an assignment no worker can be commanded: the state may last one whole escalation.
    if view.assignment is None:
        return view.state_age_ms >= escalation_ms(view.limits)
    return view.current_command is DriverCommand.KILL and view.command_age_ms >= view.limits.kill_ms
