"""The file of an SQLite store: makes and opens it, and hands out its connections. Called by sqlite.py; knows nothing of entries.

One connection reads and one writes, each behind its own mutex, so that a thread that waits for another process' write does not keep the
readers of this one.

SQLite keeps its locks by process, in memory too: a child that is forked while a connection is open would believe to hold locks that only its
parent has, and write into a journal that the parent takes away. Therefore all connections are closed before a fork, and both sides open new ones.
"""

import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.model.errors import UserError
from tidegate.store import places
from tidegate.store.errors import AnswerLost, StoreClosed, StoreDamaged, StoreUnavailable
from tidegate.store.lock import FileLock, HeldBy
from tidegate.store.sql import load_queries
from tidegate.store.sqlite_errors import SCHEMA_VERSION, SURELY_NOT_WRITTEN, StoreTooNew, error_name, translated

SQL = load_queries("sqlite.sql")

_open_files: "weakref.WeakSet[StoreFile]" = weakref.WeakSet()
_at_rest: "list[StoreFile]" = []  # closed for the fork that is under way


class StoreFile:
    """Connections to one store."""

    _reader: sqlite3.Connection | None
    _writer: sqlite3.Connection | None

    def __init__(self, path: Path, *, busy_timeout_s: float) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._closed = self._forked_inside = False
        self._reader = self._writer = None
        self._reader_mutex, self._writer_mutex = threading.Lock(), threading.Lock()
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._inode = 0
        try:
            with translated(path), self._exclusive():
                self._writer = self._open_writer()
        except BaseException:
            self._lock.close()
            raise
        _open_files.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One moment of the store."""
        with self._reader_mutex, translated(self.path):
            self._check_open()
            if self._reader is None:
                self._reader = self._open_reader()
            db = self._reader
            db.execute(SQL["begin_read"])
            try:
                yield db
            finally:
                if db.in_transaction:  # some errors have ended it already
                    db.execute(SQL["rollback"])

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Alone among the threads of this process."""
        with self._writer_mutex_within_limit():
            self._check_open()
            yield

    @contextmanager
    def writing_in_turn(self) -> Iterator[sqlite3.Connection]:
        """For who has the turn, a transaction alone among all processes: committed at the end, undone by any exception."""
        with translated(self.path), self._exclusive():
            db = self._usable_writer()
            db.execute(SQL["begin_write"])
            try:
                yield db
            except BaseException:
                self._undo(db)
                raise
            self._commit(db)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Both at once."""
        with self.turn(), self.writing_in_turn() as db:
            yield db

    def give_space_back(self) -> None:
        """After a compaction: free pages to the disk, the log file to nothing."""
        with self._writer_mutex_within_limit(), translated(self.path):
            self._check_open()
            with self._exclusive():
                db = self._usable_writer()
                db.executescript(SQL["give_pages_back"])  # `execute` would stop after the first page
                db.execute(SQL["empty_journal"]).fetchall()

    def close(self) -> None:
        """Close the connections of this process for good."""
        with self._reader_mutex, self._writer_mutex, translated(self.path):
            self._closed = True
            self._close_connections()

    def rest(self) -> bool:
        """Before a fork: finish what is under way, close, and keep all threads out. False = could not, somebody is stuck in a transaction."""
        if not self._reader_mutex.acquire(timeout=self._busy_timeout_s):
            return False
        if not self._writer_mutex.acquire(timeout=self._busy_timeout_s):
            self._reader_mutex.release()
            return False
        self._close_connections()
        return True

    def resume(self) -> None:
        """After the fork, on both sides."""
        self._writer_mutex.release()
        self._reader_mutex.release()

    def give_up(self) -> None:
        """In a child that was forked although `rest` could not: nothing may be done here any more, and our copy of the parent's lock must go."""
        self._lock.close()
        self._forked_inside = True
        self._reader_mutex, self._writer_mutex = threading.Lock(), threading.Lock()

    def _close_connections(self) -> None:
        for db in (self._reader, self._writer):
            if db is not None:
                db.close()
        self._reader = self._writer = None
        self._lock.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed()
        if self._forked_inside:
            raise StoreUnavailable(f"this process was forked in the middle of a transaction and cannot use the store {self.path}: start it anew")

    @contextmanager
    def _writer_mutex_within_limit(self) -> Iterator[None]:
        if not self._writer_mutex.acquire(timeout=self._busy_timeout_s):
            raise StoreUnavailable(f"other threads have kept the store {self.path} busy for {self._busy_timeout_s:g} s; nothing was written")
        try:
            yield
        finally:
            self._writer_mutex.release()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Alone among the processes of this host."""
        match self._lock.acquire(self._busy_timeout_s):
            case HeldBy(pid, stopped=True):
                raise StoreUnavailable(
                    f"process {pid} holds the store {self.path} and is stopped (SIGSTOP): nothing was written; let it go on (`kill -CONT {pid}`), or end it"
                )
            case HeldBy(pid):
                who = f"process {pid}" if pid else "another process"
                raise StoreUnavailable(
                    f"{who} has held the store {self.path} for {self._busy_timeout_s:g} s: is it stopped? Nothing was written; end it, or let it go on"
                )
        try:
            yield
        finally:
            self._lock.release()

    def _usable_writer(self) -> sqlite3.Connection:
        self._check_same_file()
        if self._writer is None:
            self._writer = self._open_writer()
        return self._writer

    def _check_same_file(self) -> None:
        """What is written to a file that is no longer there would be acknowledged and lost."""
        try:
            same = os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreDamaged(f"the store {self.path} was removed or replaced while it was open: nothing was written; start again")

    def _commit(self, db: sqlite3.Connection) -> None:
        try:
            db.execute(SQL["commit"])
        except sqlite3.Error as error:
            self._undo(db)
            if error_name(error) in SURELY_NOT_WRITTEN:
                raise
            raise AnswerLost(f"the store {self.path} failed while it committed: {error} ({error_name(error)})") from error

    def _undo(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute(SQL["rollback"])
        except sqlite3.Error:  # a connection that cannot even roll back is of no use; closing it does
            self._writer = None
            db.close()

    def _open_writer(self) -> sqlite3.Connection:
        # Only a file that is not there is opened here: closing a file descriptor of a database takes away this process' locks on it.
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = self._connect()
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._inode = os.stat(self.path).st_ino
        return db

    def _open_reader(self) -> sqlite3.Connection:
        self._check_same_file()
        db = self._connect()
        db.execute(SQL["settings_of_reader"])
        return db

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False)

    def _prepare(self, db: sqlite3.Connection) -> None:
        tables = {name for (name,) in db.execute(SQL["table_names"])}
        if not tables:
            self._create(db)
        elif "schema_version" not in tables:
            raise UserError(f"{self.path} is a database of something else, not a store: use another home")
        (found,) = db.execute(SQL["schema_version"]).fetchone()
        if found > SCHEMA_VERSION:
            raise StoreTooNew(self.path, found)
        for statement in SQL.statements("settings_of_writer"):
            db.execute(statement)

    def _create(self, db: sqlite3.Connection) -> None:
        places.before_creation()
        db.execute(SQL["settings_of_file"])
        (mode,) = db.execute(SQL["journal"]).fetchone()
        if mode != "wal":
            raise UserError(f"the store {self.path} is on a file system that cannot share memory between processes: use a local disk as home")
        db.execute(SQL["begin_write"])
        for statement in SQL.statements("schema"):
            db.execute(statement)
        places.inside_creation()
        db.execute(SQL["commit"])
        _sync_directory(self.path.parent)
        places.after_creation()


def _sync_directory(directory: Path) -> None:
    """A new file is durable when its name is."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _before_fork() -> None:
    _at_rest.extend(file for file in list(_open_files) if file.rest())


def _after_fork_in_parent() -> None:
    while _at_rest:
        _at_rest.pop().resume()


def _after_fork_in_child() -> None:
    for file in list(_open_files):
        if file not in _at_rest:
            file.give_up()
    _after_fork_in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
