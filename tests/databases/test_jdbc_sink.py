"""The Jdbc sink on real databases, driven batch by batch.

Tests what becomes visible, once, for which generation, and what remains.
"""

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from database_kit import CONTEXT, Driven, Place, sink, source, table

from tidegate.connectors.jdbc.merge_runner import UniqueTaken
from tidegate.connectors.jdbc.merge_sql import ColumnMissing
from tidegate.connectors.jdbc.save_modes import TableNotPrepared
from tidegate.connectors.jdbc.sink_record import RecordGone, SinkRowsDropped, TargetOffsetsDiffer
from tidegate.connectors.jdbc.stage_names import record_id
from tidegate.connectors.jdbc.target import KeyMissing
from tidegate.connectors.jdbc.value_checks import ValueUnfit
from tidegate.databases.errors import StatementRefused, TableMissing, TransientDatabaseError
from tidegate.databases.url import System
from tidegate.model.errors import Fenced, OtherCopy, UserError
from tidegate.plugin.contract import AlreadyCommitted, BatchCommitted, SinkRestore

ORDERS = table("shop.orders", ["id"], id="bigint", name="string", amount="decimal(12,2)")
CHANGES = replace(ORDERS, kinds=True)
FIRST = [(1, "a", Decimal("1.50")), (2, None, None), (3, "", Decimal("-3.00"))]


def rows(
    place: Place, name: str = "orders", columns: str = "id, name, amount"
) -> list[tuple[Any, ...]]:
    found = place.execute(f"select {columns} from {name} order by 1")
    return [
        tuple(
            Decimal(v) if c == "amount" and v is not None else v
            for c, v in zip(columns.split(", "), row, strict=True)
        )
        for row in found
    ]


def test_a_batch_is_visible_with_its_commit_and_nothing_is_left(place: Place) -> None:
    driven = Driven(sink(place, table="orders"))
    messages = driven.stage(1, (ORDERS, FIRST))
    assert len(place.our_tables()) == 1
    assert messages[0]["rows"] == 3
    assert isinstance(driven.commit(1, messages), BatchCommitted)
    assert rows(place) == FIRST
    assert place.our_tables() == []
    driven.committer.finish()
    driven.committer.close()
    driven.committer.forget()
    assert place.execute("select count(*) from tidegate_sink_record") == [(0,)]


def test_a_repeated_batch_is_skipped_and_other_ranges_are_an_error(place: Place) -> None:
    plain = replace(ORDERS, primary_key=())
    Driven(sink(place, table="orders")).batch(1, (plain, FIRST))
    again = Driven(sink(place, table="orders"), 2, pending=1)
    assert isinstance(again.batch(1, (plain, FIRST)), AlreadyCommitted)
    assert rows(place) == FIRST
    assert place.our_tables() == []
    with pytest.raises(TargetOffsetsDiffer):
        again.commit(1, again.stage(1, (plain, FIRST)), {"s": {"start": 0, "end": 9}})
    assert isinstance(again.batch(2, (plain, FIRST)), BatchCommitted)
    assert len(rows(place)) == 6
    with pytest.raises(TargetOffsetsDiffer, match="is already at checkpoint 2"):
        again.batch(1, (plain, FIRST))


def test_an_older_generation_is_fenced_in_the_database(place: Place) -> None:
    old = Driven(sink(place, table="orders"), 1)
    staged = old.stage(1, (ORDERS, FIRST))
    new = Driven(sink(place, table="orders"), 2)
    assert place.our_tables() == [], "the dead generation's staging is dropped"
    with pytest.raises(Fenced):
        old.commit(1, staged)
    with pytest.raises(Fenced):
        Driven(sink(place, table="orders"), 1)
    late = old.stage(1, (ORDERS, [(9, "late", None)]))
    assert isinstance(new.batch(1, (ORDERS, FIRST)), BatchCommitted)
    with pytest.raises(Fenced):
        old.commit(1, late)
    assert rows(place) == FIRST
    assert place.our_tables() == [], "also what a zombie staged later"


def test_finished_sink_fences_older_drivers(place: Place) -> None:
    old = Driven(sink(place, table="orders"), 1)
    staged = old.stage(1, (ORDERS, FIRST))
    new = Driven(sink(place, table="orders"), 2)
    new.committer.finish()
    new.committer.close()
    with pytest.raises(Fenced):
        old.commit(1, staged)
    new.committer.forget()
    with pytest.raises(RecordGone):
        old.commit(1, staged)


def test_last_change_of_a_key_wins_and_changed_keys_are_applied(place: Place) -> None:
    driven = Driven(sink(place, table="orders"))
    driven.batch(1, (CHANGES, [("+I", n, "old", None) for n in range(1, 8)]))
    changes = [
        ("-U", 1, "old", None), ("+U", 1, "x", None), ("-U", 1, "x", None), ("+U", 1, "y", Decimal("1.00")),
        ("-D", 2, "old", None),
        ("-D", 3, "old", None), ("+I", 3, "again", None),
        ("-U", 4, "old", None), ("+U", 40, "old", None),
        ("+I", 50, "born", None), ("-D", 50, "born", None),
        ("-U", 5, "old", None), ("+U", 6, "moved onto", None), ("-D", 7, "old", None),
    ]  # fmt: skip
    driven.batch(2, (CHANGES, changes))
    assert rows(place) == [
        (1, "y", Decimal("1.00")),
        (3, "again", None),
        (6, "moved onto", None),
        (40, "old", None),
    ]


def test_rows_without_kinds_replace_those_with_their_key(place: Place) -> None:
    driven = Driven(sink(place, table="orders"))
    driven.batch(1, (ORDERS, FIRST))
    driven.batch(2, (ORDERS, [(2, "two", None), (4, "four", None), (2, "second", None)]))
    assert [row[:2] for row in rows(place)] == [(1, "a"), (2, "second"), (3, ""), (4, "four")]


def test_without_an_index_on_the_key_the_result_is_the_same(place: Place) -> None:
    place.execute(
        "create table orders (id bigint, name varchar(20), amount decimal(12,2))",
        "insert into orders values (1, 'one', 1), (2, 'two', 2)",
    )
    driven = Driven(sink(place, table="orders", primary_keys=["id"]))
    driven.batch(1, (ORDERS, [(1, "x", None), (3, "y", None), (3, "z", None)]))
    driven.batch(2, (CHANGES, [("-D", 2, "two", None), ("-U", 3, "z", None), ("+U", 3, "u", None)]))
    assert [row[:2] for row in rows(place)] == [(1, "x"), (3, "u")]


def test_keys_of_texts_and_of_several_columns(place: Place) -> None:
    pairs = table(
        "shop.pairs", ["shop", "code"], kinds=True, shop="string", code="bytes", what="string"
    )
    driven = Driven(sink(place, table="pairs"))
    driven.batch(
        1,
        (
            pairs,
            [("+I", "A", b"\x00", "1"), ("+I", "A", b"\xff", "2"), ("+I", "ä'\\", b"\x00", "3")],
        ),
    )
    driven.batch(
        2,
        (
            pairs,
            [("-D", "A", b"\xff", "2"), ("-U", "ä'\\", b"\x00", "3"), ("+U", "ä'\\", b"\x00", "4")],
        ),
    )
    assert sorted(place.execute("select shop, what from pairs")) == [("A", "1"), ("ä'\\", "4")]


def test_a_key_of_another_collation_is_deleted(maria: Place) -> None:
    maria.execute(
        "create table words (word varchar(40) character set latin1 collate latin1_german1_ci"
        " primary key, n int)"
    )
    words = table("shop.words", ["word"], kinds=True, word="string", n="int")
    driven = Driven(sink(maria, table="words", allow_merged_keys=True))
    driven.batch(1, (words, [("+I", "straße", 1), ("+I", "b", 2)]))
    driven.batch(2, (words, [("-D", "straße", 1)]))
    assert maria.execute("select word, n from words") == [("b", 2)]


def test_several_tables_go_to_several_targets(place: Place) -> None:
    visits = table("shop.visits", [], page="string", seconds="int")
    driven = Driven(sink(place, table="copy_of_${table_name}", primary_keys=["${primary_key}"]))
    first = driven.stage(1, (ORDERS, FIRST), (visits, [("x", 1)]))
    second = driven.stage(
        1, (ORDERS, [(4, "four", None)]), (visits, [("x", 1), ("y", 2)]), subtask=1
    )
    driven.commit(1, [*first, *second])
    assert [row[0] for row in rows(place, "copy_of_orders")] == [1, 2, 3, 4]
    assert sorted(place.execute("select page, seconds from copy_of_visits")) == [
        ("x", 1),
        ("x", 1),
        ("y", 2),
    ]


def test_table_without_rows_is_created(place: Place) -> None:
    Driven(sink(place, table="orders")).batch(1, (ORDERS, []))
    assert rows(place) == []


def test_field_ide_sets_the_case_of_names(pg: Place) -> None:
    mixed = table("shop.Orders", ["Id"], Id="bigint", Name="string")
    Driven(sink(pg, table="${table_name}", field_ide="LOWERCASE")).batch(1, (mixed, [(1, "a")]))
    Driven(
        sink(pg, replace(CONTEXT, operator="other"), table="${table_name}", field_ide="UPPERCASE")
    ).batch(1, (mixed, [(1, "a")]))
    assert pg.execute("select id, name from orders") == [(1, "a")]
    assert pg.execute('select "ID", "NAME" from "ORDERS"') == [(1, "a")]


def test_everything_is_in_the_schema_that_the_url_names(pg: Place) -> None:
    pg.execute('create schema "Our Sales"')
    there = replace(pg, url=f"{pg.url}?currentSchema=Our%20Sales")
    Driven(sink(there, table="orders")).batch(1, (ORDERS, FIRST))
    Driven(sink(there, table="made.orders"), 2, lineage="M").batch(1, (ORDERS, FIRST[:1]))
    found = pg.execute(
        "select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog',"
        " 'information_schema') order by 1, 2"
    )
    assert found == [
        ("Our Sales", "orders"),
        ("Our Sales", "tidegate_sink_record"),
        ("made", "orders"),
    ]


def test_plain_inserts_reject_an_existing_key(place: Place) -> None:
    driven = Driven(sink(place, table="orders", enable_upsert=False))
    driven.batch(1, (ORDERS, FIRST))
    with pytest.raises(StatementRefused):
        driven.batch(2, (ORDERS, [(1, "again", None)]))
    assert rows(place) == FIRST


def test_custom_query_is_run_once_for_every_row(place: Place) -> None:
    place.execute("create table log (id bigint, what varchar(40), amount decimal(12,2))")
    own = sink(
        place,
        generate_sink_sql=False,
        query="insert into log (id, what, amount) values (?, concat('100%?', ?), ?)",
        batch_size=2,
    )
    if place.url.startswith("jdbc:sqlite"):
        own = sink(
            place,
            generate_sink_sql=False,
            query="insert into log (id, what, amount) values (?, '100%?' || ?, ?)",
            batch_size=2,
        )
    Driven(own).batch(1, (ORDERS, [(1, "a", Decimal("1.50")), (2, "b", None), (3, "c", None)]))
    again = Driven(own, 2, pending=1)
    again.batch(1, (ORDERS, [(1, "a", Decimal("1.50")), (2, "b", None), (3, "c", None)]))
    assert place.execute("select id, what from log order by id") == [
        (1, "100%?a"),
        (2, "100%?b"),
        (3, "100%?c"),
    ]
    with pytest.raises(UserError, match="it has 3, "):
        again.batch(2, (table("t", id="int"), [(1,)]))
    with pytest.raises(UserError, match="deletes"):
        again.batch(2, (CHANGES, [("-D", 1, "a", None)]))


def test_updates_without_a_key_are_rejected(place: Place) -> None:
    driven = Driven(sink(place, table="orders"))
    keyless = replace(CHANGES, primary_key=())
    driven.batch(1, (keyless, [("+I", 1, "a", None)]))
    with pytest.raises(KeyMissing, match="primary_keys"):
        driven.batch(2, (keyless, [("-D", 1, "a", None)]))
    with pytest.raises(KeyMissing, match="'nope'"):
        Driven(sink(place, table="orders", primary_keys=["nope"]), 2).stage(2, (ORDERS, FIRST))
    assert place.our_tables() == []


def test_column_missing_in_the_target_is_named(place: Place) -> None:
    place.execute("create table orders (id bigint primary key)")
    with pytest.raises(ColumnMissing, match="name, amount"):
        Driven(sink(place, table="orders")).batch(1, (ORDERS, FIRST))


def test_column_added_at_the_source_is_added(place: Place) -> None:
    driven = Driven(sink(place, table="orders"))
    driven.batch(1, (table("shop.orders", ["id"], id="bigint"), [(1,)]))
    driven.batch(
        2, (replace(ORDERS, options={"schema-changes.enabled": True}), [(2, "b", Decimal("2.00"))])
    )
    assert rows(place) == [(1, None, None), (2, "b", Decimal("2.00"))]


def test_lost_staged_rows_fail_the_commit(place: Place) -> None:
    driven = Driven(sink(place, table="orders"))
    staged = driven.stage(1, (ORDERS, FIRST))
    place.execute(f"delete from {place.our_tables()[0]}")
    with pytest.raises(TransientDatabaseError, match="0 rows instead of 3"):
        driven.commit(1, staged)
    assert isinstance(driven.batch(1, (ORDERS, FIRST)), BatchCommitted)


# Save modes.


def test_save_modes_are_applied_once_per_lineage(place: Place) -> None:
    place.execute(
        "create table orders (id bigint primary key, name varchar(20), amount decimal(12,2))",
        "insert into orders values (99, 'old', 1)",
    )
    options = {"table": "orders", "data_save_mode": "DROP_DATA"}
    driven = Driven(sink(place, **options))
    driven.batch(1, (ORDERS, FIRST[:1]))
    state = driven.committer.state()
    Driven(sink(place, **options), 2, checkpoint=1).batch(2, (ORDERS, FIRST[1:2]))
    assert [row[0] for row in rows(place)] == [1, 2]
    place.execute("drop table tidegate_sink_record")
    Driven(sink(place, **options), 3, checkpoint=2, state=state).batch(3, (ORDERS, FIRST[2:]))
    assert [row[0] for row in rows(place)] == [
        1,
        2,
        3,
    ], "a lost record does not empty the table again"
    Driven(sink(place, **options), 1, lineage="M").batch(1, (ORDERS, FIRST[:1]))
    assert [row[0] for row in rows(place)] == [1]


def test_table_can_be_recreated(place: Place) -> None:
    place.execute("create table orders (other int)", "insert into orders values (1)")
    Driven(sink(place, table="orders", schema_save_mode="RECREATE_SCHEMA")).batch(
        1, (ORDERS, FIRST)
    )
    assert rows(place) == FIRST


def test_rejecting_save_modes_give_the_reason(place: Place) -> None:
    with pytest.raises(TableNotPrepared, match="ERROR_WHEN_SCHEMA_NOT_EXIST"):
        Driven(sink(place, table="orders", schema_save_mode="ERROR_WHEN_SCHEMA_NOT_EXIST")).batch(
            1, (ORDERS, FIRST)
        )
    with pytest.raises(TableMissing):
        Driven(sink(place, table="orders", schema_save_mode="IGNORE"), 2).batch(1, (ORDERS, FIRST))
    place.execute(
        "create table orders (id bigint primary key, name varchar(20), amount decimal(12,2))",
        "insert into orders values (99, 'old', 1)",
    )
    with pytest.raises(TableNotPrepared, match="ERROR_WHEN_DATA_EXISTS"):
        Driven(sink(place, table="orders", data_save_mode="ERROR_WHEN_DATA_EXISTS"), 3).batch(
            1, (ORDERS, FIRST)
        )
    Driven(
        sink(
            place,
            table="orders",
            data_save_mode="CUSTOM_PROCESSING",
            custom_sql="delete from orders where id = 99",
        ),
        4,
    ).batch(1, (ORDERS, FIRST))
    assert rows(place) == FIRST


def test_failed_transaction_leaves_nothing(place: Place) -> None:
    place.execute(
        "create table orders (id bigint primary key, name varchar(20) not null, amount"
        " decimal(12,2))"
    )
    driven = Driven(sink(place, table="orders"))
    with pytest.raises(ValueUnfit, match="null is not allowed"):
        driven.batch(1, (ORDERS, FIRST))
    assert rows(place) == []
    place.execute("create unique index one_name on orders (name)")
    with pytest.raises(UniqueTaken):
        driven.batch(1, (ORDERS, [(1, "a", None), (2, "a", None)]))
    assert rows(place) == []
    again = Driven(sink(place, table="orders"), 2, pending=1)
    assert isinstance(again.batch(1, (ORDERS, FIRST[:1])), BatchCommitted)


def test_text_that_is_too_long_is_rejected(maria: Place, pg: Place) -> None:
    for place in (maria, pg):
        place.execute(
            "create table orders (id bigint primary key, name varchar(3), amount decimal(12,2))"
        )
        with pytest.raises(
            ValueUnfit, match="column 'name', key id = 1: 'longer' has another length"
        ):
            Driven(sink(place, table="orders")).batch(1, (ORDERS, [(1, "longer", None)]))
        assert rows(place) == []


def test_values_are_converted_to_the_types_of_an_existing_table(pg: Place) -> None:
    pg.execute(
        "create table t (id integer primary key, j jsonb, u uuid, b boolean, v varchar(5), d date,"
        " tags text[], n numeric(10,3))"
    )
    incoming = table(
        "x.t",
        ["id"],
        id="bigint",
        j="string",
        u="string",
        b="boolean",
        v="int",
        d="string",
        tags="array<string>",
        n="double",
    )
    row = (
        1,
        '{"a": 1}',
        "00000000-0000-0000-0000-000000000001",
        True,
        12,
        "2024-02-03",
        ["a", None],
        1.5,
    )
    Driven(sink(pg, table="t", allow_lossy_types=True)).batch(1, (incoming, [row]))
    assert pg.execute("select j->>'a', u::text, b, v, d, tags, n from t") == [
        (
            "1",
            "00000000-0000-0000-0000-000000000001",
            True,
            "12",
            datetime.date(2024, 2, 3),
            ["a", None],
            Decimal("1.500"),
        )
    ]


def test_table_without_index_is_still_merged_by_key(place: Place) -> None:
    keyed = table("t", ["id"], id="int", word="string")
    driven = Driven(sink(place, table="t", create_index=False))
    driven.batch(1, (keyed, [(1, "a"), (2, "b"), (1, "c")]))
    driven.batch(2, (keyed, [(2, "d"), (3, "e")]))
    assert place.execute("select id, word from t order by id") == [(1, "c"), (2, "d"), (3, "e")]
    with place.session() as session:
        info = place.dialect.table_info(session, place.dialect.parse_table("t", place.address))
    assert info is not None
    assert info.primary_key == ()


def test_tables_with_dots_in_their_names_have_separate_targets(place: Place, pg: Place) -> None:
    quoted = [place.dialect.quote(name) for name in ("a.b", "b")]
    place.execute(
        *(f"create table {name} (id int primary key, n int)" for name in quoted),
        *(f"insert into {name} values (1, {n})" for n, name in enumerate(quoted)),
    )
    reading = source(place, table_path="(.*\\.)?b", use_regex=True)
    arriving = sorted(reading.tables(), key=lambda table: table.path)
    assert len(arriving) == 2
    Driven(sink(pg, table="copy.${table_name}")).batch(
        1, *((table, [(1, n)]) for n, table in enumerate(arriving))
    )
    assert pg.execute('select n from copy."a.b" union all select n + 10 from copy.b') == [
        (0,),
        (11,),
    ]
    Driven(sink(place, table="${table_name}"), lineage="M").batch(
        1, *((table, [(2, 5 + n)]) for n, table in enumerate(arriving))
    )
    assert [place.execute(f"select id, n from {name} order by id") for name in quoted] == [
        [(1, 0), (2, 5)],
        [(1, 1), (2, 6)],
    ]


# The record as the target's memory.


def remembered(place: Place, checkpoint: int, lineage: str = "L") -> int:
    made = (
        sink(place, table="orders")
        .committer()
        .target_record(SinkRestore(lineage=lineage, generation=9, checkpoint=checkpoint))
    )
    assert made is not None
    return made.checkpoint


def test_target_keeps_its_newest_checkpoint_until_forget(
    place: Place,
) -> None:
    assert remembered(place, 1) == 0
    assert "tidegate_sink_record" not in str(place.our_tables())
    driven = Driven(sink(place, table="orders"))
    driven.batch(1, (ORDERS, FIRST[:1]))
    driven.batch(2, (ORDERS, FIRST[1:]))
    assert remembered(place, 2) == 2
    assert remembered(place, 2, "M") == 0
    driven.committer.finish()
    driven.committer.close()
    assert remembered(place, 2) == 2, "a finished target differs from a lost one"
    driven.committer.forget()
    assert remembered(place, 2) == 0


@pytest.mark.parametrize(
    "statement", ["delete from tidegate_sink_record", "drop table tidegate_sink_record"]
)
def test_lost_record_stops_the_driver_before_the_commit(place: Place, statement: str) -> None:
    driven = Driven(sink(place, table="orders"))
    driven.batch(1, (ORDERS, FIRST[:1]))
    staged = driven.stage(2, (ORDERS, FIRST[1:]))
    place.execute(statement)
    with pytest.raises(RecordGone, match="is no longer in"):
        driven.commit(2, staged)
    assert rows(place) == FIRST[:1]


def test_first_of_two_drivers_of_one_generation_wins(place: Place) -> None:
    first = Driven(sink(place, table="orders"), 8, token="aa")
    with pytest.raises(OtherCopy, match="another copy of this installation"):
        Driven(sink(place, table="orders"), 8, token="bb")
    assert isinstance(first.batch(1, (ORDERS, FIRST)), BatchCommitted)
    place.execute("update tidegate_sink_record set token = 'bb'")
    with pytest.raises(OtherCopy):
        first.batch(2, (ORDERS, FIRST))
    first.committer.forget()
    assert place.execute("select count(*) from tidegate_sink_record") == [(1,)], (
        "another driver's record stays"
    )
    Driven(sink(place, table="orders"), 9, checkpoint=1, token="cc")
    assert place.execute("select generation, token from tidegate_sink_record") == [(9, "cc")]


def test_record_table_of_an_older_release_is_migrated(place: Place) -> None:
    text = "longtext" if place.dialect.system is System.MYSQL else "text"
    place.execute(
        "create table tidegate_sink_record (id varchar(64) primary key, lineage varchar(200), job"
        f" bigint, pipeline integer, sink {text}, checkpoint bigint not null, generation bigint not"
        f" null, offsets {text}, prepared {text})",
        "insert into tidegate_sink_record (id, lineage, job, pipeline, sink, checkpoint,"
        f" generation, offsets, prepared) values ('{record_id(CONTEXT, 'L')}', 'L', 7, 1,"
        " 'Sink[0]-Jdbc', 3, 1, null, null)",
    )
    assert remembered(place, 3) == 3
    Driven(sink(place, table="orders"), 2, checkpoint=3, token="aa").batch(4, (ORDERS, FIRST))
    assert rows(place) == FIRST
    assert place.execute("select checkpoint, generation, token from tidegate_sink_record") == [
        (4, 2, "aa")
    ]


def test_a_save_mode_that_removes_rows_of_a_live_run_stops_it_by_name(place: Place) -> None:
    theirs = Driven(
        sink(place, replace(CONTEXT, operator="other"), table="orders"), 1, lineage="T", token="aa"
    )
    theirs.batch(1, (ORDERS, FIRST[:1]))
    elsewhere = Driven(
        sink(place, replace(CONTEXT, operator="third"), table="others"), 1, lineage="E", token="cc"
    )
    elsewhere.batch(1, (ORDERS, FIRST[:1]))
    staged = theirs.stage(2, (ORDERS, FIRST[1:]))
    Driven(sink(place, table="orders", data_save_mode="DROP_DATA"), 1, token="bb").batch(
        1, (ORDERS, FIRST[2:])
    )
    with pytest.raises(SinkRowsDropped, match="job 7"):
        theirs.commit(2, staged)
    assert rows(place) == FIRST[2:]
    lost = (
        sink(place, replace(CONTEXT, operator="other"), table="orders")
        .committer()
        .target_record(SinkRestore(lineage="T", generation=2, checkpoint=1))
    )
    assert lost is not None
    assert lost.checkpoint == 0
    assert isinstance(elsewhere.batch(2, (ORDERS, FIRST[1:])), BatchCommitted), (
        "whose table was left alone continues"
    )


def test_fresh_start_is_warned_about_existing_rows(place: Place) -> None:
    def others(**more: object) -> str:
        made = (
            sink(place, table="orders", **more)
            .committer()
            .target_record(SinkRestore(lineage="N", generation=1, checkpoint=0))
        )
        assert made is not None
        return made.others

    assert others() == ""
    Driven(sink(place, table="orders")).batch(1, (ORDERS, []))
    assert others() == ""
    Driven(sink(place, table="orders"), 2, checkpoint=1).batch(2, (ORDERS, FIRST))
    assert others() == "rows"
    assert others(primary_keys=["id"]) == "", "rows with a key are not added beside the others"
    assert others(data_save_mode="DROP_DATA") == ""
