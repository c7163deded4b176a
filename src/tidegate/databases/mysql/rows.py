"""Rows of a statement of MariaDB and MySQL as Arrow, with connectorx.

Called by mysql/dialect.py, in tasks. connectorx waits half a minute for a server that is down and
reports little about it, so we open a connection of our own first. It may panic, which is not an
Exception and is caught by its type's name. It does not support TLS: if the URL requires it, pymysql
reads the rows as texts, several times slower, and Arrow converts them to columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import connectorx
import pyarrow as pa
import pymysql

from tidegate.databases.errors import StatementRefused, TransientDatabaseError, ValueUnreadable
from tidegate.databases.mysql.binlog_columns import span_text
from tidegate.databases.mysql.session import connect, tls_of, translate_errors
from tidegate.databases.session import check_session
from tidegate.databases.tls import TlsMode
from tidegate.databases.types import cast_batch, cast_column
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.arrow import arrow_type

ROWS_MAX = 16_384
_CONVERSION_FAILED = "Couldn't convert the value"
_REFUSED = ("(42000)", "(42S02)", "(42S22)", "(22")


def batches(
    address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of about rows_max rows."""
    if tls_of(address).mode is not TlsMode.NONE:
        yield from _encrypted(address, sql, columns, rows_max or ROWS_MAX)
        return
    check_session(address)
    try:
        reader = connectorx.read_sql(
            address.uri("mysql"), sql, return_type="arrow_stream", batch_size=rows_max or ROWS_MAX
        )
        for batch in reader:
            if batch.num_rows:
                yield _cast_batch(batch, columns)
    except TidegateError:
        raise
    except (RuntimeError, pa.ArrowException) as error:
        raise _translate_error(address, str(error), columns) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _translate_error(address, str(error), columns) from None


def _cast_batch(batch: pa.RecordBatch, columns: Sequence[tuple[str, DataType]]) -> pa.RecordBatch:
    """Cast to our types; an error names the value and the first column of its row."""
    try:
        return cast_batch(batch, columns)
    except ValueUnreadable as error:
        index = [name for name, _ in columns].index(error.column)
        raise _with_row(error, batch, columns, index) from None


def _with_row(
    error: ValueUnreadable,
    batch: pa.RecordBatch,
    columns: Sequence[tuple[str, DataType]],
    index: int,
) -> ValueUnreadable:
    name, kind = columns[index]
    for row in range(batch.num_rows):
        try:
            cast_column(batch.column(index).slice(row, 1), kind, name)
        except ValueUnreadable as found:
            value = batch.column(index)[row].as_py()
            spans = kind.name is TypeName.TIME and isinstance(value, int)
            shown = (
                f"{span_text(value)} (with time-as-text = true, MySQL-CDC reads TIME columns as"
                " texts)"
                if spans
                else value
            )
            return ValueUnreadable(
                name,
                str(kind),
                f"{shown} in the row with {columns[0][0]} = {batch.column(0)[row].as_py()}:"
                f" {found.why}",
            )
    return error


def _translate_error(
    address: Address, text: str, columns: Sequence[tuple[str, DataType]]
) -> TidegateError:
    text = address.mask(text)
    if _CONVERSION_FAILED in text:  # connectorx does not report the column
        return ValueUnreadable(
            " or ".join(
                name for name, kind in columns if kind.name in (TypeName.STRING, TypeName.TIMESTAMP)
            ),
            "its type",
            text,
        )
    if any(state in text for state in _REFUSED):
        return StatementRefused(str(address), text)
    return TransientDatabaseError(str(address), text)


def _encrypted(
    address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
) -> Iterator[pa.RecordBatch]:
    with (
        closing(connect(address, conv={}, cursorclass=pymysql.cursors.SSCursor)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        translate_errors(address, lambda: cursor.execute(sql))
        while rows := translate_errors(address, lambda: cursor.fetchmany(rows_max)):
            arrays: list[Any] = [
                _column(values, kind, name)
                for values, (name, kind) in zip(zip(*rows, strict=True), columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                arrays,
                schema=pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns]),
            )


def _column(values: Sequence[Any], kind: DataType, name: str) -> Any:
    """Convert the texts of a column, selected by `Dialect.expression`, to our type.

    Most types are selected as integers.
    """
    try:
        match kind.name:
            case TypeName.BYTES | TypeName.BINARY_VECTOR:
                return cast_column(pa.array(values, pa.binary()), kind, name)
            case (
                TypeName.STRING
                | TypeName.DECIMAL
                | TypeName.FLOAT
                | TypeName.DOUBLE
                | TypeName.TIMESTAMP
            ):
                return cast_column(pa.array(values, pa.string()), kind, name)
            case _:
                return cast_column(pa.array(values, pa.string()).cast(pa.int64()), kind, name)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueUnreadable(name, str(kind), str(error)) from None
