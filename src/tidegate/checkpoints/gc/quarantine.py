"""Where collected state waits before it is deleted, and how it is taken back. Called by the
collector and by `tidegate state gc`.

    <root>/_quarantine/<id>/_quarantine.json       written before the first move: since when, whether all has come
    <root>/_quarantine/<id>/<where it stood>/...   what was collected, under the path that it had

So the place of everything in here says where it came from, and a quarantine of any size has one
small record. A pass that is broken off leaves an open quarantine, which the next pass goes on to
fill. Only one that was closed is deleted, after the delay. Taking back is recorded first: a
quarantine that is being taken back is never deleted, and what came out of it is left alone for as
long as an orphan is.
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
    """What becomes of a quarantine."""

    OPEN = "open"  # a pass puts orphans into it
    CLOSED = "closed"  # waits for its time
    RESTORED = "taken-back"  # a person wants all of it where it stood


@dataclass(frozen=True, kw_only=True, slots=True)
class Quarantine:
    """The record of one quarantine. `places` are the tops of what was taken back."""

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
    """A unit in quarantine, and where it stood."""

    unit: Unit
    path: str
    origin: str


class NoQuarantine(UserError):
    """There is nothing to take back under this name."""

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
        """All of them, the oldest first.

        One whose record cannot be read is left alone: nobody can say since when it waits.
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
        """The one of this id; `latest` is the newest."""
        there = self.all()
        found = there[-1:] if wanted == "latest" else [each for each in there if each.id == wanted]
        if not found:
            raise NoQuarantine(wanted, [each.id for each in there])
        return found[0]

    def open(self, now_ms: int) -> Quarantine:
        """One to put orphans into: that of a pass that was broken off, else a new one."""
        unfinished = [each for each in self.all() if each.phase is QuarantinePhase.OPEN]
        if unfinished:
            return unfinished[-1]
        quarantine = Quarantine(id=f"{now_ms:013d}", opened_ms=now_ms)
        failpoint("collector.open.before")
        self._write(quarantine)
        failpoint("collector.open.after")
        return quarantine

    def put(self, quarantine: Quarantine, unit: Unit) -> None:
        """Move a unit in. What stands there already came from a move that was broken off."""
        failpoint("collector.move.before")
        self.files.move_tree(unit.path, self._inside(quarantine, unit.path))
        failpoint("collector.move.after")

    def put_back(self, quarantine: Quarantine, origin: str) -> None:
        """Move a unit to where it stood."""
        failpoint("collector.return.before")
        self.files.move_tree(self._inside(quarantine, origin), origin)
        failpoint("collector.return.after")

    def close(self, quarantine: Quarantine, now_ms: int) -> Quarantine | None:
        """Everything has come: its time begins. One that stayed empty goes at once."""
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
        """What is in it, unit by unit: one that was given out may be moved or deleted before the
        next is asked for.
        """
        top = f"{QUARANTINE}/{quarantine.id}/"
        inside = (
            (path.removeprefix(top), entry)
            for path, entry in self.files.walk(top.rstrip("/"))
            if path != f"{top}{RECORD}"
        )
        for unit in units(inside):
            yield QuarantinedUnit(unit=unit, path=f"{top}{unit.path}", origin=unit.path)

    def restore(self, quarantine: Quarantine, now_ms: int) -> tuple[int, list[str]]:
        """Everything to where it stood: how many units, and what could not be moved.

        May be repeated.
        """
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
                    f"{held.origin}: something else stands there now; it stays in {held.path}"
                )
                continue
            try:
                self.put_back(returning, held.origin)
                moved += 1
            except (OSError, StorageRefused) as error:
                failed.append(f"{held.origin}: {error}")
        return moved, failed

    def free(self, held: QuarantinedUnit) -> bool:
        """Whether a unit can go where it stood: nothing stands there, or only what a move of this
        very unit has left that was broken off.
        """
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
        """Delete it for good, file by file; what could not be deleted.

        Its record goes last, so that the rest is tried again.
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
        """Drop the record of one that was taken back whole, when nobody needs to know any more."""
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
    """The job, or the savepoints of the job, that a path is of."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == paths.SAVEPOINTS else parts[0]
