"""Settings that hide changes from the log are rejected before anything is read."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from binlog_kit import BinlogShop
from database_kit import Place

from tidegate.databases.cdc.errors import NotSetUp
from tidegate.databases.errors import AccessDenied
from tidegate.testing.servers.binlog import BinlogServer
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer

Start = Callable[..., BinlogShop]


@pytest.fixture
def start(binlog_server: BinlogServer) -> Iterator[Start]:
    """Start a server of the same kind with these settings.

    It has a table shop.t and a database `other`.
    """
    with ExitStack() as stack:

        def started(**settings: str) -> BinlogShop:
            named = {name.replace("_", "-"): value for name, value in settings.items()}
            kind = MariaDbServer if isinstance(binlog_server, MariaDbServer) else MySqlServer
            server = stack.enter_context(kind(settings=named))
            server.execute(
                "create database shop",
                "create database other",
                "create table shop.t (id int primary key)",
            )
            return BinlogShop(
                server,
                Place(
                    url=server.url("shop"),
                    user=server.user,
                    password=server.password,
                    database="shop",
                ),
            )

        yield started


@pytest.mark.parametrize(
    ("setting", "value"), [("binlog_ignore_db", "shop"), ("binlog_do_db", "other")]
)
def test_filter_that_hides_a_read_database_is_rejected(
    start: Start, setting: str, value: str
) -> None:
    shop = start(**{setting: value})
    for options in ({}, {"binlog-filters.accepted": True}):
        with pytest.raises(
            NotSetUp, match=rf"{setting} = {value} excludes the changes of shop from its log"
        ):
            shop.source(**options).initial()


def test_filter_of_another_database_can_be_accepted(start: Start) -> None:
    shop = start(binlog_ignore_db="other")
    with pytest.raises(
        NotSetUp,
        match=(
            r"binlog_ignore_db = other excludes statements such as ALTER TABLE and TRUNCATE of shop"
            r" from.*binlog-filters.accepted = true"
        ),
    ):
        shop.source().initial()
    assert shop.source(**{"binlog-filters.accepted": True}).initial()


def test_replica_that_does_not_log_changes_is_rejected(
    start: Start, binlog_server: BinlogServer
) -> None:
    shop = start(log_slave_updates="OFF", server_id="9")
    assert shop.source().initial(), "a server that is no replica logs all"
    word = "replication source" if isinstance(binlog_server, MySqlServer) else "master"
    host = "source_host" if isinstance(binlog_server, MySqlServer) else "master_host"
    shop(f"change {word} to {host} = '127.0.0.1'")
    with pytest.raises(
        NotSetUp,
        match=(
            r"is a replica and does not log changes from its primary: set"
            r" log_(slave|replica)_updates = ON"
        ),
    ):
        shop.source().initial()
    shop(f"reset {'replica' if isinstance(binlog_server, MySqlServer) else 'slave'} all")
    assert shop.source().initial()


def test_all_problems_are_one_message(start: Start, binlog_server: BinlogServer) -> None:
    shop = start(binlog_row_image="MINIMAL", binlog_ignore_db="shop", binlog_format="MIXED")
    if isinstance(binlog_server, MySqlServer):
        shop(
            "set global binlog_row_value_options = 'PARTIAL_JSON'",
            "set global binlog_transaction_compression = ON",
        )
    with pytest.raises(NotSetUp) as raised:
        shop.source().initial()
    text = str(raised.value)
    wanted = [
        "set binlog_format = ROW (it is MIXED)",
        "set binlog_row_image = FULL (it is MINIMAL)",
        "excludes the changes of shop",
    ]
    if isinstance(binlog_server, MySqlServer):
        wanted += [
            "set binlog_row_value_options = '' (it is PARTIAL_JSON)",
            "set binlog_transaction_compression = OFF (it is ON)",
        ]
    assert [part for part in wanted if part not in text] == []


def test_log_without_column_names_is_a_warning(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    shop = start()
    with caplog.at_level(logging.WARNING):
        shop.source().initial()
        assert "binlog_row_metadata" not in caplog.text
        shop(
            "set global binlog_row_metadata ="
            f" {'MINIMAL' if isinstance(shop.server, MySqlServer) else 'NO_LOG'}"
        )
        shop.source().initial()
    assert "binlog_row_metadata_not_full" in caplog.text


def test_password_over_an_unencrypted_connection_is_rejected(mysql: MySqlServer) -> None:
    mysql.execute("create user fresh@'%' identified by 'secret'", "grant all on *.* to fresh@'%'")
    place = Place(url=mysql.url("mysql"), user="fresh", password="secret", database="mysql")
    with pytest.raises(AccessDenied, match=r"only over TLS: add \?sslMode=REQUIRED to the URL"):
        place.session()
    encrypted = replace(place, url=f"{place.url}?sslMode=REQUIRED")
    assert encrypted.execute("select current_user()") == [("fresh@%",)]
