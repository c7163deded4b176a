"""`tidegate seatunnel --dry-run`: checks connections, reads a few rows, and writes nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import exits, main

FAKE = (
    "FakeSource { name = numbers, plugin_output = t, row.num = 500, schema { table = shop.t, fields"
    " { id = bigint, name = string } } }"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dry(place: Path, text: str, *more: str) -> Result:
    (place / "job.conf").write_text(text)
    return CliRunner().invoke(main, ["seatunnel", "-c", "job.conf", *more])


def database(place: Path) -> str:
    with closing(sqlite3.connect(place / "shop.db")) as connection:
        connection.execute("create table orders (id integer primary key, item text)")
        connection.executemany(
            "insert into orders values (?, ?)", [(number, f"item {number}") for number in range(40)]
        )
        connection.commit()
    return f"jdbc:sqlite:{place}/shop.db"


def copying(url: str) -> str:
    return f"""env {{ job.mode = BATCH }}
source {{ Jdbc {{ name = orders, plugin_output = o, url = "{url}", table_path = orders }} }}
sink {{ Jdbc {{ name = copies, plugin_input = o, url = "{url}", table = copies, generate_sink_sql = true }} }}"""


def test_connect_checks_every_operator(place: Path) -> None:
    answer = dry(place, copying(database(place)), "--dry-run", "connect")
    assert answer.exit_code == 0, answer.output
    first, second, verdict = answer.output.splitlines()
    assert first.startswith("orders (Jdbc): VALIDATED: ")
    assert (second, verdict) == (
        "copies (Jdbc): VALIDATED",
        "job.conf is valid; nothing was started",
    )


def test_unreachable_systems_are_named_and_nothing_is_created(place: Path) -> None:
    answer = dry(place, copying(f"jdbc:sqlite:{place}/missing.db"), "--dry-run", "connect")
    assert answer.exit_code == exits.FAILED
    assert "orders (Jdbc): FAILED: " in answer.output
    assert "copies (Jdbc): SKIPPED" in answer.output
    assert {path.name for path in place.iterdir()} == {"job.conf"}


def test_a_sample_reads_a_few_rows_and_writes_none(place: Path) -> None:
    url = database(place)
    answer = dry(
        place, copying(url), "--dry-run", "sample", "--sample-limit", "3", "--sample-print-data"
    )
    assert answer.exit_code == 0, answer.output
    assert "copies: 3 rows: 3 of " in answer.output
    assert '"item": "item 2"' in answer.output
    assert '"item": "item 3"' not in answer.output
    with closing(sqlite3.connect(place / "shop.db")) as connection:
        assert [
            name
            for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        ] == ["orders"]
    assert not (place / "home").exists()


def test_a_sample_runs_transforms_that_need_no_sql(place: Path) -> None:
    job = f"""env {{ job.mode = BATCH }}
source {{ {FAKE} }}
transform {{
  TableRename {{ name = renamed, plugin_input = t, plugin_output = r, suffix = _copy }}
  Sql {{ name = query, plugin_input = t, plugin_output = q, query = "select id from t" }}
}}
sink {{
  Console {{ name = whole, plugin_input = r }}
  Console {{ name = some, plugin_input = q }}
}}"""
    answer = dry(place, job, "--dry-run", "sample")
    assert answer.exit_code == 0, answer.output
    assert "whole: 10 rows: 10 of shop.t_copy" in answer.output
    assert "query: no sample: needs Spark" in answer.output
    assert "some: 0 rows" in answer.output


def test_a_check_rejects_unknown_keys(place: Path) -> None:
    job = (
        f"env {{ job.mode = BATCH }}\nsource {{ {FAKE.replace('row.num', 'row.mum')} }}\nsink {{"
        " Console { plugin_input = t } }"
    )
    assert dry(place, job, "--check").exit_code == exits.BAD_INPUT
    assert dry(place, job.replace("row.mum", "row.num"), "--check").exit_code == 0
