"""Whether a key that the job file names tells the rows of a chunk apart, where no index of the
source says so. Called by source.py, in the driver.

Two rows with one key would become one row of the target. The first column of a chunk belongs to the
key, so rows with one key are in one chunk.
"""

from tidegate.databases.cdc.errors import KeyNotUnique
from tidegate.databases.cdc.keys import KeyChunk, SplitKey
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.databases.url import System
from tidegate.model.types import TypeName


def is_guarded(captured: CdcTable) -> bool:
    """Whether the source keeps the key unique."""
    key = set(captured.table.primary_key)
    return any(
        guard and set(guard) <= key
        for guard in (captured.info.primary_key, captured.info.unique_key)
    )


def check_unique(
    session: Session,
    dialect: Dialect,
    captured: CdcTable,
    relation: str,
    split: SplitKey | None,
    chunk: KeyChunk,
) -> None:
    """KeyNotUnique where two rows of a chunk have the same key; rows with a null in it are not
    compared.
    """
    if is_guarded(captured):
        return
    names = captured.table.primary_key
    conditions = [f"{dialect.quote(name)} is not null" for name in names]
    if split is not None and (within := split.condition(chunk)):
        conditions.append(f"({within})")
    columns = ", ".join(_exact(dialect, captured, name) for name in names)
    if session.query(
        f"select count(*) from {relation} where {' and '.join(conditions)} group by {columns}"
        " having count(*) > 1 limit 1"
    ):
        raise KeyNotUnique(captured.info.name.path, names)


def _exact(dialect: Dialect, captured: CdcTable, name: str) -> str:
    """A column as targets compare it: to them, texts that are equal in the source's collation may
    be different ones.
    """
    kind = next(c.type.name for c in captured.table.columns if c.name == name)
    return (
        f"binary {dialect.quote(name)}"
        if dialect.system is System.MYSQL and kind is TypeName.STRING
        else dialect.quote(name)
    )
