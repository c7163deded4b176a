"""Checkpoint files on a local disk that may be full, read-only or unmounted for a while.

Called by open.py for drivers, which retry until the disk is usable again. A root that existed is
never created again: files written into the empty directory below a missing mount would be lost.
"""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tidegate.checkpoints.files.errors import StorageUnavailable
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.files.retry import retry_unavailable
from tidegate.retry import Pause

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


class RetryingLocalFiles(LocalFiles):
    """Local files whose operations are retried while the disk is unavailable."""

    def __init__(self, root: Path, pause: Pause) -> None:
        super().__init__(root)
        self.pause = pause
        self._seen: tuple[int, int] | None = None
        self._check_root()

    def write(self, path: str, data: bytes) -> None:
        self._retry(lambda: LocalFiles.write(self, path, data))

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        self._retry(lambda: LocalFiles.write_tree(self, path, files))

    def move_tree(self, source: str, target: str) -> None:
        self._retry(lambda: LocalFiles.move_tree(self, source, target))

    def _at(self, path: str) -> Path:
        # every operation calls this first
        self._retry(self._check_root)
        return super()._at(path)

    def _retry(self, act: Callable[[], T]) -> T:
        try:
            return retry_unavailable(
                lambda: self._translate(act), self.pause, str(self.root), self._note
            )
        finally:
            self._note("")

    def _note(self, trouble: str) -> None:
        self.trouble = trouble

    def _translate(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            if error.errno not in FAULTS:
                raise
            raise StorageUnavailable(
                f"the checkpoint storage {self.root} {FAULTS[error.errno]}"
            ) from error

    def _check_root(self) -> None:
        """Raise StorageUnavailable if the root was removed or its disk is not mounted.

        A root that never existed is created by the first write.
        """
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
