"""Quarantine: where collected state is kept before it is deleted, and can be restored from.

    <root>/_quarantine/<id>/_quarantine.json       written before the first move
    <root>/_quarantine/<id>/<original path>/...    what was collected

Called by the collector and by `tidegate state gc`. The path of a unit says where it came from, so a
quarantine of any size needs only one small record. An interrupted pass leaves an open quarantine,
which the next pass continues to fill. Only closed ones are deleted, after the delay. A restore is
recorded first: a quarantine that is being restored is never deleted, and its units are then kept as
long as orphans are.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.checkpoints import paths
from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.errors import StorageRefused
from tidegate.checkpoints.gc.classify import QUARANTINE, Unit, UnitShape, units
from tidegate.failpoint import failpoint
from tidegate.model.document import NewerDocument, from_document, to_document
from tidegate.model.errors import UserError

RECORD = "_quarantine.json"


class QuarantinePhase(StrEnum):
    """Lifecycle of a quarantine: collected, restored or deleted."""

    OPEN = "open"  # a pass moves orphans into it
    CLOSED = "closed"  # complete; deleted after the delay
    RESTORED = "taken-back"  # a user moved everything back


@dataclass(frozen=True, kw_only=True, slots=True)
class Quarantine:
    """The record of one quarantine. `places` are the top directories of restored units."""

    version: int = 1
    id: str
    phase: QuarantinePhase = QuarantinePhase.OPEN
    opened_ms: int
    closed_ms: int = 0
    units: int = 0
    bytes: int = 0
    places: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantinedUnit:
    """A unit in quarantine, with its original path."""

    unit: Unit
    path: str
    origin: str


class NoQuarantine(UserError):
    """The requested quarantine does not exist."""

    condition = "quarantine-missing"

    def __init__(self, wanted: str, there: list[str]) -> None:
        super().__init__(
            f"there is no quarantine {wanted!r}; there are: {', '.join(there) or 'none'}. `tidegate"
            " state gc` lists them"
        )


class Quarantines:
    """All quarantines of a namespace."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def all(self) -> list[Quarantine]:
        """Return all quarantines, the oldest first.

        One with an unreadable record is skipped, because its age is unknown.
        """
        found = [
            self._read(entry.name) for entry in self.files.entries(QUARANTINE) if entry.directory
        ]
        return sorted(
            (each for each in found if each is not None), key=lambda each: (each.opened_ms, each.id)
        )

    def _read(self, name: str) -> Quarantine | None:
        try:
            return from_document(
                Quarantine,
                json.loads(self.files.read(f"{QUARANTINE}/{name}/{RECORD}")),
                f"quarantine {name}",
            )
        except (OSError, ValueError, KeyError, TypeError, NewerDocument):
            return None

    def find(self, wanted: str) -> Quarantine:
        """Return the quarantine with this id; `latest` is the newest."""
        there = self.all()
        found = there[-1:] if wanted == "latest" else [each for each in there if each.id == wanted]
        if not found:
            raise NoQuarantine(wanted, [each.id for each in there])
        return found[0]

    def open(self, now_ms: int) -> Quarantine:
        """Return the open quarantine of an interrupted pass, or a new one."""
        unfinished = [each for each in self.all() if each.phase is QuarantinePhase.OPEN]
        if unfinished:
            return unfinished[-1]
        quarantine = Quarantine(id=f"{now_ms:013d}", opened_ms=now_ms)
        failpoint("collector.open.before")
        self._write(quarantine)
        failpoint("collector.open.after")
        return quarantine

    def put(self, quarantine: Quarantine, unit: Unit) -> None:
        """Move a unit in; also completes an interrupted move."""
        failpoint("collector.move.before")
        self.files.move_tree(unit.path, self._inside(quarantine, unit.path))
        failpoint("collector.move.after")

    def put_back(self, quarantine: Quarantine, origin: str) -> None:
        """Move a unit back to its original path."""
        failpoint("collector.return.before")
        self.files.move_tree(self._inside(quarantine, origin), origin)
        failpoint("collector.return.after")

    def close(self, quarantine: Quarantine, now_ms: int) -> Quarantine | None:
        """Close a quarantine: its delay begins. An empty one is removed at once."""
        units_held, bytes_held = 0, 0
        for each in self.contents(quarantine):
            units_held, bytes_held = units_held + 1, bytes_held + each.unit.bytes
        if not units_held:
            self._drop(quarantine)
            return None
        closed = replace(
            quarantine,
            phase=QuarantinePhase.CLOSED,
            closed_ms=now_ms,
            units=units_held,
            bytes=bytes_held,
        )
        failpoint("collector.close.before")
        self._write(closed)
        failpoint("collector.close.after")
        return closed

    def contents(self, quarantine: Quarantine) -> Iterator[QuarantinedUnit]:
        """Iterate over the units; the caller may move or delete each before the next."""
        top = f"{QUARANTINE}/{quarantine.id}/"
        inside = (
            (path.removeprefix(top), entry)
            for path, entry in self.files.walk(top.rstrip("/"))
            if path != f"{top}{RECORD}"
        )
        for unit in units(inside):
            yield QuarantinedUnit(unit=unit, path=f"{top}{unit.path}", origin=unit.path)

    def restore(self, quarantine: Quarantine, now_ms: int) -> tuple[int, list[str]]:
        """Move everything back; return the number of units and the failures. Repeatable."""
        places = tuple(
            sorted(
                {_top(held.origin) for held in self.contents(quarantine)} | set(quarantine.places)
            )
        )
        returning = replace(
            quarantine, phase=QuarantinePhase.RESTORED, closed_ms=now_ms, places=places
        )
        failpoint("collector.undo.before")
        self._write(returning)
        failpoint("collector.undo.after")
        moved = 0
        failed: list[str] = []
        for held in self.contents(returning):
            if not self.free(held):
                failed.append(
                    f"{held.origin}: another unit has this path now; it stays in {held.path}"
                )
                continue
            try:
                self.put_back(returning, held.origin)
                moved += 1
            except (OSError, StorageRefused) as error:
                failed.append(f"{held.origin}: {error}")
        return moved, failed

    def free(self, held: QuarantinedUnit) -> bool:
        """Whether the original path is free, or holds only an interrupted move of this unit."""
        if not self.files.exists(held.origin):
            return True
        if self.files.renames:
            return False
        here, there = (self._sizes(path).items() for path in (held.path, held.origin))
        return here <= there or there <= here

    def _sizes(self, path: str) -> dict[str, int]:
        return {
            below.removeprefix(f"{path}/"): entry.bytes for below, entry in self.files.walk(path)
        }

    def delete(self, quarantine: Quarantine) -> list[str]:
        """Delete a quarantine unit by unit; return the failures.

        Its record is removed last, so that failed units are tried again.
        """
        failed: list[str] = []
        failpoint("collector.delete.before")
        for held in self.contents(quarantine):
            try:
                (
                    self.files.remove
                    if held.unit.shape is UnitShape.LEFTOVER
                    else self.files.remove_tree
                )(held.path)
            except (OSError, StorageRefused) as error:
                failed.append(f"{held.path}: {error}")
            failpoint("collector.delete.middle")
        if not failed:
            self._drop(quarantine)
        failpoint("collector.delete.after")
        return failed

    def forget(self, quarantine: Quarantine) -> None:
        """Remove the record of a quarantine that was restored completely."""
        if next(self.contents(quarantine), None) is None:
            self._drop(quarantine)

    def _inside(self, quarantine: Quarantine, path: str) -> str:
        return f"{QUARANTINE}/{quarantine.id}/{path}"

    def _write(self, quarantine: Quarantine) -> None:
        self.files.write(
            f"{QUARANTINE}/{quarantine.id}/{RECORD}",
            (json.dumps(to_document(quarantine), indent=1) + "\n").encode(),
        )

    def _drop(self, quarantine: Quarantine) -> None:
        failpoint("collector.drop.before")
        self.files.remove_tree(f"{QUARANTINE}/{quarantine.id}")
        self.files.prune(QUARANTINE)
        failpoint("collector.drop.after")


def _top(path: str) -> str:
    """Return the directory of the job, or of its savepoints, that contains a path."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == paths.SAVEPOINTS else parts[0]
