"""Databases reached only through Spark's JDBC, on Derby in the JVM: reads, writes, errors."""

import datetime
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from engine_parts import CONTEXT, Numbers, batch, graph, node, table

from tidegate.connectors.jdbc.jvm_connector import JvmSink, JvmSource
from tidegate.connectors.jdbc.jvm_errors import DriverMissing
from tidegate.connectors.jdbc.options import SINK_OPTIONS, SOURCE_OPTIONS
from tidegate.connectors.jdbc.save_modes import TableNotPrepared
from tidegate.connectors.jdbc.spark import frame
from tidegate.databases.errors import StatementRefused, TableMissing
from tidegate.home import Home
from tidegate.model.errors import UserError
from tidegate.model.problem import Location
from tidegate.model.records import JobStatus
from tidegate.plugin.contract import Limit, SinkRestore
from tidegate.plugin.option import Block, OptionSet
from tidegate.spark.engine import SparkEngine
from tidegate.spark.errors import DataRefused
from tidegate.testing.in_process import Shared, run_in_process

DRIVER = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
SAVE = "tidegate.connectors.jdbc.spark:save"
ENV = (
    'env { job.mode = "BATCH", job.name = "foreign", checkpoint.interval = 10, batch.max-rows ='
    " 100 }"
)


class Derby:
    """A database in the memory of the JVM."""

    def __init__(self, jvm: Any, name: str) -> None:
        self.url = f"jdbc:derby:memory:{name};create=true"
        self._connection = jvm.java.sql.DriverManager.getConnection(self.url)

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
            return rows

    def close(self) -> None:
        self._connection.close()

    def options(self, **more: Any) -> dict[str, Any]:
        return {"url": self.url, "driver": DRIVER, **more}


@pytest.fixture
def derby(spark: Any, tmp_path: Path) -> Iterator[Derby]:
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    with closing(Derby(spark._jvm, tmp_path.name)) as database:
        yield database


def read(options: OptionSet, given: dict[str, Any]) -> dict[str, Any]:
    values, problems = options.read(Block(given, lambda _: Location(""), ""))
    assert problems == []
    return values


def source(derby: Derby, **more: Any) -> JvmSource:
    return JvmSource(read(SOURCE_OPTIONS, derby.options(**more)), CONTEXT)


def sink(derby: Derby, *, direct: bool = True, **more: Any):
    """A sink that adds rows directly, as into a database whose SQL is not known, or one that stages
    and commits.
    """
    made = JvmSink(read(SINK_OPTIONS, derby.options(**({"table": "T"} | more))), CONTEXT)
    made.direct = direct
    return node("saved", made, ("source",), fusable=False, spark=SAVE)


def numbers(**values: Any):
    return node("source", Numbers({"tables": (table(),)} | values, CONTEXT))


def fill(derby: Derby, rows: int = 250) -> None:
    values = ", ".join(
        f"({i}, 'näme {i}', {i}.25, timestamp('2024-03-31 02:30:00.123456'), {i % 5 or 'null'})"
        for i in range(1, rows + 1)
    )
    derby.execute(
        "create table orders (id bigint not null primary key, name varchar(40), amount"
        " decimal(12,2), made timestamp, shelf int)",
        f"insert into orders values {values}",
    )


def everything(spark: Any, reading: JvmSource) -> list[Any]:
    start = reading.initial()
    return frame(
        reading, spark, reading.tables()[0], start, reading.latest(start, Limit())
    ).collect()


def test_every_row_is_read_once_with_bounds_and_without(spark: Any, derby: Derby) -> None:
    fill(derby)
    bounds = {"partition_lower_bound": "1", "partition_upper_bound": "250"}
    ways: list[tuple[dict[str, Any], int]] = [
        ({}, 1),
        ({"partition_column": "shelf", "partition_num": 3}, 1),
        ({"partition_column": "amount"}, 1),
        ({"partition_column": "id", "partition_num": 7, **bounds}, 7),
    ]
    for more, wanted in ways:
        reading = source(derby, table_path="ORDERS", **more)
        start, turns, seen = reading.initial(), 0, []
        while not reading.is_exhausted(start):
            end = reading.latest(start, Limit(rows=1))
            seen += [
                row.ID for row in frame(reading, spark, reading.tables()[0], start, end).collect()
            ]
            start, turns = end, turns + 1
        assert sorted(seen) == list(range(1, 251))
        assert turns == wanted


def test_bounds_conditions_and_queries_use_the_databases_sql(spark: Any, derby: Derby) -> None:
    fill(derby)
    bounds = {
        "partition_column": "id",
        "partition_lower_bound": "11",
        "partition_upper_bound": "200",
        "partition_num": 4,
    }
    reading = source(
        derby,
        query="select id, amount * 2 as twice from orders;",
        where_condition="where twice > 60",
        **bounds,
    )
    assert [(c.name, str(c.type)) for c in reading.tables()[0].columns] == [
        ("ID", "bigint"),
        ("TWICE", "decimal(22,2)"),
    ]
    start = reading.initial()
    assert len(start["tables"][0]["edges"]) == 3
    rows = everything(spark, reading)
    assert sorted(row.ID for row in rows) == list(range(30, 201))
    assert {row.TWICE for row in rows if row.ID == 30} == {Decimal("60.50")}


def test_sink_creates_the_table_and_appends_every_batch(engine: SparkEngine, derby: Derby) -> None:
    nodes = graph(source=numbers(), saved=sink(derby))
    engine.run(nodes, batch(2))
    assert engine.run(nodes, batch(5, start=2, checkpoint=2)).messages["saved"] == [{"rows": 3}]
    assert sorted(derby.rows('select "id" from t')) == [(str(i),) for i in range(5)]


def test_save_modes_apply_to_the_first_write_and_its_retries(
    engine: SparkEngine, derby: Derby
) -> None:
    derby.execute(
        "create table t (id bigint, name varchar(20), more int default 7)",
        "insert into t values (-1, 'old', 1)",
    )
    nodes = graph(source=numbers(), saved=sink(derby, data_save_mode="DROP_DATA"))
    writes = nodes.nodes["saved"].operator
    assert isinstance(writes, JvmSink)
    committer = writes.committer()
    committer.open(SinkRestore(lineage="L", generation=1, checkpoint=0))
    for _ in range(2):  # as after a kill in the first batch
        engine.run(nodes, batch(2))
    kept = committer.state()
    engine.run(nodes, batch(3, start=2, checkpoint=2))
    assert sorted(derby.rows("select id, more from t")) == [
        ("0", "7"),
        ("1", "7"),
        ("2", "7"),
    ], "emptied once, and still the same table"
    committer.open(SinkRestore(lineage="L", generation=2, checkpoint=1, state=kept))
    engine.run(nodes, batch(3, start=2, checkpoint=2))
    assert len(derby.rows("select id from t")) == 4, (
        "a batch that is repeated is added again: at least once"
    )

    other = graph(source=numbers(), saved=sink(derby, schema_save_mode="RECREATE_SCHEMA"))
    engine.run(other, batch(2))
    assert sorted(derby.rows("select * from t")) == [("0", "name 0"), ("1", "name 1")]
    with pytest.raises(TableNotPrepared, match="ERROR_WHEN_DATA_EXISTS"):
        engine.run(
            graph(source=numbers(), saved=sink(derby, data_save_mode="ERROR_WHEN_DATA_EXISTS")),
            batch(2),
        )
    with pytest.raises(TableMissing, match="'NONE_OF_US'"):
        engine.run(
            graph(
                source=numbers(),
                saved=sink(
                    derby, table="NONE_OF_US", schema_save_mode="ERROR_WHEN_SCHEMA_NOT_EXIST"
                ),
            ),
            batch(2),
        )


def test_deletes_are_rejected(engine: SparkEngine, derby: Derby) -> None:
    with pytest.raises(DataRefused, match="put FilterRowKind before the sink"):
        engine.run(graph(source=numbers(tables=(table(kinds=True),)), saved=sink(derby)), batch(4))


@pytest.mark.usefixtures("spark")
def test_missing_jdbc_driver_is_reported_with_a_remedy() -> None:
    def foreign(url: str, driver: str) -> JvmSource:
        return JvmSource(
            read(SOURCE_OPTIONS, {"url": url, "driver": driver, "table_path": "T"}), CONTEXT
        )

    with pytest.raises(
        DriverMissing,
        match=r"'org.hsqldb.jdbcDriver' for jdbc:hsqldb:mem:x;PASSWORD=\*{6} .*env \{ jars = ",
    ):
        foreign("jdbc:hsqldb:mem:x;PASSWORD=geheim", "org.hsqldb.jdbcDriver").tables()
    with pytest.raises(DriverMissing, match="check `driver` and `url`"):
        foreign("jdbc:nobody:x", DRIVER).tables()


def test_user_errors_are_reported(spark: Any, derby: Derby) -> None:
    fill(derby)
    with pytest.raises(StatementRefused, match="NONE_OF_US"):
        source(derby, table_path="NONE_OF_US").tables()
    with pytest.raises(UserError, match="there are ID, NAME, AMOUNT, MADE, SHELF"):
        everything(spark, source(derby, table_path="ORDERS", partition_column="nope"))
    with pytest.raises(UserError, match="can be split by numbers only"):
        everything(spark, source(derby, table_path="ORDERS", partition_column="name"))


def test_database_types_map_to_pipeline_types(spark: Any, derby: Derby) -> None:
    derby.execute(
        "create table kinds (b boolean, s smallint, i int, l bigint, r real, d double, n"
        " decimal(31,5), c char(3), v varchar(9), t clob, x blob, da date, ts timestamp)",
        "insert into kinds values (true, 1, 2, 3, 1.5, 2.5, 12345678901234567890123456.00001, 'a',"
        " 'b', 'c', cast(x'00ff' as blob), date('2024-02-29'), timestamp('2024-02-29"
        " 23:59:59.999999'))",
        "insert into kinds (i) values (null)",
    )
    reading = source(derby, table_path="KINDS")
    assert [str(c.type) for c in reading.tables()[0].columns] == [
        "boolean", "int", "int", "bigint", "float", "double", "decimal(31,5)", "string", "string",
        "string", "bytes", "date", "timestamp",
    ]  # fmt: skip
    rows = everything(spark, reading)
    filled, empty = sorted((tuple(row) for row in rows), key=lambda row: row[0] is None)
    assert filled == (
        True, 1, 2, 3, 1.5, 2.5, Decimal("12345678901234567890123456.00001"), "a  ", "b", "c",
        bytearray(b"\0\xff"), datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 23, 59, 59, 999999),
    )  # fmt: skip
    assert set(empty) == {None}


def test_table_is_read_in_chunks_and_copied_exactly_once(
    engine: SparkEngine, derby: Derby, tmp_path: Path
) -> None:
    fill(derby)
    job = tmp_path / "job.conf"
    job.write_text(
        f"""{ENV}
source {{ Jdbc {{
  url = "{derby.url}", driver = "{DRIVER}"
  table_path = "ORDERS", partition_column = "id", partition_num = 4,
  partition_lower_bound = 1, partition_upper_bound = 250, split.size = 50 }} }}
sink {{ Jdbc {{
  url = "jdbc:sqlite:{tmp_path}/target.db", table = "copied", primary_keys = ["ID"]
}} }}"""
    )
    ran = run_in_process(str(job), Home(tmp_path / "home"), Shared(engine))
    assert [failure.message for failure in ran.outcome.failures] == []
    assert ran.outcome.status is JobStatus.FINISHED
    with closing(connect(tmp_path / "target.db")) as db:
        found = db.execute(
            "select ID, NAME, AMOUNT, MADE, SHELF from copied order by ID"
        ).fetchall()
    assert [row[:3] for row in found] == [(i, f"näme {i}", i + 0.25) for i in range(1, 251)]
    assert {row[3] for row in found} == {"2024-03-31 02:30:00.123456"}, (
        "a time without a zone is not moved"
    )
    assert found[4][4] is None
