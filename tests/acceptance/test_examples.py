"""Every file in examples/ is run on Spark, and the rows that it writes are compared with those that
it should. What the documents show is run too.
"""

import contextlib
import csv
import datetime
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet
import pytest
from example_databases import Databases, databases

from tidegate.cli.job_file import load_plan
from tidegate.connectors.localfile import listing
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.plugin import registry
from tidegate.testing.in_process import Ran, Shared, run_in_process
from tidegate.testing.plain_engine import PlainEngine

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCUMENTS = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
NAMES = sorted(
    path.name
    for path in EXAMPLES.iterdir()
    if path.is_file() and path.suffix in {".conf", ".json", ".sql"}
)


def files(out: Path, suffix: str) -> list[Path]:
    """The files that a reader would see: nothing of what is hidden."""
    found = [
        p
        for p in sorted(out.rglob("*"))
        if p.is_file() and not any(part.startswith((".", "_")) for part in p.relative_to(out).parts)
    ]
    assert {p.suffix for p in found} == {suffix}
    return found


def parquet(out: Path) -> pa.Table:
    return pa.concat_tables(
        [pa.parquet.read_table(p, partitioning=None) for p in files(out, ".parquet")]
    )


def json_rows(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for p in files(out, ".json") for line in p.read_text().splitlines()]
    return sorted(rows, key=lambda row: (row["id"], row.get("change", "")))


def csv_rows(out: Path, **how: str) -> list[list[str]]:
    return sorted(
        row for p in files(out, ".csv") for row in csv.reader(p.read_text().splitlines(), **how)
    )


def check_csv_to_parquet(out: Path, _: Ran) -> None:
    table = parquet(out).sort_by("id")
    assert table["id"].to_pylist() == list(range(1, 9))
    assert table.schema.field("credit").type == pa.decimal128(10, 2)
    assert table.slice(1, 2).to_pylist() == [
        {
            "id": 2,
            "name": "Babbage, Charles",
            "city": "London",
            "email": "charles@example.com",
            "credit": Decimal("80.00"),
            "since": datetime.date(2021, 7, 19),
        },
        {
            "id": 3,
            "name": "Grace Hopper",
            "city": "New York",
            "email": "grace@example.com",
            "credit": None,
            "since": datetime.date(2022, 1, 5),
        },
    ]


def check_csv_sql_json(out: Path, _: Ran) -> None:
    assert json_rows(out) == [
        {"id": 1, "name": "ADA LOVELACE", "city": "London", "credit": 1200.5, "year": 2021},
        {"id": 3, "name": "GRACE HOPPER", "city": "New York", "credit": 0.0, "year": 2022},
        {"id": 4, "name": "KATHERINE JOHNSON", "city": "Hampton", "credit": 430.25, "year": 2022},
        {"id": 6, "name": "BARBARA LISKOV", "city": "Los Angeles", "credit": 990.0, "year": 2023},
        {"id": 8, "name": "MARGARET HAMILTON", "city": "Paoli", "credit": 2750.75, "year": 2024},
    ]


def check_partitioned_files(out: Path, _: Ran) -> None:
    found: dict[str, list[int]] = {}
    for path in files(out, ".parquet"):
        table = pa.parquet.read_table(path, partitioning=None)
        assert table.column_names == ["id", "amount"]
        found.setdefault(path.parent.relative_to(out).as_posix(), []).extend(
            table["id"].to_pylist()
        )
    assert {directory: sorted(ids) for directory, ids in found.items()} == {
        "region=north/month=2024-01": [1001, 1003],
        "region=south/month=2024-01": [1002],
        "region=east/month=2024-02": [1004],
        "region=south/month=2024-02": [1005],
        "region=north/month=2024-02": [1006],
    }


def check_union(out: Path, _: Ran) -> None:
    rows = csv_rows(out)
    header = ["id", "region", "day", "amount"]
    assert rows.count(header) == len(files(out, ".csv"))
    data = [row for row in rows if row != header]
    assert [row[0] for row in data] == [
        "1001",
        "1002",
        "1003",
        "1004",
        "1005",
        "1006",
        "2001",
        "2002",
    ]
    assert data[-1] == ["2002", "web", "2024-02-20", "64.3"]


def check_fan_out(out: Path, ran: Ran) -> None:
    everyone = pa.concat_tables([pa.orc.read_table(p) for p in files(out / "all", ".orc")])
    assert sorted(everyone["id"].to_pylist()) == list(range(1, 9))
    lines = sorted(
        line.split("|")
        for p in files(out / "london", ".txt")
        for line in p.read_text().splitlines()
    )
    assert [(number, name, float(credit)) for number, name, credit in lines] == [
        ("1", "Ada Lovelace", 1200.5),
        ("2", "Babbage, Charles", 80.0),
    ]
    assert (ran.outcome.rows_read, ran.outcome.rows_written) == (8, 10)


def check_csv_to_database(out: Path, _: Ran) -> None:
    with contextlib.closing(sqlite3.connect(out / "shop.db")) as db:
        rows = list(db.execute("select id, name, credit, since from customers order by id"))
        assert [row[0] for row in rows] == list(range(1, 9))
        assert rows[1] == (2, "Babbage, Charles", 80, "2021-07-19")
        assert db.execute("select count(*) from tidegate_sink_record").fetchone() == (0,)


def check_all_types(out: Path, ran: Ran) -> None:
    table = parquet(out)
    assert table.num_rows == 100
    assert (ran.outcome.rows_read, ran.outcome.rows_written) == (
        100,
        200,
    )  # Assert counts as a sink
    assert [name for name in table.column_names if table[name].null_count] == []
    assert table.schema.field("c_decimal").type == pa.decimal128(30, 8)
    assert set(pc.list_value_length(table["c_array"]).to_pylist()) == {3}
    assert set(pc.utf8_length(table["c_string"]).to_pylist()) == {12}
    assert set(table["c_int"].to_pylist()) == {1, 2, 3, 4, 5, 6}
    assert all(len(row["inner_row"]["deep"]) == 12 for row in table["c_row"].to_pylist())


def check_row_kinds(out: Path, _: Ran) -> None:
    assert json_rows(out) == [
        {"id": 1, "name": "A", "score": 100, "change": "INSERT"},
        {"id": 1, "name": "A", "score": 95, "change": "UPDATE_AFTER"},
        {"id": 2, "name": "B", "score": 100, "change": "DELETE"},
        {"id": 2, "name": "B", "score": 100, "change": "INSERT"},
    ]


def check_column_moves(out: Path, _: Ran) -> None:
    rows = csv_rows(out)
    assert rows[-1] == ["customer", "town", "mailbox", "domain"]
    assert [row for row in rows if row[0] in {"3", "6"}] == [
        ["3", "New_York", "grace", "example.com"],
        ["6", "Los_Angeles", "barbara", "example.com"],
    ]
    assert len([row for row in rows if row != rows[-1]]) == 8


def check_json_job(out: Path, _: Ran) -> None:
    assert json_rows(out) == [{"id": n, "square": n * n} for n in range(2, 21, 2)]


def check_sql_job(out: Path, _: Ran) -> None:
    assert json_rows(out) == [
        {"id": 1001, "region": "north", "amount": 120.0},
        {"id": 1004, "region": "east", "amount": 310.0},
        {"id": 1006, "region": "north", "amount": 99.9},
    ]


def check_variables(out: Path, ran: Ran) -> None:
    assert csv_rows(out) == [["1002", "80.5"]]
    assert ran.claim.job.name == "variables-south"


def check_multi_table(out: Path, _: Ran) -> None:
    assert sorted(p.name for p in out.iterdir() if not p.name.startswith(".")) == [
        "users",
        "visits",
    ]
    users, visits = parquet(out / "users"), parquet(out / "visits")
    assert (users.column_names, sorted(users["id"].to_pylist())) == (
        ["id", "name"],
        list(range(1, 11)),
    )
    assert (visits.column_names, sorted(visits["id"].to_pylist())) == (
        ["id", "page", "seconds"],
        list(range(1, 31)),
    )


def check_streaming_orders(out: Path, ran: Ran) -> None:
    table = parquet(out).sort_by("id")
    assert ran.outcome.rows_read >= 10_000
    assert table["id"].to_pylist() == list(range(1, ran.outcome.rows_read + 1))
    for row in table.slice(0, 100).to_pylist():
        assert row["total"] == pytest.approx(row["quantity"] * row["price"], abs=0.0051)
        assert row["counts"] == (row["status"] != "cancelled")


def check_watch_directory(out: Path, _: Ran) -> None:
    assert json_rows(out) == [
        {"id": 1, "customer": 3, "total": 20.5},
        {"id": 2, "customer": 1, "total": 7.25},
        {"id": 3, "customer": 8, "total": 110.0},
    ]


@dataclass(frozen=True, slots=True)
class Expected:
    """How an example is run, and what must be in its output.

    A stream is stopped at the checkpoint after so many rows.
    """

    check: Callable[[Path, Ran], None]
    variables: tuple[str, ...] = ()
    stop_at_rows: int | None = None


EXPECTED = {
    "all-types.conf": Expected(check_all_types),
    "column-moves.conf": Expected(check_column_moves),
    "csv-sql-json.conf": Expected(check_csv_sql_json),
    "csv-to-database.conf": Expected(check_csv_to_database),
    "csv-to-parquet.conf": Expected(check_csv_to_parquet),
    "fan-out.conf": Expected(check_fan_out),
    "json-job.json": Expected(check_json_job),
    "multi-table.conf": Expected(check_multi_table),
    "partitioned-files.conf": Expected(check_partitioned_files),
    "row-kinds.conf": Expected(check_row_kinds),
    "sql-job.sql": Expected(check_sql_job),
    "streaming-orders.conf": Expected(check_streaming_orders, stop_at_rows=10_000),
    "union.conf": Expected(check_union),
    "variables.conf": Expected(check_variables, variables=("region=south", "least=50")),
    "watch-directory.conf": Expected(check_watch_directory, stop_at_rows=3),
}


# Those with servers: the rows at which they are stopped, and what they cannot do without.
WITH_SERVERS: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "copy-a-schema.conf": (None, ("password=a", "target_password=b")),
    "mysql-to-postgres-cdc.conf": (5, ("mysql_password=a", "postgres_password=b")),
    "postgres-to-parquet-cdc.conf": (3, ("postgres_password=a",)),
}


def test_every_example_describes_its_output() -> None:
    assert sorted([*EXPECTED, *WITH_SERVERS]) == NAMES


@pytest.fixture(scope="module")
def served() -> Iterator[Databases]:
    with databases() as started:
        yield started


@pytest.mark.parametrize("name", sorted(WITH_SERVERS))
def test_an_example_with_servers_writes_the_rows_that_it_should(
    name: str, tmp_path: Path, shared_engine: Shared, served: Databases
) -> None:
    stop_at_rows, out = WITH_SERVERS[name][0], tmp_path / "out"
    variables = (f"out={out}", *served.variables())
    ran = run_in_process(
        str(EXAMPLES / name),
        Home(tmp_path / "home"),
        shared_engine,
        variables=variables,
        stop_at_rows=stop_at_rows,
    )
    assert [failure.message for failure in ran.outcome.failures] == []
    assert ran.outcome.status is (
        JobStatus.FINISHED if stop_at_rows is None else JobStatus.CANCELED
    )
    (recipe,) = blocks_of("docs/how-to/postgres-to-parquet.md", "python")
    served.check(name, out / Path(name).stem, recipe)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_writes_the_rows_that_it_should(
    name: str, tmp_path: Path, shared_engine: Shared
) -> None:
    expected, out = EXPECTED[name], tmp_path / "out"
    variables = (f"out={out}", f"data={EXAMPLES / 'data'}", *expected.variables)
    ran = run_in_process(
        str(EXAMPLES / name),
        Home(tmp_path / "home"),
        shared_engine,
        variables=variables,
        stop_at_rows=expected.stop_at_rows,
    )
    assert [failure.message for failure in ran.outcome.failures] == []
    assert ran.outcome.status is (
        JobStatus.FINISHED if expected.stop_at_rows is None else JobStatus.CANCELED
    )
    expected.check(out / Path(name).stem, ran)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_begins_by_saying_what_it_shows(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    if name.endswith(".json"):
        assert (
            len(json.loads(text)["env"]["custom_parameters"]["shows"].split()) > 5
        )  # JSON has no comments
    else:
        first = text.splitlines()[0]
        assert first.startswith("-- " if name.endswith(".sql") else "# ")
        assert len(first.split()) > 5


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_no_warnings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = WITH_SERVERS[name][1] if name in WITH_SERVERS else EXPECTED[name].variables
    load_plan(str(EXAMPLES / name), (f"data={EXAMPLES / 'data'}", *given), strict=True)
    assert capsys.readouterr().err == ""


# -- what the documents show
# --------------------------------------------------------------------------------------------------


def blocks_of(document: str, language: str) -> list[str]:
    """The code of one language that a document shows, block by block."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$",
        (ROOT / document).read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks_of(d, "hocon")])
def test_a_job_in_a_document_has_no_problems(
    document: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install_countdown(tmp_path, monkeypatch)
    monkeypatch.chdir(ROOT)
    (tmp_path / "data" / "orders").mkdir(parents=True)
    listed: list[str] = []
    entries = listing._entries
    monkeypatch.setattr(listing, "_entries", lambda path: listed.append(path) or entries(path))
    for number, text in enumerate(blocks_of(document, "hocon")):
        file = tmp_path / f"job-{number}.conf"
        file.write_text(text.replace('"/data/', f'"{tmp_path}/data/'))
        load_plan(str(file), (), strict=True)
    assert [path for path in listed if not path.startswith((str(tmp_path), str(ROOT)))] == []
    assert "error" not in capsys.readouterr().err


def test_the_job_of_the_readme_runs(
    tmp_path: Path, shared_engine: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    file = tmp_path / "readme.conf"
    (text,) = blocks_of("README.md", "hocon")
    file.write_text(text.replace("/tmp/rich", str(tmp_path / "rich")))
    run_in_process(str(file), Home(tmp_path / "home"), shared_engine)
    assert parquet(tmp_path / "rich").sort_by("id").to_pylist() == [
        {"id": 1, "name": "ADA LOVELACE"},
        {"id": 4, "name": "KATHERINE JOHNSON"},
        {"id": 6, "name": "BARBARA LISKOV"},
        {"id": 8, "name": "MARGARET HAMILTON"},
    ]


def install_countdown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the connector that docs/how-to/write-a-connector.md builds."""
    options, *code = blocks_of("docs/how-to/write-a-connector.md", "python")
    (place / "countdown_options.py").write_text(options)
    (place / "countdown.py").write_text("\n\n".join(code[:-1]))
    (place / "test_countdown.py").write_text(code[-1])
    (entry_point,) = blocks_of("docs/how-to/write-a-connector.md", "toml")
    information = place / "countdown-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: countdown\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        entry_point.replace(
            '[project.entry-points."tidegate.connectors"]', "[tidegate.connectors]"
        ).replace('"', "")
    )
    monkeypatch.syspath_prepend(place)
    registry.loaded.cache_clear()
    for name in ("countdown", "countdown_options"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(autouse=True)
def _only_our_own_connectors() -> Iterator[None]:
    yield
    registry.loaded.cache_clear()


@pytest.mark.parametrize(
    "fault", ["batch.commit.after", "checkpoint.publish.before", "ledger.complete.before"]
)
def test_the_connector_of_the_documents_writes_every_number_once(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_countdown(tmp_path, monkeypatch)
    job = tmp_path / "countdown.conf"
    (text,) = blocks_of("docs/how-to/write-a-connector.md", "hocon")
    job.write_text(text.replace("env {", "env { job.retry.interval.seconds = 0"))
    failing = FailsOnce(fault)
    monkeypatch.setattr("tidegate.pipeline.loop.failpoint", failing)
    monkeypatch.setattr("tidegate.pipeline.ledger.failpoint", failing)
    monkeypatch.setattr("tidegate.checkpoints.storage.failpoint", failing)
    ran = run_in_process(
        str(job), Home(tmp_path / "home"), PlainEngine(), variables=(f"out={tmp_path}",)
    )
    assert failing.passed > 3
    assert (ran.outcome.status, ran.outcome.rows_read, ran.outcome.checkpoints) == (
        JobStatus.FINISHED,
        50,
        8,
    )
    with contextlib.closing(sqlite3.connect(tmp_path / "countdown.db")) as db:
        assert sorted(n for (n,) in db.execute("select number from countdown")) == list(
            range(1, 51)
        )


def test_the_test_of_the_documents_passes_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_countdown(tmp_path, monkeypatch)
    (text,) = blocks_of("docs/how-to/write-a-connector.md", "hocon")
    (tmp_path / "countdown.conf").write_text(text)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "out": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_countdown.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


class FailsOnce:
    """In place of `failpoint`: an error at the third passage of one of them, so that this batch is
    repeated.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed = 0

    def __call__(self, name: str) -> None:
        self.passed += name == self.name
        if name == self.name and self.passed == 3:
            raise RuntimeError(f"failpoint {name}")
