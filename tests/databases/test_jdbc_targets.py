"""Targets that would round, truncate or merge values.

They are rejected before they have a row, or allowed by an option.
"""

import datetime
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from database_kit import CONTEXT, Driven, Place, everything, sink, source, table

from tidegate.connectors.jdbc.merge_runner import RowsLost, ValuesChanged
from tidegate.connectors.jdbc.target_check import TargetUnfit
from tidegate.connectors.jdbc.value_checks import ValueChecks, ValueUnfit
from tidegate.databases.errors import StatementRefused, TransientDatabaseError
from tidegate.databases.targets.rules import rules_of
from tidegate.model.errors import UserError
from tidegate.model.types import Table
from tidegate.plugin.contract import WriteTask

NOON = datetime.datetime(2024, 1, 2, 10, 0, 0, 700_000)
UTC_NOON = NOON.replace(tzinfo=datetime.UTC)
MARIA, PG, LITE = "maria", "pg", "lite"
# (database, type of the target, incoming type, value, part of the message)
ROUNDED = [
    (MARIA, "decimal(10,2)", "decimal(10,4)", Decimal("1.2345"), "rounded to 2 digits"),
    (PG, "numeric(10,2)", "decimal(10,4)", Decimal("1.2345"), "rounded to 2 digits"),
    (MARIA, "int", "decimal(10,1)", Decimal("1.7"), "rounded to integers"),
    (PG, "integer", "decimal(10,1)", Decimal("1.7"), "rounded to integers"),
    (MARIA, "int", "double", 1.7, "rounded to integers"),
    (PG, "integer", "double", 1.7, "rounded to integers"),
    (PG, "bigint", "float", 1.5, "rounded to integers"),
    (MARIA, "decimal(10,2)", "double", 1.234, "rounded to 2 digits"),
    (PG, "money", "decimal(10,4)", Decimal("1.2345"), "rounded to 2 digits"),
    (MARIA, "date", "timestamp", NOON, "time of day is cut off"),
    (PG, "date", "timestamp", NOON, "time of day is cut off"),
    (PG, "date", "timestamp_tz", UTC_NOON, "time of day is cut off"),
    (MARIA, "time(6)", "timestamp", NOON, "the date is cut off"),
    (PG, "time", "timestamp", NOON, "the date is cut off"),
    (MARIA, "float", "int", 16_777_217, "above 16777216 are rounded"),
    (PG, "real", "int", 16_777_217, "above 16777216 are rounded"),
    (MARIA, "double", "bigint", 2**53 + 1, "are rounded"),
    (PG, "double precision", "bigint", 2**53 + 1, "are rounded"),
    (LITE, "DOUBLE", "bigint", 2**53 + 1, "are rounded"),
    (MARIA, "float", "double", 0.1234567890123, "about 7 digits"),
    (PG, "real", "double", 0.1234567890123, "about 7 digits"),
    (MARIA, "float(7,2)", "float", 0.125, "2 digits after the point"),
    (
        MARIA,
        "double",
        "decimal(30,10)",
        Decimal("12345678901234567890.0123456789"),
        "about 15 digits",
    ),
    (
        LITE,
        "DECIMAL(30,10)",
        "decimal(30,10)",
        Decimal("12345678901234567890.0123456789"),
        "about 15 digits",
    ),
    (PG, "timestamp", "timestamp_tz", UTC_NOON, "lose their time zone"),
    (PG, "timestamptz", "timestamp", NOON, "are taken as UTC"),
    (MARIA, "timestamp(6) null", "timestamp", NOON, "are taken as UTC"),
    (MARIA, "text", "bytes", b"\x01", "bytes become text"),
    (PG, "text", "bytes", b"\x01", "bytes become text"),
    (PG, "numeric(6,2)[]", "array<decimal(6,4)>", [Decimal("1.2345")], "rounded to 2 digits"),
    (PG, "timestamp(0)[]", "array<timestamp>", [NOON], "elements of the list"),
]
ROUNDED += [("my", *row[1:]) for row in ROUNDED if row[0] == MARIA]


def incoming(kind: str) -> Table:
    return table("shop.t", ["id"], id="bigint", v=kind)


@pytest.mark.parametrize(
    ("where", "native", "kind", "value", "expected"),
    ROUNDED,
    ids=[f"{r[0]} {r[2]} to {r[1]}" for r in ROUNDED],
)
def test_lossy_type_is_rejected_unless_allowed(
    request: pytest.FixtureRequest, where: str, native: str, kind: str, value: Any, expected: str
) -> None:
    place: Place = request.getfixturevalue(where)
    place.execute(f"create table t (id bigint primary key, v {native})")
    with pytest.raises(TargetUnfit, match=rf"column 'v'.*{expected}.*allow_lossy_types"):
        Driven(sink(place, table="t")).batch(1, (incoming(kind), [(1, value)]))
    assert place.execute("select * from t") == []
    assert place.our_tables() == []
    if kind != "bytes":  # the resulting text depends on the database
        Driven(sink(place, table="t", allow_lossy_types=True), lineage="M").batch(
            1, (incoming(kind), [(1, value)])
        )
        assert len(place.execute("select * from t")) == 1


# Not decided by types: (database, type of the target, incoming type, value that fits, value that
# does not)
CHECKED = [
    (MARIA, "datetime(3)", "timestamp", NOON, NOON.replace(microsecond=700_001)),
    (MARIA, "datetime", "timestamp", NOON.replace(microsecond=0), NOON),
    (MARIA, "time", "time", datetime.time(10), datetime.time(10, 0, 0, 700_000)),
    (PG, "timestamp(0)", "timestamp", NOON.replace(microsecond=0), NOON),
    (PG, "timestamptz(2)", "timestamp_tz", UTC_NOON, UTC_NOON.replace(microsecond=123_456)),
    (PG, "time(0)", "time", datetime.time(10), datetime.time(10, 0, 0, 700_000)),
    (
        PG,
        "timestamp(0)",
        "timestamp",
        datetime.datetime(1901, 1, 1, 1, 1, 1),
        datetime.datetime(1901, 1, 1, 1, 1, 1, 1),
    ),
    (MARIA, "decimal(10,2)", "decimal(38,18)", Decimal("1.25"), Decimal("1.2345")),
    (PG, "numeric(10,2)", "decimal(38,18)", Decimal("1.25"), Decimal("1.2345")),
    (PG, "integer", "decimal(38,18)", Decimal("2"), Decimal("1.7")),
    (MARIA, "tinyint", "int", 127, 128),
    (MARIA, "int unsigned", "int", 0, -1),
    (MARIA, "year", "int", 1999, 24),
    (PG, "smallint", "bigint", -32_768, 32_768),
    (PG, "boolean", "int", 1, 2),
    (MARIA, "decimal(3,1)", "int", 99, 100),
    (MARIA, "varchar(3)", "string", "abc", "abc "),
    (PG, "varchar(3)", "string", "abc", "abc "),
    (MARIA, "char(3)", "string", "äöü", "äöü "),
    (PG, "char(3)", "string", "abc", "abcd"),
    (MARIA, "binary(3)", "bytes", b"abc", b"ab"),
    (MARIA, "varbinary(3)", "bytes", b"ab", b"abcd"),
    (LITE, "NUMERIC", "string", "seven", "007"),
    (LITE, "INTEGER", "string", "7", "1e3"),
    (LITE, "STRING", "string", "-7", " 7"),
    (LITE, "DATE", "string", "2024-01-01", "2024.10"),
]
CHECKED += [("my", *row[1:]) for row in CHECKED if row[0] == MARIA]


@pytest.mark.parametrize(
    ("where", "native", "kind", "good", "bad"),
    CHECKED,
    ids=[f"{r[0]} {r[2]} to {r[1]} {n}" for n, r in enumerate(CHECKED)],
)
def test_value_that_would_change_is_named_with_its_key(
    request: pytest.FixtureRequest, where: str, native: str, kind: str, good: Any, bad: Any
) -> None:
    place: Place = request.getfixturevalue(where)
    place.execute(f"create table t (id bigint primary key, v {native})")
    Driven(sink(place, table="t")).batch(1, (incoming(kind), [(1, good), (2, None)]))
    driven = Driven(sink(place, table="t"), 2, checkpoint=1)
    with pytest.raises(ValueUnfit, match=r"table shop\.t, column 'v', key id = 4: "):
        driven.batch(2, (incoming(kind), [(3, good), (4, bad)]))
    assert len(place.execute("select * from t")) == 2
    assert place.our_tables() == []


TEXTS = [  # texts into columns of other types: only the database knows the result
    (MARIA, "decimal(10,2)", "1.25", "1.2345"),
    (MARIA, "date", "2024-01-02", "2024-01-02 10:00:00"),
    (MARIA, "int", "12", "1.7"),
    (MARIA, "tinyint unsigned", "12", "1e1"),
    (MARIA, "float", "1.25", "0.1234567890123"),
    (MARIA, "double", "1e300", "0.12345678901234567"),
    (MARIA, "time", "10:00:00", "10:00:00.7"),
    (MARIA, "datetime(3)", "2024-01-02 10:00:00.123", "2024-01-02 10:00:00.1234"),
    (MARIA, "timestamp null", "2024-01-02 10:00:00", "2024-01-02 10:00:00.7"),
    (MARIA, "enum('a','b')", "a", "c"),
    (MARIA, "varchar(9) character set latin1", "é", "中"),
    (PG, "real", "1.25", "0.1234567890123"),
    (PG, "time(0)", "10:00:00", "10:00:00.7"),
    (PG, "interval(0)", "PT1S", "PT1.7S"),
    (PG, "numeric(10,2)", "1.25", "1.2345"),
    (PG, "date", "2024-01-02", "2024-01-02 10:00:00"),
    (PG, "timestamp(0)", "2024-01-02 10:00:00", "2024-01-02 10:00:00.7"),
    (PG, "bit(3)", "101", "10110"),
]
TEXTS += [("my", *row[1:]) for row in TEXTS if row[0] == MARIA]


@pytest.mark.parametrize(
    ("where", "native", "good", "bad"), TEXTS, ids=[f"{r[0]} {r[1]}" for r in TEXTS]
)
def test_text_that_would_be_rounded_fails_the_batch(
    request: pytest.FixtureRequest, where: str, native: str, good: str, bad: str
) -> None:
    place: Place = request.getfixturevalue(where)
    place.execute(f"create table t (id bigint primary key, v {native})")
    driven = Driven(sink(place, table="t"))
    driven.batch(1, (incoming("string"), [(1, good), (2, None)]))
    with pytest.raises(
        (ValuesChanged, StatementRefused, ValueUnfit),
        match=r"would be changed|Data truncated|Incorrect|Cannot convert|the target's column is",
    ):
        driven.batch(2, (incoming("string"), [(3, bad)]))
    assert place.execute("select count(*) from t") == [(2,)]


def test_all_problems_of_a_table_are_reported_together(binlog_place: Place) -> None:
    binlog_place.execute(
        "create table t (k varchar(20) collate utf8mb4_general_ci primary key, a decimal(10,2), d"
        " date)"
    )
    shown = table("shop.t", ["k"], k="string", a="decimal(10,4)", d="timestamp")
    with pytest.raises(TargetUnfit) as refused:
        Driven(sink(binlog_place, table="t")).batch(1, (shown, [("x", None, None)]))
    assert len(refused.value.problems) == 3
    assert all(
        name in str(refused.value)
        for name in ("'k'", "'a'", "'d'", "allow_merged_keys", "allow_lossy_types")
    )


@pytest.mark.parametrize("where", [MARIA, "my", PG])
def test_fractions_of_the_source_are_compared_before_the_first_row(
    request: pytest.FixtureRequest, where: str
) -> None:
    """The same digits are accepted, more are rejected even if no row has them."""
    place: Place = request.getfixturevalue(where)
    kind = "timestamp" if where == PG else "datetime"
    place.execute(
        f"create table s (id int primary key, a {kind}(0), b {kind}(3))",
        f"create table same (id int primary key, a {kind}(0), b {kind}(3))",
        f"create table less (id int primary key, a {kind}(0), b {kind}(0))",
        "insert into s values (1, '2024-01-02 10:00:00', '2024-01-02 10:00:00')",
    )
    reading = source(place, table_path="s")
    (arriving,) = reading.tables()
    rows = [tuple(row.values()) for row in everything(reading).to_pylist()]
    Driven(sink(place, table="same")).batch(1, (arriving, rows))
    with pytest.raises(TargetUnfit, match=r"column 'b'.*fractions of a second"):
        Driven(sink(place, table="less"), lineage="M").batch(1, (arriving, rows))


def test_problems_are_found_before_rows_are_staged(binlog_place: Place) -> None:
    binlog_place.execute("create table t (id bigint primary key, v date)")
    writer = sink(binlog_place, table="t").writer(
        WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token="t")
    )
    arriving = incoming("timestamp")
    writer.write(
        arriving,
        pa.RecordBatch.from_arrays(
            [pa.array([1], pa.int64()), pa.array([NOON], pa.timestamp("us"))], names=["id", "v"]
        ),
    )
    with pytest.raises(TargetUnfit):
        writer.close()
    writer.abort()
    assert binlog_place.our_tables() == []


# Values without a counterpart.

FAR: dict[str, Any] = {
    "double": [math.nan, math.inf, -math.inf],
    "float": [math.nan],
    "date": [-800_000, 2_932_897],
    "timestamp": [253_402_300_800_000_000, -62_135_596_800_000_001],
    "timestamp_tz": [253_402_300_800_000_000, -70_000_000_000_000_000],
    "time": [86_400_000_000],
}
SHOWN = {
    -800_000: "0222-09-04 BC",
    2_932_897: "10000-01-01",
    253_402_300_800_000_000: "10000-01-01 00:00:00",
    86_400_000_000: "24:00:00",
}
SHOWN |= {-62_135_596_800_000_001: "0001-12-31 23:59:59.999999 BC"}


def arrow(kind: str, value: Any) -> Any:
    match kind:
        case "double" | "float":
            return pa.array([value], pa.float64() if kind == "double" else pa.float32())
        case "date":
            return pa.array([value], pa.int32()).view(pa.date32())
        case "time":
            return pa.array([value * 1000], pa.int64()).view(pa.time64("ns"))
        case _:
            return pa.array([value], pa.int64()).view(
                pa.timestamp("us", "UTC" if kind == "timestamp_tz" else None)
            )


@pytest.mark.parametrize(
    ("where", "kind", "value"),
    [
        (where, kind, value)
        for where in (MARIA, "my", LITE)
        for kind, values in FAR.items()
        for value in values
        if not (where == LITE and kind == "double" and math.isinf(value))  # SQLite keeps infinities
    ],
)
def test_unsupported_value_is_an_error_with_the_value(
    request: pytest.FixtureRequest, where: str, kind: str, value: Any
) -> None:
    place: Place = request.getfixturevalue(where)
    driven = Driven(sink(place, table="t"))
    writer = driven.sink.writer(
        WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token="t")
    )
    arriving = incoming(kind)
    writer.write(
        arriving,
        pa.RecordBatch.from_arrays(
            [pa.array([7], pa.int64()), arrow(kind, value)], names=["id", "v"]
        ),
    )
    with pytest.raises(ValueUnfit, match="column 'v', key id = 7: ") as refused:
        writer.close()
    writer.abort()
    assert SHOWN.get(value, str(value) if isinstance(value, float) else "") in str(refused.value)
    assert place.our_tables() == []


def test_time_24_is_rejected_and_postgres_keeps_special_floats(pg: Place) -> None:
    Driven(sink(pg, table="f")).batch(
        1, (incoming("double"), [(1, math.nan), (2, math.inf), (3, -math.inf)])
    )
    assert pg.execute("select v::text from f order by id") == [
        ("NaN",),
        ("Infinity",),
        ("-Infinity",),
    ]
    writer = sink(pg, table="t").writer(
        WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token="t")
    )
    writer.write(
        incoming("time"),
        pa.RecordBatch.from_arrays(
            [pa.array([7], pa.int64()), arrow("time", 86_400_000_000)], names=["id", "v"]
        ),
    )
    with pytest.raises(ValueUnfit, match="24:00:00"):
        writer.close()
    writer.abort()


def test_unsupported_values_of_postgres_stop_a_copy(pg: Place, binlog_place: Place) -> None:
    pg.execute(
        "create table s (id int primary key, d double precision, t time)",
        "insert into s values (1, 'NaN', '10:00')",
    )
    reading = source(pg, table_path="s")
    (arriving,) = reading.tables()
    rows = [tuple(row.values()) for row in everything(reading).to_pylist()]
    with pytest.raises(ValueUnfit, match="key id = 1: nan"):
        Driven(sink(binlog_place, table="t")).batch(1, (arriving, rows))


def test_new_mariadb_tables_store_timestamps_outside_1970_to_2038(
    binlog_place: Place,
) -> None:
    rows = [
        (n, datetime.datetime(year, 1, 1, tzinfo=datetime.UTC))
        for n, year in enumerate((1000, 1969, 2040, 9999))
    ]
    Driven(sink(binlog_place, table="t")).batch(1, (incoming("timestamp_tz"), rows))
    assert binlog_place.execute("select id, year(v) from t order by id") == [
        (0, 1000),
        (1, 1969),
        (2, 2040),
        (3, 9999),
    ]


def test_mariadb_timestamp_keeps_its_type_in_a_copy(binlog_place: Place) -> None:
    binlog_place.execute(
        "create table s (id int primary key, v timestamp(6) null)",
        "insert into s values (1, '2024-01-02 10:00:00.5')",
    )
    reading = source(binlog_place, table_path="s")
    (arriving,) = reading.tables()
    Driven(sink(binlog_place, table="t")).batch(
        1, (arriving, [tuple(row.values()) for row in everything(reading).to_pylist()])
    )
    assert everything(source(binlog_place, table_path="t")) == everything(reading)


def test_timestamp_outside_of_the_column_range_is_an_error(binlog_place: Place) -> None:
    binlog_place.execute("create table t (id bigint primary key, v timestamp(6) null)")
    driven = Driven(sink(binlog_place, table="t"))
    for year in (1969, 2039):
        with pytest.raises((StatementRefused, ValueUnfit, ValuesChanged), match=str(year)):
            driven.batch(
                1,
                (
                    incoming("timestamp_tz"),
                    [(1, datetime.datetime(year, 1, 1, tzinfo=datetime.UTC))],
                ),
            )
    assert binlog_place.execute("select * from t") == []


# Modes of the session.


def test_session_without_strict_modes_is_rejected(binlog_place: Place) -> None:
    rules = rules_of(binlog_place.address.system)
    with binlog_place.session() as session:
        rules.prepare_session(session)
        session.execute("set session sql_mode = 'STRICT_TRANS_TABLES'")
        with pytest.raises(TransientDatabaseError, match="STRICT_ALL_TABLES"):
            rules.prepare_session(session)


def test_load_data_that_warns_fails(binlog_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that the checks miss are found in the server's warnings."""
    monkeypatch.setattr(ValueChecks, "check", lambda _, batch: batch)
    with pytest.raises(StatementRefused, match=r"column 'v' .double., key id = 2, value nan"):
        Driven(sink(binlog_place, table="t")).stage(
            1, (incoming("double"), [(1, 1.5), (2, math.nan)])
        )


# What is no table, or loses rows.


def test_view_is_rejected_as_target(place: Place) -> None:
    place.execute(
        "create table t (id bigint primary key, v int)", "create view w as select id, v from t"
    )
    with pytest.raises(TargetUnfit, match="it is a view"):
        Driven(sink(place, table="w")).batch(1, (incoming("int"), [(1, 1)]))


def test_rows_dropped_by_a_trigger_fail_the_commit(pg: Place) -> None:
    pg.execute(
        "create table t (id bigint primary key, v int)",
        "create function away() returns trigger language plpgsql as 'begin if new.v = 2 then return"
        " null; end if; return new; end'",
        "create trigger away before insert on t for each row execute function away()",
    )
    driven = Driven(sink(pg, table="t"))
    with pytest.raises(RowsLost, match="stored 1 of 2 rows"):
        driven.batch(1, (incoming("int"), [(1, 1), (2, 2)]))
    with pytest.raises(RowsLost, match="stored 1 of 2 rows"):
        driven.batch(1, (replace(incoming("int"), kinds=True), [("+I", 1, 1), ("+U", 2, 2)]))
    assert pg.execute("select * from t") == []


def test_null_in_a_not_null_column_is_named(place: Place) -> None:
    place.execute("create table t (id bigint primary key, v int not null)")
    with pytest.raises(ValueUnfit, match="column 'v', key id = 2: null is not allowed"):
        Driven(sink(place, table="t")).batch(1, (incoming("int"), [(1, 1), (2, None)]))


def test_deleting_rows_need_only_their_key(binlog_place: Place) -> None:
    """The before image of a row may have unsupported values, or none."""
    binlog_place.execute(
        "create table t (id bigint primary key, v double not null)",
        "insert into t values (1, 1), (2, 2)",
    )
    changes = replace(incoming("double"), kinds=True)
    rows = [("-D", 1, None), ("-U", 2, math.nan), ("+U", 2, 2.5), ("-D", 3, math.inf)]
    Driven(sink(binlog_place, table="t")).batch(1, (changes, rows))
    assert binlog_place.execute("select id, v from t") == [(2, 2.5)]


def test_column_added_later_is_checked(binlog_place: Place) -> None:
    driven = Driven(sink(binlog_place, table="t"))
    driven.batch(1, (table("shop.t", ["id"], id="bigint"), [(1,)]))
    binlog_place.execute("alter table t add column v date")
    with pytest.raises(TargetUnfit, match="time of day"):
        driven.batch(
            2,
            (replace(incoming("timestamp"), options={"schema-changes.enabled": True}), [(2, NOON)]),
        )


# Two inputs, one table.


def test_two_inputs_with_one_target_are_rejected(place: Place) -> None:
    one, two = (table(f"{name}.orders", ["id"], id="bigint", v="int") for name in ("east", "west"))
    with pytest.raises(
        UserError,
        match=r"east\.orders and west\.orders are both written to .*orders.*allow_shared_table",
    ):
        Driven(sink(place, table="${table_name}")).batch(1, (one, [(1, 1)]), (two, [(1, 2)]))
    driven = Driven(sink(place, table="${table_name}"), lineage="M")
    driven.batch(1, (one, [(1, 1)]))
    with pytest.raises(UserError, match="are both written to"):
        driven.batch(2, (two, [(1, 2)]))
    state = driven.committer.state()
    later = Driven(sink(place, table="${table_name}"), 2, lineage="M", checkpoint=1, state=state)
    with pytest.raises(UserError, match="are both written to"):
        later.batch(2, (two, [(1, 2)]))
    assert place.execute("select id, v from orders") == [(1, 1)]
    Driven(
        sink(
            place,
            replace(CONTEXT, operator="other"),
            table="${table_name}",
            allow_shared_table=True,
        ),
        lineage="N",
    ).batch(1, (one, [(1, 1)]), (two, [(2, 2)]))
    assert place.execute("select id, v from orders order by id") == [(1, 1), (2, 2)]
