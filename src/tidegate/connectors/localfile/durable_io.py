"""The few durable acts on a local disk that the file sink's protocol is made of, and what their
failures are called.

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
    # The disk is away, or read-only until somebody repairs it: mounts come back.
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
    """The disk did not do what was asked, for now."""

    condition = "disk-trouble"
    domain = Domain.EXTERNAL


class DiskRefused(TerminalError):
    """The disk will never do what was asked: rights, names, kinds of file systems."""

    condition = "disk-refused"
    domain = Domain.EXTERNAL


@dataclass(frozen=True, slots=True)
class Created:
    pass


@dataclass(frozen=True, slots=True)
class Existed:
    """Someone was there first; nothing was changed."""


@contextmanager
def disk_errors(action: str) -> Iterator[None]:
    """Translates the operating system's errors; `doing` is the part of the sentence before
    `failed`.
    """
    try:
        yield
    except OSError as error:
        place = f" at {error.filename}" if error.filename else ""
        text = f"{action} failed{place}: {error.strerror or error}"
        raise (DiskTrouble if error.errno in _TRANSIENT else DiskRefused)(text) from error


def sync(path: str) -> None:
    """A file's bytes, or a directory's names, are on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(directories: Iterable[str]) -> None:
    """Each of these directories once. One that is gone has no names to keep."""
    for directory in sorted(set(directories)):
        with suppress(FileNotFoundError):
            sync(directory)


def create_file(path: str, data: bytes) -> None:
    """A new file with these bytes, on the disk; its name is durable only after sync of its
    directory.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def touch(path: str) -> Created | Existed:
    """An empty file, created exclusively."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return Existed()
    return Created()


def link(whole: str, name: str) -> Created | Existed:
    """Gives a whole file a second name, all at once, unless the name is taken.

    FileNotFoundError where `whole` is gone.
    """
    try:
        os.link(whole, name)
    except FileExistsError:
        return Existed()
    return Created()


def discard(path: str) -> None:
    """Removes a file; one that is gone already is fine."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def list_names(directory: str) -> list[str]:
    """What is in a directory, sorted; nothing where it does not exist."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def make_directory(path: str) -> list[str]:
    """Makes a directory with its parents; returns the directories that got a new name in them, for
    sync_all.

    A finished neighbour may remove a parent that is still empty between two steps: then once more.
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
    """Removes a directory with everything in it, however often and from whichever state; another
    process may do the same meanwhile.
    """
    for name in list_names(path):
        below = os.path.join(path, name)
        if os.path.isdir(below) and not os.path.islink(below):
            remove_tree(below)
        else:
            discard(below)
    remove_empty(path)


def remove_empty(path: str) -> None:
    """Removes a directory if nothing is in it."""
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
