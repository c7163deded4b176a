"""Parts that all CDC sources share: row kinds, rollback, chunks, options."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.cdc import key_order as order
from tidegate.databases.cdc import spool
from tidegate.databases.cdc.changes import SnapshotRollback, normalize_changes
from tidegate.databases.cdc.key_order import ArrowOrder
from tidegate.databases.cdc.keys import KeyChunk, SplitKey, split_key
from tidegate.databases.cdc.progress import chunk_budget, chunks_between, is_done
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.dialect import Dialect, dialect_of
from tidegate.databases.reconnect import retry_connect
from tidegate.databases.session import open_session
from tidegate.databases.url import System, parse_url
from tidegate.model.errors import TransientError, UserError
from tidegate.model.job import BlockKind
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, Column, Table, parse_type
from tidegate.plugin.option import Block
from tidegate.plugin.registry import find
from tidegate.plugin.secret import packed, unpacked

MYSQL, POSTGRES = dialect_of(System.MYSQL), dialect_of(System.POSTGRES)
NOON = datetime.datetime(2024, 3, 31, 2, 30)
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), (ROW_KIND, pa.int8())])


def batch(*rows: tuple[int | None, str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(column), field.type)
            for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ],
        schema=SCHEMA,
    )


def rows(found: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    changes = batch((1, "a", 1), (1, "b", 2), (2, "a", 1), (3, "a", 2), (4, "x", 0), (5, "y", 3))
    assert rows(normalize_changes(changes, ["id"])) == [
        (1, "a", 1),
        (1, "b", 2),
        (2, "a", 3),
        (3, "a", 0),
        (4, "x", 0),
        (5, "y", 3),
    ]


def test_change_of_a_null_key_is_a_key_change() -> None:
    changes = batch(
        (None, "a", 1), (1, "b", 2), (2, "a", 1), (None, "a", 2), (None, "a", 1), (None, "b", 2)
    )
    assert [row[2] for row in rows(normalize_changes(changes, ["id"]))] == [3, 0, 3, 0, 1, 2]


def test_rows_outside_of_the_read_keys_are_dropped() -> None:
    changes = batch(
        (1, "a", 1),
        (1, "b", 2),
        (2, "a", 1),
        (30, "a", 2),
        (40, "a", 1),
        (4, "a", 2),
        (50, "x", 0),
        (5, "x", 0),
        (60, "y", 3),
        (70, "q", 1),
        (71, "r", 2),
    )
    assert rows(normalize_changes(changes, ["id"], ArrowOrder("id").upto(changes, 10))) == [
        (1, "a", 1),
        (1, "b", 2),
        (2, "a", 3),
        (4, "a", 0),
        (5, "x", 0),
    ]


def test_rows_are_rolled_back_to_before_their_first_change() -> None:
    back = SnapshotRollback(
        ["id"], lambda changes: ArrowOrder("id").inside(changes, KeyChunk(0, 10))
    )
    back.add(
        normalize_changes(
            batch(
                (1, "old", 1), (1, "new", 2), (2, "gone", 3), (3, "fresh", 0), (20, "outside", 3)
            ),
            ["id"],
        )
    )
    back.add(
        normalize_changes(batch((1, "new", 3), (4, "was four", 1), (5, "was four", 2)), ["id"])
    )
    now = [batch((3, "fresh", 0), (5, "was four", 0)), batch((6, "same", 0))]
    found = [row for one in back.apply(now, SCHEMA) for row in rows(one)]
    assert sorted(found) == [(1, "old", 0), (2, "gone", 0), (4, "was four", 0), (6, "same", 0)]


def test_chunks_are_the_ranges_between_two_offsets() -> None:
    first = {"upto": 20, "cuts": [10, 20]}
    last = {"upto": None, "cuts": [30, None]}
    assert chunks_between(None, first) == [KeyChunk(None, 10), KeyChunk(10, 20)]
    assert chunks_between(first, last) == [KeyChunk(20, 30), KeyChunk(30, None)]
    assert chunks_between(last, last) == chunks_between(None, None) == []
    assert is_done(last)
    assert not is_done(first)
    assert chunk_budget(1, 8096, 2) == 2


def key_of(
    dialect: Dialect, native: str, *, known: list[str] | None = None, **more: Any
) -> SplitKey | None:
    column = NativeColumn(name="id", native=native, **{"nullable": False, **more})
    table = Table(
        path="t", columns=(Column(name="id", type=dialect.data_type(column)),), primary_key=("id",)
    )
    return split_key(
        CdcTable(info=TableInfo(name=TableName("d", "", "t"), columns=(column,)), table=table),
        dialect,
        known,
    )


@pytest.mark.parametrize(
    "native",
    [
        "bigint(20)",
        "bigint unsigned",
        "decimal(20,2)",
        "date",
        "datetime(6)",
        "timestamp",
        "varchar(9)",
        "binary(16)",
        "uuid",
        "inet6",
    ],
)
def test_mariadb_table_is_split_by_keys_of_this_type(native: str) -> None:
    assert key_of(MYSQL, native) is not None


@pytest.mark.parametrize(
    "native",
    ["tinyint(1)", "double", "time", "enum('a')", "set('a')", "bit(9)", "decimal(65,2)", "point"],
)
def test_mariadb_table_with_a_key_of_this_type_is_one_chunk(native: str) -> None:
    assert key_of(MYSQL, native) is None


@pytest.mark.parametrize(
    "native",
    [
        "bigint",
        "numeric(9,2)",
        "numeric",
        "date",
        "timestamp with time zone",
        "text",
        "character(36)",
        "bytea",
        "uuid",
    ],
)
def test_postgresql_table_is_split_by_keys_of_this_type(native: str) -> None:
    assert key_of(POSTGRES, native) is not None


@pytest.mark.parametrize(
    "native",
    ["boolean", "double precision", "mood", "inet", "integer[]", "time without time zone", "jsonb"],
)
def test_postgresql_table_with_a_key_of_this_type_is_one_chunk(native: str) -> None:
    assert key_of(POSTGRES, native) is None


def test_table_is_split_only_by_a_column_of_its_key() -> None:
    column = NativeColumn(name="n", native="int")
    table = Table(
        path="t", columns=(Column(name="n", type=parse_type("int")),), primary_key=("id",)
    )
    assert (
        split_key(
            CdcTable(
                info=TableInfo(name=TableName("d", "", "t"), columns=(column,)),
                table=table,
                split="n",
            ),
            MYSQL,
        )
        is None
    )


def test_bounds_keep_the_collation_they_were_found_with() -> None:
    text = key_of(
        MYSQL,
        "varchar(9)",
        charset="latin1",
        collation="latin1_bin",
        known=["id", "latin1_german1_ci"],
    )
    assert text is not None
    assert (
        text.condition(KeyChunk("a", None))
        == "`id` > convert(_utf8mb4 x'61' using latin1) collate latin1_german1_ci"
    )
    other = key_of(POSTGRES, "text", collation='"pg_catalog"."C"')
    assert other is not None
    assert (
        other.condition(KeyChunk(None, "a"))
        == """"id" <= cast('a' as text) collate "pg_catalog"."C\""""
    )


def test_rows_with_a_null_key_are_in_the_first_chunk_only() -> None:
    day = key_of(POSTGRES, "date", nullable=True)
    assert day is not None
    odd = '"id" is null or "id" = \'infinity\''
    assert day.condition(KeyChunk(None, None)) == ""
    assert (
        day.condition(KeyChunk(None, "2024-01-01"))
        == f"(\"id\" <= cast('2024-01-01' as date) or {odd})"
    )
    assert (
        day.condition(KeyChunk("2024-01-01", None))
        == f"\"id\" > cast('2024-01-01' as date) and not ({odd})"
    )


@pytest.mark.parametrize(
    ("kind", "values", "bound"),
    [
        (pa.int32(), [1, 5, 6], 5),
        (pa.int32(), [1, 2, None], 2**40),
        (pa.decimal128(20, 0), [Decimal(1), Decimal(2**64 - 2), Decimal(2**64 - 1)], 2**64 - 2),
        (
            pa.decimal128(9, 2),
            [Decimal("-1.00"), Decimal("1.5"), Decimal("1.51")],
            {"number": "1.50"},
        ),
        (pa.decimal128(9, 2), [None, Decimal("1.5"), Decimal("1.51")], "1.50"),
        (
            pa.date32(),
            [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)],
            "2024-02-29",
        ),
        (
            pa.timestamp("us"),
            [NOON, NOON, NOON + datetime.timedelta(microseconds=1)],
            "2024-03-31 02:30:00",
        ),
        (
            pa.timestamp("us", tz="UTC"),
            [NOON, NOON, NOON + datetime.timedelta(microseconds=1)],
            "2024-03-31 02:30:00+00",
        ),
        (
            pa.timestamp("us", tz="UTC"),
            [None, NOON, NOON + datetime.timedelta(microseconds=1)],
            "2024-03-31 02:30:00.000000",
        ),
        (pa.binary(), [b"", b"a", b"a\0"], {"bytes": "61"}),
    ],
)
def test_keys_are_compared_with_the_end_of_a_range(
    kind: Any, values: list[Any], bound: Any
) -> None:
    keys = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["id"])
    last = bound == 2**40
    assert ArrowOrder("id").upto(keys, bound).to_pylist() == [True, True, last]
    assert ArrowOrder("id").inside(keys, KeyChunk(bound, None)).to_pylist() == [
        False,
        False,
        not last,
    ]


@pytest.mark.parametrize(
    ("limit", "value", "statements"),
    [("KEYS_PER_QUERY_MAX", 2, 3), ("QUERY_CHARS_MAX", 7, 3), ("KEYS_PER_QUERY_MAX", 1000, 1)],
)
def test_strings_are_compared_by_the_database_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, statements: int
) -> None:
    monkeypatch.setattr(order, limit, value)
    session = open_session(
        parse_url(f"jdbc:sqlite:{tmp_path / 'any.db'}", "", "", {"create": "true"})
    )
    asked: list[str] = []
    query = session.query
    monkeypatch.setattr(session, "query", lambda sql: asked.append(sql) or query(sql))
    key = SplitKey(
        column=NativeColumn(name="id", native="text"),
        kind=parse_type("string"),
        dialect=dialect_of(System.SQLITE),
    )
    keys = pa.RecordBatch.from_arrays(
        [pa.array(["b", "a", None, "d", "c", "a", "e"])], names=["id"]
    )
    with order.order_of(key, lambda: session) as found:
        assert found.upto(keys, "c").to_pylist() == [True, True, True, False, True, True, False]
        assert len(asked) == statements
        assert found.inside(keys, KeyChunk("a", "d")).to_pylist() == [
            True,
            False,
            False,
            True,
            True,
            False,
            False,
        ]
        assert found.inside(keys, KeyChunk(None, None)).to_pylist() == [True] * 7


def test_spool_returns_its_batches_from_memory_and_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MEMORY_BYTES_MAX", 200)
    with spool.Spool(SCHEMA) as waiting:
        for n in range(20):
            waiting.add(batch((n, "x" * 10, 0)))
        assert [row[0] for one in waiting for row in rows(one)] == list(range(20))


def test_transient_errors_are_retried_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.databases.reconnect.RECONNECT_PAUSES_S", (0.0,))
    asked: list[int] = []

    def failing(error: Exception, times: int) -> Any:
        def act() -> str:
            asked.append(1)
            if len(asked) <= times:
                raise error
            return "there"

        asked.clear()
        return act

    assert retry_connect(failing(TransientError("away"), 3), 3) == "there"
    with pytest.raises(TransientError):
        retry_connect(failing(TransientError("away"), 4), 3)
    with pytest.raises(UserError):
        retry_connect(failing(UserError("wrong"), 1), 3)
    assert len(asked) == 1


def problems(name: str, **more: Any) -> list[str]:
    connector = find(BlockKind.SOURCE, name)
    given = {"username": "u", "password": "p", "table-names": ["a.b"], **more}
    block = Block(
        {k: v for k, v in given.items() if v is not None}, lambda _: Location(""), "source[0]"
    )
    values, found = connector.options.read(block)
    return [p.message for p in (*found, *connector.check(block, values))]


def test_all_problems_of_the_options_are_reported_together() -> None:
    assert problems("MySQL-CDC", url="jdbc:mysql://h/d") == []
    assert problems("Postgres-CDC", url="jdbc:postgresql://h/d") == []
    many = problems(
        "MySQL-CDC",
        url="jdbc:postgresql://h/d",
        **{
            "table-names": None,
            "table-pattern": "(",
            "startup.mode": "specific",
            "format": "COMPATIBLE_DEBEZIUM_JSON",
        },
    )
    assert len(many) == 5
    assert (
        "is not a valid name of a slot"
        in problems("Postgres-CDC", url="jdbc:postgresql://h/d", **{"slot.name": "No-Good"})[0]
    )
    assert "is not a log file" in " ".join(
        problems("MySQL-CDC", url="jdbc:mysql://h/d", **{"stop.specific-offset.file": "x"})
    )


def test_secrets_of_a_plan_are_hidden_and_restored() -> None:
    options = find(BlockKind.SOURCE, "MySQL-CDC").options
    values = {"password": 'p"ss word', "username": "u"}
    hidden = packed(values, options)
    assert "ss word" not in str(hidden)
    assert hidden["username"] == "u"
    assert unpacked(hidden) == values


@pytest.mark.parametrize("plugin", ["decoderbufs", "wal2json"])
def test_other_decoding_plugins_are_read_with_pgoutput_and_a_notice(plugin: str) -> None:
    connector = find(BlockKind.SOURCE, "Postgres-CDC")
    given = {
        "url": "jdbc:postgresql://host/db",
        "username": "u",
        "password": "p",
        "table-names": ["db.s.t"],
        "decoding.plugin.name": plugin,
    }
    block = Block(given, lambda _: Location("job.conf", 1), "source[0]")
    values, problems = connector.options.read(block)
    assert connector.check is not None
    found = [*problems, *connector.check(block, values)]
    assert [(p.severity.value, p.path) for p in found] == [
        ("notice", "source[0].decoding.plugin.name")
    ]
    assert "read with pgoutput" in found[0].message
