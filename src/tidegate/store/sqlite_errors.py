"""SQLite's and the file system's errors as sentences. Called by sqlite_file.py, where they enter."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.model.errors import TidegateError, UserError
from tidegate.store.errors import StoreDamaged, StoreUnavailable

SCHEMA_VERSION = 1
# A COMMIT that failed so has written no commit mark: it is sure that nothing was written.
SURELY_NOT_WRITTEN = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_BUSY", "SQLITE_READONLY"})
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


class StoreTooNew(UserError):
    """A store that a newer Tidegate has made."""

    condition = "store-too-new"

    def __init__(self, path: Path, found: int) -> None:
        super().__init__(f"the store {path} has schema version {found}; this Tidegate knows up to {SCHEMA_VERSION}: upgrade it, or use another home")
        self.path, self.found = path, found


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Foreign exceptions become ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _from_sqlite(path, error) from error
    except OSError as error:
        raise _from_system(path, error) from error


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of an error; empty for those of Python's own."""
    return getattr(error, "sqlite_errorname", None) or ""


def _from_sqlite(path: Path, error: sqlite3.Error) -> TidegateError:
    name = error_name(error)
    if name == "SQLITE_NOTADB":
        return StoreDamaged(f"{path} is not a store (not an SQLite database): move it away, or use another home")
    if name.startswith("SQLITE_CORRUPT"):
        return StoreDamaged(f"the store {path} is damaged ({error}): restore it from a copy, or begin with a new home; checkpoints are not in it")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CANTOPEN")):
        return UserError(f"the store {path} cannot be opened for writing ({error}): check the permissions of the file and of its directory")
    if name == "SQLITE_FULL":
        return StoreUnavailable(f"the disk of the store {path} is full, and nothing was written: make room")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnavailable(f"the store {path} is held by another process that does not let go: is one of them stopped?")
    return StoreUnavailable(f"the store {path} failed: {error} ({name or type(error).__name__})")


def _from_system(path: Path, error: OSError) -> TidegateError:
    if error.errno == errno.ENOENT:
        return UserError(f"the directory {path.parent} of the store is not there: make it, or use another home")
    if error.errno in _NOT_ALLOWED:
        return UserError(f"the store {path} cannot be opened for writing ({error.strerror}): check the permissions of the file and of its directory")
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return UserError(f"the store {path} cannot be a file there ({error.strerror}): use another home")
    if error.errno in _NO_SPACE:
        return StoreUnavailable(f"the disk of the store {path} is full, and nothing was written: make room")
    return StoreUnavailable(f"the store {path} failed: {error.strerror or error}")
