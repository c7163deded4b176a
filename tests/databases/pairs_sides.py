"""The two ends of a pair: MariaDB and PostgreSQL, accessed with their drivers directly.

Used by pairs_kit and test_pairs. There are four tables: `clock` has one row with the number of the
last transaction; `orders` has a number as its key, `items` two columns, `tags` a text.
"""

import json
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pymysql

from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

LOST = (
    pymysql.err.OperationalError,
    pymysql.err.InterfaceError,
    pymysql.err.InternalError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    OSError,
)
"""Errors of a server that stops, is down or starts."""
COLUMNS = {
    "clock": "id, n",
    "items": "order_id, line, what",
    "orders": "id, name, amount, note",
    "tags": "code, weight",
}
KEYS = {"clock": ("id",), "items": ("order_id", "line"), "orders": ("id",), "tags": ("code",)}
CREATE = (
    "create table clock (id int primary key, n bigint not null)",
    (
        "create table items (order_id bigint, line int, what varchar(60), primary key (order_id,"
        " line))"
    ),
    (
        "create table orders (id bigint primary key, name varchar(80), amount decimal(12,2), note"
        " text)"
    ),
    "create table tags (code varchar(20) primary key, weight int)",
)
Key = tuple[Any, ...]
Row = tuple[Any, ...]
Rows = dict[Key, Row]
"""Rows by table and key: ("orders", 7) -> (7, "name", Decimal("1.50"), None)."""


@dataclass(frozen=True, slots=True)
class Side:
    server: MariaDbServer | PostgresServer
    name: str

    @property
    def is_maria(self) -> bool:
        return isinstance(self.server, MariaDbServer)

    @property
    def url(self) -> str:
        """The name in job files."""
        return (
            self.server.url(self.name)
            if isinstance(self.server, MariaDbServer)
            else f"jdbc:postgresql://127.0.0.1:{self.server.port}/{self.name}"
        )

    @property
    def login(self) -> str:
        """The lines of a job file with address and credentials."""
        user, password = (
            (self.server.user, self.server.password)
            if isinstance(self.server, MariaDbServer)
            else ("postgres", "any")
        )
        return (
            f"url = {json.dumps(self.url)}, username = {json.dumps(user)}, password ="
            f" {json.dumps(password, ensure_ascii=False)}"
        )

    def connect(self) -> Any:
        """A connection outside of autocommit; every read of a transaction sees the same moment."""
        if isinstance(self.server, MariaDbServer):
            return pymysql.connect(
                host="127.0.0.1",
                port=self.server.port,
                user="root",
                database=self.name,
                charset="utf8mb4",
                ssl_disabled=True,
                connect_timeout=30,
            )
        made = psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.server.port}/{self.name}", connect_timeout=30
        )
        made.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return made

    def create(self) -> None:
        if isinstance(self.server, MariaDbServer):
            self.server.execute(
                f"create database {self.name} character set utf8mb4 collate utf8mb4_bin"
            )
            return
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"create database {self.name}".encode())

    def create_tables(self) -> None:
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in CREATE:
                cursor.execute(statement)
            if not self.is_maria:
                for table in COLUMNS:
                    cursor.execute(f"alter table {table} replica identity full")
            connection.commit()

    def rows(self) -> tuple[Rows, Any]:
        """All rows at one moment, and where the log's reader was that brought the last of them,
        where a sink wrote here; no table is no rows.
        """
        found: Rows = {}
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            there = self._tables(cursor)
            for table, columns in COLUMNS.items():
                if table in there:
                    cursor.execute(f"select {columns} from {table}")
                    found.update(
                        {(table, *row[: len(KEYS[table])]): tuple(row) for row in cursor.fetchall()}
                    )
            if "tidegate_sink_record" not in there:
                return found, None
            cursor.execute("select offsets from tidegate_sink_record")
            ends = [
                source["end"]
                for (offsets,) in cursor.fetchall()
                if offsets
                for source in json.loads(offsets).values()
            ]
            return found, next((end for end in ends if "log" in end), None)

    def _tables(self, cursor: Any) -> set[str]:
        """Read within the transaction; MariaDB, whose catalog is not transactional, is read
        before the transaction has its moment.
        """
        if self.is_maria:
            cursor.execute(
                "select table_name from information_schema.tables where table_schema = database()"
            )
            there = {name for (name,) in cursor.fetchall()}
            cursor.execute("start transaction with consistent snapshot")
            return there
        cursor.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind"
            " = 'r'"
        )
        return {name for (name,) in cursor.fetchall()}
