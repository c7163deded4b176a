"""What the log keeps of a row before its change: whether that is enough.

Called by source.py before it publishes a table, and when a definition changed.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.connectors.postgrescdc.definition import Definition
from tidegate.databases.cdc.errors import NotSetUp


def check_identities(definitions: Sequence[Definition], *, full: bool) -> None:
    """Of tables and all their partitions: NotSetUp with the statements that help. `full`: whether
    whole rows are needed.
    """
    parts = [
        (part, definition["key"][0]) for definition in definitions for part in definition["parts"]
    ]
    if without := [part[1] for part, _ in parts if part[4] != "f" and not part[5]]:
        raise NotSetUp(
            "the server refuses updates and deletes of a published table whose rows its log could"
            " not tell apart (REPLICA IDENTITY NOTHING, or no primary key that is checked at once:"
            f" one that is deferrable does not count); run: {_full(without)}"
        )
    short = [part[1] for part, _ in parts if part[4] != "f"]
    if short and full:
        raise NotSetUp(
            f"the source writes only keys of changed rows; run: {_full(short)} (or set"
            " require-replica-identity-full = false, and read what that means)"
        )
    if late := [
        part[1] for d in definitions for part in d["parts"] if not d["key"][2] and part[4] != "f"
    ]:
        raise NotSetUp(
            "the key is deferrable, so that two rows may have the same one for a while, which keys"
            f" alone do not tell apart; run: {_full(late)}"
        )
    for part, key in parts:
        if part[4] != "f" and (lacking := [name for name in key if name not in part[5]]):
            raise NotSetUp(
                f"of rows of {part[1]} before a change the log has only {', '.join(part[5])}, and"
                f" not {', '.join(lacking)}, which belongs to the key that tells rows apart in the"
                f" target: deletes would be lost; run: {_full([part[1]])}"
            )


def identity_words(part: Sequence[Any]) -> str:
    """As a statement has it."""
    kind = {"f": "FULL", "d": "DEFAULT", "i": "USING INDEX", "n": "NOTHING"}.get(
        part[4], str(part[4])
    )
    return kind + (f" ({', '.join(part[5])})" if part[5] else "")


def _full(tables: list[str]) -> str:
    return "; ".join(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables)
