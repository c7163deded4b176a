"""Connections are reused by later sessions: state is reset, and broken ones are dropped."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from database_kit import Place

from tidegate.databases import idle_connections as reuse
from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.mysql.session import MySqlSession
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import Address, System
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

NUMBER = {System.POSTGRES: "select pg_backend_pid()", System.MYSQL: "select connection_id()"}
SETTINGS = {
    System.POSTGRES: "select name, setting from pg_settings order by 1",
    System.MYSQL: "show session variables",
}
VOLATILE = {
    "timestamp",
    "rand_seed1",
    "rand_seed2",
    "pseudo_thread_id",
    "last_gtid",
    "gtid_current_pos",
    "gtid_binlog_pos",
    "gtid_binlog_state",
    "transaction_id",
}


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    reuse.close_all()
    yield
    reuse.close_all()


@pytest.fixture(params=["maria", "pg"])
def address(request: pytest.FixtureRequest) -> Address:
    place: Place = request.getfixturevalue(request.param)
    return place.address


def number(session: Session) -> int:
    return int(session.scalar(NUMBER[session.address.system]))


def used_connection(address: Address) -> int:
    """Return the number of a connection that was used and returned."""
    with open_session(address) as session:
        return number(session)


def test_next_session_reuses_the_connection(address: Address) -> None:
    assert len({used_connection(address) for _ in range(5)}) == 1


def test_concurrent_sessions_never_share_a_connection(address: Address) -> None:
    used_connection(address)
    with open_session(address) as one, open_session(address) as other:
        assert number(one) != number(other)
    seen: list[tuple[int, int]] = []

    def use() -> None:
        for turn in range(20):
            with open_session(address) as session:
                mine = number(session)
                session.execute(f"create temporary table mine as select {turn} as n")
                seen.append((mine, int(session.scalar("select n from mine")) - turn))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {difference for _, difference in seen} == {0}
    assert len(seen) == 80


def test_session_state_is_reset_before_reuse(address: Address) -> None:
    changes = {
        System.POSTGRES: [
            "set lock_timeout = '1s'",
            "set timezone = 'Asia/Tokyo'",
            "set search_path = pg_catalog",
            "create temporary table left_over (n int)",
            "select pg_advisory_lock(77)",
            "listen left_over",
        ],
        System.MYSQL: [
            "set session time_zone = '+09:00'",
            "set session sql_mode = ''",
            "set session autocommit = 0",
            "set names latin1",
            "set session innodb_lock_wait_timeout = 1",
            "set session transaction isolation level serializable",
            "create temporary table left_over (n int)",
            "do get_lock('left_over', 1)",
            "set @left_over = 1",
        ],
    }[address.system]
    with open_session(address) as session:
        before, fresh = number(session), _settings(session)
        for statement in changes:
            session.execute(statement)
    with open_session(address) as session:
        assert number(session) == before
        assert _settings(session) == fresh
        assert session.scalar("select '\U0001f600é'") == "\U0001f600é"
        with pytest.raises(Exception, match="left_over"):
            session.query("select * from left_over")
    left = {
        System.POSTGRES: "select count(*) from pg_locks where locktype = 'advisory'",
        System.MYSQL: "select (is_used_lock('left_over') is not null) + (@left_over is not null)",
    }[address.system]
    with open_session(address) as session:
        assert session.scalar(left) == 0


def _settings(session: Session) -> dict[str, Any]:
    return {
        str(name).lower(): value
        for name, value in session.query(SETTINGS[session.address.system])
        if str(name).lower() not in VOLATILE
    }


def test_session_in_a_transaction_or_after_an_error_is_not_reused(address: Address) -> None:
    session = open_session(address)
    session.execute("create table kept (n int primary key)")
    session.begin()
    session.execute("insert into kept values (1)")
    first = number(session)
    session.close()
    assert used_connection(address) != first
    seen: list[int] = []
    with pytest.raises(TransientDatabaseError):
        _fail(address, seen)
    assert used_connection(address) not in seen
    with open_session(address) as after:
        assert after.query("select n from kept") == []


def _fail(address: Address, seen: list[int]) -> None:
    with open_session(address) as session:
        seen.append(number(session))
        raise TransientDatabaseError(str(address), "something went wrong")


def test_double_close_returns_the_connection_once(address: Address) -> None:
    session = open_session(address)
    session.close()
    session.close()
    with pytest.raises(TransientDatabaseError, match="the session is closed"):
        session.query("select 1")
    with open_session(address) as one, open_session(address) as other:
        assert number(one) != number(other)


def test_connection_ended_by_the_server_is_not_reused(
    address: Address, mariadb: MariaDbServer, postgres: PostgresServer
) -> None:
    ended = used_connection(address)
    if address.system is System.POSTGRES:
        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 10000)", (ended,))
    else:
        mariadb.execute(f"kill {ended}")
    assert used_connection(address) != ended


def test_restarted_server_gets_a_new_connection() -> None:
    with PostgresServer() as server:
        address = Place(
            url=f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
            user="postgres",
            password="any",
            database="postgres",
        ).address
        for end in (server.stop, server.kill):
            used_connection(address)
            end()
            server.start()
            assert used_connection(address)


def test_different_addresses_share_no_connection(address: Address) -> None:
    first = used_connection(address)
    others = [
        replace(address, password="another"),
        replace(address, properties={**address.properties, "connect_timeout_s": "9"}),
    ]
    assert len({reuse.connection_key(one) for one in (address, *others)}) == 3
    assert "another" not in reuse.connection_key(others[0])
    assert used_connection(others[1]) != first


def test_local_infile_requires_the_option(maria: Place) -> None:
    with MySqlSession(maria.address, local_infile=True) as session:
        loading = number(session)
    assert used_connection(maria.address) != loading
    with MySqlSession(maria.address, local_infile=True) as session:
        assert number(session) == loading


def test_old_or_excess_connections_are_closed(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = used_connection(address)
    monkeypatch.setattr(reuse, "IDLE_S_MAX", -1.0)
    second = used_connection(address)
    assert second != first
    monkeypatch.setattr(reuse, "IDLE_S_MAX", 30.0)
    monkeypatch.setattr(reuse, "LIFETIME_S_MAX", -1.0)
    assert used_connection(address) != second
    monkeypatch.setattr(reuse, "LIFETIME_S_MAX", 300.0)
    sessions = [open_session(address) for _ in range(4)]
    for session in sessions:
        session.close()
    assert [len(many) for many in reuse._idle.values()] == [reuse.PER_ADDRESS_MAX]


def test_forked_process_opens_its_own_connections(address: Address) -> None:
    mine = used_connection(address)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writing, "w") as out:
            out.write(str(used_connection(address)))
            out.flush()
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        theirs = int(told.read())
    os.waitpid(child, 0)
    assert theirs != mine
    assert used_connection(address) == mine


def test_prepared_statement_keeps_its_plan_across_sessions(pg: Place) -> None:
    numbers = set()
    for n in range(3):
        with open_session(pg.address) as session:
            assert session.query_prepared("select %s::int + 1", (n,)) == [(n + 1,)]
            numbers.add(number(session))
    with open_session(pg.address) as session:
        assert session.query("select statement from pg_prepared_statements") == [
            ("select $1::int + 1",)
        ]
        assert numbers == {number(session)}


def test_lost_prepared_statement_runs_without_its_plan(pg: Place) -> None:
    with open_session(pg.address) as session:
        session.query_prepared("select %s::int + 1", (1,))
        session.execute(
            "do $$ begin execute 'deallocate all'; end $$"
        )  # as with a pooler, where the next statement may use another connection
        assert session.query_prepared("select %s::int + 1", (2,)) == [(3,)]
        lost = number(session)
    assert used_connection(pg.address) != lost
