"""Figures for scrapers, in the text format of Prometheus. Called by app.py in a thread, as it asks the store for its size.

Where the store cannot be reached the jobs are left out instead of being shown as they were: an alert on `tidegate_store_reachable == 0` is then the right one.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate import __version__
from tidegate.api.desk import Desk
from tidegate.api.fragments import going
from tidegate.api.shapes import confirmed_ms, lagging
from tidegate.coordinator.observe import Picture
from tidegate.model.errors import TransientError
from tidegate.model.records import CheckpointHealth, JobState, PipelineState
from tidegate.store.base import MapSize, Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SIZES_AGE_S_MAX = 10.0
_HEALTH = {CheckpointHealth.OK: 0, CheckpointHealth.LATE: 1, CheckpointHealth.STALLED: 2}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric family: samples with their labels."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Labels, float]]

    def lines(self) -> Iterator[str]:
        """The family as text; nothing where there is no sample."""
        first = True
        for labels, value in self.samples:
            if first:
                yield f"# HELP {self.name} {self.help}"
                yield f"# TYPE {self.name} {self.kind}"
                first = False
            inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels)
            yield f"{self.name}{{{inside}}} {_number(value)}" if inside else f"{self.name} {_number(value)}"


class Scrape:
    """Makes the text. Remembers the sizes of the store's maps for a while: counting them reads all of it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._sizes: tuple[float, dict[str, MapSize]] | None = None

    def text(self) -> str:
        """All figures."""
        picture = self.desk.picture if self.desk.out_of_date() is None else None
        figures = [*self._server(picture), *(_jobs(picture, self.desk.clock.now_ms()) if picture else ()), *(self._store_sizes() if picture else ())]
        return "".join(f"{line}\n" for figure in figures for line in figure.lines())

    def open_text(self) -> str:
        """The same in the text format of OpenMetrics: a counter's family is named without `_total`, and the end is marked."""
        lines = [re.sub(r"^(# (?:HELP|TYPE) \S+?)_total ", r"\1 ", line) for line in self.text().splitlines()]
        return "".join(f"{line}\n" for line in [*lines, "# EOF"])

    def _server(self, picture: Picture | None) -> Iterator[Figure]:
        yield Figure("tidegate_info", "gauge", "The version of this server.", [((("version", __version__),), 1)])
        yield Figure("tidegate_store_reachable", "gauge", "1 where this server can read the store.", [((), picture is not None)])
        if picture is None:
            return
        lease = picture.lease()
        leading = lease is not None and lease.value.holder == self.desk.me.id
        yield Figure("tidegate_leader", "gauge", "1 on the server that leads.", [((), leading)])
        yield Figure("tidegate_leader_term", "gauge", "How often leadership has changed hands.", [((), lease.value.term)] if lease else [])
        yield Figure("node_count", "gauge", "Workers.", [((), len(picture.workers()))])
        yield Figure("tidegate_worker_slots", "gauge", "Slots of each worker.", [((("worker", key),), w.value.slots) for key, w in picture.workers().items()])
        yield Figure("tidegate_cleanup_pending", "gauge", "Ended jobs whose remains wait to be deleted.", [((), len(picture.cleanups()))])
        tried = sum(c.value.attempts > 0 for c in picture.cleanups().values())
        yield Figure("tidegate_cleanup_failing", "gauge", "Those of them that could not be deleted yet.", [((), tried)])

    def _store_sizes(self) -> Iterator[Figure]:
        sizes = self._sizes_of(self.desk.store)
        yield Figure("tidegate_store_entries", "gauge", "Documents of each map of the store.", [((("map", m),), s.entries) for m, s in sizes.items()])
        yield Figure("tidegate_store_bytes", "gauge", "Bytes of each map of the store.", [((("map", m),), s.bytes) for m, s in sizes.items()])

    def _sizes_of(self, store: Store) -> dict[str, MapSize]:
        now_s = self.desk.clock.monotonic_s()
        if self._sizes is None or now_s - self._sizes[0] > SIZES_AGE_S_MAX:
            try:
                self._sizes = now_s, store.size_by_map()
            except TransientError:
                return {}
        return self._sizes[1]


def _jobs(picture: Picture, now_ms: int) -> Iterator[Figure]:
    jobs = going(picture)
    states = {job.state.job_id: job.state for job in jobs}
    places = {job_id: [p.value for p in picture.pipelines(job_id)] for job_id in states}
    labels: dict[int, Labels] = {job.state.job_id: (("job_id", str(job.state.job_id)), ("job_name", job.record.value.name)) for job in jobs}
    yield _job_counts(picture, states.values())
    ages = [(labels[job], (now_ms - at) / 1000) for job, pipelines in places.items() if (at := _confirmed(pipelines))]
    yield Figure("tidegate_job_checkpoint_age_seconds", "gauge", "Since the last checkpoint was made or confirmed.", ages)
    last = [(labels[job], max(p.latest.checkpoint for p in pipelines if p.latest)) for job, pipelines in places.items() if any(p.latest for p in pipelines)]
    yield Figure("tidegate_job_last_checkpoint_id", "gauge", "The highest id of a completed checkpoint.", last)
    yield Figure("tidegate_job_checkpoint_health", "gauge", "0 OK, 1 LATE, 2 STALLED.", [(labels[job], _HEALTH[state.health]) for job, state in states.items()])
    yield Figure(
        "tidegate_job_restarts", "gauge", "Restarts without a checkpoint between them.", [(labels[job], state.restarts) for job, state in states.items()]
    )
    for name, what, count in (("read", "read from the sources", _read), ("written", "written to the sinks", _written)):
        samples = [(labels[job], float(sum(map(count, pipelines)))) for job, pipelines in places.items()]
        yield Figure(f"tidegate_job_rows_{name}_total", "counter", f"Rows {what}, committed.", samples)


def _job_counts(picture: Picture, states: Iterable[JobState]) -> Figure:
    """`job_count` with the types of the reference, and `pending`."""
    names = {"canceling": "cancelling", "recovering": "pending", "initializing": "created"}
    counts = dict.fromkeys(("canceled", "cancelling", "created", "pending", "failed", "failing", "finished", "running", "scheduled"), 0)
    for status in [*(s.status for s in states), *(o.peek("status") for o in picture.outcomes().values())]:
        name = names.get(str(status).lower(), str(status).lower())
        counts[name] = counts.get(name, 0) + 1
    return Figure("job_count", "gauge", "Jobs by state.", [((("type", name),), count) for name, count in counts.items()])


def _confirmed(pipelines: list[PipelineState]) -> int:
    last = lagging(pipelines)
    return confirmed_ms(last) if last else 0


def _read(pipeline: PipelineState) -> int:
    return pipeline.rows_read


def _written(pipeline: PipelineState) -> int:
    return pipeline.rows_written


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"
