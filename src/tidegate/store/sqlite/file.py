"""The file of an SQLite store: makes and opens it, and hands out its connections. Called by
sqlite.py; knows nothing of entries.

One connection reads and one writes, each behind its own mutex, so that a thread that waits for
another process' write does not keep the readers of this one.

**Identity.** An open file that was deleted, renamed or covered by a mount still takes writes, which nobody would find again. Therefore every use
first checks that the path leads to the open file (device and inode). While nothing is there, it is StoreLost; a file that appears in its place is
opened only if it is the same store: the same random name in its table `identity`, and no older than what was seen. A store that was open is never
made anew.

SQLite keeps its locks by process, in memory too: a child that is forked while a connection is open
would believe to hold locks that only its parent has, and write into a journal that the parent takes
away. Therefore all connections are closed before a fork, and both sides open new ones.
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
from tidegate.store import failpoints as places
from tidegate.store.errors import AnswerLost, StoreClosed, StoreDamaged, StoreLost, StoreUnavailable
from tidegate.store.sql import load_queries
from tidegate.store.sqlite.errors import (
    SCHEMA_VERSION,
    SURELY_NOT_WRITTEN,
    StoreTooNew,
    error_name,
    translated,
)
from tidegate.store.sqlite.lock import FileLock, HeldBy

SQL = load_queries("sqlite.sql")

_open_files: "weakref.WeakSet[StoreFile]" = weakref.WeakSet()
_at_rest: "list[StoreFile]" = []  # closed for the fork that is under way


@dataclass(slots=True)
class _Opened:
    """A connection, and the device and inode of the file that it was opened on."""

    db: sqlite3.Connection
    file: tuple[int, int]


class StoreFile:
    """Connections to one store. `create`: make the store where there is none."""

    _reader: _Opened | None
    _writer: _Opened | None

    def __init__(self, path: Path, *, busy_timeout_s: float, create: bool = True) -> None:
        self.path = path
        # the newest one that was read or written here: a file that is older is not this store
        self.revision_seen = 0
        self._busy_timeout_s = busy_timeout_s
        self._closed = self._forked_inside = False
        self._reader = self._writer = None
        self._reader_mutex = threading.Lock()
        self._writer_mutex = threading.Lock()
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._identity = ""
        try:
            with translated(path, opening=True):
                if not create:
                    self._found()  # before the lock, whose file would be made otherwise
                with self._exclusive():
                    self._writer = self._open_writer(create=create)
        except BaseException:
            self._lock.close()
            raise
        _open_files.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One moment of the store."""
        with self._reader_mutex, translated(self.path):
            self._check_open()
            db = self._usable_reader()
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
        """For who has the turn, a transaction alone among all processes: committed at the end,
        undone by any exception.
        """
        with translated(self.path), self._usable_writer() as db:
            db.execute(SQL["begin_write"])
            try:
                yield db
            except BaseException:
                self._undo(db)
                raise
            self._commit(db)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self.turn(), self.writing_in_turn() as db:
            yield db

    def give_space_back(self) -> None:
        """After a compaction: free pages to the disk, the log file to nothing."""
        with self._writer_mutex_within_limit(), translated(self.path):
            self._check_open()
            with self._usable_writer() as db:
                db.executescript(
                    SQL["give_pages_back"]
                )  # `execute` would stop after the first page
                db.execute(SQL["empty_journal"]).fetchall()

    def close(self) -> None:
        """Close the connections of this process for good."""
        with self._reader_mutex, self._writer_mutex, translated(self.path):
            self._closed = True
            self._close_connections()

    def rest(self) -> bool:
        """Before a fork: finish what is under way, close, and keep all threads out.

        False = could not, somebody is stuck in a transaction.
        """
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
        """In a child that was forked although `rest` could not: nothing may be done here any more,
        and our copy of the parent's lock must go.
        """
        self._lock.close()
        self._forked_inside = True
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
        if self._forked_inside:
            raise StoreUnavailable(
                "this process was forked in the middle of a transaction and cannot use the store"
                f" {self.path}: start it anew"
            )

    @contextmanager
    def _writer_mutex_within_limit(self) -> Iterator[None]:
        if not self._writer_mutex.acquire(timeout=self._busy_timeout_s):
            raise StoreUnavailable(
                f"other threads have kept the store {self.path} busy for {self._busy_timeout_s:g}"
                " s; nothing was written"
            )
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
                    f"process {pid} holds the store {self.path} and is stopped (SIGSTOP): nothing"
                    f" was written; let it go on (`kill -CONT {pid}`), or end it"
                )
            case HeldBy(pid):
                who = f"process {pid}" if pid else "another process"
                raise StoreUnavailable(
                    f"{who} has held the store {self.path} for {self._busy_timeout_s:g} s: is it"
                    " stopped? Nothing was written; end it, or let it go on"
                )
        try:
            yield
        finally:
            self._lock.release()

    def _usable_reader(self) -> sqlite3.Connection:
        found = self._found()
        if self._reader is None or self._reader.file != found:
            old, self._reader = self._reader, None
            if old is not None:
                old.db.close()
            self._reader = self._open_reader()
        return self._reader.db

    @contextmanager
    def _usable_writer(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, alone among the processes of this host."""
        found = self._found()
        if self._writer is not None and self._writer.file != found:
            old, self._writer = self._writer, None
            old.db.close()
            self._lock.close()  # it stands beside the file that is gone
        with self._exclusive():
            if self._writer is None:
                self._writer = self._open_writer(create=False)
            yield self._writer.db

    def _found(self) -> tuple[int, int]:
        """Which file the path leads to.

        What is written to one that is no longer there would be acknowledged and lost.
        """
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreLost(
                f"the store {self.path} is gone: it was removed or renamed, or its disk is not"
                " mounted. Nothing was written; it is waited for until the same file is back, and"
                " no new one is made"
            ) from error
        return found.st_dev, found.st_ino

    def _commit(self, db: sqlite3.Connection) -> None:
        try:
            db.execute(SQL["commit"])
        except sqlite3.Error as error:
            self._undo(db)
            if error_name(error) in SURELY_NOT_WRITTEN:
                raise
            raise AnswerLost(
                f"the store {self.path} failed while it committed: {error} ({error_name(error)})"
            ) from error
        if self._writer is None or self._found_or_none() != self._writer.file:
            raise AnswerLost(f"the store {self.path} was removed or replaced while it committed")

    def _found_or_none(self) -> tuple[int, int] | None:
        try:
            return self._found()
        except (StoreLost, OSError):
            return None

    def _undo(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute(SQL["rollback"])
        except (
            sqlite3.Error
        ):  # a connection that cannot even roll back is of no use; closing it does
            self._writer = None
            db.close()

    def _open_writer(self, *, create: bool) -> _Opened:
        # Only a file that is not there is opened here: closing a file descriptor of a database
        # takes away this process' locks on it.
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if create and not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = self._connect()
        try:
            self._prepare(db, create=create)
            self._recognise(db)
        except BaseException:
            db.close()
            raise
        return _Opened(db, self._found())

    def _open_reader(self) -> _Opened:
        db = self._connect()
        try:
            db.execute(SQL["settings_of_reader"])
            self._recognise(db)
        except BaseException:
            db.close()
            raise
        return _Opened(db, self._found())

    def _connect(self) -> sqlite3.Connection:
        """A connection that makes no file."""
        address = f"file:{quote(str(self.path))}?mode=rw"
        return sqlite3.connect(
            address,
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )

    def _recognise(self, db: sqlite3.Connection) -> None:
        """The first time, which store it is; from then on, that it is the same one, and not an
        older copy of it.
        """
        tables = {name for (name,) in db.execute(SQL["table_names"])}
        named = db.execute(SQL["identity"]).fetchone() if "identity" in tables else None
        found = named[0] if named else ""
        if self._identity and found != self._identity:
            raise StoreLost(
                f"another store is at {self.path} and not the one that was open: it was replaced,"
                " or another disk is mounted there. Nothing was written, and the other one is left"
                " alone: bring the former one back, or stop all processes and start them again"
            )
        state = db.execute(SQL["state"]).fetchone()
        if state is None:
            raise StoreDamaged(
                f"the store {self.path} has lost its state: restore it from a copy, or begin with a"
                " new home; checkpoints are not in it"
            )
        if state[0] < self.revision_seen:
            raise StoreDamaged(
                f"the store {self.path} is older than it was before: a copy was put in its place."
                " Nothing was written; stop all processes and start them again"
            )
        self._identity = found

    def _prepare(self, db: sqlite3.Connection, *, create: bool) -> None:
        tables = {name for (name,) in db.execute(SQL["table_names"])}
        if not tables and not create:
            raise StoreLost(
                f"the store {self.path} is gone: an empty file is in its place. Nothing was"
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
            self._name(db)

    def _create(self, db: sqlite3.Connection) -> None:
        places.before_creation()
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
        places.inside_creation()
        db.execute(SQL["commit"])
        _sync_directory(self.path.parent)
        places.after_creation()

    def _name(self, db: sqlite3.Connection) -> None:
        """Give the store its name, also one of a release that gave none."""
        db.execute(SQL["begin_write"])
        for statement in SQL.statements("identity_table"):
            db.execute(statement)
        db.execute(SQL["set_identity"], {"store": uuid.uuid4().hex})
        db.execute(SQL["commit"])


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


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
