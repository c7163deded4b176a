"""The file of an SQLite store: creates and opens it, and runs transactions on its connections.

Called by backend.py; knows nothing of entries. One connection reads and one writes, each under its
own mutex, so that a thread that waits for another process' write does not block the readers.

**Identity.** An open file that was deleted, renamed or hidden by a mount still accepts writes,
which would be lost. Therefore every use first checks that the path leads to the open file (device
and inode). While the file is missing, it is StoreLost. Another file at the path is opened only if
it is the same store: the same random name in its table `identity`, and a revision that is not older
than the newest one seen. A store that was open is never created again.

**Forks.** SQLite keeps its locks per process, in memory too. A child that is forked while a
connection is open would believe that it holds locks of its parent, and write into a journal that
the parent removes. Therefore all connections are closed before a fork, and both sides open new
ones.
"""

import errno
import os
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tidegate.model.errors import UserError
from tidegate.store import failpoints
from tidegate.store.errors import AnswerLost, StoreClosed, StoreDamaged, StoreLost, StoreUnavailable
from tidegate.store.sql import load_queries
from tidegate.store.sqlite.errors import (
    SCHEMA_VERSION,
    SURELY_NOT_WRITTEN,
    StoreTooNew,
    error_name,
    translate_errors,
)
from tidegate.store.sqlite.lock import FileLock, HeldBy

SQL = load_queries("sqlite.sql")

_open_files: "weakref.WeakSet[StoreFile]" = weakref.WeakSet()
_closed_for_fork: "list[StoreFile]" = []  # for the fork in progress


@dataclass(slots=True)
class _Opened:
    """A connection, and the device and inode of the file that it was opened on."""

    db: sqlite3.Connection
    file: tuple[int, int]


class StoreFile:
    """Connections to one store file. `create`: create the store if it is missing."""

    _reader: _Opened | None
    _writer: _Opened | None

    def __init__(self, path: Path, *, busy_timeout_s: float, create: bool = True) -> None:
        self.path = path
        # the newest one read or written here: a file with an older revision is not this store
        self.newest_revision = 0
        self._busy_timeout_s = busy_timeout_s
        self._closed = False
        self._forked_in_transaction = False
        self._reader = None
        self._writer = None
        self._reader_mutex = threading.Lock()
        self._writer_mutex = threading.Lock()
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._identity = ""
        try:
            with translate_errors(path, opening=True):
                if not create:
                    self._file_identity()  # before the lock, which would create its file
                with self._file_lock():
                    self._writer = self._open_writer(create=create)
        except BaseException:
            self._lock.close()
            raise
        _open_files.add(self)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Read from one snapshot of the store."""
        with self._reader_mutex, translate_errors(self.path):
            self._check_open()
            db = self._usable_reader()
            db.execute(SQL["begin_read"])
            try:
                yield db
            finally:
                if db.in_transaction:  # some errors have ended it already
                    db.execute(SQL["rollback"])

    @contextmanager
    def writer_mutex(self) -> Iterator[None]:
        """Exclude the other writing threads of this process."""
        if not self._writer_mutex.acquire(timeout=self._busy_timeout_s):
            raise StoreUnavailable(
                f"other threads have kept the store {self.path} busy for {self._busy_timeout_s:g}"
                " s; nothing was written"
            )
        try:
            self._check_open()
            yield
        finally:
            self._writer_mutex.release()

    @contextmanager
    def write_transaction_locked(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that excludes all other writing processes; needs `writer_mutex`.

        It is committed at the end, and rolled back by any exception.
        """
        with translate_errors(self.path), self._usable_writer() as db:
            db.execute(SQL["begin_write"])
            try:
                yield db
            except BaseException:
                self._rollback(db)
                raise
            self._commit(db)

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that excludes all other writing threads and processes."""
        with self.writer_mutex(), self.write_transaction_locked() as db:
            yield db

    def return_free_pages(self) -> None:
        """After a compaction, return free pages to the disk and truncate the journal."""
        with self.writer_mutex(), translate_errors(self.path), self._usable_writer() as db:
            db.executescript(SQL["give_pages_back"])  # `execute` would stop after the first page
            db.execute(SQL["empty_journal"]).fetchall()

    def close(self) -> None:
        """Close the connections of this process for good."""
        with self._reader_mutex, self._writer_mutex, translate_errors(self.path):
            self._closed = True
            self._close_connections()

    def close_for_fork(self) -> bool:
        """Before a fork: wait for running transactions, close, and exclude all threads.

        Returns False if a transaction does not end in time.
        """
        if not self._reader_mutex.acquire(timeout=self._busy_timeout_s):
            return False
        if not self._writer_mutex.acquire(timeout=self._busy_timeout_s):
            self._reader_mutex.release()
            return False
        self._close_connections()
        return True

    def reopen_after_fork(self) -> None:
        """After the fork, in parent and child: allow transactions again."""
        self._writer_mutex.release()
        self._reader_mutex.release()

    def disable(self) -> None:
        """In a child that was forked within a transaction: reject all further calls.

        The child's copy of the parent's lock must be closed.
        """
        self._lock.close()
        self._forked_in_transaction = True
        self._reader_mutex = threading.Lock()
        self._writer_mutex = threading.Lock()

    def _close_connections(self) -> None:
        for opened in (self._reader, self._writer):
            if opened is not None:
                opened.db.close()
        self._reader = self._writer = None
        self._lock.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed()
        if self._forked_in_transaction:
            raise StoreUnavailable(
                "this process was forked in the middle of a transaction and cannot use the store"
                f" {self.path}: restart it"
            )

    @contextmanager
    def _file_lock(self) -> Iterator[None]:
        """Exclude the other writing processes of this host."""
        match self._lock.acquire(self._busy_timeout_s):
            case HeldBy(pid, stopped=True):
                raise StoreUnavailable(
                    f"process {pid} holds the store {self.path} and is stopped (SIGSTOP): nothing"
                    f" was written; resume it (`kill -CONT {pid}`), or end it"
                )
            case HeldBy(pid):
                who = f"process {pid}" if pid else "another process"
                raise StoreUnavailable(
                    f"{who} has held the store {self.path} for {self._busy_timeout_s:g} s: is it"
                    " stopped? Nothing was written; resume it, or end it"
                )
        try:
            yield
        finally:
            self._lock.release()

    def _usable_reader(self) -> sqlite3.Connection:
        found = self._file_identity()
        if self._reader is None or self._reader.file != found:
            old, self._reader = self._reader, None
            if old is not None:
                old.db.close()
            self._reader = self._open_reader()
        return self._reader.db

    @contextmanager
    def _usable_writer(self) -> Iterator[sqlite3.Connection]:
        """Return the writing connection of the current file, under the file lock."""
        found = self._file_identity()
        if self._writer is not None and self._writer.file != found:
            old, self._writer = self._writer, None
            old.db.close()
            self._lock.close()  # the lock file beside the removed store
        with self._file_lock():
            if self._writer is None:
                self._writer = self._open_writer(create=False)
            yield self._writer.db

    def _file_identity(self) -> tuple[int, int]:
        """Return device and inode of the file at the path; StoreLost if there is none.

        A write to a removed file would be acknowledged and lost.
        """
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreLost(
                f"the store {self.path} is gone: it was removed or renamed, or its disk is not"
                " mounted. Nothing was written; Tidegate waits until the same file is back, and"
                " does not create a new one"
            ) from error
        return found.st_dev, found.st_ino

    def _commit(self, db: sqlite3.Connection) -> None:
        try:
            db.execute(SQL["commit"])
        except sqlite3.Error as error:
            self._rollback(db)
            if error_name(error) in SURELY_NOT_WRITTEN:
                raise
            raise AnswerLost(
                f"the store {self.path} failed while it committed: {error} ({error_name(error)})"
            ) from error
        try:
            unchanged = self._writer is not None and self._file_identity() == self._writer.file
        except (StoreLost, OSError):
            unchanged = False
        if not unchanged:
            raise AnswerLost(f"the store {self.path} was removed or replaced while it committed")

    def _rollback(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute(SQL["rollback"])
        except sqlite3.Error:  # closing the connection rolls back too
            self._writer = None
            db.close()

    def _open_writer(self, *, create: bool) -> _Opened:
        # Only a missing file is created here: closing a file descriptor of a database releases
        # this process' locks on it.
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if create and not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = self._connect()
        try:
            self._prepare(db, create=create)
            self._check_identity(db)
        except BaseException:
            db.close()
            raise
        return _Opened(db, self._file_identity())

    def _open_reader(self) -> _Opened:
        db = self._connect()
        try:
            db.execute(SQL["settings_of_reader"])
            self._check_identity(db)
        except BaseException:
            db.close()
            raise
        return _Opened(db, self._file_identity())

    def _connect(self) -> sqlite3.Connection:
        """Connect without creating a file."""
        address = f"file:{quote(str(self.path))}?mode=rw"
        return sqlite3.connect(
            address,
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )

    def _check_identity(self, db: sqlite3.Connection) -> None:
        """Remember the store's identity the first time; later require it, and no older copy."""
        tables = {name for (name,) in db.execute(SQL["table_names"])}
        named = db.execute(SQL["identity"]).fetchone() if "identity" in tables else None
        found = named[0] if named else ""
        if self._identity and found != self._identity:
            raise StoreLost(
                f"another store is at {self.path} and not the one that was open: it was replaced,"
                " or another disk is mounted there. Nothing was written, and the other one is not"
                " touched: bring the former one back, or stop all processes and start them again"
            )
        state = db.execute(SQL["state"]).fetchone()
        if state is None:
            raise StoreDamaged(
                f"the store {self.path} has lost its state: restore it from a copy, or use a"
                " new home; checkpoints are not in it"
            )
        if state[0] < self.newest_revision:
            raise StoreDamaged(
                f"the store {self.path} is older than it was before: a copy was put in its place."
                " Nothing was written; stop all processes and start them again"
            )
        self._identity = found

    def _prepare(self, db: sqlite3.Connection, *, create: bool) -> None:
        tables = {name for (name,) in db.execute(SQL["table_names"])}
        if not tables and not create:
            raise StoreLost(
                f"the store {self.path} is gone: the file is empty. Nothing was"
                " written; bring the store back"
            )
        if not tables:
            self._create(db)
        elif "schema_version" not in tables:
            raise UserError(
                f"{self.path} is a database of something else, not a store: use another home"
            )
        (found,) = db.execute(SQL["schema_version"]).fetchone() or (0,)
        if found > SCHEMA_VERSION:
            raise StoreTooNew(self.path, found)
        for statement in SQL.statements("settings_of_writer"):
            db.execute(statement)
        if create and "identity" not in tables:
            self._assign_identity(db)

    def _create(self, db: sqlite3.Connection) -> None:
        failpoints.before_creation()
        db.execute(SQL["settings_of_file"])
        (mode,) = db.execute(SQL["journal"]).fetchone()
        if mode != "wal":
            raise UserError(
                f"the store {self.path} is on a file system that cannot share memory between"
                " processes: use a local disk as home"
            )
        db.execute(SQL["begin_write"])
        for statement in SQL.statements("schema"):
            db.execute(statement)
        failpoints.inside_creation()
        db.execute(SQL["commit"])
        _sync_directory(self.path.parent)
        failpoints.after_creation()

    def _assign_identity(self, db: sqlite3.Connection) -> None:
        """Give the store its random name, also if an older release created it without one."""
        db.execute(SQL["begin_write"])
        for statement in SQL.statements("identity_table"):
            db.execute(statement)
        db.execute(SQL["set_identity"], {"store": uuid.uuid4().hex})
        db.execute(SQL["commit"])


def _sync_directory(directory: Path) -> None:
    """Make the name of a new file durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _before_fork() -> None:
    _closed_for_fork.extend(file for file in list(_open_files) if file.close_for_fork())


def _after_fork_in_parent() -> None:
    while _closed_for_fork:
        _closed_for_fork.pop().reopen_after_fork()


def _after_fork_in_child() -> None:
    for file in list(_open_files):
        if file not in _closed_for_fork:
            file.disable()
    _after_fork_in_parent()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
