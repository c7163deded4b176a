"""Scratch directories of drivers, each with a file that names its owner; and their sweeper.

Called by the driver and the worker. The process that confirms a driver's death removes its
directory. What remains is from drivers that died together with their worker, or with the host. A
directory without an owner file belongs to a driver that is just starting, or that died then. It is
removed when two sweeps in a row find it so.
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
from tidegate.runner.process import process_ref, session_members

OWNER = "owner.json"
SWEEP_S = 300.0
CREATE_ATTEMPTS_MAX = 10


def create(path: Path) -> None:
    """Create a scratch directory that belongs to this process."""
    for _ in range(CREATE_ATTEMPTS_MAX):
        # Another process may remove the parent, which is empty for a moment.
        with contextlib.suppress(FileNotFoundError):
            path.mkdir(parents=True, exist_ok=True)
            break
    (path / OWNER).write_text(json.dumps(to_document(process_ref(os.getpid()))), encoding="utf-8")


def remove(path: Path) -> None:
    """Remove the directory, and its parent if that is empty then."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


class Sweeper:
    """Removes scratch directories of dead drivers periodically, in a thread."""

    def __init__(self, home: Home, host: str, monotonic_s: Callable[[], float]) -> None:
        self.home = home
        self.host = host
        self.monotonic_s = monotonic_s
        self._unowned: set[Path] = set()
        self._next_s = float("-inf")

    def maintain(self) -> None:
        """Start a sweep if the interval is over."""
        if self.monotonic_s() >= self._next_s:
            self._next_s = self.monotonic_s() + SWEEP_S
            threading.Thread(target=self.sweep, name="sweep", daemon=True).start()

    def sweep(self) -> None:
        """Remove the scratch directories of this host's dead drivers."""
        unowned = set()
        for path in self._directories():
            owner = self._owner(path)
            if owner is None:
                unowned.add(path)
            dead = (
                path in self._unowned
                if owner is None
                else owner.host == self.host and not session_members(owner)
            )
            if dead:
                remove(path)
        self._unowned = unowned

    def _directories(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from (
                path
                for parent in self.home.work_root.iterdir()
                for path in parent.iterdir()
                if path.is_dir()
            )

    def _owner(self, path: Path) -> ProcessRef | None:
        try:
            return from_document(ProcessRef, json.loads((path / OWNER).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
