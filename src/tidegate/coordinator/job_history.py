"""The history of a job id: what happened to it, who asked for what, over all its incarnations.
Lines are appended, never changed; their number is bounded.

They ride in the documents that are written anyway: the state of a job with each change of status,
its record with each command, the request for a savepoint. Its end puts them together, in the
outcome; the next incarnation takes them over. So no line costs a write of its own. Called by
whoever writes these records, and by those who show them. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.model.records import (
    JobEvent,
    JobEventKind,
    JobRecord,
    JobState,
    JobStatus,
    SavepointRequest,
    SavepointStatus,
)

EVENTS_MAX = 100
EVENTS_MIN = 20  # so many stay, however old they are
AGE_MS_MAX = 30 * 86_400_000
COMMANDS_MAX = 20
REASON_CHARS_MAX = 300


def append_events(events: Sequence[JobEvent], *new: JobEvent) -> tuple[JobEvent, ...]:
    """With these at the end.

    The oldest go where there are too many, and where they are too old for the newest one.
    """
    every = (*events, *map(_bounded, new))[-EVENTS_MAX:]
    if len(every) <= EVENTS_MIN:
        return every
    oldest_ms = every[-1].at_ms - AGE_MS_MAX
    old = len(every) - EVENTS_MIN
    return (*(event for event in every[:old] if event.at_ms >= oldest_ms), *every[old:])


def with_status(
    state: JobState,
    status: JobStatus,
    now_ms: int,
    *,
    generation: int | None = None,
    event_reason: str = "",
    **fields: Any,
) -> JobState:
    """The same job in another status, with the line that says so, and with these fields.

    A driver that has to be replaced is a restart.
    """
    restart = status is JobStatus.RECOVERING
    kind = JobEventKind.RESTART if restart else JobEventKind.STATUS
    after = state.generation if generation is None else generation
    line = JobEvent(at_ms=now_ms, kind=kind, to=status.value, generation=after, reason=event_reason)
    return replace(
        state,
        status=status,
        generation=after,
        restarts_total=state.restarts_total + restart,
        changed_ms=now_ms,
        entered={**state.entered, status.value: now_ms},
        events=append_events(state.events, line),
        **fields,
    )


def submitted_events(snapshot: JobSnapshot, job: JobRecord) -> tuple[JobEvent, ...]:
    """What a new incarnation begins with: the history of the id, and that it was submitted."""
    report = job.restore
    restore = report.origin if report is not None and job.restored else ""
    line = JobEvent(
        at_ms=job.initialization_ms,
        kind=JobEventKind.SUBMITTED,
        to="restore" if job.restored else "fresh",
        by=job.intent.by,
        reason=restore,
    )
    return append_events(history_of(snapshot), line)


def commands_with(job: JobRecord, command: str, by: str, now_ms: int) -> tuple[JobEvent, ...]:
    """The commands about an incarnation, with one more."""
    return (
        *job.commands,
        JobEvent(at_ms=now_ms, kind=JobEventKind.COMMAND, to=command, by=by, reason="accepted"),
    )[-COMMANDS_MAX:]


def savepoint_events(request: SavepointRequest) -> tuple[JobEvent, ...]:
    """All savepoints that were asked for of an incarnation, with what became of them."""
    became = (
        ""
        if request.status is SavepointStatus.WANTED
        else f"{request.status.value} {request.reason}".strip()
    )
    command = f"savepoint {request.id}{' and stop' if request.stop else ''}"
    line = JobEvent(
        at_ms=request.asked_ms,
        kind=JobEventKind.COMMAND,
        to=command,
        by=request.by,
        reason=_short(became or "accepted"),
    )
    return (*request.earlier, line)[-COMMANDS_MAX:]


def history_of(
    snapshot: JobSnapshot, request: SavepointRequest | None = None
) -> tuple[JobEvent, ...]:
    """All lines, oldest first.

    `request` is the savepoint's, where it is answered at this moment.
    """
    state, record = (
        snapshot.state.value if snapshot.state else None,
        snapshot.record.value if snapshot.record else None,
    )
    events = (
        state.events if state is not None else snapshot.outcome.events if snapshot.outcome else ()
    )
    if record is None or state is None or state.status.terminal:
        return events  # its end has put them together
    asked = request or (snapshot.savepoint.value if snapshot.savepoint else None)
    saved = (
        savepoint_events(asked)
        if asked is not None and asked.initialization_ms == record.initialization_ms
        else ()
    )
    return _merged(events, (*record.commands, *saved))


def _merged(events: Sequence[JobEvent], more: Sequence[JobEvent]) -> tuple[JobEvent, ...]:
    """Commands where they belong by their time, none of them before their own incarnation; all
    others keep their order, whatever clocks did.
    """
    begun = max(
        (index + 1 for index, event in enumerate(events) if event.kind is JobEventKind.SUBMITTED),
        default=0,
    )
    result = list(events)
    for event in sorted(more, key=lambda each: each.at_ms):
        after = [
            index + 1 for index in range(begun, len(result)) if result[index].at_ms <= event.at_ms
        ]
        result.insert(after[-1] if after else begun, event)
    return tuple(result)


def _bounded(event: JobEvent) -> JobEvent:
    short = _short(event.reason)
    return event if short is event.reason else replace(event, reason=short)


def _short(text: str) -> str:
    return text if len(text) <= REASON_CHARS_MAX else f"{text[: REASON_CHARS_MAX - 1]}…"
