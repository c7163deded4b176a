"""The history of a job id over all its incarnations: changes of status and commands.

Events are appended, never changed; their number is bounded. They are part of documents that are
written anyway: the state of a job with each change of status, its record with each command, the
savepoint request. The terminal transaction merges them into the outcome; the next incarnation takes
them over. So no event costs a write of its own. Pure; called by the code that writes these records,
and by displays.
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
    """Append events.

    The oldest are dropped if there are too many, or if they are too old for the newest one.
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
    """Return the state with another status, the event for it, and these fields.

    A driver that has to be replaced counts as a restart.
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
    """Return the first events of a new incarnation: the history of the id, and the submit."""
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
    """Return the commands to an incarnation, with one more."""
    return (
        *job.commands,
        JobEvent(at_ms=now_ms, kind=JobEventKind.COMMAND, to=command, by=by, reason="accepted"),
    )[-COMMANDS_MAX:]


def savepoint_events(request: SavepointRequest) -> tuple[JobEvent, ...]:
    """Return all savepoint requests to an incarnation, with their results."""
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
    """Return all events, oldest first.

    `request` is the savepoint request, if it is completed in this transaction.
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
    """Insert commands by their time, none before their own incarnation.

    All other events keep their order, whatever the clocks did.
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
