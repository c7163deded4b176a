"""MariaDB and MySQL: rows of a statement as Arrow, by connectorx. Called by mysql_dialect.py, in tasks.

connectorx waits half a minute for a server that is not there and tells little about it, so a connection of ours is tried first. It may end by a panic, which
is no Exception: that is caught by its name.
"""

from collections.abc import Iterator, Sequence

import connectorx
import pyarrow as pa

from tidegate.databases.errors import DatabaseTrouble, StatementRefused
from tidegate.databases.session import check_session
from tidegate.databases.types import fitted
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError
from tidegate.model.types import DataType

ROWS_MAX = 16_384
_REFUSED = ("(42000)", "(42S02)", "(42S22)", "(22")


def batches(address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Batches of about rows_max rows."""
    check_session(address)
    try:
        reader = connectorx.read_sql(address.uri("mysql"), sql, return_type="arrow_stream", batch_size=rows_max or ROWS_MAX)
        for batch in reader:
            if batch.num_rows:
                yield fitted(batch, columns)
    except TidegateError:
        raise
    except (RuntimeError, pa.ArrowException) as error:
        raise _ours(address, str(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _ours(address, str(error)) from None


def _ours(address: Address, text: str) -> TidegateError:
    text = address.masked(text)
    if any(state in text for state in _REFUSED):
        return StatementRefused(str(address), text)
    return DatabaseTrouble(str(address), text)
