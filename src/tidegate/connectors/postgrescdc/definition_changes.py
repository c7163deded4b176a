"""Tables that are not as they were: what the catalogue tells, and the first transaction of the slot
that shows it. Called by source.py, in the driver.

The catalogue is as it is now, and the log tells of the past. So each difference says how it is
found in the log:

    LOOK     the log decides. A table got new files: it was emptied, which the log tells, or written anew with the same rows (VACUUM FULL), which it does not.
    SHOWN    the table stops the job, and every row after the change is preceded by the table's new form: rows before it are delivered first.
    SILENT   the table stops the job, and rows after the change look as those before it: nothing more is delivered.

A column that was written anew with other values (ALTER COLUMN ... USING) has a new row in the
catalogue, and the table new files. VACUUM FULL leaves the rows of columns alone, but for those that
were added with a constant default, which it writes after it has changed the files: `definition.py`
asks for that order.
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


class Weight(Enum):
    """What a difference means for the log."""

    LOOK = auto()
    SHOWN = auto()
    SILENT = auto()


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """One thing that is not as it was."""

    weight: Weight
    what: str
    choices: tuple[ChangeChoice, ...] = ADOPT_OR_REREAD


def differences(
    columns: Sequence[Sequence[Any]], known: Definition, now: CatalogTable | None
) -> list[DefinitionChange]:
    """Of a table that an offset knows with these columns and this definition; the gravest first."""
    if now is None:
        return [
            DefinitionChange(
                Weight.SHOWN, "the table is gone: dropped or renamed", (ChangeChoice.SKIP,)
            )
        ]
    if known["oid"] != now.definition["oid"]:
        return [
            DefinitionChange(
                Weight.SHOWN,
                "another table has its name now: it was dropped and made again, or renamed",
            )
        ]
    found = [
        *_publication(known, now.definition),
        *_columns(columns, now),
        *_parts(known, now),
        *_key(known, now.definition),
    ]
    found += [*_types(known, now.definition), *_traces(known, now.definition)]
    shown = any(d.weight is Weight.SHOWN for d in found)
    if shown and not any(
        _PUBLICATION in d.what for d in found
    ):  # rows before the change are delivered, whatever else is different
        found = [d for d in found if d.weight is Weight.SHOWN]
    return sorted(found, key=lambda d: -d.weight.value)


_PUBLICATION = "its publication"


def _publication(known: Definition, now: Definition) -> Iterable[DefinitionChange]:
    before, after = known["publication"], now["publication"]
    if before == after:
        return
    if (
        not after or not before or before[0] != after[0]
    ):  # the server reads no log of a time when there was no publication of this name
        yield DefinitionChange(
            Weight.SILENT,
            f"{_PUBLICATION} {'was made anew' if after else 'is gone'}, and the log since it was"
            " dropped cannot be read",
            (),
        )
    elif before[3:] != after[3:]:
        yield DefinitionChange(
            Weight.SILENT,
            f"the table was taken out of {_PUBLICATION}: changes since then may not be in the log",
            REREAD,
        )
    elif before[2] == after[2]:  # a new owner is no other publication
        yield DefinitionChange(
            Weight.SILENT,
            f"{_PUBLICATION} was altered: changes since then may not be in the log",
            REREAD,
        )


def _columns(columns: Sequence[Sequence[Any]], now: CatalogTable) -> Iterable[DefinitionChange]:
    before = [(str(c[0]), int(c[2]), int(c[3])) for c in columns]
    after = [(name, kind, modifier) for name, kind, modifier, _ in now.columns]
    if before != after:
        yield DefinitionChange(Weight.SHOWN, "its columns were changed")
        return
    moved = [
        name
        for (name, _, _, number), c in zip(now.columns, columns, strict=True)
        if number != int(c[4])
    ]
    if moved:
        yield DefinitionChange(
            Weight.SILENT, f"{', '.join(moved)} was dropped, and added or renamed to again"
        )


def _parts(known: Definition, found: CatalogTable) -> Iterable[DefinitionChange]:
    """Partitions that came, went, or were emptied; identities; files."""
    now = found.definition
    if known["persistence"] != now["persistence"]:
        yield DefinitionChange(
            Weight.SILENT,
            "it, or a partition, became unlogged or logged again: changes of it were not in"
            " the log",
            REREAD,
        )
    before, after = ({int(p[0]): p for p in d["parts"]} for d in (known, now))
    if gone := [before[n][1] for n in before if n not in after]:
        yield DefinitionChange(
            Weight.SILENT, f"its partition {', '.join(gone)} was dropped or detached"
        )
    if again := [after[n][1] for n in after if n in before and before[n][3] != after[n][3]]:
        yield DefinitionChange(
            Weight.SILENT, f"its partition {', '.join(again)} was detached and attached again"
        )
    for number, part in after.items():
        if number in before:
            yield from _identity(before[number], part, len(after) > 1)
            if before[number][2] != part[2]:
                yield _new_files(part, _rewritten(known, now), is_root=number == now["oid"])
        else:
            yield DefinitionChange(Weight.LOOK, f"it has a new partition {part[1]}")


def _identity(
    before: Sequence[Any], after: Sequence[Any], is_partitioned: bool
) -> Iterable[DefinitionChange]:
    if before[4:6] != after[4:6] and after[4] != "f":  # whole rows are never too little
        what = (
            f"the REPLICA IDENTITY of {after[1]} was {identity_words(before)} and is"
            f" {identity_words(after)}"
        )
        yield DefinitionChange(Weight.SILENT if is_partitioned else Weight.SHOWN, what, REREAD)


def _new_files(part: Sequence[Any], rewritten: Sequence[str], *, is_root: bool) -> DefinitionChange:
    """The log tells when a table is emptied, and not when one of its partitions is: what may have
    been TRUNCATE stops the job.
    """
    if rewritten:
        return DefinitionChange(
            Weight.SILENT,
            f"{', '.join(rewritten)} was altered and all rows were written anew (ALTER COLUMN ..."
            " TYPE ... USING)",
        )
    if is_root:
        return DefinitionChange(Weight.LOOK, f"{part[1]} has new files")
    what = (
        f"its partition {part[1]} was emptied (TRUNCATE), UNLOGGED for a while, or written anew"
        " (VACUUM FULL, CLUSTER), which the log does not tell apart"
    )
    return DefinitionChange(Weight.SILENT, what, (ChangeChoice.SKIP, ChangeChoice.REREAD))


def _rewritten(known: Definition, now: Definition) -> list[str]:
    """The numbers of columns whose own row in the catalogue was written since, by more than a
    rewrite of the files.
    """
    before = known["columns"]
    return [
        f"column {n}"
        for n, (written, by_rewrite) in now["columns"].items()
        if n in before and before[n][0] != written and not by_rewrite
    ]


def _key(known: Definition, now: Definition) -> Iterable[DefinitionChange]:
    (before, guard_before), (after, guard_after) = known["key"][:2], now["key"][:2]
    if before != after:
        yield DefinitionChange(
            Weight.SILENT, f"its key was {', '.join(before)} and is {', '.join(after) or 'gone'}"
        )
    elif guard_before and not guard_after:
        yield DefinitionChange(
            Weight.SILENT, f"nothing keeps its key {', '.join(before)} unique any more"
        )
    elif (
        guard_before != guard_after and not now["key"][3]
    ):  # a column that is altered has its key made again with it
        yield DefinitionChange(
            Weight.SILENT,
            f"its key {', '.join(before)} was dropped and made again: rows with the same key may"
            " have been there meanwhile",
        )


def _types(known: Definition, now: Definition) -> Iterable[DefinitionChange]:
    before, after = known.get("types", {}), now.get("types", {})
    for number, parts in before.items():
        lost = [part for part in parts if part not in after.get(number, [])]
        labels = [str(part[1]) for part in lost]
        if lost and len(parts[0]) == 3:
            yield DefinitionChange(
                Weight.SILENT, f"labels of an enum were renamed: {', '.join(labels)}"
            )
        elif lost or (parts and len(parts[0]) == 4 and parts != after.get(number)):
            yield DefinitionChange(Weight.SILENT, "a composite type of its columns was altered")


def _traces(known: Definition, now: Definition) -> Iterable[DefinitionChange]:
    if any(known[name] != now[name] for name in ("attributes", "row", "columns")) or known.get(
        "types"
    ) != now.get("types"):
        yield DefinitionChange(Weight.LOOK, "its row of the catalogue was written")


_ROWS = (messages.INSERT, messages.UPDATE, messages.DELETE)


@dataclass(frozen=True, slots=True)
class FirstChange:
    """The commit of the first transaction that shows another table than the known one, and how;
    `columns` are those that it shows, None for a TRUNCATE.
    """

    commit: int
    path: str
    what: str
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DefinitionScan:
    """What messages of a range show: the first change that is not passed over, and whether
    transactions before it have rows of ours.
    """

    first: FirstChange | None
    rows: bool


def scan(
    found: Iterable[bytes],
    database: str,
    known: Mapping[str, RowLayout],
    begin: int,
    passed: Callable[[str, int], bool],
) -> DefinitionScan:
    """Messages up to the first change.

    `passed` tells of a path and a commit whether a person has passed over a TRUNCATE there.
    """
    at = begin
    rows = earlier = False
    tables: dict[int, tuple[str, messages.RelationMessage]] = {}
    same: dict[
        bytes,
        bool,
        # by the number of a table whose layout was compared: whether it is one of ours, as it is known
    ] = {}
    for data in found:
        kind = data[0]
        if kind in _ROWS:
            number = data[1:5]
            if at < begin or (rows and same.get(number)):
                continue
            if number not in same:
                path, table = tables[int.from_bytes(number, "big")]
                if path in known and (what := difference(known[path], table)):
                    return DefinitionScan(
                        FirstChange(at, path, what, tuple(name for name, _, _ in table.columns)),
                        earlier,
                    )
                same[number] = path in known
            rows = rows or same[number]
        elif kind == messages.BEGIN:
            at, earlier = messages.begin(data)[0], rows
        elif kind == messages.RELATION:
            table = messages.relation(data)
            tables[table.id] = ".".join((database, table.schema, table.table)), table
            same.pop(data[1:5], None)
        elif kind == messages.TRUNCATE and at >= begin:
            emptied = (tables[oid][0] for oid in messages.truncated(data) if oid in tables)
            if path := next((p for p in emptied if p in known and not passed(p, at)), ""):
                return DefinitionScan(FirstChange(at, path, "TRUNCATE", None), earlier)
    return DefinitionScan(None, rows)


def writers_of(found: Iterable[bytes], database: str, path: str) -> frozenset[int]:
    """The numbers of the transactions that wrote rows of a table."""
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
