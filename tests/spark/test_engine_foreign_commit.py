"""Exactly-once JDBC sinks on Derby and H2: rows and record in one transaction.

H2 is skipped if its jar cannot be fetched.
"""

import datetime
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_parts import CONTEXT, Numbers, Rows, batch, graph, node, table

from tidegate.connectors.jdbc.jvm_committer import JvmCommitter
from tidegate.connectors.jdbc.jvm_connector import JvmSink
from tidegate.connectors.jdbc.options import SINK_OPTIONS
from tidegate.connectors.jdbc.sink_record import RecordGone, TargetOffsetsDiffer
from tidegate.connectors.jdbc.target import KeyMissing
from tidegate.connectors.jdbc.target_check import SharedTable, TargetUnfit
from tidegate.databases.errors import StatementRefused
from tidegate.home import Home
from tidegate.model.errors import Fenced, OtherCopy, UserError
from tidegate.model.problem import Location
from tidegate.model.records import JobStatus
from tidegate.model.types import Column, RowKind, Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import AlreadyCommitted, BatchCommitted, Commit, SinkRestore
from tidegate.plugin.option import Block
from tidegate.spark.engine import SparkEngine
from tidegate.testing.in_process import Shared, run_in_process

SAVE = "tidegate.connectors.jdbc.spark:save"
H2 = "com.h2database:h2:2.3.232"
DRIVERS = {"derby": "org.apache.derby.iapi.jdbc.AutoloadedDriver", "h2": "org.h2.Driver"}
RECORDS = "select checkpoint_id, generation_id from tidegate_sink_record"


class Database:
    """A database in the memory of the JVM."""

    def __init__(self, jvm: Any, brand: str, name: str) -> None:
        end = ";create=true" if brand == "derby" else ";DB_CLOSE_DELAY=-1"
        self.url, self.driver = (
            f"jdbc:{brand}:{'memory' if brand == 'derby' else 'mem'}:{name}{end}",
            DRIVERS[brand],
        )
        loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        self._connection = (
            loader.loadClass(self.driver)
            .newInstance()
            .connect(self.url, jvm.java.util.Properties())
        )

    def execute(self, *statements: str) -> None:
        with closing(self._connection.createStatement()) as statement:
            for text in statements:
                statement.execute(text)

    def rows(self, query: str) -> list[tuple[str | None, ...]]:
        with (
            closing(self._connection.createStatement()) as statement,
            closing(statement.executeQuery(query)) as found,
        ):
            width = found.getMetaData().getColumnCount()
            rows = []
            while found.next():
                rows.append(tuple(found.getString(number) for number in range(1, width + 1)))
            return sorted(rows, key=str)

    def tables(self) -> list[str]:
        with closing(self._connection.getMetaData().getTables(None, None, "%", None)) as found:
            names = []
            while found.next():
                names.append(str(found.getString("TABLE_NAME")).lower())
        return [name for name in names if name.startswith("tidegate_s_")]

    def close(self) -> None:
        self._connection.close()


def h2_jar() -> Path:
    """The jar, fetched once by Maven and kept; where Maven gets it from is Maven's own setting."""
    kept = Path(os.environ.get("TIDEGATE_TEST_JARS", Path.home() / ".cache" / "tidegate-tests"))
    jar = kept / f"{H2.rpartition(':')[0].rpartition(':')[2]}-{H2.rpartition(':')[2]}.jar"
    maven = shutil.which("mvn")
    if not jar.exists() and maven:
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
        kept.mkdir(parents=True, exist_ok=True)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [maven, "-q", "-B", copy, f"-Dartifact={H2}", f"-DoutputDirectory={kept}"],
                check=False,
                timeout=120,
                capture_output=True,
            )
    if not jar.exists():
        pytest.skip(f"the driver {H2} cannot be had here: put its jar at {jar}")
    return jar


BOTH = pytest.mark.parametrize("db", ["derby", "h2"], indirect=True)


@pytest.fixture
def db(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[Database]:
    jvm = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    brand = getattr(request, "param", "derby")
    if brand == "h2":
        try:
            jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(DRIVERS["h2"])
        except Exception:
            jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(
                jvm.java.net.URL(h2_jar().as_uri())
            )
    with closing(Database(jvm, brand, tmp_path.name)) as database:
        yield database


class Run:
    """A sink with its committer, as a driver has them."""

    def __init__(
        self,
        engine: SparkEngine,
        db: Database,
        *,
        generation: int = 1,
        checkpoint: int = 0,
        state: Any = None,
        token: str = "",
        **more: Any,
    ) -> None:
        given = {
            "url": db.url,
            "driver": db.driver,
            **({"table": "T"} if "query" not in more else {}),
            **more,
        }
        values, problems = SINK_OPTIONS.read(Block(given, lambda _: Location(""), ""))
        assert problems == []
        self.engine = engine
        self.generation = generation
        self.sink = JvmSink(values, CONTEXT)
        committer = self.sink.committer()
        assert isinstance(committer, JvmCommitter)
        self.committer = committer
        resume = SinkRestore(
            lineage="L",
            generation=generation,
            checkpoint=checkpoint,
            state=state,
            token=token,
            installation="I",
        )
        self.memory = committer.target_record(resume)
        self.uncheckpointed_commits = committer.uncheckpointed_commits(resume)
        committer.open(resume)

    def stage(self, source: Any, checkpoint: int, start: int, end: int) -> Any:
        nodes = graph(
            source=source, saved=node("saved", self.sink, ("source",), fusable=False, spark=SAVE)
        )
        return self.engine.run(nodes, batch(end, start=start, checkpoint=checkpoint)).messages[
            "saved"
        ]

    def commit(
        self, messages: Any, checkpoint: int, start: int, end: int
    ) -> BatchCommitted | AlreadyCommitted:
        offsets = {"source": {"start": start, "end": end}}
        return self.committer.commit(
            Commit(
                lineage="L",
                pipeline=1,
                checkpoint=checkpoint,
                generation=self.generation,
                offsets=offsets,
                messages=messages,
            )
        )

    def batch(
        self, source: Any, checkpoint: int = 1, start: int = 0, end: int = 3
    ) -> BatchCommitted | AlreadyCommitted:
        return self.commit(self.stage(source, checkpoint, start, end), checkpoint, start, end)


def numbers() -> Any:
    return node("source", Numbers({"tables": (table(),)}, CONTEXT))


def changes(*rows: tuple[RowKind, int, str | None]) -> Any:
    kept: Table = table(kinds=True)
    data = [{"id": id_, "name": name, "__row_kind": kind.code} for kind, id_, name in rows]
    names = table_schema(kept).names
    batch_ = pa.RecordBatch.from_pylist(
        [dict(zip(names, row.values(), strict=True)) for row in data], schema=table_schema(kept)
    )
    return node("source", Rows({"table": kept, "batch": batch_}, CONTEXT))


INSERT, BEFORE, AFTER, DELETE = (
    RowKind.INSERT,
    RowKind.UPDATE_BEFORE,
    RowKind.UPDATE_AFTER,
    RowKind.DELETE,
)


@BOTH
def test_repeated_batch_is_committed_once(engine: SparkEngine, db: Database) -> None:
    run = Run(engine, db)
    assert isinstance(run.batch(numbers()), BatchCommitted)
    assert isinstance(run.batch(numbers()), AlreadyCommitted)
    successor = Run(engine, db, generation=2, checkpoint=0)
    assert [(r.checkpoint, r.offsets) for r in successor.uncheckpointed_commits] == [
        (1, {"source": {"start": 0, "end": 3}})
    ]
    assert isinstance(successor.batch(numbers()), AlreadyCommitted)
    assert isinstance(successor.batch(numbers(), 2, 3, 5), BatchCommitted)
    assert db.rows('select "id", "name" from t') == [(str(i), f"name {i}") for i in range(5)]
    assert db.rows(RECORDS) == [("2", "2")]
    assert db.tables() == []
    with pytest.raises(TargetOffsetsDiffer, match="with other offsets"):
        successor.batch(numbers(), 2, 3, 6)


def test_older_generation_is_fenced_and_leaves_nothing(engine: SparkEngine, db: Database) -> None:
    old = Run(engine, db)
    staged = old.stage(numbers(), 1, 0, 3)
    assert len(db.tables()) == 1
    new = Run(engine, db, generation=2)
    assert db.tables() == [], "what the old one staged is dropped"
    with pytest.raises(Fenced):
        old.commit(staged, 1, 0, 3)
    with pytest.raises(Fenced):
        Run(engine, db)
    new.batch(numbers())
    assert len(db.rows("select * from t")) == 3


def test_a_commit_that_fails_in_the_middle_changes_nothing(
    engine: SparkEngine, db: Database
) -> None:
    db.execute(
        'create table t ("id" bigint not null primary key, "name" varchar(20))',
        "insert into t values (2, 'old')",
    )
    run = Run(engine, db, enable_upsert=False)
    with pytest.raises(StatementRefused):
        run.batch(numbers())
    assert db.rows("select * from t") == [("2", "old")]
    assert db.rows(RECORDS) == [("0", "1")]
    db.execute("delete from t")
    assert isinstance(run.batch(numbers()), BatchCommitted)
    assert len(db.rows("select * from t")) == 3


@BOTH
def test_changes_are_applied_by_key_in_their_order(engine: SparkEngine, db: Database) -> None:
    db.execute(
        'create table t ("id" bigint not null primary key, "name" varchar(20), more int default 7)',
        "insert into t values (1, 'one', 1), (2, 'two', 2)",
    )
    run = Run(engine, db, primary_keys=["id"])
    source = changes(
        (INSERT, 3, "three"), (BEFORE, 1, "one"), (AFTER, 1, "uno"), (DELETE, 2, None),
        (BEFORE, 3, "three"), (AFTER, 4, "moved"), (INSERT, 5, "a"), (DELETE, 5, "a"),
        (INSERT, 6, "x"), (AFTER, 6, "y"), (DELETE, 7, None), (INSERT, 7, "back"),
    )  # fmt: skip
    run.batch(source, end=1)
    assert db.rows("select * from t") == [
        ("1", "uno", "1"),
        ("4", "moved", "7"),
        ("6", "y", "7"),
        ("7", "back", "7"),
    ]


def test_deletes_require_a_key(engine: SparkEngine, db: Database) -> None:
    run = Run(engine, db, enable_upsert=True)
    run.sink.key = lambda _: ()  # type: ignore[method-assign]  # an incoming table without a key
    with pytest.raises(KeyMissing, match="set primary_keys"):
        run.batch(changes((DELETE, 1, None)), end=1)


@BOTH
@pytest.mark.parametrize(
    "query",
    [
        'insert into t ("name", "id") values (:name, :id)',
        'insert into t ("id", "name") values (?, ?)',
    ],
)
def test_custom_statement_runs_for_every_row_in_the_transaction(
    engine: SparkEngine, db: Database, query: str
) -> None:
    db.execute('create table t ("id" bigint not null primary key, "name" varchar(20))')
    run = Run(engine, db, query=query, batch_size=2)
    run.batch(
        (
            changes((INSERT, 1, "a"), (INSERT, 2, None), (BEFORE, 9, "x"), (AFTER, 3, "c"))
            if False
            else changes((INSERT, 1, "a"), (INSERT, 2, None), (AFTER, 3, "c"))
        ),
        end=1,
    )
    assert db.rows("select * from t") == [("1", "a"), ("2", None), ("3", "c")]
    assert isinstance(
        Run(engine, db, query=query, generation=2).batch(
            changes((INSERT, 1, "a"), (INSERT, 2, None), (AFTER, 3, "c")), end=1
        ),
        AlreadyCommitted,
    )
    with pytest.raises(UserError, match="`query` cannot write a row that deletes"):
        Run(engine, db, query=query, generation=3).batch(changes((DELETE, 1, None)), 2, 1, 2)
    with pytest.raises(UserError, match="no such column: id, name"):
        Run(engine, db, query="insert into t values (:nope)", generation=4).batch(
            numbers(), 2, 1, 2
        )


def test_save_modes_apply_only_to_the_first_batch_of_a_lineage(
    engine: SparkEngine, db: Database
) -> None:
    db.execute(
        'create table t ("id" bigint, "name" varchar(20))', "insert into t values (-1, 'old')"
    )
    run = Run(engine, db, data_save_mode="DROP_DATA")
    run.stage(numbers(), 1, 0, 3)  # dies before its commit
    again = Run(engine, db, generation=2, data_save_mode="DROP_DATA")
    again.batch(numbers())
    state = again.committer.state()
    later = Run(engine, db, generation=3, checkpoint=1, state=state, data_save_mode="DROP_DATA")
    later.batch(numbers(), 2, 3, 4)
    assert [row[0] for row in db.rows("select * from t")] == ["0", "1", "2", "3"]


class Died(BaseException):
    """As a kill would end the driver."""


def test_driver_killed_around_a_commit_loses_and_duplicates_nothing(
    engine: SparkEngine, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [f"foreignsink.{step}.{when}" for step, moments in STEPS.items() for when in moments]
    due: list[str] = []

    def dies(name: str) -> None:
        if name in due:
            due.remove(name)
            raise Died(name)

    monkeypatch.setattr("tidegate.connectors.jdbc.jvm_committer.failpoint", dies)
    monkeypatch.setattr("tidegate.connectors.jdbc.spark.failpoint", dies)
    for generation, place in enumerate(places, 1):
        due.append(place)
        with pytest.raises(Died):
            Run(engine, db, generation=generation).batch(numbers(), end=2)
        assert due == []
    assert isinstance(
        Run(engine, db, generation=len(places) + 1).batch(numbers(), end=2), AlreadyCommitted
    )
    assert db.rows(RECORDS) == [("1", str(len(places) + 1))]
    assert [row[0] for row in db.rows('select "id" from t')] == ["0", "1"]
    assert db.tables() == []


STEPS = {
    "prepare": ("before", "after"),
    "open": ("before", "middle", "after"),
    "commit": ("before", "middle", "after"),
}


def test_text_keys_of_a_created_table_distinguish_rows(engine: SparkEngine, db: Database) -> None:
    run = Run(engine, db, primary_keys=["name"])
    run.batch(numbers())
    run.batch(numbers(), 2, 0, 2)
    assert db.rows('select "id", "name" from t') == [(str(i), f"name {i}") for i in range(3)]


def test_a_whole_job_copies_into_the_database_exactly_once(
    engine: SparkEngine, db: Database, tmp_path: Path
) -> None:
    job = tmp_path / "job.conf"
    job.write_text(
        f"""env {{
  job.mode = "BATCH", job.name = "foreign", checkpoint.interval = 10, batch.max-rows = 40
}}
source {{ FakeSource {{
  row.num = 100
  schema {{ fields {{ id = bigint, name = string }}, primaryKey {{ columnNames = [id] }} }}
}} }}
sink {{ Jdbc {{
  url = "{db.url}", driver = "{db.driver}", table = "COPIED"
  generate_sink_sql = true, is_exactly_once = true
}} }}"""
    )
    ran = run_in_process(str(job), Home(tmp_path / "home"), Shared(engine))
    assert [failure.message for failure in ran.outcome.failures] == []
    assert ran.outcome.status is JobStatus.FINISHED
    assert len(db.rows("select * from copied")) == 100
    assert db.rows(RECORDS) == []


@BOTH
def test_first_of_two_drivers_of_one_generation_wins(engine: SparkEngine, db: Database) -> None:
    first = Run(engine, db, generation=8, token="aa")
    with pytest.raises(OtherCopy, match="another copy of this installation"):
        Run(engine, db, generation=8, token="bb")
    assert isinstance(first.batch(numbers()), BatchCommitted)
    db.execute("update tidegate_sink_record set fence_token = 'bb'")
    with pytest.raises(OtherCopy):
        first.batch(numbers(), 2, 3, 5)
    first.committer.forget()
    assert len(db.rows(RECORDS)) == 1, "another driver's record stays"
    Run(engine, db, generation=9, checkpoint=1, token="cc")
    assert db.rows("select generation_id, fence_token, installation from tidegate_sink_record") == [
        ("9", "cc", "I")
    ]
    assert len(db.rows("select * from t")) == 3


@BOTH
def test_target_keeps_its_newest_checkpoint_until_forget(engine: SparkEngine, db: Database) -> None:
    first = Run(engine, db)
    assert first.memory is not None
    assert first.memory.checkpoint == 0
    first.batch(numbers())
    state = first.committer.state()
    first.committer.finish()
    first.committer.close()
    later = Run(engine, db, generation=2, checkpoint=1, state=state)
    assert later.memory is not None
    assert later.memory.checkpoint == 1, "a finished target is distinguished from a lost one"
    later.committer.forget()
    lost = Run(engine, db, generation=3, checkpoint=1, state=state)
    assert lost.memory is not None
    assert lost.memory.checkpoint == 0
    assert "tidegate_sink_record" in lost.memory.target


@pytest.mark.parametrize(
    "statement", ["delete from tidegate_sink_record", "drop table tidegate_sink_record"]
)
def test_lost_record_stops_the_driver_before_the_commit(
    engine: SparkEngine, db: Database, statement: str
) -> None:
    run = Run(engine, db)
    run.batch(numbers())
    staged = run.stage(numbers(), 2, 3, 5)
    db.execute(statement)
    with pytest.raises(RecordGone, match="is no longer in"):
        run.commit(staged, 2, 3, 5)
    assert len(db.rows("select * from t")) == 3


def test_table_lost_with_its_record_is_recreated(engine: SparkEngine, db: Database) -> None:
    run = Run(engine, db)
    run.batch(numbers())
    state = run.committer.state()
    db.execute("drop table tidegate_sink_record", "drop table t")
    Run(engine, db, generation=2, checkpoint=1, state=state).batch(numbers(), 2, 3, 5)
    assert len(db.rows("select * from t")) == 2


def test_record_table_of_an_older_release_is_migrated(engine: SparkEngine, db: Database) -> None:
    db.execute(
        "create table tidegate_sink_record (id varchar(64) not null primary key, lineage"
        " varchar(200), job_id decimal(19), pipeline_id decimal(19), sink_name varchar(500),"
        " checkpoint_id decimal(19) not null, generation_id decimal(19) not null, offsets_json"
        " clob, prepared_json clob)"
    )
    Run(engine, db, token="aa").batch(numbers())
    assert db.rows(
        "select checkpoint_id, generation_id, fence_token from tidegate_sink_record"
    ) == [("1", "1", "aa")]


FITS: list[tuple[str, str, Any, bool]] = [
    ("decimal(10,2)", "decimal(10,4)", Decimal("1.2345"), False),
    ("integer", "double", 1.5, False),
    ("real", "double", 0.1, False),
    ("date", "timestamp", datetime.datetime(2024, 1, 2, 10), False),
    ("timestamp", "timestamp", datetime.datetime(2024, 1, 2, 10, 0, 0, 7), True),
    ("decimal(12,4)", "decimal(10,4)", Decimal("1.2345"), True),
    ("double precision", "double", 0.1, True),
    ("bigint", "int", 7, True),
]


@BOTH
@pytest.mark.parametrize(
    ("native", "kind", "value", "fits"), FITS, ids=[f"{row[1]} to {row[0]}" for row in FITS]
)
def test_column_that_would_round_is_rejected_before_the_first_row(
    engine: SparkEngine, db: Database, native: str, kind: str, value: Any, fits: bool
) -> None:
    db.execute(f'create table t ("id" bigint not null primary key, "v" {native})')
    given = Table(
        path="t",
        columns=(
            Column(name="id", type=parse_type("bigint")),
            Column(name="v", type=parse_type(kind)),
        ),
        primary_key=("id",),
    )
    rows = pa.RecordBatch.from_pylist([{"id": 1, "v": value}], schema=table_schema(given))
    source = node("source", Rows({"table": given, "batch": rows}, CONTEXT))
    if fits:
        Run(engine, db).batch(source, end=1)
    else:
        with pytest.raises(TargetUnfit, match=r"column 'v' .*allow_lossy_types"):
            Run(engine, db).batch(source, end=1)
        assert db.rows("select * from t") == []
        Run(engine, db, generation=2, allow_lossy_types=True).batch(source, end=1)
    assert len(db.rows("select * from t")) == 1


def test_two_inputs_with_one_target_are_rejected(engine: SparkEngine, db: Database) -> None:
    run = Run(engine, db)
    run.batch(numbers())
    other = replace(table(), path="elsewhere.t")
    with pytest.raises(SharedTable, match="allow_shared_table"):
        run.batch(node("source", Numbers({"tables": (other,)}, CONTEXT)), 2, 3, 5)
    assert len(db.rows("select * from t")) == 3
