"""PostgreSQL: rows of a statement as Arrow, by the Arrow driver. Called by postgres_dialect.py, in tasks."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions, dbapi  # type: ignore[import-untyped]  # ships no types

from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.postgres import ours, uri_of
from tidegate.databases.session import check_session
from tidegate.databases.types import fitted
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError
from tidegate.model.types import DataType

ROW_BYTES = 256
"""A guess at the size of a row: the driver counts bytes."""


def connect(address: Address, *, known: bool = False) -> dbapi.Connection:
    """A connection of the Arrow driver, in autocommit; `known` where another one was just made."""
    if not known:
        check_session(address)  # it tells better what is wrong
    try:
        return dbapi.connect(uri_of(address), autocommit=True)
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
            raise translated(address, error) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise DatabaseTrouble(str(address), address.masked(str(error))) from None
