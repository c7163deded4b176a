"""Check the replica identity: what the log keeps of a row before its change.

Called by source.py before it publishes a table, and by check.py if a definition changed.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.connectors.postgrescdc.definition import Definition
from tidegate.databases.cdc.errors import NotSetUp


def check_identities(definitions: Sequence[Definition], *, full: bool) -> None:
    """Raise NotSetUp, with the statements to run, if an identity is not sufficient.

    `definitions` are of tables with all their partitions. `full` says whether complete rows are
    required.
    """
    parts = [
        (part, definition["key"][0]) for definition in definitions for part in definition["parts"]
    ]
    if without := [part[1] for part, _ in parts if part[4] != "f" and not part[5]]:
        raise NotSetUp(
            "the server rejects updates and deletes of published tables whose rows its log "
            "could not identify (REPLICA IDENTITY NOTHING, or no primary key that is checked "
            f"immediately: a deferrable one does not count); run: {_full(without)}"
        )
    short = [part[1] for part, _ in parts if part[4] != "f"]
    if short and full:
        raise NotSetUp(
            f"the source logs only the keys of changed rows; run: {_full(short)} (or set "
            "require-replica-identity-full = false, and read its consequences in the "
            "documentation)"
        )
    if late := [
        part[1] for d in definitions for part in d["parts"] if not d["key"][2] and part[4] != "f"
    ]:
        raise NotSetUp(
            "the key is deferrable, so that two rows may have the same key for a while, "
            f"which keys alone do not distinguish; run: {_full(late)}"
        )
    for part, key in parts:
        if part[4] != "f" and (lacking := [name for name in key if name not in part[5]]):
            raise NotSetUp(
                f"of rows of {part[1]} before a change the log has only {', '.join(part[5])}, "
                f"and not {', '.join(lacking)}, which belongs to the key that identifies rows "
                f"in the target: deletes would be lost; run: {_full([part[1]])}"
            )


def identity_words(part: Sequence[Any]) -> str:
    """Return the identity in SQL."""
    kind = {"f": "FULL", "d": "DEFAULT", "i": "USING INDEX", "n": "NOTHING"}.get(
        part[4], str(part[4])
    )
    return kind + (f" ({', '.join(part[5])})" if part[5] else "")


def _full(tables: list[str]) -> str:
    return "; ".join(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables)
