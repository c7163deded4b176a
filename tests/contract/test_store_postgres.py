"""The store on PostgreSQL passes the whole contract, and what only it has: a schema, a server that
can be killed, a line that can be cut.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tidegate.model.errors import UserError
from tidegate.store import Check, Put, Store, StoreDamaged, StoreLost, StoreUnavailable, open_store
from tidegate.store.postgres import backend as backend_module
from tidegate.store.postgres.address import read_address
from tidegate.store.postgres.backend import PostgresBackend
from tidegate.store.postgres.connection_pool import CONNECTIONS_MAX
from tidegate.store.postgres.errors import StoreSchemaTooNew
from tidegate.testing.servers.postgres import PostgresServer
from tidegate.testing.store_durability import (
    SOURCES,
    DurableStoreContract,
    run_workers,
    start_worker,
)

numbers = itertools.count(1)


class PostgresWorld:
    """A schema of its own in the server that all share. Workers are processes."""

    def __init__(self, server: PostgresServer) -> None:
        self.schema = f"store_{next(numbers)}"
        self.url = f"{server.url}?schema={self.schema}"

    def open(self, *, compaction_threshold: int = 10_000) -> Store:
        return open_store(self.url, compaction_threshold=compaction_threshold)

    def work(self, act: str, *, workers: int, amount: int) -> None:
        run_workers(self.url, act, workers=workers, amount=amount)


@pytest.fixture
def world(postgres: PostgresServer) -> PostgresWorld:
    return PostgresWorld(postgres)


class TestPostgres(DurableStoreContract):
    pass


@contextmanager
def opened(url: str, **options: int) -> Iterator[Store]:
    store = open_store(url, **options)
    try:
        yield store
    finally:
        store.close()


def execute(
    server: PostgresServer, statement: str, database: str = "postgres"
) -> list[tuple[Any, ...]]:
    with psycopg.connect(
        server.url.removesuffix("postgres") + database, autocommit=True
    ) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_several_that_make_the_store_at_the_same_moment_make_one(world: PostgresWorld) -> None:
    run_workers(world.url, "count", workers=5, amount=2)
    with opened(world.url) as store:
        assert [e.value for e in store.list("counters")] == [{"amount": 10}]


@pytest.mark.parametrize("place", ["before", "middle", "after"])
def test_a_store_whose_maker_was_killed_is_made_by_the_next_one(
    world: PostgresWorld, place: str
) -> None:
    maker = start_worker(world.url, "count", 0, 1, f"store.create.{place}")
    maker.communicate()
    assert maker.returncode == -signal.SIGKILL
    with opened(world.url) as store:
        assert store.transact(writes=[Put("jobs", "a", {})]) == 1


@pytest.mark.parametrize("place", ["before", "middle", "after"])
def test_a_store_whose_user_was_killed_while_it_compacted_is_whole(
    world: PostgresWorld, place: str
) -> None:
    with opened(world.url) as store:
        for n in range(20):
            store.transact(writes=[Put("jobs", str(n), {})])
        killed = start_worker(world.url, "compact", 0, 1, f"store.compact.{place}")
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        assert (len(store.list("jobs")), store.revision()) == (20, 20)
        assert store.transact(writes=[Put("jobs", "a", {})]) == 21


def test_a_writer_that_was_stopped_inside_its_transaction_is_in_nobodys_way(
    world: PostgresWorld,
) -> None:
    with (
        opened(world.url) as store,
        start_worker(world.url, "record", 0, 3, "store.transact.middle@2=stop") as stopped,
    ):
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        store.transact(writes=[Put("jobs", "a", {})])
        assert len(store.list("left")) == 1
        stopped.send_signal(signal.SIGCONT)
        stopped.communicate()
        assert (len(store.list("left")), len(store.list("jobs"))) == (3, 1)


def test_the_tables_stay_small_whatever_is_written(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    with opened(world.url, compaction_threshold=30) as store:
        for n in range(300):
            store.transact(
                writes=[Put("metrics", f"key-{n % 5}", {"number": n, "text": "x" * 200})]
            )
        for table in ("changes", "outcomes"):
            assert execute(
                postgres, f"select count(*) between 20 and 30 from {world.schema}.{table}"
            ) == [(True,)], table
        store.compact()
    pages = (
        "select sum(pg_relation_size(oid)) / 8192 from pg_class where relkind = 'r' and"
        f" relnamespace = '{world.schema}'::regnamespace"
    )
    assert execute(postgres, pages)[0][0] < 40


def test_dead_rows_are_vacuumed_by_the_way_and_a_store_that_is_closed_has_no_thread_left(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "VACUUM_EVERY_MIN", 10)
    vacuumed: list[bool] = []
    real = PostgresBackend._vacuum

    def vacuum(self: PostgresBackend) -> None:
        real(self)
        vacuumed.append(True)

    monkeypatch.setattr(PostgresBackend, "_vacuum", vacuum)
    store = world.open(compaction_threshold=20)
    for n in range(9):
        store.transact(writes=[Put("jobs", "a", {"n": n})])
    assert vacuumed == []
    backend = store.backend
    assert isinstance(backend, PostgresBackend)
    store.transact(writes=[Put("jobs", "a", {"n": 9})])
    assert backend._vacuuming is not None
    backend._vacuuming.join()
    assert vacuumed == [True]
    store.close()


def test_threads_share_a_store_and_a_few_connections(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    with opened(world.url + f"&application_name={world.schema}") as store:
        revisions: list[int] = []

        def write(worker: int) -> None:
            revisions.extend(
                store.transact(writes=[Put("jobs", f"{worker}-{n}", {})]) for n in range(20)
            )

        threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(revisions) == list(range(1, 161))
        connections = execute(
            postgres,
            f"select count(*) from pg_stat_activity where application_name = '{world.schema}'",
        )
        assert 1 <= connections[0][0] <= CONNECTIONS_MAX


def test_a_process_may_fork_beside_threads_that_use_the_store(world: PostgresWorld) -> None:
    command = [sys.executable, "-c", FORK_BESIDE_THREADS, world.url]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    with opened(world.url) as store:
        assert [e.key for e in store.list("jobs")] == ["b", *(f"child-{n}" for n in range(5))]


FORK_BESIDE_THREADS = """
import os, sys, threading
from tidegate.store import Put, open_store
store = open_store(sys.argv[1])
done = threading.Event()
def put(key): store.transact(writes=[Put("jobs", key, {})])
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


def test_a_store_that_was_removed_acknowledges_nothing_more(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    with opened(world.url) as store:
        store.transact(writes=[Put("jobs", "a", {})])
        execute(postgres, f"drop schema {world.schema} cascade")
        for call in (
            lambda: store.transact(writes=[Put("jobs", "b", {})]),
            lambda: store.list("jobs"),
        ):
            with pytest.raises(StoreLost, match="was removed while it was open"):
                call()


def test_a_store_that_was_replaced_acknowledges_nothing_more(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    with opened(world.url) as store:
        version = store.transact(writes=[Put("jobs", "a", {})])
        execute(postgres, f"drop schema {world.schema} cascade")
        with opened(world.url) as other:
            other.transact(writes=[Put("jobs", "a", {})])
            for call in (
                lambda: store.transact([Check("jobs", "a", version)], [Put("jobs", "b", {})]),
                store.revision,
                lambda: store.changes("jobs", 0),
            ):
                with pytest.raises(StoreLost, match="was removed or replaced while it was open"):
                    call()
            assert other.get("jobs", "b") is None


def test_a_store_that_went_back_in_time_acknowledges_nothing_more(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    with opened(world.url) as store:
        for n in range(3):
            store.transact(writes=[Put("jobs", str(n), {})])
        for statement in (
            "update {}.state set revision = 1",
            "delete from {}.entries where version > 1",
            "delete from {}.outcomes where revision > 1",
        ):
            execute(postgres, statement.format(world.schema))
        execute(postgres, f"delete from {world.schema}.changes where revision > 1")
        with pytest.raises(StoreDamaged, match="is older than it was before"):
            store.transact(writes=[Put("jobs", "b", {})])
        assert [e.key for e in store.list("jobs")] == ["0"]
    with opened(world.url) as store:
        assert store.transact(writes=[Put("jobs", "b", {})]) == 2


def test_a_newer_schema_is_refused_by_its_number(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    world.open().close()
    execute(postgres, f"update {world.schema}.schema_version set version = 7")
    with pytest.raises(
        StoreSchemaTooNew, match="has schema version 7; this Tidegate knows up to 1"
    ):
        world.open()


def test_a_schema_of_something_else_is_left_alone(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    execute(
        postgres, f"create schema {world.schema}; create table {world.schema}.photos (name text)"
    )
    with pytest.raises(UserError, match="is of something else, not a store"):
        world.open()
    tables = (
        f"select relname from pg_class where relnamespace = '{world.schema}'::regnamespace and"
        " relkind = 'r'"
    )
    assert execute(postgres, tables) == [("photos",)]


def test_a_database_with_another_encoding_is_refused(postgres: PostgresServer) -> None:
    execute(postgres, "create database plain encoding 'SQL_ASCII' template template0")
    with pytest.raises(UserError, match="has the encoding SQL_ASCII; a store needs UTF8"):
        open_store(f"postgresql://postgres@127.0.0.1:{postgres.port}/plain")


def test_a_user_needs_no_more_than_a_schema_of_its_own(
    postgres: PostgresServer, world: PostgresWorld
) -> None:
    user = f"user_{world.schema}"
    execute(postgres, f"create role {user} login")
    url = world.url.replace("postgres@", f"{user}@")
    with pytest.raises(UserError, match=r"may not do what is needed .*permission denied"):
        open_store(url)
    execute(postgres, f"create schema {world.schema} authorization {user}")
    with opened(url) as store:
        assert store.transact(writes=[Put("jobs", "a", {})]) == 1
        store.compact()


def test_the_servers_defaults_do_not_make_it_less_durable_or_less_exact(
    world: PostgresWorld,
) -> None:
    options = "-c%20default_transaction_isolation%3Dserializable%20-c%20synchronous_commit%3Doff"
    with opened(f"{world.url}&options={options}") as store:
        assert isinstance(store.backend, PostgresBackend)
        with store.backend._connections.repeatable() as connection:
            shown = [
                connection.execute(query).fetchone()
                for query in ("show synchronous_commit", "show transaction_isolation")
            ]
        assert shown == [("on",), ("read committed",)]


def test_a_server_that_takes_no_writes_is_unavailable(world: PostgresWorld) -> None:
    with pytest.raises(StoreUnavailable, match="read-only"):
        open_store(f"{world.url}&options=-c%20default_transaction_read_only%3Don")


def all_words(error: BaseException | None) -> str:
    """What a log would hold of it."""
    return (
        ""
        if error is None
        else (
            f"{error!r} {error}"
            f" {all_words(error.__cause__ if error.__suppress_context__ else error.__context__)}"
        )
    )


@pytest.mark.parametrize(
    ("user", "database", "words"),
    [
        ("nobody", "postgres", 'role "nobody" does not exist'),
        ("postgres", "none", 'database "none" does not'),
    ],
)
def test_what_the_server_refuses_is_said_with_its_words_and_without_the_password(
    postgres: PostgresServer, user: str, database: str, words: str
) -> None:
    with pytest.raises(UserError, match=words) as error:
        open_store(f"postgresql://{user}:geheim@127.0.0.1:{postgres.port}/{database}")
    assert "geheim" not in all_words(error.value)


def test_a_server_that_is_not_there_is_unavailable_and_the_password_is_not_shown() -> None:
    with pytest.raises(
        StoreUnavailable, match=r"the store postgresql://127\.0\.0\.1:1/jobs cannot be reached"
    ) as error:
        open_store("postgresql://tide:geheim@127.0.0.1:1/jobs?connect_timeout=2")
    assert "geheim" not in all_words(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:gehe@im@127.0.0.1/db",
        "postgresql://u:gehe/im@127.0.0.1/db",
        "postgresql://u:gehe%zzim@127.0.0.1/db",
        "postgresql://u:gehe#im@127.0.0.1:x/db",
        "postgresql://127.0.0.1/db?passwort=geheim",
        "postgresql://u:geheim@127.0.0.1/",
        "postgresql://u:geheim@127.0.0.1/db?schema=Jobs",
        "postgresql://u:geheim@127.0.0.1/db?schema=pg_jobs",
        "postgresql://u:geheim@127.0.0.1/db?schema=",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_showing_any_of_the_password(
    url: str,
) -> None:
    with pytest.raises(
        UserError, match=r"cannot be read|names no database|cannot name the schema"
    ) as error:
        open_store(url)
    assert "gehe" not in all_words(error.value)


def test_an_address_is_shown_without_user_and_password() -> None:
    address = read_address(
        "postgresql://u:geheim@one:5432,two:5433/jobs?schema=blue&sslmode=require"
    )
    assert (address.shown, address.schema) == (
        "postgresql://one:5432,two:5433/jobs?schema=blue",
        "blue",
    )
    assert address.parameters["sslmode"] == "require"
    assert "geheim" not in repr(address)
