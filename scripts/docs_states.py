"""The page about the states of a job, from the state machine itself. Loaded by scripts/docs.py, which writes it.

It must not say what the code does not: exits, deadlines and the sentences come from tidegate.lifecycle.states.
"""

from collections.abc import Iterator

from tidegate.lifecycle.machine import STATES, State, diagram
from tidegate.lifecycle.stopping import LADDER
from tidegate.lifecycle.view import Limits
from tidegate.model.records import Order

HEAD = """# The states of a job

Only the leader moves a job, one state at a time; commands write wishes, which it grants. A state has no other exits than these, and a terminal one has
none. All but PENDING and RUNNING last no longer than their deadline, whatever does not happen."""

STOP = """A stop is a ladder; each step has its time, and a forced stop begins with the last one. The driver reads the first two in the store by itself, so
that they need no worker. A driver is dead when a worker has seen it (its whole session is empty, or its host has been restarted since), or when neither it
nor any worker that could see it has been heard of for a lease: then its generation is fenced, and it can make nothing visible even if it lives. No
successor starts before that. A process that does not end even when it is killed is named in the history of the job."""

DOES = {
    Order.RUN: "have it running",
    Order.STOP: "the driver ends at its next checkpoint",
    Order.INTERRUPT: "the driver gives its batch up, and ends",
    Order.TERMINATE: "SIGTERM to every process of the driver's session",
    Order.KILL: "SIGKILL to every process of the driver's session",
}


def state_lines() -> Iterator[str]:
    """The page, line by line."""
    yield from (HEAD, "", "```mermaid", *diagram().splitlines(), "```", "")
    yield from ("| state | what it is | deadline | then |", "|---|---|---|---|")
    for state in STATES.values():
        yield f"| {state.NAME}{' (terminal)' if state.NAME.terminal else ''} | {_what(state)} | {_deadline(state)} | {_then(state)} |"
    yield from ("", "RECOVERING is shown as PENDING by the v2 API, which does not know it.", "", "## How a stop ends", "", STOP, "")
    yield from ("| order | what happens | for |", "|---|---|---|")
    limits = Limits()
    times = {Order.STOP: limits.ask_ms, Order.INTERRUPT: limits.interrupt_ms, Order.TERMINATE: limits.terminate_ms, Order.KILL: limits.kill_ms}
    yield from (f"| {order} | {DOES[order]} | {times[order] // 1000} s |" for order in LADDER if order in times)


def _what(state: State) -> str:
    """The first sentence of the module, without the name."""
    text = " ".join((state.__doc__ or "").split())
    return text.partition(": ")[2].rstrip(".")


def _deadline(state: State) -> str:
    if state.DEADLINE is None:
        return ""
    return f"{state.DEADLINE.ms(Limits()) // 1000} s: {state.DEADLINE.what}"


def _then(state: State) -> str:
    return ", ".join(sorted(state.DEADLINE.then)) if state.DEADLINE else ""
