"""A database of PostgreSQL that a CDC source reads, with a slot of its own."""

import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from cdc_kit import make_source
from database_kit import Place

from tidegate.databases.dialect import dialect_of
from tidegate.databases.url import System, parse_url
from tidegate.testing.servers.postgres import PostgresServer

ORDERS = (
    "create table orders (id bigint primary key, name varchar(80), amount decimal(12,2), note text)"
)
FULL = "alter table orders replica identity full"
_slots = itertools.count(1)


class Shop:
    """A database of the server that a source reads, with a slot of its own."""

    def __init__(self, server: PostgresServer, place: Place) -> None:
        self.place, self.name, self.slot = place, place.database, f"slot_{next(_slots)}"
        self.connection = psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{server.port}/{self.name}", autocommit=True
        )

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            cursor = self.connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def source(self, *, accept: Sequence[str] = (), **more: Any) -> Any:
        options = {
            "url": self.place.url,
            "username": self.place.user,
            "password": self.place.password,
            "snapshot.split.size": 100,
            "slot.name": self.slot,
        }
        given = {
            "table-pattern": rf"{self.name}\.public\..*",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        if "table-names" in given:
            del given["table-pattern"]
        return make_source("Postgres-CDC", {**options, **given}, accept=accept)

    def drop_slots(self) -> None:
        """Drop the slots; killed readers may hold them for a moment."""
        mine = "from pg_replication_slots where database = current_database() and not temporary"
        deadline_s = time.monotonic() + 60
        while self(f"select 1 {mine}"):
            assert time.monotonic() < deadline_s, "a slot stays in use"
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                self(
                    f"select pg_terminate_backend(active_pid) {mine} and active",
                    f"select pg_drop_replication_slot(slot_name) {mine}",
                )

    def path(self, table: str) -> str:
        return f"{self.name}.public.{table}"

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table, read as in the snapshot."""
        dialect, address = (
            dialect_of(System.POSTGRES),
            parse_url(self.place.url, self.place.user, self.place.password),
        )
        cdc_table = self.source().cdc_tables[self.path(table)]
        types = {c.name: c.type for c in cdc_table.table.columns}
        selected = ", ".join(dialect.expression(c, types[c.name]) for c in cdc_table.info.columns)
        found = [
            row
            for batch in dialect.batches(
                address, f"select {selected} from {table}", list(types.items()), 0
            )
            for row in batch.to_pylist()
        ]
        return sorted(
            found, key=lambda row: tuple(str(row[name]) for name in cdc_table.table.primary_key)
        )
