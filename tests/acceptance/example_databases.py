"""What the examples of databases need: a server of each kind, with the tables that they read, and
what must be in their targets. Used by test_examples.
"""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet

from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

ORDERS = [
    (1, "Ada", Decimal("12.50"), datetime.date(2024, 1, 2)),
    (2, "Grace", None, None),
    (3, "näme", Decimal("-1.00"), datetime.date(2024, 2, 29)),
]
CUSTOMERS = [(7, "London"), (8, "New York")]
CREATE = (
    "create table orders (id bigint primary key, name varchar(40), total decimal(10,2), day date)",
    "create table customers (id int primary key, city varchar(40))",
)


class Databases:
    """A MariaDB and a PostgreSQL with a shop in each, and an empty database for copies."""

    def __init__(self, maria: MariaDbServer, postgres: PostgresServer) -> None:
        self.maria = maria
        self.postgres = postgres
        connection = maria.connect()
        try:
            with connection.cursor() as cursor:
                for statement in (
                    "create database shop character set utf8mb4",
                    "use shop",
                    *CREATE,
                ):
                    cursor.execute(statement)
                cursor.executemany("insert into orders values (%s, %s, %s, %s)", ORDERS)
                cursor.executemany("insert into customers values (%s, %s)", CUSTOMERS)
        finally:
            connection.close()
        with psycopg.connect(postgres.url, autocommit=True) as administrator:
            for name in ("shop", "shop_copy", "shop_from_mysql"):
                administrator.execute(f"create database {name}".encode())
        with self.connect("shop") as shop, shop.cursor() as cursor:
            for statement in (*CREATE, "alter table orders replica identity full"):
                cursor.execute(statement.encode())
            cursor.executemany("insert into orders values (%s, %s, %s, %s)", ORDERS)
            cursor.executemany("insert into customers values (%s, %s)", CUSTOMERS)

    def connect(self, database: str) -> "psycopg.Connection[Any]":
        return psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.postgres.port}/{database}", autocommit=True
        )

    def variables(self) -> tuple[str, ...]:
        """Of all examples: -i name=value."""
        maria = (
            f"mysql_port={self.maria.port}",
            f"mysql_user={self.maria.user}",
            f"mysql_password={self.maria.password}",
        )
        postgres = (
            f"postgres_port={self.postgres.port}",
            "postgres_password=any",
            "postgres_database=shop_from_mysql",
        )
        return (
            *maria,
            *postgres,
            f"port={self.postgres.port}",
            "password=any",
            f"target_port={self.postgres.port}",
            "target_password=any",
        )

    def check(self, name: str, out: Path, recipe: str) -> None:
        """What an example has written.

        `recipe` is the code of the documents that adds up files of changes.
        """
        match name:
            case "mysql-to-postgres-cdc.conf":
                self._check_copy("shop_from_mysql")
            case "copy-a-schema.conf":
                self._check_copy("shop_copy")
            case _:
                table = pa.concat_tables(
                    [
                        pyarrow.parquet.read_table(p, partitioning=None)
                        for p in sorted((out / "orders").glob("T_*.parquet"))
                    ]
                )
                assert table.column_names == ["id", "name", "total", "day", "change"]
                assert sorted(tuple(row.values()) for row in table.to_pylist()) == [
                    (*row, "+I") for row in ORDERS
                ]
                known: dict[str, Any] = {}
                exec(recipe.replace("/data/history", str(out)), known)
                assert sorted(tuple(row.values()) for row in known["rows"].values()) == ORDERS

    def _check_copy(self, database: str) -> None:
        with self.connect(database) as connection:
            assert (
                connection.execute("select id, name, total, day from orders order by id").fetchall()
                == ORDERS
            )
            assert (
                connection.execute("select id, city from customers order by id").fetchall()
                == CUSTOMERS
            )


@contextmanager
def databases() -> Iterator[Databases]:
    """Both servers, for a while."""
    with (
        MariaDbServer() as maria,
        PostgresServer(settings={"wal_level": "logical", "fsync": "off"}) as postgres,
    ):
        yield Databases(maria, postgres)
