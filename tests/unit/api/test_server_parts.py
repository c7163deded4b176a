"""Components of a server that need no process: loops, port, address."""

import logging
import socket
import threading
from dataclasses import replace

import pytest

from tidegate.clock import SystemClock
from tidegate.election.elector import Elector
from tidegate.model.engine import HttpSettings
from tidegate.server import (
    RETRY_AFTER_ERROR_S,
    LeaderTask,
    PeriodicTask,
    PortTaken,
    address_of,
    listen,
)
from tidegate.store.errors import Conflict, StoreUnavailable
from tidegate.store.open import open_store

LOCAL = HttpSettings(host="127.0.0.1", port=0)


class Script:
    """A step with a scripted result for each call."""

    def __init__(self, *turns: Exception | None) -> None:
        self.turns = list(turns)

    def __call__(self) -> None:
        if self.turns and (error := self.turns.pop(0)) is not None:
            raise error


def test_transient_errors_are_retried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    down = StoreUnavailable("the store is away")
    loop = PeriodicTask(
        "cluster-cache",
        Script(None, down, down, Conflict("m", "k", 1, 2), None),
        0.5,
        SystemClock(),
    )
    with caplog.at_level(logging.INFO, "tidegate.server"):
        assert [loop.run_once() for _ in range(5)] == [0.5] * 5
    assert [record.getMessage() for record in caplog.records] == ["task_blocked", "task_resumed"]


def test_an_exception_is_logged_with_its_trace_and_the_loop_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = PeriodicTask("leader", Script(ValueError("no"), None), 0.5, SystemClock())
    assert [loop.run_once(), loop.run_once()] == [RETRY_AFTER_ERROR_S, 0.5]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_loop_runs_until_it_is_stopped() -> None:
    turned = threading.Event()
    loop = PeriodicTask("cluster-cache", turned.set, 0.0, SystemClock())
    loop.start()
    assert turned.wait(30)
    loop.stop()
    turned.clear()
    assert not turned.wait(0.05)


def test_a_follower_does_not_run_leader_tasks() -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("a follower must not lead")

    class Work:
        step = staticmethod(forbidden)

    clock = SystemClock()
    elector = Elector(open_store("memory:"), "coordinator", "me", "", 60_000, clock)
    leadership = LeaderTask(elector, Work(), Work())
    leadership.step()
    elector.step()
    with pytest.raises(AssertionError):
        leadership.step()


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with listen(LOCAL) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
            listen(replace(LOCAL, port=port))
        with listen(replace(LOCAL, port=port, dynamic_port=True)) as other:
            assert other.getsockname()[1] > port


@pytest.mark.parametrize(
    "http",
    [
        replace(LOCAL, host="no such host"),
        replace(LOCAL, port=65535, host="203.0.113.7"),
        replace(LOCAL, port=70_000),
    ],
)
def test_an_address_that_cannot_be_bound_is_an_error(http: HttpSettings) -> None:
    with pytest.raises(PortTaken):
        listen(http)


def test_a_server_without_an_api_listens_nowhere() -> None:
    with (
        listen(replace(LOCAL, enabled=False)) as unused,
        socket.socket() as caller,
        pytest.raises(ConnectionRefusedError),
    ):
        caller.connect(unused.getsockname())


def test_a_server_on_all_addresses_announces_its_host_name() -> None:
    with listen(replace(LOCAL, host="0.0.0.0")) as everywhere, listen(LOCAL) as here:
        assert (
            address_of(everywhere) == f"http://{socket.gethostname()}:{everywhere.getsockname()[1]}"
        )
        assert address_of(here) == f"http://127.0.0.1:{here.getsockname()[1]}"


def test_a_woken_loop_runs_early() -> None:
    turned = threading.Event()
    loop = PeriodicTask("leader", turned.set, 3_600.0, SystemClock())
    loop.start()
    assert turned.wait(30)
    turned.clear()
    loop.wake()
    assert turned.wait(30)
    loop.stop()


def test_a_moved_job_is_reconciled_again_at_once_and_the_worker_is_woken() -> None:
    class Moves:
        def __init__(self) -> None:
            self.left = [2, 1, 0]
            self.told = 0

        def step(self, _leading: object) -> int:
            return self.left.pop(0)

        def moved(self) -> None:
            self.told += 1

    class Nothing:
        def step(self, _leading: object) -> None:
            return

    moves, clock = Moves(), SystemClock()
    elector = Elector(open_store("memory:"), "coordinator", "me", "", 60_000, clock)
    elector.step()
    LeaderTask(elector, moves, Nothing(), moves.moved).step()
    assert (moves.left, moves.told) == ([], 2)


def test_small_responses_are_not_delayed() -> None:
    with listen(LOCAL) as listener, socket.create_connection(listener.getsockname()):
        served, _ = listener.accept()
        with served:
            assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
