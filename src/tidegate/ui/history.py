"""What happened to a job, for the "why" of its page: when it entered each status, what went wrong, who wanted what; and what was restored."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidegate.api.v1 import models, shapes
from tidegate.coordinator.observe import Picture
from tidegate.model.records import JobStatus, Wish
from tidegate.model.restore import RestoreReport

WANTED = {Wish.CANCEL: "its end at the next checkpoint", Wish.FORCE_STOP: "its end at once"}


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    at: datetime
    what: str
    why: str = ""
    bad: bool = False


def events_of(picture: Picture, job: models.JobDetails) -> list[Event]:
    """All of them, the newest first."""
    found = [*_failures(job), *_stages(picture, job), *_wishes(picture, int(job.id))]
    return sorted(found, key=lambda event: event.at, reverse=True)


def restored_of(picture: Picture, job_id: int) -> RestoreReport | None:
    """What was restored when it was submitted, also after its end."""
    record, outcome = picture.jobs().get(job_id), picture.outcome(job_id)
    if record is not None:
        return record.value.restore
    return outcome.value.restore if outcome is not None else None


def _failures(job: models.JobDetails) -> Iterator[Event]:
    for failure in job.failures:
        yield Event(failure.at, failure.condition, failure.message, bad=True)


def _stages(picture: Picture, job: models.JobDetails) -> Iterator[Event]:
    """When it came, and when it entered each status last."""
    yield Event(job.submitted, "submitted")
    state = picture.state(int(job.id))
    for status, ms in (state.value.entered if state is not None else {}).items():
        if status != JobStatus.CREATED and not (job.ended and status == job.status.value):
            yield Event(shapes.at(ms), status)
    if job.ended:
        yield Event(job.ended, job.status.value)


def _wishes(picture: Picture, job_id: int) -> Iterator[Event]:
    """Who wanted its end, and the last savepoint that was asked for."""
    record, asked = picture.jobs().get(job_id), picture.savepoint(job_id)
    if record is not None and (intent := record.value.intent).wish in WANTED and intent.at_ms:
        yield Event(shapes.at(intent.at_ms), "wanted", f"{WANTED[intent.wish]}{_by(intent.by)}")
    if asked is not None:
        request = asked.value
        yield Event(shapes.at(request.asked_ms), "savepoint", f"{request.id} wanted{_by(request.by)}: {request.status.value.lower()} {request.reason}".rstrip())


def _by(name: str) -> str:
    return f" by {name}" if name else ""
