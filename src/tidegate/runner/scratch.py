"""Scratch directories of drivers, each with the name of its owner in it; and the sweeper of those
whose owner is dead. Called by the driver and by the worker.

Who proves a driver dead removes its directory. What is left is of drivers that died together with
their worker, or with the host. One without a name is of a driver in its first moment, or of one
that died there: it goes when two sweeps in a row have found it so.
"""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.records import ProcessRef
from tidegate.runner.process import reference, session_members

OWNER = "owner.json"
SWEEP_S = 300.0
RACES_MAX = 10


def make(place: Path) -> None:
    """A scratch directory of this process."""
    for _ in range(RACES_MAX):
        with contextlib.suppress(
            FileNotFoundError
            # whoever removes a neighbour removes the directory above too, if it is empty at that moment
        ):
            place.mkdir(parents=True, exist_ok=True)
            break
    (place / OWNER).write_text(json.dumps(to_document(reference(os.getpid()))), encoding="utf-8")


def remove(place: Path) -> None:
    """Remove it, and the directory above where nothing else is in it."""
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.parent.rmdir()


class Sweeper:
    """Sweeps the scratch directories of a home, now and then, in a thread."""

    def __init__(self, home: Home, host: str, monotonic_s: Callable[[], float]) -> None:
        self.home = home
        self.host = host
        self.monotonic_s = monotonic_s
        self._nameless: set[Path] = set()
        self._next_s = float("-inf")

    def tend(self) -> None:
        """One turn: sweep when it is time."""
        if self.monotonic_s() >= self._next_s:
            self._next_s = self.monotonic_s() + SWEEP_S
            threading.Thread(target=self.sweep, name="sweep", daemon=True).start()

    def sweep(self) -> None:
        """Remove what dead drivers of this host have left."""
        nameless = set()
        for place in self._places():
            owner = self._owner(place)
            if owner is None:
                nameless.add(place)
            dead = (
                place in self._nameless
                if owner is None
                else owner.host == self.host and not session_members(owner)
            )
            if dead:
                remove(place)
        self._nameless = nameless

    def _places(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from (
                place
                for above in self.home.works_root.iterdir()
                for place in above.iterdir()
                if place.is_dir()
            )

    def _owner(self, place: Path) -> ProcessRef | None:
        try:
            return from_document(
                ProcessRef, json.loads((place / OWNER).read_text(encoding="utf-8"))
            )
        except (OSError, ValueError, TypeError):
            return None
