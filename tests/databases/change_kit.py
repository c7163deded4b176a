"""Changes of tables that a MySQL-CDC source reads.

Sources have decisions of an operator, and a mirror can be stopped and restarted.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from binlog_kit import BinlogShop
from cdc_kit import Mirror, make_source
from database_kit import Place

from tidegate.databases.cdc.errors import ColumnsAdded, TableChanged
from tidegate.model.table_changes import ChangeChoice
from tidegate.testing.servers.binlog import BinlogServer

_numbers = itertools.count(1)
LATEST = {"startup.mode": "latest"}


def source_of(shop: BinlogShop, *, accept: Sequence[str] = (), **options: Any) -> Any:
    """Return a source of all tables of a database; `accept` as for --accept-change."""
    given = {
        "url": shop.place.url,
        "username": shop.place.user,
        "password": shop.place.password,
        "snapshot.split.size": 100,
    }
    tables = {} if "table-names" in options else {"table-pattern": rf"{shop.name}\..*"}
    return make_source("MySQL-CDC", {**given, **tables, **options}, accept=accept)


def shop_on(server: BinlogServer) -> BinlogShop:
    """Create a database for one test on a server."""
    name = f"own{next(_numbers)}"
    server.execute(f"create database {name} character set utf8mb4")
    return BinlogShop(
        server,
        Place(url=server.url(name), user=server.user, password=server.password, database=name),
    )


class RestartableJob:
    """A mirror that can be restarted, with decisions of an operator."""

    def __init__(self, shop: BinlogShop, **options: Any) -> None:
        self.shop = shop
        self.options = options
        self.accepted: list[str] = []
        self.mirror = Mirror(source_of(shop, **options))
        self.mirror.run()

    def restart(self) -> None:
        """Restart like a new driver, from the last checkpoint."""
        self.mirror.source = source_of(self.shop, accept=self.accepted, **self.options)

    def run(self) -> None:
        """Run until there is nothing to read; rebuild the pipeline when tables get columns."""
        for _ in range(10):
            try:
                self.mirror.run()
                return
            except ColumnsAdded:
                self.restart()
        raise AssertionError("the pipeline is built anew for ever")

    def expect_stop(self, match: str | None = None) -> TableChanged:
        """Return the change that it stops at, now and at every restart."""
        with pytest.raises(TableChanged, match=match) as first:
            self.run()
        self.restart()
        with pytest.raises(TableChanged) as again:
            self.run()
        assert (again.value.path, again.value.at) == (first.value.path, first.value.at)
        return again.value

    def accept(self, stop: TableChanged, choice: ChangeChoice) -> None:
        """Accept a choice, and restart the job."""
        assert choice in stop.choices, stop.choices
        self.accepted.append(f"{stop.path}@{stop.at}={choice.value}")
        self.restart()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table in the mirror."""
        return sorted(tuple(row.values()) for row in self.mirror.table(f"{self.shop.name}.{table}"))


def source_rows(shop: BinlogShop, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in the source."""
    return sorted(tuple(row) for row in shop(f"select * from `{table}`"))


@contextmanager
def set_row_metadata(shop: BinlogShop, full: bool) -> Iterator[None]:
    """Set what the log has of columns: everything, or the minimum."""
    least = "NO_LOG" if shop.server.called == "MariaDB" else "MINIMAL"
    shop(f"set global binlog_row_metadata = {'FULL' if full else least}")
    try:
        yield
    finally:
        shop("set global binlog_row_metadata = FULL")
