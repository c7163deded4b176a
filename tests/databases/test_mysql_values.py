"""Values of MariaDB and MySQL are equal in log, snapshot and Jdbc, by both decoders."""

from typing import Any

import pytest
from binlog_kit import BinlogShop
from binlog_values import GROUPS, MARIADB, MYSQL
from cdc_kit import restored, rows_of
from database_kit import Place

from tidegate.databases.errors import LoggedValueUnfit, ValueUnreadable
from tidegate.model.errors import Unsupported
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.binlog import BinlogServer
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer

LATER = 1000
ANY_DATE = "set sql_mode = 'ALLOW_INVALID_DATES'"


def insert(name: str, columns: str, rows: list[str], first: int) -> list[str]:
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    return [
        "set time_zone = '+00:00'",
        ANY_DATE,
        *(
            f"insert into {name} (id, {names}) values ({first + n}, {row[1:]}"
            for n, row in enumerate(rows)
        ),
    ]


def read(source: Any, start: Any, end: Any) -> dict[str, dict[int, dict[str, str]]]:
    """Return the rows by table and id.

    Values are in Python notation, which distinguishes -0.0 from 0.0 and a decimal from a float.
    """
    found: dict[str, dict[int, dict[str, str]]] = {}
    for path, row in rows_of(source, start, end):
        found.setdefault(path.split(".")[1], {})[row["id"] % LATER] = {
            name: repr(value) for name, value in row.items() if name not in ("id", "__row_kind")
        }
    return found


def by_id(rows: list[dict[str, Any]]) -> dict[int, dict[str, str]]:
    """Return rows from before the snapshot in the same form."""
    return {
        row["id"]: {name: repr(value) for name, value in row.items() if name != "id"}
        for row in rows
        if row["id"] < LATER
    }


def test_values_are_equal_by_every_read_path(
    binlog_shop: BinlogShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {**GROUPS, **(MYSQL if isinstance(binlog_shop.server, MySqlServer) else MARIADB)}
    for name, (columns, rows) in groups.items():
        binlog_shop(
            "set sql_mode = ''",
            f"create table {name} (id int primary key, {columns}) character set utf8mb4",
        )
        binlog_shop(*insert(name, columns, rows, 1))
    source = binlog_shop.source()
    start = restored(source.initial())
    middle = restored(source.latest(start, Limit()))
    snapshot = read(source, start, middle)
    for name, (columns, rows) in groups.items():
        binlog_shop(*insert(name, columns, rows, LATER + 1))
    end = restored(source.latest(middle, Limit()))
    log = read(source, middle, end)
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1")
    pure = read(source, middle, end)
    for name, (_, rows) in groups.items():
        jdbc = by_id(binlog_shop.jdbc_rows(name))
        assert len(jdbc) == len(rows), name
        assert log[name] == snapshot[name], name
        assert pure[name] == snapshot[name], name
        assert jdbc == snapshot[name], name
        if isinstance(binlog_shop.server, MySqlServer):  # it generates certificates itself
            assert by_id(binlog_shop.jdbc_rows(name, "?sslMode=REQUIRED")) == jdbc, name


def test_invalid_dates_are_null(binlog_shop: BinlogShop) -> None:
    binlog_shop("create table t (id int primary key, d date, t datetime(6))")
    binlog_shop(
        ANY_DATE,
        *(
            f"insert into t values ({n}, '{date}', '{date}')"
            for n, date in enumerate(["0000-05-05", "2023-02-29", "2024-02-29", "2024-00-01"])
        ),
    )
    assert [
        row["id"]
        for row in binlog_shop.jdbc_rows("t")
        if row["d"] is not None and row["t"] is not None
    ] == [2]


def test_numbers_as_text_have_no_exponent_or_leading_zeros(
    binlog_shop: BinlogShop,
) -> None:
    binlog_shop(
        "create table t (id int primary key, a decimal(65,30), b decimal(65,30) zerofill)",
        "insert into t values (1, 0, 1.5)",
    )
    assert binlog_shop.jdbc_rows("t") == [{"id": 1, "a": f"0.{'0' * 30}", "b": f"1.5{'0' * 29}"}]


def test_padding_added_by_the_sql_mode_is_removed(
    binlog_server: BinlogServer, binlog_shop: BinlogShop
) -> None:
    binlog_shop(
        "create table t (id int primary key, a char(5), b char(5) character set utf16, c"
        " binary(3))",
        "insert into t values (1, 'ab ', 'é', 'z')",
    )
    source = binlog_shop.source()
    start = restored(source.initial())
    middle = restored(source.latest(start, Limit()))
    binlog_server.execute("set global sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'")
    try:
        snapshot = read(source, start, middle)
        jdbc = by_id(binlog_shop.jdbc_rows("t"))
    finally:
        binlog_server.execute("set global sql_mode = default")
    binlog_shop(f"insert into t select id + {LATER}, a, b, c from t")
    assert read(source, middle, source.latest(middle, Limit())) == snapshot == {"t": jdbc}
    assert jdbc[1] == {"a": "'ab'", "b": "'é'", "c": repr(b"z\0\0")}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("time", "-01:00:00"), ("time(6)", "24:00:00.500000"), ("time(3)", "838:59:59.000")],
)
def test_span_is_rejected_as_time_and_readable_as_text(
    binlog_shop: BinlogShop, kind: str, value: str
) -> None:
    binlog_shop(f"create table spans (k varchar(5) primary key, t {kind}, n int)")
    source = binlog_shop.source(startup__mode="latest")
    texts = binlog_shop.source(**{"time-as-text": True})
    start, begin = restored(source.initial()), restored(texts.initial())
    binlog_shop(f"insert into spans values ('one', '{value}', 1), ('two', '10:00:00', 2)")
    shown = value if "." not in value else value.split(".")[0] + r"\.\d+"
    end = source.latest(start, Limit())
    with pytest.raises(
        LoggedValueUnfit,
        match=(
            rf"a change of {binlog_shop.name}.spans \(k = one\) has a value of column"
            rf" 't'.*{shown}.*time-as-text = true"
        ),
    ):
        list(rows_of(source, start, end))
    with pytest.raises(
        ValueUnreadable, match=rf"column 't' does not fit time: {value.split('.')[0]}.*k = one"
    ):
        binlog_shop.jdbc_rows("spans")
    snapshot = [row["t"] for _, row in rows_of(texts, begin, texts.latest(begin, Limit()))]
    log = [row["t"] for _, row in rows_of(texts, start, end)]
    assert snapshot == log
    assert log[0] == value


def test_text_that_is_not_unicode_is_an_error_with_its_row(
    mariadb: MariaDbServer, maria: Place
) -> None:
    shop = BinlogShop(mariadb, maria)  # MySQL does not store surrogates
    shop("create table t (id int primary key, v varchar(5) character set utf8mb4)")
    source = shop.source(startup__mode="latest")
    start = restored(source.initial())
    shop("insert into t values (1, 'a'), (2, x'eda080')")
    with pytest.raises(
        LoggedValueUnfit,
        match=rf"of {shop.name}.t \(id = 2\) has a value of column 'v' .*x'eda080'",
    ):
        list(rows_of(source, start, source.latest(start, Limit())))
    with pytest.raises(ValueUnreadable, match="column 'v' does not fit"):
        shop.jdbc_rows("t")


def test_old_mariadb_fractions_are_rejected(mariadb: MariaDbServer, maria: Place) -> None:
    shop = BinlogShop(mariadb, maria)
    mariadb.execute("set global mysql56_temporal_format = OFF")
    try:
        shop(
            "create table old (id int primary key, t datetime(3))",
            "create table fine (id int primary key, t datetime, u time, v timestamp)",
        )
    finally:
        mariadb.execute("set global mysql56_temporal_format = ON")
    with pytest.raises(
        Unsupported, match=rf"the column t of {shop.name}.old .*ALTER TABLE {shop.name}.old FORCE"
    ):
        shop.source().initial()
    shop("drop table old")
    source = shop.source()
    start = restored(source.initial())
    middle = restored(source.latest(start, Limit()))
    row = "'2024-02-03 04:05:06', '07:08:09', '2024-02-03 04:05:06'"
    shop(f"insert into fine values (1, {row})")
    log = [row for path, row in rows_of(source, middle, source.latest(middle, Limit()))]
    assert [
        {name: value for name, value in row.items() if name != "__row_kind"} for row in log
    ] == shop.jdbc_rows("fine")


def test_labels_beyond_the_catalogue_are_read_from_the_log(binlog_shop: BinlogShop) -> None:
    binlog_shop(
        "create table t (id int primary key, e enum('😀', '?', 'a') character set utf8mb4, s"
        " set('😀', '?') character set utf16)"
    )
    source = binlog_shop.source()
    start = restored(source.initial())
    middle = restored(source.latest(start, Limit()))
    binlog_shop("insert into t values (1, 1, 3), (2, 2, 2), (3, 3, 1)")
    log = read(source, middle, source.latest(middle, Limit()))
    assert log["t"] == by_id(binlog_shop.jdbc_rows("t"))
    assert log["t"][1] == {"e": "'😀'", "s": "'😀,?'"}


def test_columns_after_a_vector_keep_their_character_sets(mysql: MySqlServer) -> None:
    mysql.execute(
        "create database vectors",
        "create table vectors.t (id int primary key, v vector(2), a varchar(5) character set"
        " latin1, b varchar(5), e enum('ä'))",
    )
    shop = BinlogShop(
        mysql,
        Place(
            url=mysql.url("vectors"), user=mysql.user, password=mysql.password, database="vectors"
        ),
    )
    source = shop.source()
    start = restored(source.initial())
    middle = restored(source.latest(start, Limit()))
    shop("insert into t values (1, to_vector('[1,2]'), 'ä', '😀', 'ä')")
    assert read(source, middle, source.latest(middle, Limit()))["t"] == by_id(shop.jdbc_rows("t"))
