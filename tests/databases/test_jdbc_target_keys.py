"""Keys of a target whose collation or width would merge, truncate or reject keys of the source."""

from dataclasses import replace
from typing import Any

import pytest
from database_kit import Driven, Place, everything, sink, source, table

from tidegate.connectors.jdbc.save_modes import TableNotPrepared
from tidegate.connectors.jdbc.target_check import TargetUnfit
from tidegate.connectors.jdbc.value_checks import ValueUnfit

KEYED = table("shop.k", ["k"], k="string", n="int")
FOUR = [("a", 1), ("A", 2), ("a ", 3), ("ä", 4)]


@pytest.mark.parametrize(
    "native",
    ["varchar(20)", "varchar(20) collate utf8mb4_unicode_ci", "varchar(20) character set latin1"],
)
def test_keys_that_a_collation_merges_are_rejected(binlog_place: Place, native: str) -> None:
    binlog_place.execute(f"create table k (k {native} primary key, n int)")
    with pytest.raises(
        TargetUnfit, match=r"column 'k' is part of the key, and its collation .* ignores case"
    ):
        Driven(sink(binlog_place, table="k")).batch(1, (KEYED, FOUR))
    assert binlog_place.execute("select * from k") == []
    Driven(sink(binlog_place, table="k", allow_merged_keys=True), lineage="M").batch(
        1, (KEYED, FOUR[:2])
    )
    assert binlog_place.execute("select k, n from k") == [("a", 2)]


def test_keys_with_the_same_collation_on_both_sides_are_accepted(binlog_place: Place) -> None:
    binlog_place.execute(
        "create table s (k varchar(20) primary key, n int)",
        "create table k (k varchar(20) primary key, n int)",
        "insert into s values ('a ', 1), ('B', 2)",
    )
    reading = source(binlog_place, table_path="s")
    Driven(sink(binlog_place, table="k")).batch(
        1, (reading.tables()[0], [tuple(row.values()) for row in everything(reading).to_pylist()])
    )
    assert binlog_place.execute("select k, n from k order by n") == [("a ", 1), ("B", 2)]


def test_trailing_blanks_of_keys_are_rejected_where_ignored(
    binlog_place: Place,
) -> None:
    binlog_place.execute("create table k (k varchar(20) collate utf8mb4_bin primary key, n int)")
    with pytest.raises(ValueUnfit, match="ends with a blank"):
        Driven(sink(binlog_place, table="k")).batch(1, (KEYED, FOUR))
    Driven(sink(binlog_place, table="k"), lineage="M").batch(
        1, (KEYED, [FOUR[0], FOUR[1], FOUR[3]])
    )
    assert len(binlog_place.execute("select * from k")) == 3


def test_new_table_distinguishes_all_keys(place: Place) -> None:
    driven = Driven(sink(place, table="k"))
    driven.batch(1, (KEYED, FOUR))
    changes = replace(KEYED, kinds=True)
    driven.batch(2, (changes, [("-D", "a ", 3), ("-U", "A", 2), ("+U", "A", 5), ("+I", "A ", 6)]))
    assert sorted(place.execute("select k, n from k")) == [("A", 5), ("A ", 6), ("a", 1), ("ä", 4)]


def test_merging_keys_of_other_databases_are_rejected(pg: Place, lite: Place) -> None:
    pg.execute(
        "create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    pg.execute('create table k (k text collate "loose" primary key, n int)')
    lite.execute("create table k (k text collate nocase primary key, n int)")
    for place in (pg, lite):
        with pytest.raises(TargetUnfit, match="part of the key"):
            Driven(sink(place, table="k")).batch(1, (KEYED, FOUR))


@pytest.mark.parametrize(
    ("native", "kind", "value"),
    [
        ("varchar(300)", "string", "ä" * 300),
        ("varbinary(300)", "bytes", b"\xff" * 300),
        ("varbinary(3000)", "bytes", b"x" * 3000),
    ],
)
def test_new_table_has_room_for_a_long_key(
    binlog_place: Place, native: str, kind: str, value: Any
) -> None:
    binlog_place.execute(
        f"create table s (k {native} character set utf8mb4 primary key, n int)"
        if kind == "string"
        else f"create table s (k {native} primary key, n int)"
    )
    reading = source(binlog_place, table_path="s")
    (arriving,) = reading.tables()
    Driven(sink(binlog_place, table="t")).batch(1, (arriving, [(value, 1)]))
    assert len(binlog_place.execute("select * from t")) == 1
    unknown = table("shop.u", ["k"], k=kind, n="int")
    Driven(sink(binlog_place, table="u"), lineage="M").batch(1, (unknown, [(value, 1)]))
    assert len(binlog_place.execute("select * from u")) == 1


def test_long_keys_share_an_index_and_too_long_keys_are_rejected(
    binlog_place: Place, pg: Place
) -> None:
    pairs = table("shop.p", ["a", "b", "n"], a="string", b="string", n="int")
    Driven(sink(binlog_place, table="p")).batch(1, (pairs, [("x" * 370, "ä" * 370, 1)]))
    pg.execute("create table s (a varchar(600), b varchar(600), primary key (a, b))")
    (arriving,) = source(pg, table_path="s").tables()
    with pytest.raises(
        TableNotPrepared,
        match=(
            r"the key a \(character varying\(600\)\), b .* needs 4800 bytes, but an index allows"
            r" 3072.*create_index"
        ),
    ):
        Driven(sink(binlog_place, table="s"), lineage="M").batch(1, (arriving, [("a", "b")]))
    Driven(sink(binlog_place, table="s", create_index=False), lineage="N").batch(
        1, (arriving, [("a" * 600, "b" * 600)])
    )
    assert len(binlog_place.execute("select * from s")) == 1


def test_fixed_length_texts_ignore_blanks(binlog_place: Place, pg: Place) -> None:
    binlog_place.execute("create table k (k char(5) collate utf8mb4_bin primary key, n int)")
    pg.execute("create table k (k char(5) primary key, n int)")
    for place in (binlog_place, pg):
        with pytest.raises(ValueUnfit, match="ends with a blank"):
            Driven(sink(place, table="k")).batch(1, (KEYED, FOUR))
    pg.execute("create table s (k char(5) primary key, n int)", "insert into s values ('a', 1)")
    reading = source(pg, table_path="s")
    Driven(sink(pg, table="k"), lineage="M").batch(
        1, (reading.tables()[0], [tuple(row.values()) for row in everything(reading).to_pylist()])
    )
    assert pg.execute("select n from k where k = 'a'") == [(1,)]


def test_zero_is_kept_in_auto_increment_columns(binlog_place: Place) -> None:
    binlog_place.execute("create table t (id bigint auto_increment primary key, v int)")
    Driven(sink(binlog_place, table="t")).batch(
        1, (table("shop.t", ["id"], id="bigint", v="int"), [(0, 1), (5, 2)])
    )
    assert binlog_place.execute("select id, v from t order by id") == [(0, 1), (5, 2)]
