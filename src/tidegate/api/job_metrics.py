"""Metrics of each job, as text that is cached until the job changes. Used on the event loop only.

The samples of a family must be contiguous, so the text of a job is cached by family, and responses
are assembled from these parts. Only the age of the last checkpoint is formatted for every response.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidegate.api.rates import rates_of
from tidegate.api.refresh_queue import RefreshQueue
from tidegate.api.running_jobs import RunningJob, running_job_of
from tidegate.api.seatunnel.serializers import confirmed_ms, lagging, restorable
from tidegate.api.seatunnel.volumes import byte_counts, byte_rates, merged
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.log_retention import RetentionLevel
from tidegate.model.records import CheckpointHealth, PipelineMetrics, PipelineState

AGE = "tidegate_job_checkpoint_age_seconds"
FAMILIES: Mapping[str, tuple[str, str]] = {
    AGE: ("gauge", "Since the last checkpoint was made or confirmed."),
    "tidegate_job_status": ("gauge", "1, with the status as a label."),
    "tidegate_job_checkpoint_health": ("gauge", "0 OK, 1 LATE, 2 STALLED."),
    "tidegate_job_restorable": ("gauge", "1 if there is a checkpoint to resume from."),
    "tidegate_job_last_checkpoint_id": ("gauge", "The highest id of a completed checkpoint."),
    "tidegate_job_checkpoint_duration_seconds": (
        "gauge",
        (
            "Duration of the last checkpoint, from the start of its batch; of several pipelines,"
            " the slowest."
        ),
    ),
    "tidegate_job_checkpoint_bytes": (
        "gauge",
        "The size of the last checkpoint, of all pipelines.",
    ),
    "tidegate_job_checkpoints_retained": ("gauge", "Retained checkpoints."),
    "tidegate_job_checkpoints_retained_bytes": (
        "gauge",
        "The size of all retained checkpoints.",
    ),
    "tidegate_job_checkpoints_total": ("counter", "Completed checkpoints."),
    "tidegate_job_generation": ("gauge", "The current attempt to run the job."),
    "tidegate_job_restarts": ("gauge", "All restarts of this run of the job."),
    "tidegate_job_restarts_without_progress": (
        "gauge",
        "Restarts without a checkpoint between them: what job.retry.times limits.",
    ),
    "tidegate_job_lag": (
        "gauge",
        "What is still to be read, in the unit of the sources, if they report it.",
    ),
    "tidegate_job_rows_uncommitted": ("gauge", "Rows that are read and not in a checkpoint yet."),
    "tidegate_job_runway_level": (
        "gauge",
        "Whether the sources retain what the oldest restore point needs: 0 OK, 1 LOW, 2 GONE.",
    ),
    "tidegate_job_runway_seconds": (
        "gauge",
        "How long the sources will still retain it, if they report it.",
    ),
    "tidegate_job_runway_bytes": (
        "gauge",
        "How much more log the sources can write until they drop it, if they report it.",
    ),
    "tidegate_job_rows_read_total": ("counter", "Rows read from the sources, committed."),
    "tidegate_job_rows_written_total": ("counter", "Rows written to the sinks, committed."),
    "tidegate_job_bytes_read_total": ("counter", "Bytes read from the sources, committed."),
    "tidegate_job_bytes_written_total": ("counter", "Bytes written to the sinks, committed."),
    "tidegate_job_rows_read_per_second": (
        "gauge",
        "Rows read and committed, over the last 30 s; absent while a job starts.",
    ),
    "tidegate_job_rows_written_per_second": (
        "gauge",
        "Rows written and committed, over the last 30 s; absent while a job starts.",
    ),
    "tidegate_job_bytes_read_per_second": (
        "gauge",
        "Bytes read and committed, over the last 30 s; absent while a job starts.",
    ),
    "tidegate_job_bytes_written_per_second": (
        "gauge",
        "Bytes written and committed, over the last 30 s; absent while a job starts.",
    ),
}
# Scrapers that come at the same time get the same text; ages in it are late by this much at most.
TEXT_REUSED_MS = 200
_HEALTH = {level: number for number, level in enumerate(CheckpointHealth)}
_RETENTION_LEVELS = {level: number for number, level in enumerate(RetentionLevel)}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


def label_text(labels: Labels) -> str:
    """Format labels for the braces of a sample."""
    return ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels)


def number_text(value: float) -> str:
    """Format the value of a sample."""
    return str(int(value)) if value == int(value) else f"{value:.3f}"


@dataclass(frozen=True, slots=True)
class JobSamples:
    """The samples of one job by family, and the versions they were rendered from."""

    key: Hashable
    age: str  # the sample of the checkpoint age, up to its value
    confirmed_ms: int
    families: Mapping[str, str]


class JobMetricsCache:
    """Cached metrics text of all running jobs. Not thread-safe."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self.refresh_queue = RefreshQueue(cache, self._refresh)
        self._jobs: dict[int, JobSamples] = {}
        self._text: tuple[int, str] | None = None

    def text(self, now_ms: int) -> str:
        """Return all families that have samples."""
        self.refresh_queue.refresh_all()
        if self._text is None or self._text[0] != now_ms // TEXT_REUSED_MS:
            self._text = now_ms // TEXT_REUSED_MS, self._render(now_ms)
        return self._text[1]

    def _render(self, now_ms: int) -> str:
        jobs = list(self._jobs.values())
        parts = []
        for name, (kind, help) in FAMILIES.items():
            if name == AGE:
                samples = "".join(
                    [
                        f"{job.age}{number_text((now_ms - job.confirmed_ms) / 1000)}\n"
                        for job in jobs
                        if job.confirmed_ms
                    ]
                )
            else:
                samples = "".join([job.families.get(name, "") for job in jobs])
            if samples:
                parts.append(f"# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")
        return "".join(parts)

    def _refresh(self, job_id: int) -> None:
        record, known = self.cache.jobs().get(job_id), self._jobs.get(job_id)
        job = running_job_of(self.cache, record) if record is not None else None
        if job is None or job.state.status.terminal:
            self._text = None if self._jobs.pop(job_id, None) else self._text
            return
        pipelines = self.cache.pipelines(job_id)
        metrics = [m.value for m in self.cache.metrics(job_id)]
        counts = tuple(
            (m.generation, m.rows_read, m.done, m.total, m.unit, m.log_retention, m.rates)
            for m in metrics
        )
        key = (job.record.version, job.version, tuple(p.version for p in pipelines), counts)
        if known is None or known.key != key:
            self._jobs[job_id] = _render_job(job, key, [p.value for p in pipelines], metrics)
            self._text = None


def _render_job(
    job: RunningJob,
    key: Hashable,
    pipelines: Sequence[PipelineState],
    metrics: Sequence[PipelineMetrics],
) -> JobSamples:
    own = label_text((("job_id", str(job.state.job_id)), ("job_name", job.record.value.name)))
    families: dict[str, str] = {}
    for name, labels, value in samples(
        job, pipelines, [m for m in metrics if m.generation == job.state.generation]
    ):
        inside = f"{own},{label_text(labels)}" if labels else own
        families[name] = f"{families.get(name, '')}{name}{{{inside}}} {number_text(value)}\n"
    last = lagging(pipelines)
    return JobSamples(key, f"{AGE}{{{own}}} ", confirmed_ms(last) if last else 0, families)


def samples(
    job: RunningJob, pipelines: Sequence[PipelineState], live: Sequence[PipelineMetrics]
) -> Iterator[tuple[str, Labels, float]]:
    """Yield family, labels other than those of the job, and value.

    `live` is the last report of this generation's driver.
    """
    state = job.state
    yield "tidegate_job_status", (("status", state.status.value),), 1
    yield "tidegate_job_checkpoint_health", (), _HEALTH[state.health]
    yield "tidegate_job_restorable", (), restorable(pipelines)
    yield "tidegate_job_generation", (), state.generation
    yield "tidegate_job_restarts", (), max(state.restarts, state.restarts_total)
    yield "tidegate_job_restarts_without_progress", (), state.restarts
    yield from _checkpoints(pipelines)
    yield from _log_retention(live)
    committed = sum(p.rows_read for p in pipelines)
    yield "tidegate_job_rows_uncommitted", (), max(0, sum(m.rows_read for m in live) - committed)
    yield "tidegate_job_rows_read_total", (), committed
    yield "tidegate_job_rows_written_total", (), sum(p.rows_written for p in pipelines)
    read, written = byte_counts(job.record.value.plan, merged(pipelines))
    yield "tidegate_job_bytes_read_total", (), read
    yield "tidegate_job_bytes_written_total", (), written
    yield from _rates(job, live)
    for unit in sorted({m.unit for m in live if m.unit}):
        yield (
            "tidegate_job_lag",
            (("unit", unit),),
            sum(max(0, m.total - m.done) for m in live if m.unit == unit),
        )


def _rates(job: RunningJob, live: Sequence[PipelineMetrics]) -> Iterator[tuple[str, Labels, float]]:
    rates = rates_of(job.state, live)
    if rates is None:
        return
    read, written = byte_rates(job.record.value.plan, rates)
    yield "tidegate_job_rows_read_per_second", (), rates.rows_read
    yield "tidegate_job_rows_written_per_second", (), rates.rows_written
    yield "tidegate_job_bytes_read_per_second", (), read
    yield "tidegate_job_bytes_written_per_second", (), written


def _checkpoints(pipelines: Sequence[PipelineState]) -> Iterator[tuple[str, Labels, float]]:
    latest = [p.latest for p in pipelines if p.latest]
    kept = [ref for p in pipelines for ref in p.retained]
    if latest:
        yield "tidegate_job_last_checkpoint_id", (), max(ref.checkpoint for ref in latest)
        yield (
            "tidegate_job_checkpoint_duration_seconds",
            (),
            max(0, *(ref.completed_ms - ref.begun_ms for ref in latest)) / 1000,
        )
        yield "tidegate_job_checkpoint_bytes", (), sum(ref.bytes for ref in latest)
    yield "tidegate_job_checkpoints_retained", (), len(kept)
    yield "tidegate_job_checkpoints_retained_bytes", (), sum(ref.bytes for ref in kept)
    yield "tidegate_job_checkpoints_total", (), sum(p.checkpoints for p in pipelines)


def _log_retention(live: Sequence[PipelineMetrics]) -> Iterator[tuple[str, Labels, float]]:
    sources = [source for m in live for source in m.log_retention]
    if not sources:
        return
    yield "tidegate_job_runway_level", (), max(_RETENTION_LEVELS[each.level] for each in sources)
    if seconds := [each.seconds_left for each in sources if each.seconds_left is not None]:
        yield "tidegate_job_runway_seconds", (), min(seconds)
    if room := [each.bytes_left for each in sources if each.bytes_left is not None]:
        yield "tidegate_job_runway_bytes", (), min(room)
