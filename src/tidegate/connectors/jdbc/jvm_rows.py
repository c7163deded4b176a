"""Copies rows between JDBC statements, without leaving the JVM.

Called by spark.py, in the driver. Types are numbers of java.sql.Types.
"""

from typing import Any

SHORT_TEXTS = (1, 12, -15, -9)
# Large objects, which drivers do not accept as parameters of another statement.
_LARGE_TEXTS = (2005, 2011, -1, -16)
_LARGE_BYTES = (2004, -4)


def copy_rows(rows: Any, put: Any, rows_max: int) -> None:
    """Run a prepared statement for all rows of a result."""
    about = rows.getMetaData()
    kinds = [int(about.getColumnType(number)) for number in range(1, about.getColumnCount() + 1)]
    waiting = 0
    while rows.next():
        for number, kind in enumerate(kinds, 1):
            _put_value(rows, put, number, kind)
        put.addBatch()
        waiting += 1
        if waiting == rows_max:
            put.executeBatch()
            waiting = 0
    if waiting:
        put.executeBatch()


def _put_value(rows: Any, put: Any, number: int, kind: int) -> None:
    if kind in _LARGE_TEXTS:
        put.setString(number, rows.getString(number))
        return
    if kind in _LARGE_BYTES:
        put.setBytes(number, rows.getBytes(number))
        return
    value = rows.getObject(number)
    if value is None:
        put.setNull(number, kind)
    else:
        put.setObject(number, value)
