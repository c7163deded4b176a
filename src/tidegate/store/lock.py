"""A lock file that serves the processes of one host about in turn, and with a time limit. Called by sqlite_file.py.

SQLite's own lock is enough to be right, but who waits for it sleeps and looks again, and busy writers starve the others for seconds; waiters of
`flock` are woken by the kernel. `flock` has no time limit, though, and a process that is stopped while it holds the lock would stop all others
for good: therefore who has to wait lets a thread wait, and gives up on it when the time is over.
"""

import errno
import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is ours until `release`."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Time is over; this process has it (0 = it did not say who it is)."""

    pid: int


class FileLock:
    """One user at a time in this process: the caller has a mutex around acquire ... release."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def acquire(self, timeout_s: float) -> Acquired | HeldBy:
        """Take the lock. OSError where the file cannot be opened."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fd, self._fd = self._fd, -1  # the waiter's, until it has the lock
            if not _Waiter(fd).wait(timeout_s):
                return HeldBy(self._holder())
            self._fd = fd
        self._sign()
        return Acquired()

    def release(self) -> None:
        """Let the next one in."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Forget the file. In a forked child it must come before anything else: the child's copy would keep its parent's lock alive."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _sign(self) -> None:
        """So that who waits in vain can say for whom. A full disk must not keep anybody out, so it is only tried."""
        try:
            os.pwrite(self._fd, f"{os.getpid():<10}\n".encode(), 0)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
                raise

    def _holder(self) -> int:
        try:
            return int(self._path.read_text().strip() or 0)
        except (OSError, ValueError):
            return 0


class _Waiter:
    """A thread that waits for the lock. If nobody wants it any more when it comes, it is given back at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._guard = threading.Lock()
        self._came = threading.Event()
        self._given_up = False
        threading.Thread(target=self._run, name="store-lock", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Has it come in time? If not, also by an exception such as Ctrl-C, the lock and its file are given back."""
        came = False
        try:
            came = self._came.wait(timeout_s)
        finally:
            if not came:
                self._give_up()
        return came

    def _give_up(self) -> None:
        with self._guard:
            self._given_up = True
            if self._came.is_set():  # just now, too late
                self._give_back()

    def _run(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._guard:
            self._came.set()
            if self._given_up:
                self._give_back()

    def _give_back(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing alone would not do while a forked child has a copy
        os.close(self._fd)
