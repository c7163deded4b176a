"""The Jdbc source on real databases: tables, rows, splits, and resuming at a split."""

import datetime
import json
import pickle
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from database_kit import Place, batches, everything, source

from tidegate.databases.errors import (
    AccessDenied,
    DatabaseMissing,
    DatabaseUnreachable,
    StatementRefused,
    TableMissing,
    ValueUnreadable,
)
from tidegate.model.errors import UserError
from tidegate.plugin.contract import Limit

NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 500) "


def fill(place: Place) -> None:
    """orders: 500 rows with ids 1..500; words: keys that are texts; loose: no key at all."""
    place.execute(
        "create table orders (id int primary key, name varchar(20), amount decimal(12,2))",
        "create table words (word varchar(20) primary key, n int)",
        "create table loose (n int, what varchar(20))",
        "insert into loose values (1, 'a'), (1, 'a'), (null, 'b')",
    )
    with place.session() as session, session.transaction():
        session.execute_many(
            "insert into orders values (%s, %s, %s)",
            [(i, f"name {i}", str(Decimal(i) / 4)) for i in range(1, 501)],
        )
        session.execute_many(
            "insert into words values (%s, %s)",
            [(f"word {i * 7919 % 1000:03}", i) for i in range(300)],
        )


def ids(rows: pa.Table, name: str = "id") -> list[int]:
    return sorted(rows[name].to_pylist())


def test_table_is_read_in_batches_and_resumes_at_a_split(place: Place) -> None:
    fill(place)
    reading = source(
        place, table_path="orders", use_select_count=True, **{"split.size": 20}
    )  # statistics of a new table may say anything
    start = reading.initial()
    assert json.loads(json.dumps(start)) == start
    found = list(batches(reading, start, Limit(rows=100)))
    assert [rows.num_rows for _, rows in found] == [100] * 5
    again = pickle.loads(pickle.dumps(source(place, table_path="orders")))
    rest = pa.concat_tables([rows for _, rows in batches(again, found[1][0], Limit(rows=60))])
    assert ids(rest) == list(range(201, 501))
    assert again.is_exhausted(found[-1][0])
    assert not again.is_exhausted(start)
    progress = again.progress(found[1][0])
    assert progress is not None
    assert (progress.done, progress.total) == (200, 500)


def test_splits_of_a_batch_cover_it_once_however_many_they_are(place: Place) -> None:
    fill(place)
    reading = source(place, table_path="orders", use_select_count=True, **{"split.size": 7})
    start = reading.initial()
    end = reading.latest(start, Limit())
    for count in (1, 3, 12):
        splits = reading.splits(start, end, count)
        assert len(splits) <= max(count, 1) + 1
        assert ids(pa.Table.from_batches([b for s in splits for b in reading.read(s)])) == list(
            range(1, 501)
        )
        assert [s.payload for s in reading.splits(start, end, count)] == [s.payload for s in splits]


@pytest.mark.parametrize("sampled", [False, True])
def test_text_keys_are_split_at_existing_values(place: Place, sampled: bool) -> None:
    fill(place)
    more = (
        {"split.sample-sharding.threshold": 2, "split.inverse-sampling.rate": 5} if sampled else {}
    )
    reading = source(place, table_path="words", use_select_count=True, **{"split.size": 20, **more})
    assert len(reading.initial()["tables"][0]["edges"]) >= 9
    assert ids(everything(reading, Limit(rows=50)), "n") == list(range(300))


def test_sparse_keys_are_split_at_existing_values(place: Place) -> None:
    place.execute(
        "create table far (id bigint primary key)",
        "insert into far values (1), (2), (3), (4), (5), (6), (7), (8), (9), (9000000000)",
    )
    reading = source(place, table_path="far", use_select_count=True, **{"split.size": 2})
    edges = reading.initial()["tables"][0]["edges"]
    assert len(edges) >= 3
    assert set(edges) <= set(range(10)) | {9000000000}
    assert ids(everything(reading)) == [*range(1, 10), 9000000000]


def test_a_table_without_a_key_is_one_split(place: Place) -> None:
    fill(place)
    reading = source(place, table_path="loose", **{"split.size": 1})
    assert (
        len(reading.splits(reading.initial(), reading.latest(reading.initial(), Limit()), 8)) == 1
    )
    assert sorted(everything(reading)["what"].to_pylist()) == ["a", "a", "b"]


def test_a_partition_column_may_have_nulls_and_bounds(place: Place) -> None:
    fill(place)
    with place.session() as session, session.transaction():
        session.execute_many("insert into loose values (%s, %s)", [(i, "c") for i in range(2, 50)])
    reading = source(
        place, table_path="loose", partition_column="n", partition_num=4, use_select_count=True
    )
    assert len(reading.initial()["tables"][0]["edges"]) >= 2
    assert everything(reading).num_rows == 51
    bounded = source(
        place,
        table_path="loose",
        partition_column="n",
        partition_num=4,
        partition_lower_bound="10",
        partition_upper_bound="20",
    )
    assert ids(everything(bounded), "n") == list(range(10, 21))


def test_a_query_is_read_with_its_own_columns(place: Place) -> None:
    fill(place)
    text = "select id, amount * 2 as twice, name from orders where id <= 40;"
    reading = source(
        place, query=text, partition_column="id", partition_num=4, where_condition="WHERE id > 10"
    )
    assert [t.path for t in reading.tables()] == ["default.default.default"]
    rows = everything(reading)
    assert ids(rows) == list(range(11, 41))
    assert {Decimal(str(v)) for v in rows["twice"].to_pylist()} == {
        Decimal(i) / 2 for i in range(11, 41)
    }
    named = source(place, query=text, table_path="orders")
    assert (named.tables()[0].path, named.tables()[0].primary_key) == ("orders", ("id",))


def test_several_tables_by_list_and_by_pattern(place: Place) -> None:
    fill(place)
    place.execute("create table orders_2 (id int primary key)")
    listed = source(
        place,
        table_list=[
            {"table_path": "orders"},
            {"table_path": "loose", "query": "select n from loose where n = 1"},
        ],
    )
    assert [t.path.rpartition(".")[2] for t in listed.tables()] == ["orders", "loose"]
    patterned = source(place, table_path=r"(.*\.)?orders.*", use_regex=True)
    assert [t.path.rpartition(".")[2] for t in patterned.tables()] == ["orders", "orders_2"]
    start = patterned.initial()
    splits = patterned.splits(start, patterned.latest(start, Limit()), 2)
    found = {s.table: sum(b.num_rows for b in patterned.read(s)) for s in splits}
    assert sorted(found.values()) == [0, 500]
    with pytest.raises(UserError, match="listed twice"):
        source(
            place,
            table_list=[{"table_path": "orders"}, {"table_path": "orders.*", "use_regex": True}],
        ).tables()


def test_empty_table_yields_an_empty_batch(place: Place) -> None:
    place.execute("create table empty_one (id int primary key, d date)")
    reading = source(place, table_path="empty_one")
    start = reading.initial()
    (split,) = reading.splits(start, reading.latest(start, Limit()), 2)
    (batch,) = reading.read(split)
    assert (batch.num_rows, batch.schema.names) == (0, ["id", "d"])


def test_mistakes_are_reported_with_a_remedy(place: Place) -> None:
    fill(place)
    with pytest.raises(TableMissing, match=r"did you mean '.*orders'"):
        source(place, table_path="order").tables()
    with pytest.raises(TableMissing):
        source(place, table_path="none.*", use_regex=True).tables()
    with pytest.raises(UserError, match="there are id, name, amount"):
        source(place, table_path="orders", partition_column="nope").tables()
    with pytest.raises(StatementRefused):
        source(place, query="select nope from orders").tables()


def test_unreachable_server_and_wrong_password_differ(maria: Place, pg: Place) -> None:
    for place in (maria, pg):
        host = place.url.partition("://")[0]
        with pytest.raises(DatabaseUnreachable, match="cannot be reached"):
            source(Place(f"{host}://127.0.0.1:1/x", "u", "secret!", "x"), table_path="t").tables()
    with pytest.raises(AccessDenied) as refused:
        source(Place(maria.url, maria.user, "secret!", ""), table_path="t").tables()
    assert "secret!" not in str(refused.value)
    assert "secret!" not in repr(
        source(Place(maria.url, maria.user, "secret!", ""), table_path="t").address
    )


def test_missing_database_is_not_created(tmp_path: Path, pg: Place, maria: Place) -> None:
    for url, user, password in (
        (f"jdbc:sqlite:{tmp_path}/none.db", "", ""),
        (pg.url + "x", pg.user, pg.password),
        (maria.url + "x", maria.user, maria.password),
    ):
        with pytest.raises(DatabaseMissing):
            source(Place(url, user, password, ""), table_path="t").tables()
    assert list(tmp_path.iterdir()) == []


def test_types_specific_to_mariadb(maria: Place) -> None:
    maria.execute(
        "set sql_mode = ''",
        "create table t (id int primary key, tiny tinyint unsigned, u bigint unsigned, flag"
        " tinyint(1), bits bit(13), bit1 bit, y year, e enum('a','b'), s set('x','y'), j json, d"
        " date, dt datetime(6), ts timestamp(6) null, ti time(6), f float, big decimal(65,30), l"
        " longtext character set latin1)",
        "insert into t values (1, 255, 18446744073709551615, 1, b'1000000000101', b'1', 1999, 'b',"
        " 'x,y', '{\"a\": 1}', '1000-01-01', '9999-12-31 23:59:59.999999', '2024-01-01 10:00:00.5',"
        " '23:59:59.999999', 16777216, 12345678901234567890123456789012345.5, 'é')",
        "insert into t (id, d, dt, ts) values (2, '0000-00-00', '2024-00-10', '0000-00-00')",
    )
    first, second = sorted(
        everything(source(maria, table_path="t")).to_pylist(), key=lambda row: row["id"]
    )
    assert first == {
        "id": 1, "tiny": 255, "u": Decimal(18446744073709551615), "flag": True, "bits": b"\x10\x05", "bit1": True, "y": 1999, "e": "b", "s": "x,y",
        "j": '{"a": 1}', "d": datetime.date(1000, 1, 1), "dt": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "ts": datetime.datetime(2024, 1, 1, 10, 0, 0, 500000, datetime.UTC), "ti": datetime.time(23, 59, 59, 999999), "f": 16777216.0,
        "big": "12345678901234567890123456789012345.500000000000000000000000000000", "l": "é",
    }  # fmt: skip
    assert {value for key, value in second.items() if key != "id"} == {None}, "zero dates are null"
    assert (
        everything(source(maria, table_path="t", int_type_narrowing=False))["flag"].type
        == pa.int8()
    )
    described = {
        c.name: str(c.type) for c in source(maria, query="select * from t").tables()[0].columns
    }
    assert described == {
        c.name: str(c.type) for c in source(maria, table_path="t").tables()[0].columns
    }
    maria.execute("update t set ti = '-01:00:00' where id = 2")
    with pytest.raises(ValueUnreadable, match="'ti'"):
        everything(source(maria, table_path="t"))


def test_types_specific_to_postgresql(pg: Place) -> None:
    pg.execute(
        "create type mood as enum ('sad', 'ok')",
        "create domain cents as numeric(10,2)",
        "create table t (id int primary key, j jsonb, u uuid, m mood, c cents, n numeric, iv"
        " interval, tz timetz, net inet, ia int[], ta text[], na numeric(6,2)[], tsa timestamptz[],"
        " ua uuid[], d date, ts timestamp, tstz timestamptz, ti time, r int4range, ch char(4))",
        """insert into t values (1, '{"a": [1]}', '00000000-0000-0000-0000-00000000000a', 'ok', 1.5, 0.125, '1 day 2 hours', '10:00+02', '10.0.0.1', '{1,null}',
        '{a,"b,c",null}', '{1.25,null}', '{2024-01-01 00:00+01}', '{00000000-0000-0000-0000-00000000000a}', '0044-03-15 BC', '0001-01-01',
        '2024-01-01 00:00+01', '23:59:59.999999', '[1,5)', 'ab')""",
        "insert into t (id, d, ts, tstz) values (2, 'infinity', '-infinity', 'infinity')",
    )
    reading = source(pg, table_path="t")
    rows = (
        everything(
            source(pg, query="select * from t where id = 1 and d < '0001-01-01'", table_path="t")
        )
        .drop_columns("d")
        .to_pylist()
    )
    assert rows == [{
        "id": 1, "j": '{"a": [1]}', "u": "00000000-0000-0000-0000-00000000000a", "m": "ok", "c": Decimal("1.50"), "n": Decimal("0.125"), "iv": "P1DT2H",
        "tz": "10:00:00+02", "net": "10.0.0.1/32", "ia": [1, None], "ta": ["a", "b,c", None], "na": [Decimal("1.25"), None],
        "tsa": [datetime.datetime(2023, 12, 31, 23, tzinfo=datetime.UTC)], "ua": "{00000000-0000-0000-0000-00000000000a}",
        "ts": datetime.datetime(1, 1, 1), "tstz": datetime.datetime(2023, 12, 31, 23, tzinfo=datetime.UTC), "ti": datetime.time(23, 59, 59, 999999),
        "r": "[1,5)", "ch": "ab  ",
    }]  # fmt: skip
    dates = everything(reading)
    assert pa.compute.is_null(dates["d"]).to_pylist() == [False, True]
    assert [(dates["d"].cast(pa.int32()).to_pylist()[0],)] == pg.execute(
        "select d - '1970-01-01' from t where id = 1"
    ), "a day before our era is the same day"
    pg.execute("update t set n = 'NaN' where id = 2")
    with pytest.raises(ValueUnreadable, match="'n'"):
        everything(reading)


def test_numbers_with_too_many_digits_are_errors(pg: Place) -> None:
    pg.execute(
        "create table digits (id int primary key, n numeric, a numeric[])",
        "insert into digits values (1, 99999999999999999999.5, '{-99999999999999999999.5}')",
    )
    assert everything(source(pg, table_path="digits")).to_pylist()[0]["n"] == Decimal(
        "99999999999999999999.5"
    )
    for column, value in (
        ("n", "1e30"),
        ("n", "-999999999999999999999999999999999999999"),
        ("a", "array[1, 1e30]"),
    ):
        pg.execute(f"insert into digits (id, {column}) values (2, {value})")
        with pytest.raises(
            ValueUnreadable, match=f"'{column}'.*more than 20 digits before the point"
        ):
            everything(source(pg, table_path="digits"))
        pg.execute("delete from digits where id = 2")


def test_timestamps_beyond_the_range_are_errors(pg: Place) -> None:
    pg.execute(
        "create table far (id int primary key, ts timestamp, tz timestamptz, a timestamp[])",
        "insert into far values (1, '294247-01-10 04:00:54.775807', '4714-11-24 00:00+00 BC',"
        " '{294247-01-10 04:00:54.775807,infinity}')",
        "insert into far (id) values (2)",
    )
    rows = everything(source(pg, table_path="far"))
    moments = [rows["ts"], rows["tz"], rows["a"].combine_chunks().flatten()]
    assert [[value for value in column.cast(pa.int64()).to_pylist() if value is not None] for column in moments] == [
        [2**63 - 1], [-210_866_803_200_000_000], [2**63 - 1],
    ]  # fmt: skip
    for column, value in (
        ("ts", "294247-01-10 04:00:54.775808"),
        ("tz", "294276-12-31 23:59:59.999999+00"),
        ("a", "{294276-12-31}"),
    ):
        pg.execute(f"update far set {column} = '{value}' where id = 2")
        with pytest.raises(
            ValueUnreadable, match=f"'{column}'.*after 294247-01-10 04:00:54.775807"
        ):
            everything(source(pg, table_path="far"))
        pg.execute(f"update far set {column} = null where id = 2")


def test_arrays_are_lists_of_one_dimension_and_infinite_dates_in_them_null(pg: Place) -> None:
    pg.execute(
        """create table arrays (id int primary key, "n%s ""q" int[], t text[], b bytea[], d date[], ts timestamptz[])""",
        """insert into arrays values (1, '{1,null}', '{"a",null}', '{"\\\\x00"}', '{infinity,2024-01-02,null,-infinity}', '{2024-01-01 00:00+00,infinity}')""",
        "insert into arrays values (2, '{}', '{}', '{}', '{}', '{}'), (3, null, null, null, null,"
        " null)",
    )
    day, moment = datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = everything(source(pg, table_path="arrays")).to_pylist()
    assert [list(row.values()) for row in sorted(rows, key=lambda row: row["id"])] == [
        [1, [1, None], ["a", None], [b"\0"], [None, day, None, None], [moment, None]], [2, [], [], [], [], []], [3, None, None, None, None, None],
    ]  # fmt: skip
    for column, value in (
        ('"n%s ""q"', "{{1,2},{3,4}}"),
        ("t", "{{a},{b}}"),
        ("d", "{{2024-01-02}}"),
    ):
        pg.execute(f"update arrays set {column} = '{value}' where id = 2")
        with pytest.raises(ValueUnreadable, match="more than one dimension"):
            everything(source(pg, table_path="arrays"))
        pg.execute(f"update arrays set {column} = null where id = 2")
