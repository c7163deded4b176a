"""Volumes by operator and table, counted once for each batch that becomes a checkpoint."""

from pathlib import Path

from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.model.throughput import Volume, total_volume
from tidegate.testing.in_process import Ran, run_in_process
from tidegate.testing.plain_engine import PlainEngine

SMALL = "{ row.num = 7, schema { table = shop.small, fields { id = bigint } } }"
LARGE = "{ row.num = 30, schema { table = shop.large, fields { id = bigint, name = string } } }"
JOB = f"""
env {{ job.mode = BATCH, job.name = volumes, checkpoint.interval = 10, batch.max-rows = 10 }}
source {{ FakeSource {{ name = numbers, plugin_output = t, tables_configs = [{SMALL}, {LARGE}] }} }}
transform {{ TableRename {{ name = renamed, plugin_input = t, plugin_output = r, suffix = _copy }} }}
sink {{
  Console {{ name = first, plugin_input = r, log.print.data = false }}
  Console {{ name = second, plugin_input = t, log.print.data = false }}
}}
"""


def ran(tmp_path: Path, text: str = JOB, **more: object) -> Ran:
    file = tmp_path / "job.conf"
    file.write_text(text)
    return run_in_process(str(file), Home(tmp_path / "home"), PlainEngine(), **more)  # type: ignore[arg-type]  # the options of the run


def test_each_operator_reports_its_tables(tmp_path: Path) -> None:
    outcome = ran(tmp_path).outcome
    rows = {
        operator: {table: volume.rows for table, volume in tables.items()}
        for operator, tables in outcome.volumes.items()
    }
    assert outcome.status is JobStatus.FINISHED
    assert rows == {
        "numbers": {"shop.small": 7, "shop.large": 30},
        "renamed": {"shop.small_copy": 7, "shop.large_copy": 30},
        "first": {"shop.small_copy": 7, "shop.large_copy": 30},
        "second": {"shop.small": 7, "shop.large": 30},
    }
    assert outcome.volumes["numbers"]["shop.small"] == Volume(7, 56), "eight bytes a row"
    assert (
        total_volume(outcome.volumes["first"]).bytes
        == total_volume(outcome.volumes["numbers"]).bytes
    )
    assert (outcome.rows_read, outcome.rows_written) == (37, 74)


def test_repeated_rows_are_counted_once_after_a_rewind(tmp_path: Path) -> None:
    text = f"""
    env {{ job.mode = STREAMING, job.name = volumes, checkpoint.interval = 10, batch.max-rows = 10, checkpoint.max-retained = 20 }}
    source {{ FakeSource {{ name = numbers, plugin_output = t, row.num = 60, schema {{ table = shop.t, fields {{ id = bigint }} }} }} }}
    sink {{ LocalFile {{ name = files, plugin_input = t, path = "{tmp_path / "out"}", file_format_type = parquet }} }}
    """
    for restore, rows in (("auto", 40), ("checkpoint:2", 60)):
        outcome = ran(tmp_path, text, restore=restore, stop_at_rows=rows).outcome
        assert (outcome.status, outcome.rows_read >= rows) == (JobStatus.CANCELED, True)
        assert (
            outcome.volumes["numbers"]["shop.t"]
            == outcome.volumes["files"]["shop.t"]
            == Volume(outcome.rows_read, outcome.rows_read * 8)
        )
    assert outcome.rows_read == 60, "all rows, and each of them once"
