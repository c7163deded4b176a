"""History of a job for its page: stored events, and the restore report."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidegate.api.v1 import models
from tidegate.api.v1 import serializers as shapes
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.records import JobEventKind, JobStatus
from tidegate.model.restore import RestoreReport

BAD = frozenset({JobStatus.FAILING.value, JobStatus.FAILED.value, JobStatus.UNKNOWABLE.value})
COMMANDS = {"cancel": "stop at the next checkpoint", "force-stop": "stop at once"}


@dataclass(frozen=True, slots=True)
class HistoryLine:
    at: datetime
    what: str
    why: str = ""
    bad: bool = False
    generation: int = 0


def events_of(cache: ClusterCache, job: models.JobDetails) -> list[HistoryLine]:
    """Return all events of a job, newest first.

    A job of a release without stored events has at least the last time of each status.
    """
    if not job.events:
        found = [*_failures(job.failures), *_stages(cache, job)]
        return sorted(found, key=lambda event: event.at, reverse=True)
    reasons = {event.reason.removesuffix("…") for event in job.events}
    missing = [
        each
        for each in job.failures
        if not any(each.message.startswith(reason) for reason in reasons if reason)
    ]
    lines = [_line(event) for event in job.events]
    for failure in _failures(missing):
        index = next(
            (index for index, line in enumerate(lines) if line.at <= failure.at), len(lines)
        )
        lines.insert(index, failure)
    return lines


def restored_of(cache: ClusterCache, job_id: int) -> RestoreReport | None:
    """What was restored when it was submitted, also after its end."""
    record, outcome = cache.jobs().get(job_id), cache.outcome(job_id)
    if record is not None:
        return record.value.restore
    return outcome.value.restore if outcome is not None else None


def _line(event: models.JobEventModel) -> HistoryLine:
    by = f" by {event.by}" if event.by else ""
    match event.kind:
        case JobEventKind.SUBMITTED:
            return HistoryLine(event.at, f"submitted{by}", event.reason)
        case JobEventKind.COMMAND:
            return HistoryLine(
                event.at, f"{COMMANDS.get(event.what, event.what)} requested{by}", event.reason
            )
        case JobEventKind.RESTART:
            return HistoryLine(
                event.at, "restart", event.reason, bad=True, generation=event.generation
            )
        case _:
            return HistoryLine(
                event.at,
                event.what,
                event.reason,
                bad=event.what in BAD,
                generation=event.generation,
            )


def _failures(failures: list[models.FailureModel]) -> Iterator[HistoryLine]:
    for failure in failures:
        yield HistoryLine(
            failure.at, failure.condition, failure.message, bad=True, generation=failure.generation
        )


def _stages(cache: ClusterCache, job: models.JobDetails) -> Iterator[HistoryLine]:
    """Yield the time of submission, and the last time of each status."""
    yield HistoryLine(job.submitted, "submitted")
    state = cache.state(int(job.id))
    for status, ms in (state.value.entered if state is not None else {}).items():
        if status != JobStatus.CREATED and not (job.ended and status == job.status.value):
            yield HistoryLine(shapes.to_time(ms), status)
    if job.ended:
        yield HistoryLine(job.ended, job.status.value)
