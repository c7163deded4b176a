"""Differences between recorded and current definitions, and where the log shows them.

Called by check.py, in the driver. The catalogue has the current state, and the log the past. So
each difference states how it is found in the log:

    CHECK_LOG  the log decides. A table has new files: it was emptied, which the log
               shows, or rewritten with the same rows (VACUUM FULL), which it does not.
    VISIBLE    the table stops the job, and the new layout of the table comes before
               every row after the change: rows before it are delivered first.
    SILENT     the table stops the job, and rows after the change look like those
               before it: nothing more is delivered.

A column that was rewritten with other values (ALTER COLUMN ... USING) has a new row in the
catalogue, and the table new files. VACUUM FULL leaves the rows of columns alone, except for those
that were added with a constant default, which it writes after it has changed the files:
definition.py queries that order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tidegate.connectors.postgrescdc.definition import CatalogTable, Definition
from tidegate.connectors.postgrescdc.identity import identity_words
from tidegate.databases.cdc.errors import ChangeChoice
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.pgoutput_row_layout import RowLayout, difference

REREAD = (ChangeChoice.REREAD,)
ADOPT_OR_REREAD = (ChangeChoice.ADOPT, ChangeChoice.REREAD)


class LogVisibility(Enum):
    """How the log shows a difference."""

    CHECK_LOG = auto()
    VISIBLE = auto()
    SILENT = auto()


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A difference between the recorded and the current definition."""

    visibility: LogVisibility
    what: str
    choices: tuple[ChangeChoice, ...] = ADOPT_OR_REREAD


def differences(
    columns: Sequence[Sequence[Any]], recorded: Definition, now: CatalogTable | None
) -> list[DefinitionChange]:
    """Return the differences of a table from its recorded columns and definition, worst first."""
    if now is None:
        return [
            DefinitionChange(
                LogVisibility.VISIBLE, "the table is gone: dropped or renamed", (ChangeChoice.SKIP,)
            )
        ]
    if recorded["oid"] != now.definition["oid"]:
        return [
            DefinitionChange(
                LogVisibility.VISIBLE,
                "another table has its name now: the table was dropped and created again, or "
                "renamed",
            )
        ]
    found = [
        *_publication(recorded, now.definition),
        *_columns(columns, now),
        *_parts(recorded, now),
        *_key(recorded, now.definition),
    ]
    found += [*_types(recorded, now.definition), *_traces(recorded, now.definition)]
    visible = any(d.visibility is LogVisibility.VISIBLE for d in found)
    # Rows before a visible change are delivered, whatever else differs.
    if visible and not any(_PUBLICATION in d.what for d in found):
        found = [d for d in found if d.visibility is LogVisibility.VISIBLE]
    return sorted(found, key=lambda d: -d.visibility.value)


_PUBLICATION = "its publication"


def _publication(recorded: Definition, now: Definition) -> Iterable[DefinitionChange]:
    before, after = recorded["publication"], now["publication"]
    if before == after:
        return
    # The server cannot decode the log of a time without a publication of this name.
    if not after or not before or before[0] != after[0]:
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"{_PUBLICATION} {'was recreated' if after else 'is gone'}, and the log since it was"
            " dropped cannot be read",
            (),
        )
    elif before[3:] != after[3:]:
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"the table was removed from {_PUBLICATION}: changes since then may not be in the log",
            REREAD,
        )
    elif before[2] == after[2]:  # a new owner does not matter
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"{_PUBLICATION} was altered: changes since then may not be in the log",
            REREAD,
        )


def _columns(columns: Sequence[Sequence[Any]], now: CatalogTable) -> Iterable[DefinitionChange]:
    before = [(str(c[0]), int(c[2]), int(c[3])) for c in columns]
    after = [(name, kind, modifier) for name, kind, modifier, _ in now.columns]
    if before != after:
        yield DefinitionChange(LogVisibility.VISIBLE, "its columns were changed")
        return
    moved = [
        name
        for (name, _, _, number), c in zip(now.columns, columns, strict=True)
        if number != int(c[4])
    ]
    if moved:
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"{', '.join(moved)} was dropped, and a column of this name was added or renamed",
        )


def _parts(recorded: Definition, found: CatalogTable) -> Iterable[DefinitionChange]:
    """Yield differences of partitions, identities and files."""
    now = found.definition
    if recorded["persistence"] != now["persistence"]:
        yield DefinitionChange(
            LogVisibility.SILENT,
            "it, or a partition, was changed between unlogged and logged: changes while it "
            "was unlogged are not in the log",
            REREAD,
        )
    before, after = ({int(p[0]): p for p in d["parts"]} for d in (recorded, now))
    if removed := [before[n][1] for n in before if n not in after]:
        yield DefinitionChange(
            LogVisibility.SILENT, f"its partition {', '.join(removed)} was dropped or detached"
        )
    if again := [after[n][1] for n in after if n in before and before[n][3] != after[n][3]]:
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"its partition {', '.join(again)} was detached and attached again",
        )
    for number, part in after.items():
        if number in before:
            yield from _identity(before[number], part, len(after) > 1)
            if before[number][2] != part[2]:
                yield _new_files(part, _rewritten(recorded, now), is_root=number == now["oid"])
        else:
            yield DefinitionChange(LogVisibility.CHECK_LOG, f"it has a new partition {part[1]}")


def _identity(
    before: Sequence[Any], after: Sequence[Any], is_partitioned: bool
) -> Iterable[DefinitionChange]:
    if before[4:6] != after[4:6] and after[4] != "f":  # complete rows are always sufficient
        what = (
            f"the REPLICA IDENTITY of {after[1]} was {identity_words(before)} and is"
            f" {identity_words(after)}"
        )
        yield DefinitionChange(
            LogVisibility.SILENT if is_partitioned else LogVisibility.VISIBLE, what, REREAD
        )


def _new_files(part: Sequence[Any], rewritten: Sequence[str], *, is_root: bool) -> DefinitionChange:
    """Return the difference of a table or partition with new files.

    The log shows when a table is emptied, but not a partition: a possible TRUNCATE stops the job.
    """
    if rewritten:
        return DefinitionChange(
            LogVisibility.SILENT,
            f"{', '.join(rewritten)} was altered and all rows were rewritten (ALTER COLUMN "
            "... TYPE ... USING)",
        )
    if is_root:
        return DefinitionChange(LogVisibility.CHECK_LOG, f"{part[1]} has new files")
    what = (
        f"its partition {part[1]} was emptied (TRUNCATE), UNLOGGED for a while, or rewritten "
        "(VACUUM FULL, CLUSTER), which the log does not distinguish"
    )
    return DefinitionChange(LogVisibility.SILENT, what, (ChangeChoice.SKIP, ChangeChoice.REREAD))


def _rewritten(recorded: Definition, now: Definition) -> list[str]:
    """Return columns whose row in the catalogue was written since.

    A mere rewrite of the files does not count.
    """
    before = recorded["columns"]
    return [
        f"column {n}"
        for n, (written, by_rewrite) in now["columns"].items()
        if n in before and before[n][0] != written and not by_rewrite
    ]


def _key(recorded: Definition, now: Definition) -> Iterable[DefinitionChange]:
    (before, guard_before), (after, guard_after) = recorded["key"][:2], now["key"][:2]
    if before != after:
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"its key was {', '.join(before)} and is {', '.join(after) or 'gone'}",
        )
    elif guard_before and not guard_after:
        yield DefinitionChange(
            LogVisibility.SILENT, f"its key {', '.join(before)} is no longer unique"
        )
    # Altering a column of the key recreates the key.
    elif guard_before != guard_after and not now["key"][3]:
        yield DefinitionChange(
            LogVisibility.SILENT,
            f"its key {', '.join(before)} was dropped and created again: there may have been "
            "rows with the same key meanwhile",
        )


def _types(recorded: Definition, now: Definition) -> Iterable[DefinitionChange]:
    before, after = recorded.get("types", {}), now.get("types", {})
    for number, parts in before.items():
        lost = [part for part in parts if part not in after.get(number, [])]
        labels = [str(part[1]) for part in lost]
        if lost and len(parts[0]) == 3:
            yield DefinitionChange(
                LogVisibility.SILENT, f"labels of an enum were renamed: {', '.join(labels)}"
            )
        elif lost or (parts and len(parts[0]) == 4 and parts != after.get(number)):
            yield DefinitionChange(
                LogVisibility.SILENT, "a composite type of its columns was altered"
            )


def _traces(recorded: Definition, now: Definition) -> Iterable[DefinitionChange]:
    if any(
        recorded[name] != now[name] for name in ("attributes", "row", "columns")
    ) or recorded.get("types") != now.get("types"):
        yield DefinitionChange(LogVisibility.CHECK_LOG, "its row in the catalogue was written")


_ROWS = (messages.INSERT, messages.UPDATE, messages.DELETE)


@dataclass(frozen=True, slots=True)
class FirstChange:
    """The commit of the first transaction that shows another layout, and how it differs.

    `columns` are those that it shows, None for a TRUNCATE.
    """

    commit: int
    path: str
    what: str
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DefinitionScan:
    """What the messages of a range show.

    It has the first change that is not skipped, and whether transactions before it changed our
    tables.
    """

    first: FirstChange | None
    rows: bool


def find_first_change(
    found: Iterable[bytes],
    database: str,
    layouts: Mapping[str, RowLayout],
    begin: int,
    skipped: Callable[[str, int], bool],
) -> DefinitionScan:
    """Read messages up to the first change.

    `skipped` returns whether an operator has skipped a TRUNCATE of a path at a commit.
    """
    at = begin
    rows = earlier = False
    tables: dict[int, tuple[str, messages.RelationMessage]] = {}
    # By the number of a table whose layout was compared: whether it is read and unchanged.
    same: dict[bytes, bool] = {}
    for data in found:
        kind = data[0]
        if kind in _ROWS:
            number = data[1:5]
            if at < begin or (rows and same.get(number)):
                continue
            if number not in same:
                path, table = tables[int.from_bytes(number, "big")]
                if path in layouts and (what := difference(layouts[path], table)):
                    return DefinitionScan(
                        FirstChange(at, path, what, tuple(name for name, _, _ in table.columns)),
                        earlier,
                    )
                same[number] = path in layouts
            rows = rows or same[number]
        elif kind == messages.BEGIN:
            at, earlier = messages.begin(data)[0], rows
        elif kind == messages.RELATION:
            table = messages.relation(data)
            tables[table.id] = ".".join((database, table.schema, table.table)), table
            same.pop(data[1:5], None)
        elif kind == messages.TRUNCATE and at >= begin:
            emptied = (tables[oid][0] for oid in messages.truncated_tables(data) if oid in tables)
            if path := next((p for p in emptied if p in layouts and not skipped(p, at)), ""):
                return DefinitionScan(FirstChange(at, path, "TRUNCATE", None), earlier)
    return DefinitionScan(None, rows)


def writers_of(found: Iterable[bytes], database: str, path: str) -> frozenset[int]:
    """Return the numbers of the transactions that wrote rows of a table."""
    writers: set[int] = set()
    mine: dict[bytes, bool] = {}
    transaction = 0
    for data in found:
        if data[0] == messages.BEGIN:
            transaction = messages.begin(data)[1]
        elif data[0] == messages.RELATION:
            table = messages.relation(data)
            mine[data[1:5]] = ".".join((database, table.schema, table.table)) == path
        elif data[0] in _ROWS and mine.get(data[1:5]):
            writers.add(transaction)
    return frozenset(writers)
