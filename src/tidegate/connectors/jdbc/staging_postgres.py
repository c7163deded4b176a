"""Staging in PostgreSQL: unlogged tables, loaded with COPY.

They are empty after a crash of the server, so the committer counts their rows.

A table that can become the target (promotion.py) is logged, and is created and loaded in one
transaction of a separate connection. Until it ends nobody sees the table, a killed process leaves
nothing, and rows are stored in their order, since COPY fills no gaps in a table of its own
transaction. Durability is left to the commit that promotes it: there is one log, and everything
before that commit is flushed with it. A crash before that may lose the whole table.

Many rows are loaded by the Arrow driver's binary COPY. Opening its connection costs more than a
thousand rows, since it reads the catalog of all types; so few rows are loaded as text through the
existing connection.
"""

import io
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import adbc_driver_manager
import psycopg
import pyarrow as pa
import pyarrow.csv

from tidegate.connectors.jdbc.staging import StageLoader, stage_type
from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import StatementRefused
from tidegate.databases.postgres.rows import (
    FIRST_MICROS,
    connect,
    first_micros,
    translate_adbc_error,
)
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.session import Session
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError
from tidegate.model.types import Column, DataType

FEW_ROWS = 2000
# A source may be slow, and this transaction blocks nobody; keepalives detect a dead client.
_OWN_SETTINGS = {
    "synchronous_commit": "off",
    "idle_in_transaction_session_timeout": "0",
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
}
_END_OF_COPY = b"\\."  # older servers accept it even within quotes
_WRITTEN = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")


class PostgresLoader(StageLoader):
    """A connection for statements and few rows, and an Arrow connection for many rows."""

    def __init__(self, address: Address, dialect: Dialect) -> None:
        self._address = address
        self._dialect = dialect
        self._session = PostgresSession(address)
        self._arrow: Any = None
        self._own_transaction: Any = None
        self._like_target: set[TableName] = set()

    @property
    def session(self) -> Session:
        return self._session

    def create(self, name: TableName, types: list[DataType]) -> None:
        columns = ", ".join(
            f"c{number} {stage_type(kind, self._dialect)}" for number, kind in enumerate(types)
        )
        self._session.execute(
            f"create unlogged table {self._dialect.qualified(name)} (seq bigint, kind smallint,"
            f" {columns})"
        )

    def create_like_target(
        self, name: TableName, target: TableName, columns: Sequence[Column], rows: int
    ) -> bool:
        """Create it if the target does not exist, and there are many rows."""
        if (
            rows <= FEW_ROWS
            or self._session.scalar(
                "select to_regclass(%s)::oid", (self._dialect.qualified(target),)
            )
            is not None
        ):
            return False
        if self._own_transaction is None:
            self._own_transaction = connect(self._address, checked=True, settings=_OWN_SETTINGS)
        text = ", ".join(
            f"{self._dialect.quote(column.name)} {stage_type(column.type, self._dialect)}"
            for column in columns
        )
        try:
            with closing(self._own_transaction.cursor()) as cursor:
                cursor.execute(f"create table {self._dialect.qualified(name)} ({text})")
        except adbc_driver_manager.Error as error:
            raise translate_adbc_error(self._address, error) from None
        self._like_target.add(name)
        return True

    def load(self, name: TableName, batch: pa.RecordBatch) -> None:
        if name in self._like_target:
            self._load_arrow(self._own_transaction, name, batch)
            return
        few = (
            self._arrow is None
            and batch.num_rows <= FEW_ROWS
            and all(has_text(field.type) for field in batch.schema)
        )
        if few and self._load_text(name, batch):
            return
        if self._arrow is None:
            self._arrow = connect(self._address, checked=True)
        self._load_arrow(self._arrow, name, batch)

    def _load_arrow(self, connection: Any, name: TableName, batch: pa.RecordBatch) -> None:
        try:
            with closing(connection.cursor()) as cursor:
                cursor.adbc_ingest(name.table, batch, mode="append", db_schema_name=name.schema)
        except adbc_driver_manager.Error as error:
            self._close_arrow()
            raise self._copy_error(error, batch) from None

    def _copy_error(self, error: adbc_driver_manager.Error, batch: pa.RecordBatch) -> TidegateError:
        """Translate an error of COPY.

        The driver fails without a reason if it cannot encode a value; a lost connection has one.
        """
        if getattr(error, "sqlstate", None) or not str(error).rstrip().endswith("COPY data:"):
            return translate_adbc_error(self._address, error)
        for field, column in zip(batch.schema, batch.columns, strict=True):
            first = first_micros(column)
            if first is not None and first < FIRST_MICROS:
                why = (
                    f"the timestamp {first} microseconds after 1970 is before 4714-11-24 BC, column"
                    f" {field.name}; change or remove such rows before the sink"
                )
                return StatementRefused(str(self._address), why)
        types = ", ".join(dict.fromkeys(str(field.type) for field in batch.schema))
        return StatementRefused(
            str(self._address), f"a value cannot be written; it has one of these types: {types}"
        )

    def _close_arrow(self) -> None:
        """Close the Arrow driver's connections.

        After a failed COPY the connection keeps a lock on its table, which could not be dropped.
        """
        for connection in (self._arrow, self._own_transaction):
            if connection is not None:
                with suppress(adbc_driver_manager.Error):
                    connection.close()
        self._arrow = self._own_transaction = None

    def _load_text(self, name: TableName, batch: pa.RecordBatch) -> bool:
        """Load as text; False, without staging rows, if a value has no valid text (years BC)."""
        statement = f"copy {self._dialect.qualified(name)} from stdin (format csv)"
        try:
            rows = as_csv(batch)
            if _END_OF_COPY in rows:
                return False
            with (
                self._session.connection.cursor() as cursor,
                cursor.copy(statement.encode()) as copy,
            ):
                copy.write(rows)
        except (psycopg.DataError, pa.ArrowInvalid):
            return False
        except psycopg.Error as error:
            raise self._session.error_of(error) from None
        return True

    def finish(self) -> None:
        """Commit the separate transaction that fills staging."""
        if self._own_transaction is None:
            return
        try:
            self._own_transaction.commit()
        except adbc_driver_manager.Error as error:
            raise translate_adbc_error(self._address, error) from None

    def drop(self, name: TableName) -> None:
        self._session.execute(f"drop table if exists {self._dialect.qualified(name)}")

    def close(self) -> None:
        self._close_arrow()
        self._session.close()


def has_text(kind: Any) -> bool:
    """Whether Arrow writes values of a type as text that PostgreSQL reads without loss."""
    types = pa.types
    checks = (
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_boolean,
        types.is_string,
        types.is_date32,
        types.is_timestamp,
        types.is_time64,
    )
    return any(check(kind) for check in checks)


def as_csv(batch: pa.RecordBatch) -> bytes:
    """Encode rows for COPY: texts are quoted, nulls are empty."""
    texts = [
        column if pa.types.is_string(column.type) else column.cast(pa.string())
        for column in batch.columns
    ]
    out = io.BytesIO()
    pyarrow.csv.write_csv(
        pa.RecordBatch.from_arrays(texts, names=batch.schema.names), out, _WRITTEN
    )
    return out.getvalue()
