"""PostgreSQL: rows of a statement as Arrow, by the Arrow driver. Called by postgres_dialect.py, in tasks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions, dbapi  # type: ignore[import-untyped]  # ships no types

from tidegate.databases.errors import DatabaseTrouble, ValueUnreadable
from tidegate.databases.postgres import ours, uri_of
from tidegate.databases.postgres_dialect import DIMENSIONS
from tidegate.databases.session import check_session
from tidegate.databases.types import fitted
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError
from tidegate.model.types import DataType

ROW_BYTES = 256
"""A guess at the size of a row: the driver counts bytes."""


def connect(address: Address, *, known: bool = False, settings: Mapping[str, str] | None = None) -> dbapi.Connection:
    """A connection of the Arrow driver, in autocommit; `known` where another one was just made. With settings of its own it is for one transaction."""
    if not known:
        check_session(address)  # it tells better what is wrong
    try:
        return dbapi.connect(uri_of(address, settings or {}), autocommit=settings is None)
    except adbc_driver_manager.Error as error:
        raise translated(address, error) from None


def translated(address: Address, error: adbc_driver_manager.Error) -> TidegateError:
    """Our error for one of the driver."""
    state = getattr(error, "sqlstate", None)
    if not state or state.strip("\0") == "":
        return DatabaseTrouble(str(address), address.masked(str(error)))
    return ours(address, state, str(error))


def batches(address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Batches of about rows_max rows."""
    with closing(connect(address)) as connection, closing(connection.cursor()) as cursor:
        try:
            if rows_max:
                cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(rows_max * ROW_BYTES)})
            cursor.execute(sql)
            with cursor.fetch_record_batch() as reader:
                for batch in reader:
                    if batch.num_rows:
                        yield fitted(batch, columns)
        except adbc_driver_manager.Error as error:
            raise _unreadable(str(error), columns) or translated(address, error) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(str(error), columns) or DatabaseTrouble(str(address), address.masked(str(error))) from None


def _unreadable(text: str, columns: Sequence[tuple[str, DataType]]) -> ValueUnreadable | None:
    """What the server was made to say of a value that does not travel."""
    found = next(((name, kind) for name, kind in columns if f'"{name} {DIMENSIONS} ' in text), None)
    return ValueUnreadable(found[0], str(found[1]), f"it {DIMENSIONS}") if found else None
