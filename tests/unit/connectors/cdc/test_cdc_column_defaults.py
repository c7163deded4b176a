"""Values of added columns in existing rows.

They are read from each catalogue, and passed to a sink.
"""

from typing import Any

import pytest

from tidegate.connectors.mysqlcdc.column_defaults import read_column_defaults, undefaultable
from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.cdc.column_defaults import (
    UNKNOWN,
    missing_column,
    parse_constant,
    to_stored,
)
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.ddl import add_column
from tidegate.databases.dialect import dialect_of
from tidegate.databases.mysql.binlog_ddl import table_statement
from tidegate.databases.url import System
from tidegate.model.types import Column, Table, parse_type

NAME = TableName("shop", "", "orders")


class Catalogue:
    """A session with one column."""

    def __init__(self, version: str, *row: Any) -> None:
        self._version = version
        self._row = row

    def scalar(self, sql: str) -> str:
        assert "version" in sql
        return self._version

    def query(self, sql: str, parameters: Any) -> list[Any]:
        assert parameters == ("shop", "orders")
        return [("c", *self._row)] if "column_default" in sql else []


def value(
    version: str,
    kind: str,
    default: Any,
    *,
    nullable: str = "YES",
    extra: str = "",
    native: str = "int",
) -> Any:
    table = Table(path="shop.orders", columns=(Column(name="c", type=parse_type(kind)),))
    cdc_table = CdcTable(
        info=TableInfo(name=NAME, columns=(NativeColumn(name="c", native=native),)), table=table
    )
    session: Any = Catalogue(version, default, nullable, extra, native)
    return read_column_defaults(session, cdc_table)["c"]


MARIA, MYSQL = "10.11.6-MariaDB", "8.0.36"


@pytest.mark.parametrize(
    ("version", "kind", "default", "found"),
    [
        (MARIA, "int", None, None),
        (MARIA, "int", "NULL", None),
        (MARIA, "int", "5", "5"),
        (MARIA, "decimal(9,2)", "-1.50", "-1.50"),
        (MARIA, "string", "'it''s \\\\ so'", "it's \\ so"),
        (MARIA, "string", "uuid()", UNKNOWN),
        (MARIA, "boolean", "b'1'", True),
        (MARIA, "boolean", "0", False),
        (MARIA, "date", "'2024-02-29'", "2024-02-29"),
        (MARIA, "timestamp", "current_timestamp()", UNKNOWN),
        (MARIA, "bytes", "'x'", "x"),
        (MARIA, "bytes", "'?'", UNKNOWN),  # it may be any byte
        (MARIA, "bytes", "'x\\0'", UNKNOWN),
        (MYSQL, "bytes", "0x6162", "ab"),
        (MYSQL, "bytes", "0xFF", UNKNOWN),
        (MARIA, "time", "'10:00:00'", "10:00:00"),
        (MARIA, "timestamp_tz", "'2024-01-01 00:00:00'", "2024-01-01 00:00:00"),
        (
            MYSQL,
            "timestamp_tz",
            "2024-01-01 00:00:00",
            UNKNOWN,
        ),  # in the time zone of an unknown session
        (MARIA, "string", r"'a\\b\n'", "a\\b\n"),
        (MYSQL, "string", "it's", "it's"),
        (MYSQL, "string", "NULL", "NULL"),
        (MYSQL, "timestamp", "CURRENT_TIMESTAMP", UNKNOWN),
    ],
)
def test_defaults_of_the_catalogue_are_parsed(
    version: str, kind: str, default: Any, found: Any
) -> None:
    assert value(version, kind, default) == found


def test_not_null_column_without_default_has_a_zero() -> None:
    assert value(MARIA, "int", None, nullable="NO") == "0"
    assert value(MARIA, "string", None, nullable="NO", native="varchar(20)") == ""
    assert value(MARIA, "string", None, nullable="NO", native="decimal(65,3)") == "0.000"
    assert value(MARIA, "string", None, nullable="NO", native="uuid") is UNKNOWN
    assert value(MARIA, "time", None, nullable="NO", native="time") == "00:00:00"
    assert value(MARIA, "string", None, nullable="NO", native="enum('p','q')") == "p"
    assert value(MARIA, "date", None, nullable="NO") is None
    assert value(MARIA, "bigint", None, nullable="NO", extra="auto_increment") is UNKNOWN
    assert value(MYSQL, "string", "uuid()", extra="DEFAULT_GENERATED") is UNKNOWN


@pytest.mark.parametrize(
    ("definition", "filled_with", "carried"),
    [
        ("int", None, True),
        ("int default 5", "5", True),
        ("int", "5", False),  # the default was set later
        ("int default 4", "5", False),
        ("int default 10", "1", False),
        ("varchar(9) default 'abc'", "b", False),
        (r"varchar(9) default 'a\\b'", "a\\b", True),
        ("int default -5", "-5", True),
        ("int default '5'", "5", True),
        ("int default (5)", "5", False),  # an expression
        ("int default 5", None, False),  # the default was dropped later
        ("int not null", "0", True),
        ("int default null", None, True),
        ("varchar(9) default 'it''s'", "it's", True),
        ("tinyint(1) default true", True, True),
        ("tinyint(1) default 1", False, False),
        ("varchar(40) default uuid()", UNKNOWN, False),
    ],
)
def test_the_catalogue_and_the_statement_must_agree(
    definition: str, filled_with: Any, carried: bool
) -> None:
    change = table_statement("shop", f"alter table orders add c {definition}")
    assert change is not None
    kind = (
        "string" if "varchar" in definition else "boolean" if "tinyint(1)" in definition else "int"
    )
    types = {"C": (parse_type(kind), definition.partition(" ")[0])}
    assert (undefaultable(change, set(), {"C": filled_with}, types, lambda: False) == "") == carried
    assert (undefaultable(change, set(), {"C": filled_with}, types, lambda: True) == "") == (
        filled_with is not UNKNOWN
    )  # nothing came after it
    assert undefaultable(change, {"c"}, {}, {}, lambda: False) == ""  # it was there before


def test_constants_are_parsed_or_unknown() -> None:
    assert (
        parse_constant("2024-05-06 07:08:09.5+00", parse_type("timestamp_tz"))
        == "2024-05-06 07:08:09.5"
    )
    assert parse_constant("infinity", parse_type("timestamp")) is UNKNOWN
    assert parse_constant("NaN", parse_type("double")) is UNKNOWN
    assert parse_constant("{1}", parse_type("array<int>")) is UNKNOWN
    assert to_stored({"a": "5", "b": None, "c": UNKNOWN, "d": False}) == {"a": "5", "d": False}


def test_existing_rows_have_the_default_or_null() -> None:
    table = Table(path="t", columns=(), options={"defaults": {"a": "5", "b": True}})
    assert missing_column(
        table, Column(name="a", type=parse_type("decimal(9,2)")), 2
    ).to_pylist() == [5, 5]
    assert missing_column(table, Column(name="b", type=parse_type("boolean")), 1).to_pylist() == [
        True
    ]
    assert missing_column(table, Column(name="c", type=parse_type("date")), 1).to_pylist() == [None]


@pytest.mark.parametrize(
    ("system", "kind", "default", "text"),
    [
        (System.POSTGRES, "int", "5", 'alter table "orders" add column "c" integer default 5'),
        (
            System.POSTGRES,
            "boolean",
            True,
            'alter table "orders" add column "c" boolean default true',
        ),
        (
            System.POSTGRES,
            "string",
            "it's",
            "alter table \"orders\" add column \"c\" text default 'it''s'",
        ),
        (
            System.MYSQL,
            "boolean",
            True,
            "alter table `shop`.`orders` add column `c` tinyint(1) default 1",
        ),
        (
            System.MYSQL,
            "timestamp_tz",
            "2024-01-01 00:00:00",
            "alter table `shop`.`orders` add column `c` timestamp(6) null default (_utf8mb4 x'",
        ),
        (System.SQLITE, "date", "2024-01-01", "add column \"c\" DATE default '2024-01-01'"),
        (System.POSTGRES, "int", None, 'alter table "orders" add column "c" integer'),
    ],
)
def test_a_sink_adds_the_column_with_its_default_in_one_step(
    system: System, kind: str, default: Any, text: str
) -> None:
    assert text in add_column(
        dialect_of(system), NAME, Column(name="c", type=parse_type(kind), default=default)
    )
