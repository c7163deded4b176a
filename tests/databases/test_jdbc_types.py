"""Values of every type, written by the sink and read back by the source."""

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from database_kit import Driven, Place, everything, sink, source, table
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

TYPES = {
    "id": "bigint",
    "c_boolean": "boolean",
    "c_tinyint": "tinyint",
    "c_smallint": "smallint",
    "c_int": "int",
    "c_bigint": "bigint",
    "c_float": "float",
    "c_double": "double",
    "c_decimal": "decimal(38,10)",
    "c_small_decimal": "decimal(5,5)",
    "c_string": "string",
    "c_bytes": "bytes",
    "c_date": "date",
    "c_time": "time",
    "c_timestamp": "timestamp",
    "c_moment": "timestamp_tz",
}
ALL = table("shop.all_types", ["id"], **TYPES)
_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30
) | st.sampled_from(["", "\\N", "\\", "\t\n\r", "NULL", "'\"`%s", "🦑"])
_VALUES = {
    "c_boolean": st.booleans(),
    "c_tinyint": st.integers(-(2**7), 2**7 - 1),
    "c_smallint": st.integers(-(2**15), 2**15 - 1),
    "c_int": st.integers(-(2**31), 2**31 - 1),
    "c_bigint": st.integers(-(2**63), 2**63 - 1),
    # MariaDB refuses values near the largest, whose shortest text is above its limit.
    "c_float": st.floats(-(2.0**120), 2.0**120, width=32, allow_subnormal=False),
    "c_double": st.floats(-1e300, 1e300, allow_subnormal=False),
    "c_decimal": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-10")),
    "c_small_decimal": st.integers(-(10**5) + 1, 10**5 - 1).map(lambda n: Decimal(f"{n}e-5")),
    "c_string": _TEXT,
    "c_bytes": st.binary(max_size=30),
    "c_date": st.dates(datetime.date(1000, 1, 1)),
    "c_time": st.times(),
    "c_timestamp": st.datetimes(datetime.datetime(1000, 1, 1)),
    "c_moment": st.datetimes(datetime.datetime(1000, 1, 1), timezones=st.just(datetime.UTC)),
}
_lineages = itertools.count()
ROWS = st.lists(
    st.tuples(*(st.none() | strategy for strategy in _VALUES.values())), min_size=1, max_size=40
)
_SAME = {
    "lite": {"c_tinyint": "bigint", "c_smallint": "bigint", "c_int": "bigint", "c_float": "double"},
    "pg": {"c_tinyint": "smallint"},
    "maria": {"c_moment": "timestamp"},
}


@pytest.mark.parametrize("where", ["maria", "pg", "lite"])
@settings(
    max_examples=6,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(rows=ROWS)
def test_written_values_are_read_back(
    request: pytest.FixtureRequest, where: str, rows: list[tuple[Any, ...]]
) -> None:
    place: Place = request.getfixturevalue(where)
    numbered = [(number, *row) for number, row in enumerate(rows)]
    lineage = str(next(_lineages))  # the same rows may be tried twice
    Driven(sink(place, table="all_types", data_save_mode="DROP_DATA"), lineage=lineage).batch(
        1, (ALL, numbered)
    )
    reading = source(place, table_path="all_types")
    found = everything(reading).sort_by("id")
    assert found.schema.names == list(TYPES)
    assert {c.name: str(c.type) for c in reading.tables()[0].columns} == TYPES | _SAME[where]
    for index, name in enumerate(TYPES):
        wanted = [row[index] for row in numbered]
        if where == "maria" and name == "c_moment":  # a datetime in UTC
            wanted = [moment and moment.replace(tzinfo=None) for moment in wanted]
        assert found[name].to_pylist() == wanted, name


def test_lists_stay_lists_if_the_database_supports_them(pg: Place) -> None:
    lists = table(
        "t",
        ["id"],
        id="int",
        i="array<int>",
        s="array<string>",
        d="array<decimal(10,2)>",
        t="array<timestamp>",
        v="float_vector",
    )
    rows = [
        (1, [1, None], ["a", ""], [Decimal("1.50")], [datetime.datetime(2024, 1, 1)], [1.5, 2.0]),
        (2, [], None, [None], None, None),
    ]
    Driven(sink(pg, table="t")).batch(1, (lists, rows))
    found = everything(source(pg, table_path="t")).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == rows


def test_nested_values_are_json_elsewhere(place: Place) -> None:
    nested = table(
        "t",
        ["id"],
        id="int",
        m="map<string,int>",
        r="row<a int,b array<string>>",
        l="array<map<string,int>>",
        i="array<int>",
    )
    row = (1, [("k", 1)], {"a": 1, "b": ["x", None]}, [[("k", None)]], [1, 2])
    Driven(sink(place, table="t")).batch(1, (nested, [row, (2, None, None, None, None)]))
    first, second = everything(source(place, table_path="t")).sort_by("id").to_pylist()
    assert (
        first["m"].replace(" ", ""),
        first["r"].replace(" ", ""),
        first["l"].replace(" ", ""),
    ) == ('{"k":1}', '{"a":1,"b":["x",null]}', '[{"k":null}]')
    assert set(second.values()) == {2, None}


def test_a_null_column_and_texts_of_any_length_pass(place: Place) -> None:
    long = "ä\\" * 200_000
    wide = table("t", ["id"], id="int", n="null", s="string", b="bytes")
    Driven(sink(place, table="t")).batch(
        1, (wide, [(1, None, long, long.encode()), (2, None, None, None)])
    )
    found = everything(source(place, table_path="t")).sort_by("id")
    assert found["s"].to_pylist() == [long, None]
    assert found["b"].to_pylist() == [long.encode(), None]
    assert found["n"].cast(pa.string()).to_pylist() == [None, None]


def test_rows_are_inserted_where_the_server_allows_no_local_file(
    maria: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.connectors.jdbc.staging_mysql import MySqlLoader
    from tidegate.databases.errors import StatementRefused

    def refused(*_: object) -> None:
        raise StatementRefused("x", "Loading local data is disabled", "3948")

    monkeypatch.setattr(MySqlLoader, "_load_file", refused)
    row = (
        1,
        True,
        1,
        2,
        3,
        4,
        1.5,
        2.5,
        Decimal("1.0000000001"),
        Decimal("0.00001"),
        "\\N",
        b"\0\xff",
        datetime.date(2024, 1, 2),
        datetime.time(1, 2, 3, 4),
    )
    row = (
        *row,
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC),
    )
    Driven(sink(maria, table="all_types")).batch(1, (ALL, [row, (2, *[None] * 15)]))
    kept = (*row[:-1], row[-1].replace(tzinfo=None))
    assert [
        tuple(found.values())
        for found in everything(source(maria, table_path="all_types")).sort_by("id").to_pylist()
    ] == [kept, (2, *[None] * 15)]


_OWN = {
    "maria": (
        (
            "id int primary key, tiny tinyint unsigned, big bigint unsigned, flag tinyint(1), bits"
            " bit(13), one bit, y year, e enum('a','b'), s set('x','y'), j json, g geometry, p"
            " point, u uuid, a inet6, f float, d decimal(65,30), c char(4), v varbinary(8), tx text"
            " character set latin1, ti time(3), da date, dt datetime(6), ts timestamp(6) null"
        ),
        (
            "1, 255, 18446744073709551615, 1, b'1000000000101', b'1', 2155, 'b', 'x,y', '{\"a\":"
            " [1, null]}', point(1, 2), point(-1.5, 0), '123e4567-e89b-12d3-a456-426655440000',"
            " '::1', 1.17549e-38, -12345678901234567890123456789012345.5, 'ä', x'00ff', 'é',"
            " '23:59:59.999', '9999-12-31', '1000-01-01 00:00:00.000001', '2038-01-19"
            " 03:14:07.999999'"
        ),
    ),
    "pg": (
        (
            "id int primary key, j json, jb jsonb, u uuid, m money, iv interval, tz timetz, net"
            " inet, ci cidr, mac macaddr, r int4range, nr numrange, tr tstzrange, b bit(5), bv bit"
            " varying, n numeric(50,20), x xml, ia int[], ta text[], na numeric(6,2)[], ua uuid[],"
            " po point, ts tsvector, ch char(4), f real, d double precision, o oid, q timestamp(0),"
            " tt timestamptz(3)"
        ),
        """1, '{"a" : 1}', '{"b": [null]}', '123e4567-e89b-12d3-a456-426655440000', '-12.34', '-1 year 2 mons 3 days 04:05:06.789', '10:00:00.5+05:30',
        '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,5)', '(,1.5]', '[2024-01-01 00:00+00,)', b'10101', b'1', -123456789012345678901234567890.5,
        '<a/>', '{1,null}', '{"a,b",null,""}', '{1.25,null}', '{123e4567-e89b-12d3-a456-426655440000}', '(1,-2)', 'a:1 b:2', 'ab', 1.17549e-38, 'Infinity',
        4294967295, '0001-01-01', '9999-12-31 23:59:59.999+00'""",
    ),
}


@pytest.mark.parametrize("where", list(_OWN))
def test_database_specific_values_survive_a_round_trip(
    request: pytest.FixtureRequest, where: str
) -> None:
    """Types without a counterpart travel as text or bytes; into a table that has them they go as
    what they were.
    """
    place: Place = request.getfixturevalue(where)
    columns, values = _OWN[where]
    names = [
        part.split()[0]
        for part in (
            columns.replace("set('x','y')", "set")
            .replace("enum('a','b')", "enum")
            .replace("(65,30)", "")
            .split(", ")
        )
    ]
    place.execute(
        f"create table one ({columns})",
        f"create table two ({columns})",
        f"insert into one values ({values})",
        "insert into one (id) values (2)",
    )
    reading = source(place, table_path="one")
    incoming = reading.tables()[0]
    rows = everything(reading).sort_by("id").to_pylist()
    Driven(sink(place, table="two")).batch(1, (incoming, [tuple(row.values()) for row in rows]))
    text = "hex({0})" if where == "maria" else "{0}::text"
    for name in names:
        pair = [
            place.execute(f"select {text.format(name)} from {table} order by id")
            for table in ("one", "two")
        ]
        assert pair[0] == pair[1], name
