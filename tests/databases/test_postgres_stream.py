"""Ranges that are read from one replication stream are exact and repeatable."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from database_kit import Place
from postgres_stream_kit import Log, Transaction, transactions, wait_until

from tidegate.databases.cdc.errors import PositionGone
from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.postgres import lsn, replication, shared_stream
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres import pgoutput_stream as stream
from tidegate.databases.postgres.pgoutput_reader import SlotTable, read_range
from tidegate.databases.postgres.pgoutput_row_layout import layout_of
from tidegate.databases.postgres.pgoutput_stream import message_lists
from tidegate.model.types import Column, Table, parse_type
from tidegate.testing.servers.postgres import PostgresServer


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every range lies far after its slot."""
    monkeypatch.setattr(stream, "NEAR_BYTES", -1)


@pytest.fixture
def log(postgres: PostgresServer, pg: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A log that is read from streams only: reading without one fails."""

    def never(*_: Any, **__: Any) -> Iterator[list[bytes]]:
        raise AssertionError("it is read without a stream")

    monkeypatch.setattr(stream, "NEAR_BYTES", -1)
    monkeypatch.setattr(stream, "_peek_range", never)
    made = Log(postgres.port, pg.database)
    yield made
    made.end()


@contextmanager
def log_of(server: PostgresServer) -> Iterator[Log]:
    made = Log(server.port, "postgres")
    try:
        yield made
    finally:
        made.end()


def write_at_once(log: Log, seed: int) -> None:
    """Run concurrent writers.

    They have short and long transactions, some rolled back, and one that stays open.
    """
    held = log.connect()
    held.execute("begin")
    held.execute("insert into t values (0, 'long')")

    def write(number: int) -> None:
        chance = random.Random(seed * 10 + number)
        with log.connect() as connection:
            for turn in range(40):
                connection.execute("begin")
                for _ in range(chance.choice([1, 1, 3, 200])):
                    key = number * 1_000_000 + turn * 1000 + chance.randrange(1000)
                    sql = (
                        "insert into t values (%s, %s) on conflict (id) do update set note ="
                        " excluded.note"
                    )
                    connection.execute(sql, (key, "x" * chance.randrange(300)))
                connection.execute("rollback" if chance.random() < 0.2 else "commit")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held.execute("commit")
    held.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_ranges_have_each_transaction_once(log: Log, seed: int) -> None:
    begin = log.now()
    write_at_once(log, seed)
    whole, end = log.peek(), log.now()
    chance = random.Random(seed)
    context = [commit + more for commit, _ in chance.sample(whole, 25) for more in (0, 1, 7, 24)]
    cuts = sorted({begin, *context, *(chance.randrange(begin, end) for _ in range(20)), end})
    for low, high in itertools.pairwise(cuts):
        assert log.read(low, high) == [
            (commit, rows) for commit, rows in whole if low <= commit < high
        ]
    assert len(log.senders()) == 1


def test_ranges_follow_continuous_writers(log: Log) -> None:
    begin = log.now()
    writer = threading.Thread(target=write_at_once, args=(log_writer(log), 3))
    writer.start()
    found: list[Transaction] = []
    at = begin
    while writer.is_alive():
        end = log.now()
        found += log.read(at, end)
        at = end
    writer.join()
    found += log.read(at, log.now())
    assert found == log.peek()
    assert len(log.senders()) == 1


def log_writer(log: Log) -> Any:
    """The same database, for a thread of its own."""
    return type("Writer", (), {"connect": staticmethod(log.connect)})()


@pytest.mark.parametrize("pure", ["0", "1"])
def test_rows_are_the_same_from_any_range_with_both_decoders(
    log: Log, pure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", pure)
    path = f"{log.database}.public.t"
    columns = (
        Column(name="id", type=parse_type("bigint")),
        Column(name="note", type=parse_type("string")),
    )
    tables = {
        path: SlotTable(
            layout=layout_of([["id", "bigint"], ["note", "text"]]),
            table=Table(path=path, columns=columns, primary_key=("id",), kinds=True),
        )
    }
    cuts = [log.now()]
    for turn in range(5):
        log(
            f"insert into t select n, 'note ' || n from generate_series({turn * 100},"
            f" {turn * 100 + 99}) n",
            f"delete from t where id = {turn * 100}",
        )
        cuts.append(log.now())
    for _ in range(2):
        for turn, (low, high) in enumerate(itertools.pairwise(cuts)):
            batches = [
                b for _, b in read_range(log.open, log.range(low, high), tables, log.database)
            ]
            rows = [(r["id"], r["note"], r["__row_kind"]) for b in batches for r in b.to_pylist()]
            first = turn * 100
            assert rows == [(n, f"note {n}", 0) for n in range(first, first + 100)] + [
                (first, f"note {first}", 3)
            ]


def test_range_is_repeatable_after_eviction(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = log.now()
    log(
        "insert into t select n, repeat('x', 100) from generate_series(1, 3000) n",
        "insert into u select n from generate_series(1, 3000) n",
    )
    middle = log.now()
    log(
        "insert into t select n, repeat('y', 100) from generate_series(3001, 6000) n",
        "delete from u where id < 100",
    )
    end = log.now()
    first, second = log.read(begin, middle), log.read(middle, end)
    (sender,) = log.senders()
    assert (log.read(begin, middle), log.read(middle, end)) == (first, second)
    assert log.senders() == [sender]
    monkeypatch.setattr(replication, "KEPT_BYTES_MAX", 10_000)
    monkeypatch.setattr(replication, "FILE_BYTES_MAX", 100_000)
    log("insert into t values (7000, '')")
    log.read(end, log.now())
    assert (log.read(begin, middle), log.read(middle, end)) == (first, second)
    assert log.senders() == [sender]  # from a file
    monkeypatch.setattr(replication, "SPOOLED_BYTES_MAX", 100_000)
    log("insert into t values (7001, '')")
    log.read(end, log.now())
    assert (log.read(begin, middle), log.read(middle, end)) == (first, second)
    assert sender not in log.senders()
    assert [len(rows) for _, rows in first] == [3000, 3000]


def test_large_transaction_is_complete_with_bounded_memory(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "KEPT_BYTES_MAX", 200_000)
    begin = log.now()
    log(
        "insert into t select n, repeat('x', 1000) from generate_series(1, 5000) n",
        "insert into u values (1)",
    )
    middle = log.now()
    log("insert into u values (2)")
    sizes = []
    rows = 0
    for many in message_lists(log.open, log.range(begin, log.now())):
        (holder,) = shared_stream._owners.values()
        assert holder._stream is not None
        sizes.append(holder._stream._size)
        rows += sum(m[:1] == b"I" for m in many)
    assert rows == 5002
    assert max(sizes) < 200_000 + replication.BURST_BYTES_MAX
    assert sizes[-1] < 400_000
    assert [len(rows) for _, rows in log.read(begin, middle)] == [5000, 1]


def test_full_disk_makes_ranges_be_read_from_the_server(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(replication, "KEPT_BYTES_MAX", 10_000)
    monkeypatch.setattr(replication.MessageBurst, "move_to_file", full)
    begin = log.now()
    log("insert into t select n, repeat('x', 100) from generate_series(1, 3000) n")
    middle = log.now()
    log("insert into t select n, repeat('x', 100) from generate_series(3001, 6000) n")
    end = log.now()
    for low, high, rows in ((begin, middle, 3000), (middle, end, 3000), (begin, end, 6000)):
        assert sum(len(each) for _, each in log.read(low, high)) == rows


def test_a_reader_that_stops_early_loses_nothing(log: Log) -> None:
    begin = log.now()
    log(
        "insert into t select n, repeat('x', 100) from generate_series(1, 20000) n",
        "insert into u values (1)",
    )
    end = log.now()
    with closing(message_lists(log.open, log.range(begin, end))) as found:
        next(found)
    assert [len(rows) for _, rows in log.read(begin, end)] == [20000, 1]


def test_sender_terminated_within_a_range_fails_only_that_range(
    log: Log,
) -> None:
    begin = log.now()
    log("insert into t select n, repeat('x', 1000) from generate_series(1, 60000) n")
    end = log.now()
    with closing(message_lists(log.open, log.range(begin, end))) as found:
        next(found)
        terminate(log)
        with pytest.raises(TransientDatabaseError, match=r"terminat|closed|ended"):
            list(found)
    assert [len(rows) for _, rows in log.read(begin, end)] == [60000]


def test_sender_terminated_between_ranges_is_replaced(log: Log) -> None:
    cuts = [log.now()]
    for number in range(3):
        log(f"insert into t values ({number}, 'x')")
        cuts.append(log.now())
        assert len(log.read(cuts[-2], cuts[-1])) == 1
        terminate(log)
    assert len(log.read(cuts[0], cuts[-1])) == 3


def terminate(log: Log) -> None:
    for sender in log.senders():
        log(f"select pg_terminate_backend({sender})")
    wait_until(lambda: not log.senders())


def test_layouts_come_with_the_first_row_that_needs_them(log: Log) -> None:
    begin = log.now()
    log("insert into t values (1, 'x')", "insert into u values (1)")
    cuts = [begin, log.now()]
    for statement in (
        "insert into u values (2)",
        "alter table t add column more int",
        "insert into t values (2, 'y', 5)",
        "truncate u",
        "delete from t",
    ):
        log(statement)
        cuts.append(log.now())
    names = []
    for low, high in itertools.pairwise(cuts):
        data = [m for many in message_lists(log.open, log.range(low, high)) for m in many]
        layouts = [messages.relation(m) for m in data if m[:1] == b"R"]
        names.append([(layout.table, len(layout.columns)) for layout in layouts])
        transactions(data)
    assert names == [[("t", 2), ("u", 1)], [("u", 1)], [], [("t", 3)], [("u", 1)], [("t", 3)]]


def test_slot_in_use_is_neither_needed_nor_advanced(log: Log) -> None:
    before = log.confirmed()
    begin = log.now()
    log("insert into t values (1, 'x')")
    url = f"postgresql://postgres@127.0.0.1:{log.port}/{log.database}"
    with closing(psycopg.connect(url, autocommit=True, replication="database")) as other:
        other.pgconn.exec_(
            f"START_REPLICATION SLOT {log.slot} LOGICAL 0/0 (proto_version '1', publication_names"
            " 'p')".encode()
        )
        assert len(log.read(begin, log.now())) == 1
    assert log.confirmed() == before


@pytest.mark.parametrize("near", [-1, 8 << 20])
def test_slot_advanced_past_a_range_is_an_error(
    log: Log, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "NEAR_BYTES", near)
    begin = log.now()
    log("insert into t values (1, 'x')")
    end = log.now()
    log(f"select pg_replication_slot_advance('{log.slot}', '{lsn.text(end)}')")
    with pytest.raises(PositionGone, match="advanced by another client"):
        log.read(begin, end)


def test_reading_does_not_advance_the_slot(log: Log) -> None:
    before = log.confirmed()
    at = log.now()
    for number in range(3):
        log(f"insert into t values ({number}, 'x')", "checkpoint")
        end = log.now()
        assert len(log.read(at, end)) == 1
        at = end
    assert log.confirmed() == before


def test_slow_reader_is_kept_alive(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "SENDER_TIMEOUT", "1s")
    monkeypatch.setattr(replication, "REPORT_S", 0.1)
    begin = log.now()
    log("insert into t select n, repeat('x', 1000) from generate_series(1, 60000) n")
    end = log.now()
    found = message_lists(log.open, log.range(begin, end))
    rows = sum(m[:1] == b"I" for m in next(found))
    (sender,) = log.senders()
    time.sleep(3)  # three times the sender timeout
    assert log.senders() == [sender]
    assert rows + sum(m[:1] == b"I" for many in found for m in many) == 60000


def test_an_idle_stream_is_closed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_stream, "IDLE_S_MAX", 0.1)
    begin = log.now()
    log("insert into t values (1, 'x')")
    assert len(log.read(begin, log.now())) == 1
    wait_until(lambda: not log.senders())
    assert len(log.read(begin, log.now())) == 1


@pytest.mark.usefixtures("far")
def test_a_server_restarts_beside_an_open_stream() -> None:
    with PostgresServer(settings={"wal_level": "logical"}) as server, log_of(server) as log:
        begin = log.now()
        log("insert into t values (1, 'x')")
        middle = log.now()
        assert len(log.read(begin, middle)) == 1
        for end_server in (server.stop, server.kill):
            end_server()
            server.start()
            log.connection.close()
            log.connection = log.connect()
            log("insert into t select coalesce(max(id), 0) + 1, 'y' from t")
            assert log.read(begin, log.now()) == log.peek()
        assert len(log.read(middle, log.now())) == 2


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    "settings",
    [{"max_replication_slots": "1"}, {"max_wal_senders": "0"}, {"synchronous_standby_names": "*"}],
)
def test_a_server_without_room_for_a_stream_is_read_without_one(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        PostgresServer(
            settings={"wal_level": "logical", "synchronous_commit": "local", **settings}
        ) as server,
        log_of(server) as log,
    ):
        begin = log.now()
        log("insert into t values (1, 'x')", "insert into t values (2, 'x')")
        assert len(log.read(begin, log.now())) == 2
        assert "replication_stream_unavailable" in caplog.text
        wait_until(lambda: not log.senders())


READER = """
import json, sys
from tidegate.databases.postgres import pgoutput_stream as stream
from tidegate.databases.postgres.pgoutput_stream import SlotRange, message_lists
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.url import parse_url
stream.NEAR_BYTES = -1
url, slot = sys.argv[1:]
address = parse_url(url, "postgres", "any")
for line in sys.stdin:
    start, end = json.loads(line)
    span = SlotRange(slot=slot, publication="p", start=start, end=end)
    lists = message_lists(lambda: PostgresSession(address), span)
    print(json.dumps([m.hex() for many in lists for m in many]), flush=True)
"""


class Worker:
    def __init__(self, log: Log) -> None:
        url = f"jdbc:postgresql://127.0.0.1:{log.port}/{log.database}"
        command = [sys.executable, "-c", READER, url, log.slot]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self, start: int, end: int) -> list[Transaction]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([start, end]), file=self.process.stdin, flush=True)
        return transactions(
            [bytes.fromhex(text) for text in json.loads(self.process.stdout.readline())]
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout):
            assert file is not None
            file.close()


def test_processes_share_a_stream_and_take_over_after_a_kill(
    log: Log,
) -> None:
    workers = [Worker(log) for _ in range(3)]
    try:
        at = begin = log.now()
        senders = set()
        for turn in range(6):
            log(
                f"insert into t select n, 'x' from generate_series({turn * 10}, {turn * 10 + 9}) n",
                f"insert into u values ({turn})",
            )
            end = log.now()
            assert [len(rows) for _, rows in workers[turn % 3].read(at, end)] == [10, 1]
            senders |= set(log.senders())
            at = end
        assert len(senders) == 1
        workers[0].kill()  # it read first, and so it owned the stream
        wait_until(lambda: not log.senders())
        whole = log.peek()
        assert [worker.read(begin, at) for worker in workers[1:]] == [whole, whole]
        assert len(log.senders()) == 1
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()


def test_reader_with_another_password_is_rejected(log: Log) -> None:
    begin = log.now()
    log("insert into t values (1, 'x')")
    assert len(log.read(begin, log.now())) == 1
    (name,) = shared_stream._owners
    request = {"start": begin, "end": log.now(), "secret": "0" * 64}
    with pytest.raises(shared_stream.StreamUnavailable):
        list(shared_stream._read_remote(name, log.address, request))


def test_forked_process_does_not_use_the_stream(log: Log) -> None:
    begin = log.now()
    log("insert into t values (1, 'x')")
    assert len(log.read(begin, log.now())) == 1
    (sender,) = log.senders()
    child = os.fork()
    if child == 0:
        os._exit(len(shared_stream._owners))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log("insert into t values (2, 'x')")
    assert len(log.read(begin, log.now())) == 2
    assert log.senders() == [sender]


def test_a_range_that_ends_after_the_log_waits_for_it(log: Log) -> None:
    begin = log.now()
    end = begin + 50_000
    writer = log.connect()
    thread = threading.Timer(
        0.5, lambda: writer.execute("insert into t select n, 'x' from generate_series(1, 2000) n")
    )
    thread.start()
    log.read(begin, end)
    thread.join()
    assert log.now() >= end
    writer.close()
