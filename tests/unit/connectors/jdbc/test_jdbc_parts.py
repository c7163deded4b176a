"""Pure parts of the Jdbc connector: offsets, names, targets, statements, literals, chunks."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tidegate.connectors.jdbc.chunk_position import ChunkPosition, TableChunks, thin_edges
from tidegate.connectors.jdbc.merge_sql import ColumnMissing, MergeSql
from tidegate.connectors.jdbc.options import SINK_OPTIONS
from tidegate.connectors.jdbc.sink_query import column_indexes, parse_parameters
from tidegate.connectors.jdbc.stage_names import (
    StageName,
    is_dead,
    lineage_digest,
    record_id,
    sink_digest,
    stage_prefix,
)
from tidegate.connectors.jdbc.staging_mysql import encode_rows
from tidegate.connectors.jdbc.target import (
    KeyMissing,
    table_from_message,
    table_to_message,
    target_of,
)
from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.chunks import ChunkStrategy, as_bound, even_chunks, range_condition
from tidegate.databases.dialect import dialect_of
from tidegate.databases.targets.rules import TargetTable, UniqueIndex
from tidegate.databases.url import System, parse_url
from tidegate.model.errors import TerminalError, UserError
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import Column, Table, parse_type
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.option import Block, Values
from tidegate.plugin.placeholders import for_table, list_for_table, placeholder_values

CONTEXT = OperatorContext(
    job_id=7, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
)
ORDERS = Table(
    path="shop.public.orders",
    columns=(
        Column(name="Id", type=parse_type("int")),
        Column(name="n", type=parse_type("string")),
    ),
    primary_key=("Id",),
)
MYSQL, POSTGRES, SQLITE = (dialect_of(system) for system in System)


def values(**given: Any) -> Values:
    return SINK_OPTIONS.read(
        Block(
            {"url": "jdbc:mysql://h/db", "generate_sink_sql": True, **given},
            lambda _: Location(""),
            "",
        )
    )[0]


def test_positions_count_chunks_over_all_tables() -> None:
    position = ChunkPosition(
        tables=(
            TableChunks(path="a", column="id", edges=(10, 20), rows_each=5),
            TableChunks(path="b", rows_each=7),
        )
    )
    assert (position.total, position.rows(2), position.rows(4)) == (4, 10, 22)
    assert list(position.spans(4)) == [(0, 0, 3), (1, 0, 1)]
    assert list(replace(position, done=2).spans(4)) == [(0, 2, 3), (1, 0, 1)]
    assert list(replace(position, done=3).spans(3)) == []
    first = position.tables[0]
    assert [first.span(0, 1), first.span(1, 3), first.span(0, 3)] == [
        (None, 10, "also"),
        (10, None, "not"),
        (None, None, "also"),
    ]
    assert ChunkPosition.from_json(position.to_json()) == position
    assert position.to_json()["version"] == 1, "as older releases understand it"
    with pytest.raises(TerminalError, match="version 3"):
        ChunkPosition.from_json({"version": 3})


def test_rows_with_null_keys_are_a_separate_chunk() -> None:
    table = TableChunks(path="a", column="id", edges=(10, 20), rows_each=5, nulls=True)
    assert [table.span(n, n + 1) for n in range(table.count)] == [
        (None, None, "only"),
        (None, 10, "not"),
        (10, 20, "not"),
        (20, None, "not"),
    ]
    assert [table.span(0, 2), table.span(0, 4), table.span(1, 4)] == [
        (None, 10, "also"),
        (None, None, "also"),
        (None, None, "not"),
    ]
    position = ChunkPosition(tables=(table,), done=1)
    assert ChunkPosition.from_json(position.to_json()) == position
    assert position.to_json()["version"] == 2


def test_too_many_edges_are_thinned_until_they_fit() -> None:
    (table,) = thin_edges(
        [
            TableChunks(
                path="a", column="k", edges=tuple(f"key {i:05}" for i in range(1000)), rows_each=10
            )
        ],
        chars_max=4000,
    )
    assert 100 < len(table.edges) < 400
    assert table.rows_each * table.count == pytest.approx(10_000, rel=0.05)
    assert list(table.edges) == sorted(table.edges)


def test_staging_table_names_are_short_and_identify_their_sink() -> None:
    stage = StageName(
        sink_digest(CONTEXT), lineage_digest("L"), 123_456, 12_345_678, "0123456789", 999
    )
    assert len(str(stage)) <= 63
    assert StageName.parse(str(stage)) == stage
    assert str(stage).startswith(stage_prefix(CONTEXT))
    assert StageName.parse("tidegate_s_users") is None
    assert is_dead(stage, "L", 123_456)
    assert not is_dead(stage, "L", 123_455)
    assert is_dead(stage, "M", 1)
    assert (
        len(
            {
                record_id(CONTEXT, "L"),
                record_id(CONTEXT, "M"),
                record_id(replace(CONTEXT, pipeline=2), "L"),
            }
        )
        == 3
    )


def test_placeholders_are_replaced_by_the_incoming_table() -> None:
    words = placeholder_values(ORDERS)
    assert (
        for_table("${database_name}_${schema_name}.${table_name}_${comment:x}_${unique_key}", words)
        == "shop_public.orders_x_${unique_key}"
    )
    assert list_for_table(["${primary_key}"], words) == ["Id"]
    assert list_for_table(["${unique_key}"], words) == []


def test_dot_within_a_name_does_not_split_it() -> None:
    mysql, postgres, lite = (
        parse_url("jdbc:mysql://h/db"),
        parse_url("jdbc:postgresql://h/db"),
        parse_url("jdbc:sqlite:/x/shop.db"),
    )

    def arriving(name: TableName) -> Table:
        return table_from_message(table_to_message(TableInfo(name=name, columns=()).as_table({})))

    shop = arriving(TableName("shop", "", "a.b"))
    assert (
        shop.path,
        for_table("${database_name}/${schema_name:none}/${table_name}", placeholder_values(shop)),
    ) == ("shop.a.b", "shop/none/a.b")
    for dotted in (shop, arriving(TableName("db", "public", "a.b"))):
        assert target_of(dotted, values(), MYSQL, mysql).name == TableName("db", "", "a.b")
        assert target_of(dotted, values(database="other"), MYSQL, mysql).name == TableName(
            "other", "", "a.b"
        )
        assert target_of(
            dotted, values(table="sales.${table_name}_x", field_ide="UPPERCASE"), POSTGRES, postgres
        ).name == TableName("db", "sales", "A.B_X")
        assert target_of(dotted, values(), SQLITE, lite).name == TableName("", "", "a.b")
    assert target_of(
        shop, values(table="${table_full_name}"), POSTGRES, postgres
    ).name == TableName("db", "shop", "a.b")
    assert target_of(replace(shop, path="shop.public.c"), values(), MYSQL, mysql).name == TableName(
        "db", "", "c"
    ), "renamed since"
    with pytest.raises(
        UserError, match=r"'elsewhere\.public\.a\.b' is in the database 'elsewhere'"
    ):
        target_of(shop, values(table="elsewhere.public.${table_name}"), POSTGRES, postgres)
    assert "name-parts" not in arriving(TableName("shop", "public", "orders")).options


def test_target_has_the_name_and_key_of_the_options() -> None:
    mysql, postgres = (
        parse_url("jdbc:mysql://h/db"),
        parse_url("jdbc:postgresql://h/db?currentSchema=sales"),
    )
    assert target_of(ORDERS, values(), MYSQL, mysql).name == TableName("db", "", "orders")
    assert target_of(ORDERS, values(database="other"), MYSQL, mysql).name == TableName(
        "other", "", "orders"
    )
    assert target_of(
        ORDERS, values(table="${schema_name}.${table_name}"), POSTGRES, postgres
    ).name == TableName("db", "public", "orders")
    assert target_of(ORDERS, values(), POSTGRES, postgres).name == TableName(
        "db", "sales", "orders"
    )
    upper = target_of(
        ORDERS, values(field_ide="UPPERCASE", primary_keys=["id"]), POSTGRES, postgres
    )
    assert (upper.name.table, upper.names(), upper.key) == ("ORDERS", ["ID", "N"], ("ID",))
    assert target_of(
        ORDERS, values(table="public.${table_name}", field_ide="UPPERCASE"), POSTGRES, postgres
    ).name == TableName("db", "public", "ORDERS")
    with pytest.raises(KeyMissing):
        target_of(ORDERS, values(primary_keys=["nope"]), MYSQL, mysql)
    with pytest.raises(UserError, match="placeholder"):
        target_of(replace(ORDERS, path="orders"), values(table="${schema_name}_x"), MYSQL, mysql)
    with pytest.raises(UserError, match="one database only"):
        target_of(ORDERS, values(table="elsewhere.public.t"), POSTGRES, postgres)


def test_table_survives_a_message_round_trip() -> None:
    rich = replace(
        ORDERS,
        columns=(
            *ORDERS.columns,
            Column(name="m", type=parse_type("array<decimal(5,2)>")),
            Column(name="r", type=parse_type({"a b": "int"})),
        ),
    )
    back = table_from_message(table_to_message(rich))
    assert [str(c.type) for c in back.columns] == [
        "int",
        "string",
        "array<decimal(5,2)>",
        "map<string,string>",
    ]
    assert (back.path, back.primary_key, back.kinds) == (rich.path, rich.primary_key, False)


def merge(
    dialect: Any, *, kinds: bool = False, upsert: bool = True, key: tuple[str, ...] = ("Id",)
) -> MergeSql:
    target = target_of(
        replace(ORDERS, kinds=kinds, primary_key=key),
        values(),
        dialect,
        parse_url("jdbc:mysql://h/db"),
    )
    columns = (
        NativeColumn(name="Id", native="integer"),
        NativeColumn(
            name="n", native="character varying(20)", charset="latin1", collation="latin1_bin"
        ),
    )
    info = TableInfo(name=TableName("db", "s", "orders"), columns=columns, primary_key=("Id",))
    relation = TargetTable(info=info, uniques=(UniqueIndex(name="PRIMARY", columns=("Id",)),))
    return MergeSql(
        dialect=dialect,
        target=target,
        relation=relation,
        stage=TableName("db", "s", "stage"),
        upsert=upsert,
    )


def texts(merge: MergeSql, *, distinct: bool = False) -> list[str]:
    return [statement.text for statement in merge.statements(distinct=distinct)]


def test_statements_depend_on_the_key() -> None:
    (upsert,) = texts(merge(POSTGRES))
    assert (
        upsert
        == 'insert into "s"."orders" ("Id", "n") select s.c0, s.c1 from "s"."stage" s where 1 = 1'
        ' on conflict ("Id") do update set "n" = excluded."n"'
    )
    assert "group by c0" in texts(merge(POSTGRES), distinct=True)[0]
    (insert,) = texts(merge(MYSQL, key=()))
    assert "duplicate key" not in insert
    assert "convert(" not in insert, "it would make a ? of a character that the column lacks"
    delete, put = texts(merge(SQLITE, kinds=True))
    assert delete.startswith('delete from "orders" where ("Id") in (select c0')
    assert "kind in (1, 3)" in delete
    assert "kind in (0, 2)" in put
    assert [s.split()[0] for s in texts(merge(MYSQL, kinds=True, upsert=False))] == [
        "delete",
        "insert",
    ]
    assert len(texts(merge(MYSQL, upsert=False))) == 1


def test_missing_column_is_named() -> None:
    lacking = replace(
        merge(MYSQL),
        relation=TargetTable(
            info=TableInfo(
                name=TableName("db", "", "orders"), columns=(NativeColumn(name="id", native="int"),)
            )
        ),
    )
    with pytest.raises(ColumnMissing, match=r"no column n\b"):
        lacking.statements(distinct=False)


def test_custom_query_keeps_quoted_text() -> None:
    found = parse_parameters("insert into t values (?, 'a?b%:x', \"c?\", ?) -- ? :y\n;")
    assert found == ("insert into t values (%s, 'a?b%%:x', \"c?\", %s) -- ? :y\n", (None, None))
    assert parse_parameters("insert into t values (:a, ':b', x::int, :a_2) /* :c */", "?") == (
        "insert into t values (?, ':b', x::int, ?) /* :c */",
        ("a", "a_2"),
    )
    assert column_indexes(("b", "A", "b"), ["a", "b"]) == [1, 0, 1]
    assert column_indexes((None, None), ["a", "b"]) == [0, 1]
    for names, wrong in [
        (("c",), "no such column: a, b"),
        ((None, "a"), "both \\? and :name"),
        ((None,), "it has 1, "),
    ]:
        with pytest.raises(UserError, match=wrong):
            column_indexes(names, ["a", "b"])


def test_literals_cannot_end_early() -> None:
    assert MYSQL.literal("a'b\\") == "_utf8mb4 x'6127625c'"
    assert POSTGRES.literal("a'b") == "'a''b'"
    assert POSTGRES.literal("a\\'b") == "E'a\\\\''b'"
    assert SQLITE.literal("a'b") == "'a''b'"
    assert [d.quote('a`"b') for d in (MYSQL, POSTGRES)] == ['`a``"b`', '"a`""b"']
    assert [MYSQL.number_or_text(text) for text in ("12.5", "1 or 1")] == [
        "12.5",
        "_utf8mb4 x'31206f722031'",
    ]


def test_chunks_cover_each_number_once() -> None:
    chunks = list(even_chunks(-7, 1000, ChunkStrategy(rows_each=10, rows=300)))
    assert (chunks[0].low, chunks[-1].high, len(chunks)) == (None, None, 30)
    assert all(a.high == b.low for a, b in pairwise(chunks))
    assert range_condition(POSTGRES, '"id"', 5, None, nulls=False) == '("id" >= 5)'
    assert (
        range_condition(POSTGRES, '"id"', None, as_bound(b"\x01"), nulls=True)
        == '("id" < \'\\x01\'::bytea or "id" is null)'
    )
    assert range_condition(POSTGRES, '"id"', None, None, nulls=True) == ""
    assert range_condition(POSTGRES, '"id"', None, None, nulls=False) == '"id" is not null'


def test_load_data_rows_distinguish_null_from_empty() -> None:
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict(
        {
            "a": ["", None, "\\N", "t\tn\n"],
            "b": [b"\xff", None, b"", b"\0"],
            "c": [True, None, False, True],
        }
    )
    assert encode_rows(batch) == b"\tff\t1\n\\N\t\\N\t\\N\n\\\\N\t\t0\nt\\tn\\n\t00\t1\n"
    assert encode_rows(batch.slice(0, 0)) == b""
