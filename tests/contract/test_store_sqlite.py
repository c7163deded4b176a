"""What only the SQLite store has: a lock file, a journal, a file that others can take away."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tidegate.store import Put, Store, StoreLost, StoreUnavailable, open_store
from tidegate.store.backend import Retention
from tidegate.store.sqlite.backend import SqliteBackend
from tidegate.testing.store_durability import SOURCES, run_workers, start_worker
from tidegate.testing.store_worker import count


def open_impatient(path: Path) -> Store:
    return Store(SqliteBackend(path, retention=Retention(), busy_timeout_s=0.2))


def test_twenty_thousand_updates_of_ten_keys_do_not_make_the_files_grow(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db", compaction_threshold=1000)
    sizes = []
    for number in range(1, 2001):
        store.transact(
            writes=[
                Put("metrics", f"key-{n}", {"number": number, "text": "x" * 200}) for n in range(10)
            ]
        )
        if number in (200, 2000):
            sizes.append(_bytes(tmp_path))
    assert (
        sizes[1] <= sizes[0] + 4 * 1024 * 1024 + 256 * 1024
    )  # the journal file may reach its 4 MiB in between; nothing else may grow
    store.compact()
    assert _bytes(tmp_path) < 256 * 1024
    store.close()


def test_space_of_what_was_deleted_goes_back_to_the_disk(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    for n in range(10):
        store.transact(writes=[Put("jobs", str(n), {"text": "x" * 500_000})])
    store.compact()
    full = _bytes(tmp_path)
    for entry in store.list("jobs"):
        store.transact(writes=[Put("jobs", entry.key, {})])
    store.compact()
    assert _bytes(tmp_path) < full / 10
    store.close()


def test_tokens_are_pruned_with_the_log(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db", compaction_threshold=30)
    for _ in range(100):
        store.transact(writes=[Put("jobs", "a", {})])
    assert _count(tmp_path / "store.db", "outcomes") <= 30
    assert _count(tmp_path / "store.db", "changes") <= 30
    store.close()


def test_a_writer_that_was_stopped_inside_its_transaction_is_named_and_does_not_stop_readers(
    tmp_path: Path,
) -> None:
    store = open_impatient(tmp_path / "store.db")
    stopped = start_worker(
        f"sqlite:///{tmp_path}/store.db", "record", 0, 3, "store.transact.middle@2=stop"
    )
    with stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        with pytest.raises(
            StoreUnavailable,
            match=f"process {stopped.pid} has held the store .* for 0.2 s: is it stopped",
        ):
            store.transact(writes=[Put("jobs", "a", {})])
        assert len(store.list("left")) == 1
        stopped.send_signal(signal.SIGCONT)
        stopped.wait()
    store.transact(writes=[Put("jobs", "a", {})])
    assert (len(store.list("left")), len(store.list("jobs"))) == (3, 1)
    store.close()


def test_a_stopped_writer_is_named_long_before_the_time_to_wait_is_over(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url)
    with start_worker(url, "record", 0, 3, "store.transact.middle@2=stop") as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        with pytest.raises(
            StoreUnavailable,
            match=(
                f"process {stopped.pid} holds the store .* and is stopped .SIGSTOP.*kill -CONT"
                f" {stopped.pid}"
            ),
        ):
            store.transact(writes=[Put("jobs", "a", {})])
        stopped.send_signal(signal.SIGCONT)
        stopped.wait()
    store.transact(writes=[Put("jobs", "a", {})])
    store.close()


def test_a_stopped_writer_that_is_killed_leaves_the_store_free(tmp_path: Path) -> None:
    store = open_impatient(tmp_path / "store.db")
    stopped = start_worker(
        f"sqlite:///{tmp_path}/store.db", "record", 0, 3, "store.transact.middle@2=stop"
    )
    with stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.transact(writes=[Put("jobs", "a", {})])
        stopped.kill()
    patient = open_store(f"sqlite:///{tmp_path}/store.db")
    patient.transact(writes=[Put("jobs", "a", {})])
    store.transact(writes=[Put("jobs", "b", {})])
    assert (len(store.list("left")), len(store.list("jobs"))) == (1, 2)
    store.close()
    patient.close()


@pytest.mark.parametrize("place", ["before", "middle", "after"])
def test_a_store_whose_maker_was_killed_is_made_by_the_next_one(tmp_path: Path, place: str) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    maker = start_worker(url, "count", 0, 1, f"store.create.{place}")
    maker.communicate()
    assert maker.returncode == -signal.SIGKILL
    run_workers(url, "count", workers=1, amount=1)
    store = open_store(url)
    assert [e.value for e in store.list("counters")] == [{"amount": 1}]
    store.close()


@pytest.mark.parametrize("place", ["before", "middle", "after"])
def test_a_store_whose_user_was_killed_while_it_compacted_is_whole(
    tmp_path: Path, place: str
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url)
    for n in range(50):
        store.transact(writes=[Put("jobs", str(n), {})])
    killed = start_worker(url, "compact", 0, 1, f"store.compact.{place}")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert (len(store.list("jobs")), store.revision()) == (50, 50)
    assert store.transact(writes=[Put("jobs", "a", {})]) == 51
    store.close()


def test_several_that_make_the_store_at_the_same_moment_make_one(tmp_path: Path) -> None:
    run_workers(f"sqlite:///{tmp_path}/store.db", "count", workers=5, amount=2)
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    assert [e.value for e in store.list("counters")] == [{"amount": 10}]
    store.close()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_store_that_was_taken_away_acknowledges_nothing_more(
    tmp_path: Path, replaced: bool
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    store.transact(writes=[Put("jobs", "a", {})])
    for path in tmp_path.iterdir():
        path.rename(path.with_name("old-" + path.name))
    if replaced:
        open_store(f"sqlite:///{tmp_path}/store.db").close()
    for ask in (
        lambda: store.transact(writes=[Put("jobs", "b", {})]),
        lambda: store.get("jobs", "a"),
        lambda: store.changes("jobs", 0),
    ):
        with pytest.raises(
            StoreLost,
            match=(
                "another store is at .*not the one that was open"
                if replaced
                else "is gone: it was removed or renamed"
            ),
        ):
            ask()
    if replaced:
        other = open_store(f"sqlite:///{tmp_path}/store.db")
        assert other.list("jobs") == []
        other.close()
    else:
        assert not (tmp_path / "store.db").exists()
    for path in tmp_path.glob("old-*"):
        path.rename(path.with_name(path.name.removeprefix("old-")))
    assert store.transact(writes=[Put("jobs", "b", {})]) == 2
    assert [entry.key for entry in store.list("jobs")] == ["a", "b"]
    store.close()


def test_threads_of_one_process_share_a_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    revisions: list[int] = []

    def write(worker: int) -> None:
        revisions.extend(
            store.transact(writes=[Put("jobs", f"{worker}-{n}", {})]) for n in range(50)
        )

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(revisions) == list(range(1, 201))
    assert sorted(e.version for e in store.list("jobs")) == sorted(revisions)
    store.close()


def test_the_lock_file_is_for_fairness_and_a_store_without_it_is_right_all_the_same(
    tmp_path: Path,
) -> None:
    stores = []
    for _ in range(3):
        stores.append(open_store(f"sqlite:///{tmp_path}/store.db"))
        (tmp_path / "store.db.lock").unlink()
    errors: list[BaseException] = []

    def work(store: Store) -> None:
        try:
            count(store, 0, 60)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [e.value for e in stores[0].list("counters")] == [{"amount": 180}]
    for store in stores:
        store.close()


@pytest.mark.parametrize("script", ["OUTLIVES", "BESIDE_THREADS", "INSIDE"])
def test_a_forked_child_opens_its_own_connections(tmp_path: Path, script: str) -> None:
    """SQLite keeps its locks by process, so a child that went on with its parent's would write into
    files that the parent takes away.
    """
    text = FORK + {"OUTLIVES": OUTLIVES, "BESIDE_THREADS": BESIDE_THREADS, "INSIDE": INSIDE}[script]
    command = [
        sys.executable,
        "-c",
        text,
        str(tmp_path / "store.db"),
        "0.2" if script == "INSIDE" else "20",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    assert [e.key for e in store.list("jobs")] == done.stdout.split()
    store.close()


FORK = """
import os, sys, threading
from pathlib import Path
from tidegate.store import Put, Store, StoreUnavailable
from tidegate.store.backend import Retention
from tidegate.store.sqlite.backend import SqliteBackend
store = Store(SqliteBackend(Path(sys.argv[1]), retention=Retention(), busy_timeout_s=float(sys.argv[2])))
def put(key): store.transact(writes=[Put("jobs", key, {})])
def end(child): assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
put("a")
"""
OUTLIVES = """
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    put("b")
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    put("c")
    os._exit(0)
os.read(ready[0], 1)
store.close()
os.write(go[1], b"x")
end(child)
print("a b c")
"""
BESIDE_THREADS = """
done = threading.Event()
def write():
    while not done.is_set(): put("b"); store.list("jobs")
threads = [threading.Thread(target=write) for _ in range(3)]
for thread in threads: thread.start()
for n in range(5):
    child = os.fork()
    if child == 0:
        put(f"child-{n}")
        os._exit(0)
    end(child)
done.set()
for thread in threads: thread.join()
print("a b", *(f"child-{n}" for n in range(5)))
"""
INSIDE = """
with store.backend._file.write_transaction():
    child = os.fork()
    if child == 0:
        for call in (lambda: put("b"), lambda: store.get("jobs", "a")):
            try: call()
            except StoreUnavailable as error: assert "forked in the middle of a transaction" in str(error), error
            else: os._exit(1)
        os._exit(0)
    end(child)
put("c")
print("a c")
"""


class FailingCommit:
    """A connection whose next COMMIT fails as a disk does when it is asked to sync: before or after
    the fact.
    """

    def __init__(self, database: sqlite3.Connection, *, written: bool) -> None:
        self.database = database
        self.written = written
        self.armed = True

    def __getattr__(self, name: str) -> object:
        return getattr(self.database, name)

    def execute(self, statement: str, *arguments: object) -> object:
        if statement != "commit" or not self.armed:
            return self.database.execute(statement, *arguments)
        self.armed = False
        self.database.execute("commit" if self.written else "rollback")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error


@pytest.mark.parametrize("written", [True, False])
def test_a_commit_that_fails_midway_is_looked_up(tmp_path: Path, written: bool) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    assert isinstance(store.backend, SqliteBackend)
    file = store.backend._file
    assert file._writer is not None
    file._writer.db = FailingCommit(file._writer.db, written=written)
    if written:
        assert store.transact(writes=[Put("jobs", "a", {})]) == 1
    else:
        with pytest.raises(StoreUnavailable, match="was not written"):
            store.transact(writes=[Put("jobs", "a", {})])
    assert len(store.list("jobs")) == (1 if written else 0)
    store.close()


def test_an_exception_inside_a_transaction_leaves_the_store_free(tmp_path: Path) -> None:
    process = start_worker(
        f"sqlite:///{tmp_path}/store.db", "stumble", 0, 3, "store.transact.middle@2=raise"
    )
    output, errors = process.communicate()
    assert (process.returncode, output.split()) == (0, ["RuntimeError", "2"]), errors


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _count(path: Path, table: str) -> int:
    database = sqlite3.connect(path)
    try:
        return int(database.execute(f"select count(*) from {table}").fetchone()[0])
    finally:
        database.close()
