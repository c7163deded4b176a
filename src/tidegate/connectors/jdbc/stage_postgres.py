"""Staging in PostgreSQL: unlogged tables, filled by the Arrow driver's binary COPY. It is empty after a crash of the server: the committer counts."""

from contextlib import closing, suppress

import adbc_driver_manager
import pyarrow as pa

from tidegate.connectors.jdbc.stage import StageLoader, stage_type
from tidegate.databases.catalogue import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.postgres_rows import connect, translated
from tidegate.databases.session import open_session
from tidegate.databases.url import Address
from tidegate.model.types import DataType


class PostgresLoader(StageLoader):
    """A connection of each driver: one for statements, one for rows."""

    def __init__(self, address: Address, dialect: Dialect) -> None:
        self._address, self._dialect = address, dialect
        self._session = open_session(address)
        try:
            self._arrow = connect(address)
        except BaseException:
            self._session.close()
            raise

    def create(self, name: TableName, types: list[DataType]) -> None:
        """A new unlogged table."""
        columns = ", ".join(f"c{number} {stage_type(kind, self._dialect)}" for number, kind in enumerate(types))
        self._session.execute(f"create unlogged table {self._dialect.qualified(name)} (seq bigint, kind smallint, {columns})")

    def load(self, name: TableName, batch: pa.RecordBatch) -> None:
        """By COPY."""
        try:
            with closing(self._arrow.cursor()) as cursor:
                cursor.adbc_ingest(name.table, batch, mode="append", db_schema_name=name.schema)
        except adbc_driver_manager.Error as error:
            raise translated(self._address, error) from None

    def drop(self, name: TableName) -> None:
        """It goes."""
        self._session.execute(f"drop table if exists {self._dialect.qualified(name)}")

    def close(self) -> None:
        """Both connections."""
        with suppress(adbc_driver_manager.Error):
            self._arrow.close()
        self._session.close()
