"""Durable file operations that the file sink's protocol is built from, and their errors.

Called by the sink's modules of this folder. Knows nothing of commits or generations; must not retry
or hide anything.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidegate.model.errors import Domain, TerminalError, TransientError

_ATTEMPTS_MAX = 5
_TRANSIENT = {
    *(
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EINTR,
        errno.ETIMEDOUT,
    ),
    # The disk is unmounted, or read-only until it is repaired.
    *(
        errno.ENOENT,
        errno.ESTALE,
        errno.EROFS,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
    ),
    *(
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.EBUSY,
        errno.EAGAIN,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOMEDIUM,
    ),
}


class DiskTrouble(TransientError):
    """A disk operation failed for a reason that may pass."""

    condition = "disk-trouble"
    domain = Domain.EXTERNAL


class DiskRefused(TerminalError):
    """A disk operation can never succeed: permissions, names, kinds of file systems."""

    condition = "disk-refused"
    domain = Domain.EXTERNAL


@dataclass(frozen=True, slots=True)
class Created:
    pass


@dataclass(frozen=True, slots=True)
class Existed:
    """The name was taken; nothing was changed."""


@contextmanager
def disk_errors(action: str) -> Iterator[None]:
    """Translate the operating system's errors; `action` is the subject of the message."""
    try:
        yield
    except OSError as error:
        location = f" at {error.filename}" if error.filename else ""
        text = f"{action} failed{location}: {error.strerror or error}"
        raise (DiskTrouble if error.errno in _TRANSIENT else DiskRefused)(text) from error


def sync(path: str) -> None:
    """Flush a file's bytes, or a directory's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(directories: Iterable[str]) -> None:
    """Sync each of these directories once; one that is gone has no names to keep."""
    for directory in sorted(set(directories)):
        with suppress(FileNotFoundError):
            sync(directory)


def create_file(path: str, data: bytes) -> None:
    """Create a file exclusively with these bytes, and flush it.

    Its name is durable only after sync of its directory.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def touch(path: str) -> Created | Existed:
    """Create an empty file, exclusively."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return Existed()
    return Created()


def link(whole: str, name: str) -> Created | Existed:
    """Give an existing file a second name atomically, unless the name is taken.

    FileNotFoundError if `whole` is gone.
    """
    try:
        os.link(whole, name)
    except FileExistsError:
        return Existed()
    return Created()


def discard(path: str) -> None:
    """Remove a file; not an error if it is gone already."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def list_names(directory: str) -> list[str]:
    """List a directory, sorted; empty if it does not exist."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def make_directory(path: str) -> list[str]:
    """Create a directory with its parents.

    Returns the directories that got a new name in them, for sync_all. A finished sink beside this
    one may remove a parent that is still empty between two steps: then it is tried again.
    """
    for attempt in range(_ATTEMPTS_MAX):
        missing = []
        at = path
        while not os.path.isdir(at) and os.path.dirname(at) != at:
            missing.append(at)
            at = os.path.dirname(at)
        try:
            os.makedirs(path, exist_ok=True)
        except FileNotFoundError:
            if attempt + 1 == _ATTEMPTS_MAX:
                raise
            continue
        return [os.path.dirname(m) for m in missing]
    return []


def remove_tree(path: str) -> None:
    """Remove a directory with its contents.

    Can be repeated from any state; another process may do the same meanwhile.
    """
    for name in list_names(path):
        below = os.path.join(path, name)
        if os.path.isdir(below) and not os.path.islink(below):
            remove_tree(below)
        else:
            discard(below)
    remove_empty(path)


def remove_empty(path: str) -> None:
    """Remove a directory if it is empty."""
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
