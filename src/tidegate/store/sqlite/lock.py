"""A lock file for the processes of one host, roughly fair and with a timeout. Called by file.py.

SQLite's own lock would be correct, but its waiters sleep and poll, so busy writers starve others
for seconds; waiters of `flock` are woken by the kernel. `flock` has no timeout, though, and a
process that is stopped while it holds the lock would block all others forever. Therefore a thread
waits for the lock, and the caller abandons that thread when the time is over.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STOPPED_CHECK_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is held until `release`."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """The time is over; process `pid` holds the lock (0: unknown).

    `stopped`: the process is stopped by SIGSTOP, so that waiting longer is useless.
    """

    pid: int
    stopped: bool = False


class FileLock:
    """The lock of one process. The caller holds a mutex from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def acquire(self, timeout_s: float) -> Acquired | HeldBy:
        """Take the lock. OSError if the file cannot be opened."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fd, self._fd = self._fd, -1  # owned by the waiter until it has the lock
            stopped = _Waiter(fd).wait(timeout_s, lambda: is_stopped(self._holder()))
            if stopped is not None:
                return HeldBy(self._holder(), stopped)
            self._fd = fd
        self._write_pid()
        return Acquired()

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file.

        A forked child must do it first, because its copy would keep the parent's lock alive.
        """
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write_pid(self) -> None:
        """Write the process id, for the messages of processes that wait in vain.

        A full disk must not prevent locking, so such errors are ignored.
        """
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


def is_stopped(pid: int) -> bool:
    """Whether the kernel has stopped a process (SIGSTOP, a debugger)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] in "Tt"


class _Waiter:
    """A thread that waits for the lock, and releases it at once if the wait was abandoned."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._guard = threading.Lock()
        self._acquired = threading.Event()
        self._abandoned = False
        threading.Thread(target=self._run, name="store-lock", daemon=True).start()

    def wait(self, timeout_s: float, hopeless: Callable[[], bool]) -> bool | None:
        """Return None if the lock came in time, else whether waiting is `hopeless`.

        `hopeless` is checked regularly, and ends the wait if it is true twice in a row. If the lock
        does not come, also because of an exception such as Ctrl-C, it is released when it comes.
        """
        came = False
        before = False
        end_s = time.monotonic() + timeout_s
        try:
            while not came and (left_s := end_s - time.monotonic()) > 0:
                came = self._acquired.wait(min(left_s, STOPPED_CHECK_INTERVAL_S))
                if not came and before and hopeless():
                    return True
                before = not came and hopeless()
        finally:
            if not came:
                self._abandon()
        return None if came else False

    def _abandon(self) -> None:
        with self._guard:
            self._abandoned = True
            if self._acquired.is_set():  # after the timeout
                self._release()

    def _run(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._guard:
            self._acquired.set()
            if self._abandoned:
                self._release()

    def _release(self) -> None:
        # closing alone does not release it while a forked child has a copy
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
