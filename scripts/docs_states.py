"""Generate the page about job states from the state machine. Called by scripts/docs.py.

Exits, deadlines and descriptions come from tidegate.lifecycle.states only.
"""

from collections.abc import Iterator

from tidegate.lifecycle.machine import STATES, State, diagram
from tidegate.lifecycle.observation import LifecycleLimits
from tidegate.lifecycle.states.terminal import TerminalState
from tidegate.lifecycle.stopping import ESCALATION
from tidegate.model.records import DriverCommand

HEAD = """# Job states

Only the leader changes the state of a job, one transition at a time. Commands record the desired
state, and the leader carries it out. The diagram shows all transitions; a terminal state has none.
Every state except PENDING and RUNNING ends at its deadline at the latest."""

STOP = """\
A stop escalates in steps. Each step has a time limit, and a forced stop starts with the last step.
The driver reads the first two commands from the store, so they need no worker.

A driver is dead when a worker has confirmed it (its whole session is empty, or its host has been
restarted since), or when neither the driver nor any worker that could observe it has sent a
heartbeat for a lease. In the second case its generation is fenced: it can make nothing visible even
if it is still running. No successor starts before that. A process that survives a kill is named in
the history of the job."""

DOES = {
    DriverCommand.RUN: "the driver runs",
    DriverCommand.STOP: "the driver ends at its next checkpoint",
    DriverCommand.INTERRUPT: "the driver abandons its batch and ends",
    DriverCommand.TERMINATE: "SIGTERM to every process of the driver's session",
    DriverCommand.KILL: "SIGKILL to every process of the driver's session",
}


def state_lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from (HEAD, "", "```mermaid", *diagram().splitlines(), "```", "")
    yield from ("| state | meaning | deadline | state after it |", "|---|---|---|---|")
    for state in STATES.values():
        yield (
            f"| {state.NAME}{' (terminal)' if state.NAME.terminal else ''} | {_what(state)} |"
            f" {_deadline(state)} | {_then(state)} |"
        )
    yield from (
        "",
        "The v2 API has no RECOVERING and shows it as PENDING.",
        "",
        "## Stop sequence",
        "",
        STOP,
        "",
    )
    yield from ("| command | effect | time limit |", "|---|---|---|")
    limits = LifecycleLimits()
    times = {
        DriverCommand.STOP: limits.stop_ms,
        DriverCommand.INTERRUPT: limits.interrupt_ms,
        DriverCommand.TERMINATE: limits.terminate_ms,
        DriverCommand.KILL: limits.kill_ms,
    }
    yield from (
        f"| {command} | {DOES[command]} | {times[command] // 1000} s |"
        for command in ESCALATION
        if command in times
    )


def _what(state: State) -> str:
    """Return the docstring of the state without its name."""
    if isinstance(state, TerminalState):
        return state.meaning
    text = " ".join((state.__doc__ or "").split())
    return text.partition(": ")[2].rstrip(".")


def _deadline(state: State) -> str:
    if state.DEADLINE is None:
        return ""
    return f"{state.DEADLINE.ms(LifecycleLimits()) // 1000} s: {state.DEADLINE.what}"


def _then(state: State) -> str:
    return ", ".join(sorted(state.DEADLINE.then)) if state.DEADLINE else ""
