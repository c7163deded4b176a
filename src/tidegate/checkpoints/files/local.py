"""Checkpoint files on a disk of this host that may be full, read-only or unmounted for a while: a
driver waits for it, as for one that is far away.

Called by open.py for drivers. A root that was there is never made anew: what is written into the
empty directory below a missing mount is found by nobody.
"""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tidegate.checkpoints.files.base import LocalFiles
from tidegate.checkpoints.files.retry import Patience, StorageUnavailable, retry_unavailable

T = TypeVar("T")
FAULTS = {
    errno.ENOSPC: "is full (no space left): make room",
    errno.EDQUOT: "is full (its quota is used up): make room",
    errno.EROFS: "is read-only: mount it for writing",
    errno.EACCES: "may not be written: check the permissions of its directories",
    errno.EPERM: "may not be written: check the permissions of its directories",
    errno.EIO: "has failed (input/output error): check the disk",
    errno.ESTALE: "is gone (stale file handle): mount it again",
    errno.ENOTCONN: "is gone (not connected): mount it again",
}


class WaitedForFiles(LocalFiles):
    """What is out of reach is waited for, as long as the patience lasts."""

    def __init__(self, root: Path, patience: Patience) -> None:
        super().__init__(root)
        self.patience = patience
        self._seen: tuple[int, int] | None = None
        self._check_root()

    def write(self, path: str, data: bytes) -> None:
        """Repeated until the disk takes it."""
        self._waited(lambda: LocalFiles.write(self, path, data))

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        """Repeated until the disk takes it."""
        self._waited(lambda: LocalFiles.write_tree(self, path, files))

    def move_tree(self, source: str, target: str) -> None:
        """Repeated until the disk takes it."""
        self._waited(lambda: LocalFiles.move_tree(self, source, target))

    def _at(self, path: str) -> Path:
        """Every act comes through here."""
        self._waited(self._check_root)
        return super()._at(path)

    def _waited(self, act: Callable[[], T]) -> T:
        try:
            return retry_unavailable(
                lambda: self._translated(act), self.patience, str(self.root), self._note
            )
        finally:
            self._note("")

    def _note(self, trouble: str) -> None:
        self.trouble = trouble

    def _translated(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            if error.errno not in FAULTS:
                raise
            raise StorageUnavailable(
                f"the checkpoint storage {self.root} {FAULTS[error.errno]}"
            ) from error

    def _check_root(self) -> None:
        """Whether the root is where it was. One that was never there is made by the first write."""
        try:
            found = os.stat(self.root)
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._seen is None:
                return
            raise StorageUnavailable(
                f"the checkpoint storage {self.root} is gone: it was removed, or its disk is not"
                " mounted; bring it back"
            ) from error
        identity = found.st_dev, found.st_ino
        if self._seen is not None and identity != self._seen and not os.listdir(self.root):
            raise StorageUnavailable(
                f"the checkpoint storage {self.root} is empty, and was not before: its disk is not"
                " mounted; bring it back"
            )
        self._seen = identity
