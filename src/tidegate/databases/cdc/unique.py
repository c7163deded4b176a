"""Check that a key of the job file is unique, if no index of the source guarantees it.

Called by source.py, in the driver. Two rows with one key would become one row of the target. The
first column of a chunk belongs to the key, so rows with one key are in one chunk.
"""

from tidegate.databases.cdc.errors import KeyNotUnique
from tidegate.databases.cdc.keys import KeyChunk, SplitKey
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.databases.url import System
from tidegate.model.types import TypeName


def is_guarded(cdc_table: CdcTable) -> bool:
    """Return whether an index of the source keeps the key unique."""
    key = set(cdc_table.table.primary_key)
    return any(
        guard and set(guard) <= key
        for guard in (cdc_table.info.primary_key, cdc_table.info.unique_key)
    )


def check_unique(
    session: Session,
    dialect: Dialect,
    cdc_table: CdcTable,
    relation: str,
    split: SplitKey | None,
    chunk: KeyChunk,
) -> None:
    """Raise KeyNotUnique if two rows of a chunk have the same key.

    Rows with a null in the key are not compared.
    """
    if is_guarded(cdc_table):
        return
    names = cdc_table.table.primary_key
    conditions = [f"{dialect.quote(name)} is not null" for name in names]
    if split is not None and (within := split.condition(chunk)):
        conditions.append(f"({within})")
    columns = ", ".join(_exact(dialect, cdc_table, name) for name in names)
    if session.query(
        f"select count(*) from {relation} where {' and '.join(conditions)} group by {columns}"
        " having count(*) > 1 limit 1"
    ):
        raise KeyNotUnique(cdc_table.info.name.path, names)


def _exact(dialect: Dialect, cdc_table: CdcTable, name: str) -> str:
    """Return a column as targets compare it.

    Strings that are equal in the source's collation may be different in the target.
    """
    kind = next(c.type.name for c in cdc_table.table.columns if c.name == name)
    return (
        f"binary {dialect.quote(name)}"
        if dialect.system is System.MYSQL and kind is TypeName.STRING
        else dialect.quote(name)
    )
