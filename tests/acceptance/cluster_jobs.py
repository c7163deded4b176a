"""Job files for clusters; `{out}` is where a job's rows go. Every row has a number, so that a lost
and a doubled one are seen.
"""

SINK = 'LocalFile { plugin_input = "t", path = "{out}", file_format_type = "parquet" }'
SCHEMA = "schema { fields { id = bigint } }"


def fake(rows: int, *, output: str = "t", first: int = 0) -> str:
    """A source of numbered rows."""
    return (
        f'FakeSource {{ plugin_output = "{output}", row.num = {rows}, bigint.fake.mode ='
        f' "SEQUENCE", bigint.min = {first}, {SCHEMA} }}'
    )


def flow(rate: int = 200, env: str = "") -> str:
    """A streaming job that never runs dry within a test, with ten checkpoints a second."""
    return f"""env {{ job.mode = "STREAMING", checkpoint.interval = 100
  read_limit.rows_per_second = {rate}, job.retry.interval.seconds = 0 {env} }}
source {{ {fake(1_000_000)} }}
sink {{ {SINK} }}"""


def bounded(rows: int, rate: int, env: str = "") -> str:
    """A batch job with checkpoints, that takes rows/rate seconds."""
    return f"""env {{ job.mode = "BATCH", checkpoint.interval = 100
  read_limit.rows_per_second = {rate}, job.retry.interval.seconds = 0 {env} }}
source {{ {fake(rows)} }}
sink {{ {SINK} }}"""


def three_sources(rows: int, rate: int) -> str:
    """One pipeline: a source of one row, which is ready to close with the first batch, and two that
    share the others.
    """
    sources = "\n".join(
        [
            fake(1, output="a"),
            fake(rows // 2, output="b", first=1),
            fake(rows - 1 - rows // 2, output="c", first=1 + rows // 2),
        ]
    )
    return f"""env {{ job.mode = "BATCH", checkpoint.interval = 100
  read_limit.rows_per_second = {rate}, job.retry.interval.seconds = 0 }}
source {{ {sources} }}
sink {{ {SINK.replace('"t"', '["a", "b", "c"]')} }}"""


def five_sources() -> str:
    """Five sources, five readers each, 200 rows a reader: 5,000 rows, in a few seconds."""
    names = [f"t{number}" for number in range(5)]
    sources = "\n".join(
        fake(200, output=name, first=number * 1_000) for number, name in enumerate(names)
    )
    inputs = ", ".join(f'"{name}"' for name in names)
    return f"""env {{ job.mode = "BATCH", parallelism = 5, checkpoint.interval = 100
  read_limit.rows_per_second = 60, job.retry.interval.seconds = 0 }}
source {{ {sources} }}
sink {{ {SINK.replace('"t"', f"[{inputs}]")} }}"""


def slow_batch(env: str = "") -> str:
    """One single batch without checkpoints, that takes half a minute."""
    source = fake(60).replace("row.num", "split.num = 60, split.read-interval = 500, row.num")
    return f"""env {{ job.mode = "BATCH" {env} }}
source {{ {source} }}
sink {{ {SINK} }}"""


def failing(at: int) -> str:
    """A job that fails for good with the commit of a checkpoint."""
    return f"""env {{ job.mode = "STREAMING", checkpoint.interval = 100
  read_limit.rows_per_second = 100, job.retry.interval.seconds = 0 }}
source {{ {fake(1_000_000)} }}
sink {{
  {SINK}
  Chaos {{ plugin_input = "t", fail_at_checkpoint = [{at}], fail_terminally = true }}
}}"""
