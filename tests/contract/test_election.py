"""An office on a real store with real processes: leaders that are killed, stopped for longer than
their lease and woken up again, or sent home.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.model.records import LEASES
from tidegate.store import Store, open_store
from tidegate.testing.store_durability import SOURCES

LEASE_MS = 1500
PATIENCE_S = 3.0  # what two slow cores may add to a takeover
SCRIPT = Path(__file__).parent / "election_candidate.py"
Start = Callable[..., "Process"]


class Process:
    """A candidate, and what it said."""

    def __init__(self, url: str, name: str, failpoint: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "TIDEGATE_FAILPOINT": failpoint}
        command = [sys.executable, str(SCRIPT), url, name, str(LEASE_MS)]
        self.name = name
        self.popen = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def says(self, wanted: str) -> None:
        """Read on until this line."""
        assert self.popen.stdout is not None
        heard = []
        for line in self.popen.stdout:
            heard.append(line.strip())
            if heard[-1] == wanted:
                return
        raise AssertionError(
            f"{self.name} never said {wanted!r}, but {heard}: {self.popen.stderr.read()}"
        )  # type: ignore[union-attr]  # it is a pipe

    def stopped(self) -> None:
        os.waitid(os.P_PID, self.popen.pid, os.WSTOPPED)

    def wakes(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def killed(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def resigns(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        assert self.popen.wait() == 0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def start(url: str, store: Store) -> Iterator[Start]:  # noqa: ARG001  # the store is made before the candidates come
    processes: list[Process] = []

    def begin(name: str, failpoint: str = "") -> Process:
        processes.append(Process(url, name, failpoint))
        return processes[-1]

    yield begin
    for process in processes:
        if process.popen.poll() is None:
            process.killed()
        for pipe in (process.popen.stdin, process.popen.stdout, process.popen.stderr):
            assert pipe is not None
            pipe.close()


def holder(store: Store) -> tuple[str, int]:
    lease = store.get(LEASES, "coordinator")
    assert lease is not None
    return lease.value["holder"], lease.value["term"]


def worked(store: Store) -> dict[int, int]:
    return {int(entry.key): entry.value["number"] for entry in store.list("work")}


def test_a_killed_leader_is_replaced_within_its_lease_and_terms_grow(
    start: Start, store: Store
) -> None:
    first = start("p1")
    first.says("leading 1")
    for term in (2, 3):
        successor = start(f"p{term}")
        successor.says(f"following p{term - 1} {term - 1}")
        first.killed()
        died_s = time.monotonic()
        successor.says(f"leading {term}")
        assert time.monotonic() - died_s < LEASE_MS / 1000 + PATIENCE_S
        first = successor
    assert holder(store) == ("p3", 3)


def test_a_leader_that_was_stopped_for_longer_than_its_lease_writes_nothing_when_it_wakes(
    start: Start, store: Store
) -> None:
    paused = start("p1", "lease.renew.before@2=stop")
    paused.says("leading 1")
    other = start("p2")
    paused.stopped()
    other.says("leading 2")
    before = worked(store)[1]
    paused.wakes()
    paused.says("refused 1")
    assert worked(store)[1] == before
    paused.resigns()
    assert holder(store) == ("p2", 2)


def test_a_candidate_that_was_stopped_just_before_it_took_over_does_not_take_what_another_has_taken(
    start: Start, store: Store
) -> None:
    leader = start("p1")
    leader.says("leading 1")
    paused = start("p2", "lease.take.before=stop")
    paused.says("following p1 1")
    leader.killed()
    paused.stopped()
    patient = start("p3")  # only now: else it may be the quicker one
    patient.says("leading 2")
    paused.wakes()
    paused.says("following p3 2")
    assert holder(store) == ("p3", 2)


def test_a_leader_that_dies_in_the_moment_in_which_it_took_over_is_replaced_like_any_other(
    start: Start, store: Store
) -> None:
    dead = start("p1", "lease.take.after")
    assert dead.popen.wait() == -signal.SIGKILL
    assert holder(store) == ("p1", 1)
    start("p2").says("leading 2")


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_leader_that_dies_while_it_resigns_leaves_the_office_to_the_next(
    start: Start, place: str
) -> None:
    leader = start("p1", f"lease.resign.{place}")
    leader.says("leading 1")
    other = start("p2")
    other.says("following p1 1")
    assert leader.popen.stdin is not None
    leader.popen.stdin.close()
    assert leader.popen.wait() == -signal.SIGKILL
    other.says("leading 2")


def test_a_leader_that_resigns_is_followed_at_once(start: Start, store: Store) -> None:
    leader = start("p1")
    leader.says("leading 1")
    other = start("p2")
    other.says("following p1 1")
    leader.resigns()
    other.says("leading 2")
    assert holder(store) == ("p2", 2)
    other.resigns()
    assert store.list(LEASES) == []


def test_of_several_that_come_at_the_same_moment_one_leads(start: Start, store: Store) -> None:
    processes = [start(f"p{number}") for number in range(4)]
    lines = [process.popen.stdout.readline().split() for process in processes]  # type: ignore[union-attr]  # it is a pipe
    standings = [line for line in lines if line[0] == "leading"]
    assert standings == [["leading", "1"]]
    assert holder(store)[1] == 1
