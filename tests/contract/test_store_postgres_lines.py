"""The store on PostgreSQL when the line is cut, the server dies or stands still, and others are in
the way: it always knows what was written.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tidegate.store import Check, OutcomeUnknown, Put, Store, StoreUnavailable, open_store
from tidegate.store.backend import Committed, Retention, Transaction, TransactionName, Write
from tidegate.store.errors import AnswerLost
from tidegate.store.postgres.backend import PostgresBackend
from tidegate.store.postgres.connection_pool import PoolTimeouts
from tidegate.testing.servers.line import Line, RequestFault
from tidegate.testing.servers.postgres import PostgresServer


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return "line_" + "".join(c if c.isalnum() else "_" for c in request.node.name.lower())[-50:]


@pytest.fixture
def line(postgres: PostgresServer) -> Iterator[Line]:
    with Line(postgres.port) as line:
        yield line


@contextmanager
def opened(port: int, schema: str, limits: PoolTimeouts | None = None) -> Iterator[Store]:
    store = Store(
        PostgresBackend(url_of(port, schema), retention=Retention(), limits=limits),
        pause=lambda _: None,
    )
    try:
        for n in range(3):  # so that statements are prepared, and each transaction is one request
            store.transact(writes=[Put("warm", str(n), {})])
        yield store
    finally:
        store.close()


def url_of(port: int, schema: str) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/postgres?schema={schema}"


@pytest.mark.parametrize("trouble", [RequestFault.ANSWER_LOST, RequestFault.ANSWER_CUT])
def test_a_line_that_is_cut_after_the_commit_costs_nothing(
    line: Line, schema: str, trouble: RequestFault
) -> None:
    with opened(line.port, schema) as store:
        line.trouble(trouble)
        assert store.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"n": 1})]) == 4
        assert [(e.value, e.version) for e in store.list("jobs")] == [({"n": 1}, 4)]


def test_a_line_that_is_cut_before_the_request_arrives_has_written_nothing(
    line: Line, schema: str
) -> None:
    with opened(line.port, schema) as store:
        line.trouble(RequestFault.REQUEST_LOST)
        with pytest.raises(
            StoreUnavailable, match=r"was not written: the connection .* broke in the middle"
        ):
            store.transact(writes=[Put("jobs", "a", {})])
        assert (store.list("jobs"), store.revision()) == ([], 3)
        assert store.transact(writes=[Put("jobs", "a", {})]) == 4


def test_a_request_that_arrives_after_it_was_given_up_writes_nothing(
    line: Line, schema: str
) -> None:
    with opened(line.port, schema) as store:
        line.trouble(RequestFault.REQUEST_HELD_BACK)
        with pytest.raises(StoreUnavailable, match="was not written"):
            store.transact(writes=[Put("jobs", "a", {})])
        assert line.deliver() == 1
        assert (store.list("jobs"), store.revision()) == ([], 3)


@pytest.mark.parametrize(
    "trouble", [RequestFault.ANSWER_LOST, RequestFault.ANSWER_CUT, RequestFault.REQUEST_LOST]
)
def test_a_line_that_is_cut_while_reading_is_unavailable_once(
    line: Line, schema: str, trouble: RequestFault
) -> None:
    with opened(line.port, schema) as store:
        store.list("warm")
        line.trouble(trouble)
        with pytest.raises(StoreUnavailable, match="failed"):
            store.list("warm")
        assert len(store.list("warm")) == 3


def test_on_a_line_that_says_nothing_the_outcome_is_unknown_until_it_speaks_again(
    line: Line, schema: str
) -> None:
    with opened(line.port, schema, PoolTimeouts(answer_s=0.2)) as store:
        token = TransactionName(id=b"0123456789abcdef", since=3)
        line.mute()
        with pytest.raises(AnswerLost):
            store.backend.apply(
                Transaction(token=token, checks=(), writes=(Write("jobs", "a", "{}"),))
            )
        line.unmute()
        assert isinstance(store.resolve_outcome(token), Committed) == (
            store.get("jobs", "a") is not None
        )


def test_a_server_that_stands_still_is_not_waited_for(
    postgres: PostgresServer, schema: str
) -> None:
    with opened(postgres.port, schema, PoolTimeouts(answer_s=0.2)) as store:
        with postgres.paused(), pytest.raises(StoreUnavailable, match=r"no answer for 0\.2 s"):
            store.get("warm", "0")
        assert store.get("warm", "0") is not None


def test_a_lock_that_another_session_keeps_stops_writers_for_a_while_and_readers_not_at_all(
    postgres: PostgresServer, schema: str
) -> None:
    with opened(postgres.port, schema, PoolTimeouts(lock_s=0.1)) as store:
        with lock_kept(postgres, schema):
            with pytest.raises(
                StoreUnavailable,
                match="is held by another session that does not let go, and nothing was written",
            ):
                store.transact(writes=[Put("jobs", "a", {})])
            assert len(store.list("warm")) == 3
            assert store.changes("jobs", 3).revision == 3
        assert store.transact(writes=[Put("jobs", "a", {})]) == 4


def test_a_session_that_an_administrator_ends_inside_its_transaction_has_written_nothing(
    postgres: PostgresServer, schema: str
) -> None:
    with opened(postgres.port, schema) as store:
        errors: list[BaseException] = []
        with lock_kept(postgres, schema) as administrator:
            thread = threading.Thread(
                target=lambda: errors.extend(
                    raised(lambda: store.transact(writes=[Put("jobs", "a", {})]))
                )
            )
            thread.start()
            first = waiting_for_lock(administrator, besides=0)
            administrator.execute("select pg_terminate_backend(%s)", (first,))
            waiting_for_lock(administrator, besides=first)  # the question what became of it
        thread.join()
        assert [type(error) for error in errors] == [StoreUnavailable]
        assert "was not written" in str(errors[0])
        assert (store.list("jobs"), store.revision()) == ([], 3)


def raised(act: Callable[[], object]) -> list[BaseException]:
    try:
        act()
    except BaseException as error:
        return [error]
    return []


@contextmanager
def lock_kept(server: PostgresServer, schema: str) -> Iterator["psycopg.Connection[Any]"]:
    """A user reads the store's tables and leaves the transaction open."""
    with psycopg.connect(server.url) as connection:
        connection.execute(f"select 1 from {schema}.state for update")
        yield connection
        connection.rollback()


def waiting_for_lock(administrator: "psycopg.Connection[Any]", *, besides: int) -> int:
    """The process of the server that waits for the lock on behalf of the store."""
    query = (
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like %s and pid"
        " <> %s"
    )
    while True:
        administrator.execute("select pg_stat_clear_snapshot()")
        found = administrator.execute(query, ("select o_outcome%", besides)).fetchone()
        if found:
            return int(found[0])


def test_after_a_restart_of_the_server_the_next_call_goes_through(schema: str) -> None:
    with PostgresServer() as server, opened(server.port, schema) as store:
        server.stop()
        for call in (
            lambda: store.list("warm"),
            lambda: store.transact(writes=[Put("jobs", "a", {})]),
            store.revision,
        ):
            with pytest.raises(
                StoreUnavailable, match="cannot be reached, and nothing was written"
            ):
                call()
        server.start()
        assert store.transact(writes=[Put("jobs", "a", {})]) == 4
        server.stop()
        server.start()
        assert (len(store.list("warm")), store.revision()) == (3, 4)


def test_a_server_that_is_killed_again_and_again_loses_nothing_that_was_acknowledged(
    schema: str,
) -> None:
    with PostgresServer() as server:
        writers = [Writer(url_of(server.port, schema), number) for number in range(4)]
        for writer in writers:
            writer.thread.start()
        for _ in range(3):
            for writer in writers:
                writer.advance(8)
            Writer.up.clear()
            server.kill()
            server.start()
            Writer.up.set()
        for writer in writers:
            writer.advance(3)
            writer.end()
        store = open_store(url_of(server.port, schema))
        left, right = ({e.key: e.version for e in store.list(map)} for map in ("left", "right"))
        store.close()
    assert left == right, "a half-written transaction"
    assert left == {key: revision for writer in writers for key, revision in writer.written.items()}
    assert sum(writer.troubles for writer in writers) > 0, "no kill hit anybody"


class Writer:
    """Writes pairs through all troubles, and knows of each whether it was written."""

    up = threading.Event()
    up.set()

    def __init__(self, url: str, number: int) -> None:
        self.number, self.written, self.troubles = number, dict[str, int](), 0
        self._store = open_store(url)
        self._acknowledged = threading.Semaphore(0)
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def advance(self, amount: int) -> None:
        """Wait until so many more were written."""
        for _ in range(amount):
            assert self._acknowledged.acquire(timeout=60), "the writer does not continue"

    def end(self) -> None:
        self._ended.set()
        self.thread.join()
        self._store.close()

    def _run(self) -> None:
        count = 0
        while not self._ended.is_set():
            key = f"{self.number}/{count:05d}"
            revision = self._try(key)
            if revision:
                self.written[key] = revision
                self._acknowledged.release()
            count += 1

    def _try(self, key: str) -> int:
        """The revision; 0 if it is sure that it was not written."""
        try:
            return self._store.transact(
                [Check("left", key, 0)], [Put("left", key, {}), Put("right", key, {})]
            )
        except OutcomeUnknown as unknown:
            token = unknown.token
        except StoreUnavailable:
            self.troubles += 1
            self.up.wait(60)
            return 0
        self.troubles += 1
        while True:
            self.up.wait(60)
            try:
                outcome = self._store.resolve_outcome(token)
            except OutcomeUnknown:
                continue
            return outcome.revision if isinstance(outcome, Committed) else 0
