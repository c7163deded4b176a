"""Job files for clusters; `{out}` is where a job's rows go. Every row has a number, so that a lost and a doubled one are seen."""

SINK = 'LocalFile { plugin_input = "t", path = "{out}", file_format_type = "parquet" }'
SCHEMA = "schema { fields { id = bigint } }"


def fake(rows: int, *, output: str = "t", first: int = 0) -> str:
    """A source of numbered rows."""
    return f'FakeSource {{ plugin_output = "{output}", row.num = {rows}, bigint.fake.mode = "SEQUENCE", bigint.min = {first}, {SCHEMA} }}'


def flow(rate: int = 200, env: str = "") -> str:
    """A streaming job that never runs dry within a test, with ten checkpoints a second."""
    return f"""env {{ job.mode = "STREAMING", checkpoint.interval = 100, read_limit.rows_per_second = {rate}, job.retry.interval.seconds = 0 {env} }}
source {{ {fake(1_000_000)} }} sink {{ {SINK} }}"""


def bounded(rows: int, rate: int, env: str = "") -> str:
    """A batch job with checkpoints, that takes rows/rate seconds."""
    return f"""env {{ job.mode = "BATCH", checkpoint.interval = 100, read_limit.rows_per_second = {rate}, job.retry.interval.seconds = 0 {env} }}
source {{ {fake(rows)} }} sink {{ {SINK} }}"""
