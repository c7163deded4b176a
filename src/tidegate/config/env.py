"""Read the `env` block as JobEnv.

Caller: structure; the generated docs and `tidegate connectors` read OPTIONS. Old names are
accepted. Options that only another engine supports cause a notice, never an error: a job file that
runs there must load here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.model.job import JobEnv, JobMode, Path
from tidegate.model.problem import Problem, Severity
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values, as_text

OPTIONS = OptionSet(
    (
        Option("job.name", OptionKind.TEXT, "name of the job; the command line overrides it"),
        Option(
            "job.mode",
            OptionKind.ENUM,
            "BATCH ends when its sources are exhausted, STREAMING runs until it is stopped",
            default="BATCH",
            choices=("BATCH", "STREAMING"),
        ),
        Option(
            "parallelism",
            OptionKind.INT,
            "parallel tasks, unless a block sets its own number",
            default=1,
            fallbacks=("execution.parallelism",),
        ),
        Option(
            "job.retry.times",
            OptionKind.INT,
            "restarts after a failure before the job fails",
            default=3,
            minimum=0,
        ),
        Option(
            "job.retry.interval.seconds",
            OptionKind.INT,
            "pause before a restart",
            default=3,
            minimum=0,
        ),
        Option(
            "checkpoint.interval",
            OptionKind.LONG,
            "milliseconds between checkpoints; a streaming job with a backlog does not wait for"
            " it, a BATCH job without it is one batch",
            minimum=10,
            fallbacks=("execution.checkpoint.interval",),
        ),
        Option(
            "checkpoint.timeout",
            OptionKind.LONG,
            "milliseconds for one checkpoint",
            minimum=10,
            fallbacks=("execution.checkpoint.timeout",),
        ),
        Option(
            "min-pause",
            OptionKind.LONG,
            "minimum milliseconds between two batches, also with a backlog; else the engine's"
            " value",
            fallbacks=("execution.checkpoint.min-pause",),
        ),
        Option(
            "checkpoint.retain-after-job-cancelled",
            OptionKind.BOOL,
            "keep the checkpoints of a cancelled job; else the engine's value (true)",
        ),
        Option(
            "checkpoint.max-retained",
            OptionKind.INT,
            "completed checkpoints to keep; else the engine's value",
            minimum=1,
        ),
        Option(
            "read_limit.rows_per_second",
            OptionKind.DOUBLE,
            "rows each parallel reader may read in a second",
            minimum=0,
        ),
        Option(
            "read_limit.bytes_per_second",
            OptionKind.DOUBLE,
            "bytes each parallel reader may read in a second",
            minimum=0,
        ),
        Option(
            "batch.max-rows",
            OptionKind.LONG,
            "maximum rows of one batch, if the source can count them",
            minimum=1,
        ),
        Option(
            "batch.max-bytes",
            OptionKind.LONG,
            "maximum bytes of one batch, if the source can count them",
            minimum=1,
        ),
        Option("batch.max-files", OptionKind.LONG, "maximum files of one batch", minimum=1),
        Option(
            "pipeline_concurrency",
            OptionKind.INT,
            "pipelines of the job that run in parallel",
            minimum=1,
        ),
        Option("jars", OptionKind.TEXT, "jars to add, separated by ;"),
        Option("custom_parameters", OptionKind.MAP, "free values, shown with the job"),
        Option("tag_filter", OptionKind.MAP, "tags that a worker must have to run the job"),
        Option(
            "shade.identifier",
            OptionKind.TEXT,
            "how sensitive options are stored: default (clear) or base64",
            default="default",
        ),
        Option("shade.options", OptionKind.LIST, "more options that are stored shaded"),
        Option("shade.properties", OptionKind.MAP, "settings of the shade"),
    )
)

_KEYS = frozenset(OPTIONS.keys())
_OTHER_ENGINE = "belongs to another engine and is ignored on Spark"
# Accepted and ignored: key prefix, severity, reason. Of overlapping prefixes, the longest is first.
_IGNORED: tuple[tuple[str, Severity, str], ...] = (
    ("flink", Severity.NOTICE, _OTHER_ENGINE),
    ("execution", Severity.NOTICE, _OTHER_ENGINE),
    (
        "engine.observability",
        Severity.NOTICE,
        "belongs to another engine; metrics are always on here",
    ),
    (
        "savemode.execute.location",
        Severity.NOTICE,
        "is ignored: save modes always run in the driver",
    ),
    ("sink.flush.interval", Severity.NOTICE, "is ignored: every checkpoint flushes the sinks"),
    (
        "multi_table.failure_policy",
        Severity.WARNING,
        "is ignored: the first table that fails stops the job",
    ),
    ("error_handler", Severity.WARNING, "is ignored: a row error stops the job"),
    ("transform_error_handler", Severity.WARNING, "is ignored: a row error stops the job"),
    ("sink_error_handler", Severity.WARNING, "is ignored: a row error stops the job"),
)


def read_env(block: Block, *, strict: bool = False) -> tuple[JobEnv, list[Problem]]:
    """Read the env block as JobEnv, with all problems and notices."""
    spark: dict[str, str] = {}
    rest: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, value in _leaves(block.data):
        dotted = ".".join(map(str, path))
        if dotted.startswith("spark."):
            spark[dotted] = as_text(value)
        elif (reason := _ignored(dotted)) is not None:
            problems.append(block.problem(path, f"{dotted} {reason[1]}", severity=reason[0]))
        else:
            _put(rest, path, value)
    values, found = OPTIONS.read(Block(rest, block.locate, block.prefix), strict=strict)
    return _job_env(values, spark), [*found, *problems]


def _job_env(values: Values, spark: Mapping[str, str]) -> JobEnv:
    jars = [jar.strip() for jar in (values["jars"] or "").split(";")]
    return JobEnv(
        job_name=values["job.name"],
        mode=JobMode(values["job.mode"]),
        parallelism=max(1, values["parallelism"]),
        retry_times=values["job.retry.times"],
        retry_interval_s=values["job.retry.interval.seconds"],
        checkpoint_interval_ms=values["checkpoint.interval"],
        checkpoint_timeout_ms=values["checkpoint.timeout"],
        checkpoint_pause_ms_min=(
            None if values["min-pause"] is None else max(0, values["min-pause"])
        ),
        retain_after_cancel=values["checkpoint.retain-after-job-cancelled"],
        checkpoints_retained_max=values["checkpoint.max-retained"],
        rows_per_second=values["read_limit.rows_per_second"],
        bytes_per_second=values["read_limit.bytes_per_second"],
        batch_rows_max=values["batch.max-rows"],
        batch_bytes_max=values["batch.max-bytes"],
        batch_files_max=values["batch.max-files"],
        pipeline_concurrency=values["pipeline_concurrency"],
        jars=tuple(filter(None, jars)),
        tags={key: as_text(value) for key, value in (values["tag_filter"] or {}).items()},
        custom_parameters=values["custom_parameters"] or {},
        spark=spark,
    )


def _leaves(data: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value with its path, opening nested blocks except options of kind MAP."""
    whole = {option.key for option in OPTIONS.options if option.kind is OptionKind.MAP} | {
        "error_handler",
        "transform_error_handler",
        "sink_error_handler",
    }
    for key, value in data.items():
        path = (*above, key)
        if isinstance(value, Mapping) and ".".join(map(str, path)) not in whole:
            yield from _leaves(value, path)
        else:
            yield path, value


def _ignored(dotted: str) -> tuple[Severity, str] | None:
    if dotted in _KEYS:
        return None
    for prefix, severity, reason in _IGNORED:
        if dotted == prefix or dotted.startswith(f"{prefix}."):
            return severity, reason
    return None


def _put(data: dict[str, Any], path: Path, value: Any) -> None:
    """Set a value at a path, nested as in the file, so that its location is found again."""
    for key in path[:-1]:
        data = data.setdefault(str(key), {})
    data[str(path[-1])] = value
