"""A lock file that serves the processes of one host about in turn, and with a time limit. Called by
sqlite_file.py.

SQLite's own lock is enough to be right, but who waits for it sleeps and looks again, and busy
writers starve the others for seconds; waiters of `flock` are woken by the kernel. `flock` has no
time limit, though, and a process that is stopped while it holds the lock would stop all others for
good: therefore who has to wait lets a thread wait, and gives up on it when the time is over.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOPELESS_CHECKED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is ours until `release`."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Time is over; this process has it (0 = it did not say who it is).

    `stopped`: by SIGSTOP, so that waiting longer is of no use.
    """

    pid: int
    stopped: bool = False


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
            stopped = _Waiter(fd).wait(timeout_s, lambda: is_stopped(self._holder()))
            if stopped is not None:
                return HeldBy(self._holder(), stopped)
            self._fd = fd
        self._sign()
        return Acquired()

    def release(self) -> None:
        """Let the next one in."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Forget the file.

        In a forked child it must come before anything else: the child's copy would keep its
        parent's lock alive.
        """
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _sign(self) -> None:
        """So that who waits in vain can say for whom.

        A full disk must not keep anybody out, so it is only tried.
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
    """A thread that waits for the lock.

    If nobody wants it any more when it comes, it is given back at once.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._guard = threading.Lock()
        self._came = threading.Event()
        self._given_up = False
        threading.Thread(target=self._run, name="store-lock", daemon=True).start()

    def wait(self, timeout_s: float, hopeless: Callable[[], bool]) -> bool | None:
        """None when it has come in time, else whether it was `hopeless`, which is asked now and
        then and ends the wait when it is true twice in a row. Where it does not come, also by an
        exception such as Ctrl-C, the lock and its file are given back.
        """
        came, before, end_s = False, False, time.monotonic() + timeout_s
        try:
            while not came and (left_s := end_s - time.monotonic()) > 0:
                came = self._came.wait(min(left_s, HOPELESS_CHECKED_EVERY_S))
                if not came and before and hopeless():
                    return True
                before = not came and hopeless()
        finally:
            if not came:
                self._give_up()
        return None if came else False

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
        fcntl.flock(
            self._fd, fcntl.LOCK_UN
        )  # closing alone would not do while a forked child has a copy
        os.close(self._fd)
