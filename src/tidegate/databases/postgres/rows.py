"""Rows of a PostgreSQL statement as Arrow, with the Arrow (ADBC) driver.

Called by postgres/dialect.py, in tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_postgresql import (  # type: ignore[import-untyped]  # ships no types
    StatementOptions,
    dbapi,
)

from tidegate.databases.errors import TransientDatabaseError, ValueUnreadable
from tidegate.databases.postgres.dialect import CUSTOM_BOUNDS, MULTIPLE_DIMENSIONS
from tidegate.databases.postgres.session import libpq_uri, translate_error
from tidegate.databases.session import check_session
from tidegate.databases.types import cast_batch
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError
from tidegate.model.types import DataType, TypeName

ROW_BYTES = 256
"""Assumed size of a row: the driver limits batches by bytes."""
DAY_NANOS = 86_400_000_000_000
READ_SETTINGS = {"row_security": "off"}
"""Rows hidden by a row security policy are an error, never left out silently."""
FIRST_MICROS = -210_866_803_200_000_000
"""The server's first timestamp, in 4714 BC.

Timestamps after Arrow's last one, in the year 294247, overflow to values before it.
"""


def connect(
    address: Address,
    *,
    checked: bool = False,
    settings: Mapping[str, str] | None = None,
    autocommit: bool = False,
) -> dbapi.Connection:
    """Open a connection of the Arrow driver, in autocommit mode unless `settings` are given.

    `checked`: another connection to the server was opened just now, so that it need not be tested.
    """
    if not checked:
        check_session(address)  # its error messages are better
    try:
        return dbapi.connect(
            libpq_uri(address, settings or {}), autocommit=autocommit or settings is None
        )
    except adbc_driver_manager.Error as error:
        raise translate_adbc_error(address, error) from None


def translate_adbc_error(address: Address, error: adbc_driver_manager.Error) -> TidegateError:
    """Translate an error of the Arrow driver to one of ours."""
    state = getattr(error, "sqlstate", None)
    if not state or state.strip("\0") == "":
        return TransientDatabaseError(str(address), address.mask(str(error)))
    return translate_error(address, state, str(error))


def batches(
    address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of about rows_max rows."""
    with (
        closing(connect(address, settings=READ_SETTINGS, autocommit=True)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        try:
            if rows_max:
                cursor.adbc_statement.set_options(
                    **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(rows_max * ROW_BYTES)}
                )
            cursor.execute(sql)
            with cursor.fetch_record_batch() as reader:
                for batch in reader:
                    if batch.num_rows:
                        yield _check_timestamps(cast_batch(batch, columns), columns)
        except adbc_driver_manager.Error as error:
            raise _array_error(str(error), columns) or translate_adbc_error(
                address, error
            ) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise _array_error(str(error), columns) or TransientDatabaseError(
                str(address), address.mask(str(error))
            ) from None


def _check_timestamps(
    batch: pa.RecordBatch, columns: Sequence[tuple[str, DataType]]
) -> pa.RecordBatch:
    """Check that timestamps did not overflow and times are below 24:00."""
    for index, (name, kind) in enumerate(columns):
        first = first_micros(batch.column(index))
        if first is not None and first < FIRST_MICROS:
            raise ValueUnreadable(
                name, str(kind), "it is after 294247-01-10 04:00:54.775807 or infinite"
            )
        if (
            kind.name is TypeName.TIME
            and (pc.max(batch.column(index).view(pa.int64())).as_py() or 0) >= DAY_NANOS
        ):
            raise ValueUnreadable(name, str(kind), "it is 24:00, which is not a valid time of day")
    return batch


def first_micros(column: Any) -> int | None:
    """The earliest timestamp of a column, also within lists; None if there is none."""
    if pa.types.is_list(column.type):
        column = column.flatten()
    if not pa.types.is_timestamp(column.type):
        return None
    found: int | None = pc.min(column.view(pa.int64())).as_py()
    return found


def _array_error(text: str, columns: Sequence[tuple[str, DataType]]) -> ValueUnreadable | None:
    """Recognize the error that PostgresDialect provokes for an unreadable array."""
    for name, kind in columns:
        for why in (MULTIPLE_DIMENSIONS, CUSTOM_BOUNDS):
            if f'"{name} {why} ' in text:
                return ValueUnreadable(name, str(kind), f"it {why}")
    return None
