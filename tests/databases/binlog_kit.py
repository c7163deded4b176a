"""A database of MariaDB or MySQL that MySQL-CDC reads, and its rows by other paths."""

from dataclasses import replace
from typing import Any

from cdc_kit import make_source
from database_kit import Place, everything, source

from tidegate.databases.dialect import dialect_of
from tidegate.databases.url import System, parse_url
from tidegate.testing.servers.binlog import BinlogServer


class BinlogShop:
    """A database of the server that a source reads.

    Called with statements, it runs them as the administrator.
    """

    def __init__(self, server: BinlogServer, place: Place) -> None:
        self.server = server
        self.place = place
        self.name = place.database

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.name)

    def source(self, **more: Any) -> Any:
        """Return a MySQL-CDC source of all tables; `startup__mode` is the option startup.mode."""
        options = {
            "url": self.place.url,
            "username": self.place.user,
            "password": self.place.password,
            "snapshot.split.size": 100,
        }
        given = {
            "table-pattern": rf"{self.name}\..*",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return make_source(
            "MySQL-CDC", {**options, **{k: v for k, v in given.items() if v is not None}}
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table, read as in the snapshot."""
        dialect, address = (
            dialect_of(System.MYSQL),
            parse_url(self.place.url, self.place.user, self.place.password),
        )
        cdc_table = self.source().cdc_tables[f"{self.name}.{table}"]
        types = {c.name: c.type for c in cdc_table.table.columns}
        selected = ", ".join(dialect.expression(c, types[c.name]) for c in cdc_table.info.columns)
        batches = dialect.batches(
            address, f"select {selected} from {self.name}.{table}", list(types.items()), 0
        )
        found = [row for batch in batches for row in batch.to_pylist()]
        return sorted(
            found, key=lambda row: tuple(str(row[name]) for name in cdc_table.table.primary_key)
        )

    def jdbc_rows(self, table: str, parameters: str = "") -> list[dict[str, Any]]:
        """Return the rows as a Jdbc source reads them.

        `parameters` are those of the URL, such as ?sslMode=REQUIRED.
        """
        place = replace(self.place, url=self.place.url + parameters)
        found: list[dict[str, Any]] = everything(
            source(place, table_path=f"{self.name}.{table}")
        ).to_pylist()
        return found
