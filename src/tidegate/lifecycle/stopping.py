"""Ending a driver: whether it is gone, and how hard to press next. Called by the states that wait
for an end; decides, and acts on nothing.

A stop is a ladder: ask, interrupt, terminate, kill. Each step has its time, on the leader's
monotonic clock, from the moment the order was given; the standing order is in the store, so the
next leader goes on from the same step. The driver reads the first two by itself; the last two need
a worker that sees its host.
"""

from dataclasses import dataclass

from tidegate.lifecycle.deadline import ladder_ms
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
class Lives:
    """A process may still be there."""


@dataclass(frozen=True, slots=True)
class Gone:
    """No process can be there. `proof` where this is concluded now, and not on record yet."""

    proof: str = ""


@dataclass(frozen=True, slots=True)
class Overdue:
    """It was killed and is still there. `failure` names it."""

    failure: Failure


def driver_liveness(view: JobObservation) -> Lives | Gone:
    """Whether the driver is there.

    One that nobody can see, and that has shown no sign for its lease, counts as gone: its
    generation is fenced next.
    """
    if not view.driver_lives:
        return Gone()
    if view.watcher in (DriverSupervision.GONE, DriverSupervision.NONE) and view.driver_silent:
        return Gone(LEASE_EXPIRED)
    return Lives()


def first_order(view: JobObservation) -> DriverCommand:
    """How a wish to stop begins; never weaker than what stands."""
    return stronger(
        DriverCommand.KILL if view.wish is DesiredState.FORCE_STOP else DriverCommand.STOP,
        view.standing,
    )


def stronger(order: DriverCommand, other: DriverCommand | None) -> DriverCommand:
    """The stronger one of two."""
    return order if other is None else max(order, other, key=ESCALATION.index)


def escalate(
    view: JobObservation, first: DriverCommand, *, ask_ms: int | None = None
) -> NoTransition | Overdue:
    """The next step of the ladder, from `first` on: Stay with the order that shall stand now, in
    the hands of whoever can carry it out.
    """
    if view.watcher is DriverSupervision.REPLACEABLE:
        return NoTransition(
            order=stronger(first, view.standing), worker=view.adopter, reason=view.state.reason
        )
    if _overdue(view):
        return Overdue(unkillable_failure(view))
    return NoTransition(
        order=_due(view, first, ask_ms), worker=target_worker(view), reason=view.state.reason
    )


def target_worker(view: JobObservation) -> str | None:
    """Who has to be given the order, where nothing is assigned: the worker that started the driver.
    None: as it stands.
    """
    if view.assignment is not None or view.driver is None or not view.driver_lives:
        return None
    return view.driver.worker or None


def unkillable_failure(view: JobObservation) -> Failure:
    """The failure that names a process which does not die."""
    process = view.driver.process if view.driver else None
    return unkillable(process, view.limits, view.now_ms, view.state.generation)


def unkillable(
    process: ProcessRef | None, limits: LifecycleLimits, now_ms: int, generation: int
) -> Failure:
    """The failure that names a killed process which is still there."""
    who = f"process {process.pid} on {process.host}" if process else "the driver"
    message = (
        f"{who} did not end within {limits.kill_ms // 1000} s after it was to be killed. "
        "Its generation is fenced: it can make nothing visible any more; end it by hand"
    )
    return Failure(
        at_ms=now_ms,
        generation=generation,
        condition="driver-undead",
        domain="external",
        message=message,
    )


def after(order: DriverCommand) -> DriverCommand:
    """The next stronger order; a kill stays a kill."""
    return ESCALATION[min(ESCALATION.index(order) + 1, len(ESCALATION) - 1)]


def _due(view: JobObservation, first: DriverCommand, ask_ms: int | None) -> DriverCommand:
    order = stronger(first, view.standing)
    if order is view.standing and view.order_age_ms >= patience_ms(order, view.limits, ask_ms):
        return after(order)
    return order


def patience_ms(order: DriverCommand, limits: LifecycleLimits, ask_ms: int | None = None) -> int:
    """How long an order may stand before the next stronger one follows."""
    steps = {
        DriverCommand.STOP: ask_ms if ask_ms is not None else limits.ask_ms,
        DriverCommand.INTERRUPT: limits.interrupt_ms,
        DriverCommand.TERMINATE: limits.terminate_ms,
    }
    return steps.get(order, 0)


def _overdue(view: JobObservation) -> bool:
    if (
        view.assignment is None
        # nobody is there to be ordered: then the state itself may last no longer than a whole ladder
    ):
        return view.state_age_ms >= ladder_ms(view.limits)
    return view.standing is DriverCommand.KILL and view.order_age_ms >= view.limits.kill_ms
