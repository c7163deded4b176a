"""The JSON text of each job, kept until its records change: listing thousands of jobs must not make thousands of documents.

Called by reads, on the event loop only. The board is told by the picture which jobs have changed and looks at those alone. A running job is three pieces of
text: what never changes (by the version of its record), what changes with its state, pipelines and row counts, and the age of its last checkpoint, which is
made for every answer. A sign of life that counts no new rows makes nothing again.
"""

import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tidegate.api import shapes
from tidegate.coordinator.observe import Picture
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobOutcome, JobRecord, JobState
from tidegate.store.follow import Seen

SPARE_MAX = 256  # texts of forgotten jobs that may lie around before they are thrown away
dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Going:
    """A job among the running ones, and its state with its version."""

    record: Seen[JobRecord]
    state: JobState
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The text of a running job up to the age of its last checkpoint, and what it was made from."""

    job: Going
    identity: str
    key: Hashable
    text: str
    confirmed_ms: int

    @property
    def order(self) -> tuple[int, int]:
        """By time of submission."""
        return self.job.record.value.initialization_ms, self.job.record.value.job_id

    def json(self, now_ms: int) -> str:
        """The whole object."""
        return f'{self.text}"{max(0, now_ms - self.confirmed_ms) // 1000}"}}' if self.confirmed_ms else f'{self.text}""}}'


class Board:
    """The jobs that have not ended, the newest first. Not for threads."""

    def __init__(self, picture: Picture) -> None:
        self.picture, self.changed = picture, picture.listen()
        self._entries: dict[int, Entry] = {}
        self._order: list[Entry] | None = []
        self._begun = False

    def entries(self) -> list[Entry]:
        """All of them, as the picture has them now."""
        changed = self.changed.take()
        if not self._begun:
            self._begun, changed = True, set(self.picture.jobs())
        for job_id in changed:
            self._look(job_id)
        if self._order is None:
            self._order = sorted(self._entries.values(), key=lambda entry: entry.order, reverse=True)
        return self._order

    def entry(self, job_id: int) -> Entry | None:
        """One job with a record among the running ones, even if that is a leftover."""
        record = self.picture.jobs().get(job_id)
        job = going_of(self.picture, record) if record is not None else None
        return _entry(self.picture, job, self._entries.get(job_id)) if job is not None else None

    def _look(self, job_id: int) -> None:
        known, fresh = self._entries.get(job_id), self.entry(job_id)
        if fresh is not None and fresh.job.state.status.terminal:
            fresh = None
        if fresh is known:
            return
        self._order = None
        if fresh is None:
            self._entries.pop(job_id, None)
        else:
            self._entries[job_id] = fresh


def _entry(picture: Picture, job: Going, known: Entry | None) -> Entry:
    """The entry of a job: the known one where nothing that it shows has changed."""
    job_id = job.state.job_id
    pipelines, metrics = picture.pipelines(job_id), picture.metrics(job_id)
    counts = tuple((m.value.generation, m.value.rows_read, m.value.rows_written, m.value.runway) for m in metrics)
    key = (job.record.version, job.version, tuple(p.version for p in pipelines), counts)
    if known is not None and known.key == key:
        return known
    same = known is not None and known.job.record.version == job.record.version
    identity = known.identity if known is not None and same else dumps(shapes.identity(job.record.value))[:-1]
    places = [p.value for p in pipelines]
    last = shapes.lagging(places)
    progress = dumps(shapes.progress(job.state, places, [m.value for m in metrics]))[1:-1]
    text = f'{identity},{progress},"secondsSinceLastCheckpoint":'
    return Entry(job=job, identity=identity, key=key, text=text, confirmed_ms=shapes.confirmed_ms(last) if last else 0)


class Ended:
    """The texts of jobs that have ended. Not for threads."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[int, str]] = {}

    def json(self, outcome: Seen[JobOutcome]) -> str:
        """The whole object."""
        job_id = int(outcome.peek("job_id"))
        version, text = self._texts.get(job_id, (0, ""))
        if version != outcome.version:
            text = dumps(_finished(outcome, job_id))
            self._texts[job_id] = outcome.version, text
        return text

    def forget(self, picture: Picture) -> None:
        """Throw away what belongs to jobs that are gone, now and then."""
        outcomes = picture.outcomes()
        if len(self._texts) > len(outcomes) + SPARE_MAX:
            self._texts = {job_id: known for job_id, known in self._texts.items() if job_id in outcomes}


def going(picture: Picture) -> list[Going]:
    """Jobs that have not ended. A record whose state is terminal or missing is a leftover, and no running job."""
    return [job for record in picture.jobs().values() if (job := going_of(picture, record)) and not job.state.status.terminal]


def going_of(picture: Picture, record: Seen[JobRecord]) -> Going | None:
    """A job with its state; None where it has none."""
    state = picture.state(record.value.job_id)
    return Going(record, state.value, state.version) if state is not None else None


def _finished(outcome: Seen[JobOutcome], job_id: int) -> dict[str, Any]:
    """Whatever is wrong with one record, the others must be shown."""
    try:
        return shapes.finished(outcome.value)
    except Exception as error:
        why = str(error) if isinstance(error, TidegateError) else type(error).__name__
        shown = {"jobId": str(job_id), "jobName": str(outcome.peek("name")), "jobStatus": str(outcome.peek("status"))}
        return shown | {"errorMsg": f"its record cannot be read: {why}"}
