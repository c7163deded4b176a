"""A value of PostgreSQL is equal in snapshot, log and Jdbc.

Values that cannot be represented are rejected by all of them.
"""

from typing import Any

import pyarrow as pa
import pytest
from cdc_kit import restored
from database_kit import everything
from database_kit import source as jdbc_source
from postgres_kit import Shop

from tidegate.databases.errors import ValueUnreadable
from tidegate.plugin.contract import Limit

SET_UP = (
    "create type mood as enum ('sad', 'it''s ok', 'a,b', 'q\"x', 'b\\c', 'é')",
    "create domain positive as int check (value > 0)",
    "create domain code as varchar(5)",
    "create domain feeling as mood",
    "create type pair as (x int, y text)",
)
VALUES: dict[str, list[str]] = {
    "smallint": ["-32768", "32767"],
    "int": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": [
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "3.4028235e38",
        "1e-45",
        "0.1",
        "-0.0",
        "16777217",
    ],
    "double precision": [
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "1.7976931348623157e308",
        "5e-324",
        "0.1",
        "-0.0",
        "0.30000000000000004",
        "123456789012345680",
    ],
    "numeric(12,2)": ["0", "-0.01", "9999999999.99"],
    "numeric(38,10)": ["9999999999999999999999999999.9999999999"],
    "numeric(60,30)": [
        "0",
        "123456789012345678901234567890.123456789012345678901234567890",
        "'NaN'",
    ],
    "numeric(5,-2)": ["12300", "9999900"],
    "numeric": ["0", "1.10", "12345678901234567890.123456789012345678", "1e-18"],
    "boolean": ["true", "false"],
    "text": [
        "''",
        "'é€😀'",
        "E'tab\\tnew\\nline\\\\'",
        "'NULL'",
        "' both '",
        "repeat('long', 4000)",
    ],
    "varchar(30)": ["''", "'x  '"],
    "char(5)": ["''", "'ab'", "'  b'", "'abcde'", "'é'"],
    '"char"': ["'x'", "''"],
    "name": ["'some name'"],
    "bytea": ["''", "'\\x00ff5c'"],
    "date": [
        "'0001-01-01'",
        "'9999-12-31'",
        "'10000-01-01'",
        "'0044-03-15 BC'",
        "'4713-01-01 BC'",
        "'5874897-12-31'",
        "'infinity'",
        "'-infinity'",
        "'1582-10-10'",
    ],
    "time": ["'00:00'", "'23:59:59.999999'"],
    "timetz": ["'00:00+14'", "'24:00-07:30'"],
    "timestamp": [
        "'0001-01-01'",
        "'9999-12-31 23:59:59.999999'",
        "'10000-01-01'",
        "'0044-03-15 12:00 BC'",
        "'infinity'",
        "'1969-12-31 23:59:59.999999'",
    ],
    "timestamp(0)": ["'2024-05-06 07:08:09.5'"],
    "timestamptz": [
        "'2024-05-06 07:08:09.000001+02'",
        "'0044-03-15 12:00 BC'",
        "'294000-01-01'",
        "'-infinity'",
        "'1900-01-01 00:00:00+00:19:32'",
    ],
    "interval": ["'1 year -2 mons 3 days 04:05:06.789'", "'0'", "'-1 day'", "'178000000 years'"],
    "interval day to second(2)": ["'1 day 01:02:03.456'"],
    "money": ["'-92233720368547758.08'", "'12.34'", "0"],
    "bit(8)": ["B'00000001'"],
    "bit varying": ["B''", "B'101'"],
    "json": ['\'{"a":  1, "a": 1e20}\'', "'null'"],
    "jsonb": ['\'{"b": 1.50, "a": 1e20}\'', "'[]'"],
    "xml": ["'<a>é</a>'"],
    "uuid": ["'123E4567-e89b-12d3-a456-426614174000'"],
    "inet": ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'fe80::/64'"],
    "cidr": ["'10.0.0.0/8'", "'::/0'", "'10.0.0.1/32'"],
    "macaddr": ["'08:00:2B:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:05'"],
    "point": ["'(1.5,-2)'"],
    "box": ["'(1,1),(0,0)'"],
    "polygon": ["'((0,0),(1,1),(1,0))'"],
    "circle": ["'<(0,0),1.1>'"],
    "tsvector": ["'a:1 b:2'"],
    "tsquery": ["'a & b'"],
    "int4range": ["'[1,5)'", "'empty'", "'(,)'"],
    "tstzrange": ["'[2024-01-01 00:00+02,)'"],
    "int4multirange": ["'{[1,2),[5,6)}'"],
    "oid": ["4294967295"],
    "regclass": ["'pg_class'"],
    "pg_lsn": ["'0/16B3748'"],
    "mood": ["'sad'", "'it''s ok'", "'a,b'", "'q\"x'", "'b\\c'", "'é'"],
    "positive": ["1"],
    "code": ["'x  '"],
    "feeling": ["'a,b'"],
    "pair": ["'(1,\"a,b\")'", "'(,)'"],
    "int[]": ["'{}'", "'{1,NULL,3}'"],
    "bigint[]": ["'{9223372036854775807}'"],
    "boolean[]": ["'{t,f,NULL}'"],
    "real[]": ["'{NaN,Infinity,0.1}'"],
    "double precision[]": ["'{NaN,-Infinity,0.1}'"],
    "numeric(6,2)[]": ["'{1.5,2.25,NULL}'"],
    "numeric(60,30)[]": ["'{1.5}'"],
    "text[]": ['\'{"a b",NULL,"q\\"x\\\\y","","NULL",é,"{","a,b"}\''],
    "varchar(3)[]": ["'{a,\"b \"}'"],
    "char(3)[]": ["'{a,NULL,\"\",abc}'"],
    "bytea[]": ["array['\\x00ff'::bytea, null]"],
    "date[]": ["'{2024-01-01,infinity,NULL,\"0044-03-15 BC\"}'"],
    "timestamp[]": ["'{\"2024-01-01 00:00:01.5\",-infinity}'"],
    "timestamptz[]": ["'{\"2024-01-01 00:00:01+02\",infinity,NULL}'"],
    "time[]": ["'{24:00,01:02:03}'"],
    "uuid[]": ["'{123e4567-e89b-12d3-a456-426614174000}'"],
    "inet[]": ["'{10.0.0.1,::1}'"],
    "mood[]": ["'{sad,\"a,b\"}'"],
    "positive[]": ["'{1,2}'"],
    "jsonb[]": ["array['{\"a\": 1}'::jsonb]"],
    "interval[]": ["'{1 day}'"],
    "pair[]": ["array['(1,x)'::pair]"],
    "name[]": ["'{a}'"],
    "oid[]": ["'{1,4294967295}'"],
}
REFUSED = {
    "time": ["'24:00'"],
    "numeric(12,2)": ["'NaN'"],
    "numeric": ["'Infinity'", "'NaN'", "1e30", "1e-30"],
    "int[]": ["'{{1,2},{3,4}}'", "'[0:2]={1,2,3}'"],
    "text[]": ["'[5:5]={x}'", "'{{a}}'"],
    "timestamp[]": ["'[0:0]={2024-01-01}'"],
    "timestamptz": ["'294276-12-31 23:59:59.999999'"],
    "numeric(6,2)[]": ["'{NaN}'", "'[0:0]={1}'"],
}


def exact(value: Any) -> str:
    """Return a form in which NaN equals NaN, -0.0 is not 0.0, and 1.10 is not 1.1."""
    return repr(value)


class ReadPaths:
    """Tables with a column v, read by all paths. Each path returns the values of v by table."""

    def __init__(self, shop: Shop, *kinds: str) -> None:
        self.shop = shop
        self.tables = [f"t{number}" for number in range(len(kinds))]
        shop(*SET_UP)
        for table, kind in zip(self.tables, kinds, strict=True):
            shop(
                f"create table {table} (id int primary key, v {kind})",
                f"alter table {table} replica identity full",
            )
        self.source = shop.source(startup__mode="latest")
        self.start = restored(self.source.initial())

    def log(self) -> dict[str, list[str]]:
        return self._values(self.source, self.start)

    def snapshot(self) -> dict[str, list[str]]:
        source = self.shop.source(slot__name=f"{self.shop.slot}_b")
        return self._values(source, restored(source.initial()))

    def jdbc(self) -> dict[str, list[str]]:
        return {
            table: in_order(
                everything(jdbc_source(self.shop.place, table_path=self.shop.path(table)))
            )
            for table in self.tables
        }

    def _values(self, source: Any, start: Any) -> dict[str, list[str]]:
        end = restored(source.latest(start, Limit()))
        found: dict[str, list[Any]] = {}
        for split in source.splits(start, end, 4):
            found.setdefault(split.table.rpartition(".")[2], []).extend(source.read(split))
        return {table: in_order(pa.Table.from_batches(batches)) for table, batches in found.items()}


def in_order(table: Any) -> list[str]:
    """Return the values by id; dates and timestamps as numbers, as Python's types lack some."""
    v = table.column("v")
    if pa.types.is_list(v.type):
        v = v.cast(pa.list_(_number(v.type.value_type)))
    values = v.cast(_number(v.type)).to_pylist()
    return [
        exact(value)
        for _, value in sorted(
            zip(table.column("id").to_pylist(), values, strict=True), key=lambda pair: pair[0]
        )
    ]


def _number(kind: Any) -> Any:
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def test_values_are_equal_by_every_read_path(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ReadPaths(shop, *VALUES)
    for table, (kind, values) in zip(ways.tables, VALUES.items(), strict=True):
        for number, value in enumerate([*values, "null"]):
            shop(
                f"insert into {table} values ({number},"
                f" {value if value == 'null' or value.startswith('array') else f'({value})::{kind}'})"
            )
    compiled = ways.log()
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1")
    assert ways.log() == compiled
    snapshot, jdbc = ways.snapshot(), ways.jdbc()
    for table, (kind, values) in zip(ways.tables, VALUES.items(), strict=True):
        assert compiled[table] == snapshot[table] == jdbc[table], kind
        assert len(jdbc[table]) == len(values) + 1, kind


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, values in REFUSED.items() for value in values]
)
def test_values_that_cannot_be_kept_are_refused_by_every_way(
    shop: Shop, kind: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = ReadPaths(shop, kind)
    shop("insert into t0 values (1, null)", f"insert into t0 values (2, {value}::{kind})")
    for way in (ways.log, ways.snapshot, ways.jdbc):
        with pytest.raises(ValueUnreadable, match="column 'v'"):
            way()
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1")
    with pytest.raises(ValueUnreadable, match="column 'v'"):
        ways.log()
