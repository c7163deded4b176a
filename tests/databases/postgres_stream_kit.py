"""A log of PostgreSQL that is read by ranges, and its contents according to the server."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.pgoutput_stream import SlotRange, message_lists
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.postgres.shared_stream import close_streams
from tidegate.databases.url import parse_url

_slots = itertools.count(1)
Transaction = tuple[int, list[bytes]]


class Log:
    """A table, its publication and a slot, with ways to read them."""

    def __init__(self, port: int, database: str) -> None:
        self.port = port
        self.database = database
        self.slot = f"stream_{next(_slots)}"
        self.address = parse_url(
            f"jdbc:postgresql://127.0.0.1:{port}/{database}", "postgres", "any"
        )
        self.connection = self.connect()
        self(
            "create table t (id bigint primary key, note text)",
            "alter table t replica identity full",
        )
        self("create table u (id bigint primary key)", "create publication p for table t, u")
        self(f"select pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")

    def connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/{self.database}", autocommit=True
        )

    def __call__(self, *statements: str) -> Any:
        *before, last = statements
        for statement in before:
            self.connection.execute(statement.encode())
        cursor = self.connection.execute(last.encode())
        found = cursor.fetchone() if cursor.description else None
        return found[0] if found else None

    def now(self) -> int:
        return lsn.number(self("select pg_current_wal_flush_lsn()::text"))

    def open(self) -> PostgresSession:
        return PostgresSession(self.address)

    def range(self, start: int, end: int) -> SlotRange:
        return SlotRange(slot=self.slot, publication="p", start=start, end=end)

    def read(self, start: int, end: int) -> list[Transaction]:
        return transactions(
            [m for many in message_lists(self.open, self.range(start, end)) for m in many]
        )

    def peek(self) -> list[Transaction]:
        """Return all transactions, as the server itself returns them."""
        sql = (
            f"select data from pg_logical_slot_peek_binary_changes('{self.slot}', null, null,"
            " 'proto_version', '1', 'publication_names', 'p')"
        )
        return transactions(
            [bytes(row[0]) for row in self.connection.execute(sql.encode()).fetchall()]
        )

    def senders(self) -> list[int]:
        rows = self.connection.execute(
            "select pid from pg_stat_replication where application_name = 'tidegate'"
        ).fetchall()
        return [int(row[0]) for row in rows]

    def confirmed(self) -> str:
        return str(
            self(
                "select confirmed_flush_lsn::text from pg_replication_slots where slot_name ="
                f" '{self.slot}'"
            )
        )

    def end(self) -> None:
        close_streams()
        wait_until(
            lambda: (
                not self(f"select active from pg_replication_slots where slot_name = '{self.slot}'")
            )
        )
        self(f"select pg_drop_replication_slot('{self.slot}')")
        self.connection.close()


def transactions(data: list[bytes]) -> list[Transaction]:
    """Return the transactions by commit, without empty ones.

    Each row must come after the layout of its table.
    """
    found: list[Transaction] = []
    layouts: set[int] = set()
    for message in data:
        match message[:1]:
            case b"B":
                found.append((messages.begin(message)[0], []))
            case b"R":
                layouts.add(messages.relation(message).id)
            case b"I" | b"U" | b"D":
                assert int.from_bytes(message[1:5], "big") in layouts, (
                    "a row comes before its layout"
                )
                found[-1][1].append(message)
            case b"T":
                assert set(messages.truncated_tables(message)) <= layouts
                found[-1][1].append(message)
            case b"C":
                assert int.from_bytes(message[2:10], "big") == found[-1][0]
    return [(commit, rows) for commit, rows in found if rows]


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)  # poll interval
