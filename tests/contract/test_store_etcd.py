"""The store on etcd: the whole contract, and what only it has: endpoints, elections, logins, a
prefix among others, requests of limited size.
"""

import base64
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.errors import UserError
from tidegate.store import (
    Change,
    ChangeKind,
    Changes,
    Check,
    Compacted,
    Conflict,
    Delete,
    Put,
    Store,
    StoreDamaged,
    StoreLost,
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from tidegate.store.backend import NotCommitted, Retention
from tidegate.store.etcd import backend as backend_module
from tidegate.store.etcd import view as etcd_view
from tidegate.store.etcd.backend import EtcdBackend
from tidegate.store.etcd.key_layout import KeyLayout
from tidegate.store.etcd.view import EtcdView
from tidegate.testing.faulty_store import Fault, StoreCall, faulty_store, scripted
from tidegate.testing.servers.etcd import EtcdServer
from tidegate.testing.store_durability import (
    SOURCES,
    DurableStoreContract,
    run_workers,
    start_worker,
)

PREFIXES = (f"test/{number}" for number in itertools.count(1))


class EtcdWorld:
    """A prefix of its own. Workers are processes."""

    def __init__(self, server: EtcdServer) -> None:
        self.server = server
        self.prefix = next(PREFIXES)
        self.url = server.url_of(self.prefix)

    def open(self, *, compaction_threshold: int = 10_000) -> Store:
        return open_store(self.url, compaction_threshold=compaction_threshold)

    def work(self, act: str, *, workers: int, amount: int) -> None:
        run_workers(self.url, act, workers=workers, amount=amount)

    def count(self, below: str) -> int:
        start = f"{self.prefix}/{below}".encode()
        answer = self.server.ask(
            "/v3/kv/range",
            {
                "key": b64(start),
                "range_end": b64(start[:-1] + bytes([start[-1] + 1])),
                "count_only": True,
            },
        )
        return int(answer.get("count", 0))

    def foreign_write(self) -> None:
        """Somebody else uses the same etcd."""
        self.server.ask("/v3/kv/put", {"key": b64(b"somebody-else"), "value": b64(b"x")})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def world(server: EtcdServer) -> EtcdWorld:
    return EtcdWorld(server)


@pytest.fixture
def store(world: EtcdWorld) -> Iterator[Store]:
    store = world.open()
    yield store
    store.close()


class TestEtcd(DurableStoreContract):
    @pytest.fixture
    def world(self, server: EtcdServer) -> EtcdWorld:
        return EtcdWorld(server)


def events(store: Store, map: str, since: int = 0) -> tuple[Change, ...]:
    changes = store.changes(map, since)
    assert isinstance(changes, Changes)
    return changes.events


def test_stores_of_one_etcd_and_its_other_users_do_not_meet(
    world: EtcdWorld, server: EtcdServer
) -> None:
    first, second = world.open(), EtcdWorld(server).open()
    revisions = []
    for n in range(5):
        revisions.append(first.transact(writes=[Put("jobs", "a", {"n": n})]))
        second.transact(writes=[Put("jobs", "b", {"n": n})])
        world.foreign_write()
    assert revisions == sorted(set(revisions))
    assert events(first, "jobs") == tuple(
        Change("jobs", "a", revision, ChangeKind.PUT) for revision in revisions
    )
    assert [change.key for change in events(second, "jobs")] == ["b"] * 5
    assert [(e.key, e.version) for e in first.list("jobs")] == [("a", revisions[-1])]
    first.transact(
        [Check("jobs", "a", revisions[-1]), Check("jobs", "b", 0)], [Delete("jobs", "a")]
    )
    assert [len(s.list("jobs")) for s in (first, second)] == [0, 1]
    first.close()
    second.close()


def test_a_revision_between_two_of_the_stores_is_not_one_to_go_on_from(
    world: EtcdWorld, store: Store
) -> None:
    first = store.transact(writes=[Put("jobs", "a", {})])
    world.foreign_write()
    second = store.transact(writes=[Put("jobs", "a", {})])
    assert second == first + 2
    assert store.changes("jobs", first + 1) == Compacted(second)
    assert events(store, "jobs", first) == (Change("jobs", "a", second, ChangeKind.PUT),)


def test_what_others_have_etcd_forget_is_not_needed(world: EtcdWorld, store: Store) -> None:
    for n in range(5):
        store.transact(writes=[Put("jobs", "a", {"n": n})])
    faulty, _ = faulty_store(
        store,
        scripted({StoreCall.APPLY: [Fault.ANSWER_LOST], StoreCall.SETTLE: [Fault.SLOW]}),
        pause=lambda: forget(world),
    )
    assert faulty.transact(writes=[Put("jobs", "a", {"n": 5})]) == 6
    assert [change.version for change in events(store, "jobs")] == [1, 2, 3, 4, 5, 6]


def forget(world: EtcdWorld) -> None:
    revision = world.server.ask("/v3/maintenance/status", {})["header"]["revision"]
    assert "error" not in world.server.ask(
        "/v3/kv/compaction", {"revision": revision, "physical": True}
    )


def test_who_has_not_looked_for_long_still_writes_where_readers_find_it(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyLayout, "window", 3)
    idle, busy = world.open(), world.open()
    idle.transact(writes=[Put("jobs", "idle", {})])
    for _ in range(10):
        busy.transact(writes=[Put("jobs", "busy", {})])
    since = busy.revision()
    version = idle.transact(writes=[Put("jobs", "idle", {})])
    assert (since, version) == (11, 12)
    assert events(busy, "jobs", since) == (Change("jobs", "idle", version, ChangeKind.PUT),)
    idle.close()
    busy.close()


def test_who_follows_closely_reads_only_the_end_of_the_log_and_misses_nothing(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_view, "REACH_MIN", 2)
    idle, busy, reader = world.open(), world.open(), world.open()
    reaches: list[int] = []
    real = EtcdView._log_read

    def asked(self: EtcdView, since: int, reach: int) -> Any:
        reaches.append(reach)
        return real(self, since, reach)

    since = idle.transact(writes=[Put("jobs", "idle", {})])
    assert events(reader, "jobs") == (Change("jobs", "idle", since, ChangeKind.PUT),)
    monkeypatch.setattr(EtcdView, "_log_read", asked)
    for _ in range(12):
        version = busy.transact(writes=[Put("jobs", "busy", {}), Delete("jobs", "never")])
        assert events(reader, "jobs", since) == (Change("jobs", "busy", version, ChangeKind.PUT),)
        since = version
    assert set(reaches) == {2}
    late = idle.transact(writes=[Put("jobs", "idle", {})])
    assert events(reader, "jobs", since) == (Change("jobs", "idle", late, ChangeKind.PUT),)
    assert reaches[-2:] == [2, KeyLayout.window]
    version = busy.transact(writes=[Put("jobs", "busy", {})])
    assert events(reader, "jobs", late) == (Change("jobs", "busy", version, ChangeKind.PUT),)
    assert reaches[-1] == 4
    for store in (idle, busy, reader):
        store.close()


def test_a_record_whose_writer_had_not_looked_for_long_is_not_pruned_with_older_ones(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyLayout, "window", 50)
    idle, busy = world.open(), world.open(compaction_threshold=10)
    for _ in range(9):
        busy.transact(writes=[Put("jobs", "busy", {})])
    assert idle.transact(writes=[Put("jobs", "idle", {})]) == 10
    for _ in range(5):
        busy.transact(writes=[Put("jobs", "busy", {})])
    assert isinstance(busy.changes("jobs", 3), Compacted)
    assert [(change.key, change.version) for change in events(busy, "jobs", 9)] == [
        ("idle", 10),
        *(("busy", n) for n in range(11, 16)),
    ]
    idle.close()
    busy.close()


def test_who_follows_with_an_old_charter_gets_just_what_is_new(world: EtcdWorld) -> None:
    first, second = world.open(), world.open()
    for n in range(3):
        first.transact(writes=[Put("jobs", "a", {"n": n})])
    token = first._token()
    assert first.resolve_outcome(token) == NotCommitted()
    version = first.transact(writes=[Put("jobs", "a", {})])
    assert (version, events(second, "jobs", 3)) == (4, (Change("jobs", "a", 4, ChangeKind.PUT),))
    second.transact([Check("jobs", "a", version)], [Put("jobs", "a", {})])
    first.close()
    second.close()


def test_the_log_is_pruned_while_many_write_and_who_follows_misses_nothing(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyLayout, "window", 5)
    stores = [world.open(compaction_threshold=60) for _ in range(4)]
    reader = world.open(compaction_threshold=60)
    written: list[int] = []
    seen: list[int] = []

    def write(worker: int) -> None:
        written.extend(
            stores[worker].transact(writes=[Put("jobs", f"{worker}-{n % 3}", {})])
            for n in range(60)
        )

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    since, lost = 0, 0
    while True:
        last_look = not any(thread.is_alive() for thread in threads)
        changes = reader.changes("jobs", since)
        if isinstance(changes, Compacted):
            lost += len([None for revision in range(since + 1, changes.revision + 1)])
        else:
            seen += [change.version for change in changes.events]
        since = changes.revision
        if last_look:
            break
    for thread in threads:
        thread.join()
    assert sorted(written) == list(range(1, 241))
    assert seen == sorted(set(seen))
    assert len(seen) + lost == 240
    assert world.count("log/") <= 60 + 5 + 4 * 3
    assert reader.changes("jobs", 0) == Compacted(240)
    for store in (*stores, reader):
        store.close()


def test_records_and_given_up_tokens_do_not_stay_for_ever(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyLayout, "window", 50)
    store = world.open(compaction_threshold=100)
    faulty, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.REQUEST_LOST] * 3}))
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="was not written"):
            faulty.transact(writes=[Put("jobs", "a", {})])
    assert world.count("void/") == 3
    for n in range(350):
        store.transact(writes=[Put("jobs", "a", {"n": n})])
    assert world.count("void/") == 0
    assert world.count("log/") <= 50 + 100 + 10
    assert world.count("") == world.count("log/") + len(["charter", "last", "a"])
    store.close()


def test_given_up_tokens_beyond_those_that_are_listed_make_revisions_jump_and_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "GAPS_MAX", 2)
    revisions = []
    for _ in range(4):
        faulty, backend = faulty_store(store, scripted({StoreCall.APPLY: [Fault.HELD_BACK]}))
        with pytest.raises(StoreUnavailable, match="was not written"):
            faulty.transact(writes=[Put("jobs", "never", {})])
        assert backend.deliver() == []
        revisions.append(store.transact(writes=[Put("jobs", "a", {})]))
    assert revisions == [1, 2, 4, 6]
    assert [change.version for change in events(store, "jobs")] == revisions
    store.transact([Check("jobs", "a", revisions[-1])], [Put("jobs", "a", {})])


def test_two_that_give_up_the_same_token_both_get_to_know(world: EtcdWorld, store: Store) -> None:
    other = world.open()
    token = store._token()
    assert (other.resolve_outcome(token), store.resolve_outcome(token), world.count("void/")) == (
        NotCommitted(),
        NotCommitted(),
        1,
    )
    assert store.transact(writes=[Put("jobs", "a", {})]) == other.revision() == 1
    other.close()


def test_the_largest_document_passes_and_a_transaction_beyond_etcds_limit_is_refused(
    store: Store,
) -> None:
    largest = {"text": "x" * (1024 * 1024 - len('{"text":""}'))}
    version = store.transact(writes=[Put("jobs", "k" * 512, largest)])
    entry = store.get("jobs", "k" * 512)
    assert entry is not None
    assert (entry.value, entry.version) == (largest, version)
    with pytest.raises(
        StoreRefused, match=r"too big for etcd at 127\.0\.0\.1.*nothing was written"
    ):
        store.transact(writes=[Put("jobs", "a", largest), Put("jobs", "b", largest)])
    assert (len(store.list("jobs")), store.revision()) == (1, version)


def test_a_map_of_many_pages_is_one_moment(store: Store) -> None:
    for page in range(11):
        store.transact(writes=[Put("jobs", f"{page:02d}-{n:02d}", {"n": n}) for n in range(100)])
    assert [e.key for e in store.list("jobs")] == [
        f"{page:02d}-{n:02d}" for page in range(11) for n in range(100)
    ]
    assert (len(store.list("jobs", "1")), store.size_by_map()["jobs"].entries) == (100, 1100)


def test_as_many_checks_and_other_deletes_as_are_taken_fit(store: Store) -> None:
    version = store.transact(writes=[Put("jobs", f"{n:03d}", {}) for n in range(100)])
    store.transact(writes=[Put("other", f"{n:03d}", {}) for n in range(0, 100, 2)])
    checks = [Check("jobs", f"{n:03d}", version) for n in range(100)]
    revision = store.transact(checks, [Delete("other", f"{n:03d}") for n in range(100)])
    assert store.list("other") == []
    assert events(store, "other", revision - 1) == tuple(
        Change("other", f"{n:03d}", revision, ChangeKind.DELETE) for n in range(0, 100, 2)
    )
    with pytest.raises(Conflict, match="jobs/099"):
        store.transact(
            [*checks[:99], Check("jobs", "099", revision)],
            [Delete("other", f"{n:03d}") for n in range(100)],
        )


def test_checks_that_contradict_each_other_name_what_is_there(store: Store) -> None:
    version = store.transact(writes=[Put("jobs", "a", {})])
    with pytest.raises(Conflict) as conflict:
        store.transact([Check("jobs", "a", 7), Check("jobs", "a", 9)], [Put("jobs", "a", {})])
    assert (conflict.value.expected, conflict.value.found) == (7, version)


def test_many_updates_of_ten_keys_do_not_make_the_file_grow_and_a_compaction_makes_it_small(
    tmp_path: Path,
) -> None:
    with EtcdServer(tmp_path) as server:
        store = open_store(server.url, compaction_threshold=100)
        for number in range(300):
            store.transact(
                writes=[
                    Put("metrics", f"key-{n}", {"number": number, "text": "x" * 4000})
                    for n in range(10)
                ]
            )
        used = int(server.ask("/v3/maintenance/status", {})["dbSize"])
        store.compact()
        assert used < 10 * 1024 * 1024  # 12 MB were written
        assert int(server.ask("/v3/maintenance/status", {})["dbSize"]) < 512 * 1024
        assert len(store.list("metrics")) == 10
        store.close()


def test_a_store_that_was_taken_away_acknowledges_nothing_more(world: EtcdWorld) -> None:
    store = world.open()
    store.transact(writes=[Put("jobs", "a", {})])
    start = f"{world.prefix}/".encode()
    world.server.ask("/v3/kv/deleterange", {"key": b64(start), "range_end": b64(start[:-1] + b"0")})
    for replaced in (False, True):
        if replaced:
            world.open().close()
        with pytest.raises(StoreLost, match="was removed or replaced while it was open"):
            store.transact(writes=[Put("jobs", "b", {})])
        with pytest.raises(StoreLost, match="was removed or replaced while it was open"):
            store.list("jobs")
    assert world.count("entry/") == 0
    store.close()


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("something", b"x", StoreDamaged, "keys and no charter"),
        ("charter", b"x", StoreDamaged, "not the charter of a store"),
        ("charter", b'{"format":2,"store":"x"}', UserError, "has format 2; this Tidegate knows 1"),
    ],
)
def test_a_prefix_that_holds_something_else_is_left_alone(
    world: EtcdWorld, key: str, value: bytes, error: type[Exception], words: str
) -> None:
    world.server.ask(
        "/v3/kv/put", {"key": b64(f"{world.prefix}/{key}".encode()), "value": b64(value)}
    )
    with pytest.raises(error, match=words):
        world.open()
    assert world.count("") == 1


@pytest.mark.parametrize("place", ["before", "middle", "after"])
@pytest.mark.parametrize("step", ["create", "compact"])
def test_a_store_whose_user_was_killed_while_it_was_made_or_compacted_is_whole(
    world: EtcdWorld, step: str, place: str
) -> None:
    if step == "compact":
        world.work("count", workers=1, amount=5)
    killed = start_worker(
        world.url, "count" if step == "create" else "compact", 0, 1, f"store.{step}.{place}"
    )
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    run_workers(world.url, "count", workers=3, amount=2)
    store = world.open()
    assert [e.value for e in store.list("counters")] == [{"amount": 6 if step == "create" else 11}]
    store.close()


def test_a_fork_beside_threads_that_write_gives_the_child_lines_of_its_own(
    world: EtcdWorld,
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_THREADS, world.url],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    store = world.open()
    assert [e.key for e in store.list("jobs")] == ["b", *(f"child-{n}" for n in range(5))]
    store.close()


BESIDE_THREADS = """
import os, sys, threading
from tidegate.store import Put, open_store
store = open_store(sys.argv[1])
def put(key): store.transact(writes=[Put("jobs", key, {})])
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
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
done.set()
for thread in threads: thread.join()
store.close()
"""


@pytest.mark.parametrize("endpoint", ["", ":1", "host:", "host:x", "host:70000", "host:-1"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(UserError, match="etcd://host:port"):
        EtcdBackend([endpoint], prefix="tidegate", retention=Retention())


@pytest.mark.parametrize("prefix", ["", "/", "//"])
def test_a_store_without_a_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(UserError, match="names no prefix"):
        EtcdBackend(["127.0.0.1:1"], prefix=prefix, retention=Retention())
