"""Translate errors of SQLite and of the file system into errors of the store. Called by file.py."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.model.errors import TidegateError, UserError
from tidegate.store.errors import StoreDamaged, StoreLost, StoreUnavailable

SCHEMA_VERSION = 1
# After these errors of a COMMIT it is certain that nothing was written.
SURELY_NOT_WRITTEN = frozenset(
    {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_BUSY", "SQLITE_READONLY"}
)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_WRITING = ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CANTOPEN")


class StoreTooNew(UserError):
    """The store was created by a newer release of Tidegate."""

    condition = "store-too-new"

    def __init__(self, path: Path, found: int) -> None:
        super().__init__(
            f"the store {path} has schema version {found}; this Tidegate knows up to"
            f" {SCHEMA_VERSION}: upgrade it, or use another home"
        )
        self.path = path
        self.found = found


@contextmanager
def translate_errors(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Translate exceptions of the body.

    When a store is opened, a missing or read-only file is a mistake in the settings; later it is an
    outage.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _from_sqlite(path, error, opening=opening) from error
    except OSError as error:
        raise _from_system(path, error, opening=opening) from error


def error_name(error: sqlite3.Error) -> str:
    """Return SQLite's name of an error; empty for an error of Python's module."""
    return getattr(error, "sqlite_errorname", None) or ""


def _from_sqlite(path: Path, error: sqlite3.Error, *, opening: bool) -> TidegateError:
    name = error_name(error)
    if name == "SQLITE_NOTADB":
        return StoreDamaged(
            f"{path} is not a store (not an SQLite database): move it away, or use another home"
        )
    if name.startswith("SQLITE_CORRUPT"):
        return StoreDamaged(
            f"the store {path} is damaged ({error}): restore it from a copy, or use a new"
            " home; checkpoints are not in it"
        )
    if name == "SQLITE_READONLY_DBMOVED":
        return StoreLost(
            f"the store {path} was removed or renamed while it was written: nothing was written;"
            " bring the same file back"
        )
    if name.startswith(_NO_WRITING):
        return _not_writable(path, str(error), opening=opening)
    if name == "SQLITE_FULL":
        return _full(path)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnavailable(
            f"the store {path} is locked by another process that does not release it: is it"
            " stopped?"
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreUnavailable(
            f"the disk of the store {path} fails ({error}, {name}): is it full, read-only or gone?"
        )
    return StoreUnavailable(f"the store {path} failed: {error} ({name or type(error).__name__})")


def _from_system(path: Path, error: OSError, *, opening: bool) -> TidegateError:
    if error.errno == errno.ENOENT:
        if not opening:
            return StoreLost(
                f"the directory {path.parent} of the store is gone: nothing was written; bring it"
                " back"
            )
        return UserError(
            f"the directory {path.parent} of the store does not exist: create it, or use another"
            " home"
        )
    if error.errno in _NOT_ALLOWED:
        return _not_writable(path, error.strerror or str(error), opening=opening)
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return UserError(
            f"the store {path} cannot be a file there ({error.strerror}): use another home"
        )
    if error.errno in _NO_SPACE:
        return _full(path)
    return StoreUnavailable(f"the store {path} failed: {error.strerror or error}")


def _full(path: Path) -> TidegateError:
    return StoreUnavailable(
        f"the disk of the store {path} is full (no space left), and nothing was written: make room"
    )


def _not_writable(path: Path, why: str, *, opening: bool) -> TidegateError:
    if opening:
        return UserError(
            f"the store {path} cannot be opened for writing ({why}): check the permissions of the"
            " file and of its directory"
        )
    return StoreUnavailable(
        f"the store {path} cannot be written ({why}), and nothing was written: is its disk mounted"
        " read-only, or were the permissions of the file or of its directory changed?"
    )
