"""The part of the store's contract that is about death: for backends that outlive their users'
processes.

A backend's test module derives a class from `DurableStoreContract` and gives it the fixture
`world`, here with an address that other processes can open.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

import tidegate
from tidegate.store import Check, Put
from tidegate.testing.store_contract import StoreContract, StoreWorld

SOURCES = Path(tidegate.__file__).parents[1]


class DurableStoreWorld(StoreWorld, Protocol):
    """A store with an address."""

    @property
    def url(self) -> str:
        """For `open_store` in another process."""


def start_worker(
    url: str, act: str, worker: int, amount: int, failpoint: str = ""
) -> "subprocess.Popen[str]":
    """A worker of store_worker.py as a process and a session of its own."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "TIDEGATE_FAILPOINT": failpoint}
    command = [
        sys.executable,
        "-m",
        "tidegate.testing.store_worker",
        url,
        act,
        str(worker),
        str(amount),
    ]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_workers(url: str, act: str, *, workers: int, amount: int) -> None:
    """Several at the same time, to the end."""
    processes = [start_worker(url, act, worker, amount) for worker in range(workers)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors


class DurableStoreContract(StoreContract):
    """What every store does that outlives its users."""

    def test_a_store_that_is_opened_again_is_as_it_was(self, world: DurableStoreWorld) -> None:
        store = world.open()
        revision = store.transact(writes=[Put("jobs", "a", {"n": 1}), Put("jobs", "b", {"n": 2})])
        before = (store.list("jobs"), store.changes("jobs", 0))
        store.close()
        store = world.open()
        assert (store.list("jobs"), store.changes("jobs", 0), store.revision()) == (
            *before,
            revision,
        )
        assert store.transact([Check("jobs", "a", revision)], [Put("jobs", "a", {})]) > revision
        store.close()

    def test_users_of_one_store_see_each_others_writes_at_once(
        self, world: DurableStoreWorld
    ) -> None:
        first, second = world.open(), world.open()
        for n in range(10):
            writer, reader = (first, second) if n % 2 else (second, first)
            revision = writer.transact(writes=[Put("jobs", "a", {"n": n})])
            entry = reader.get("jobs", "a")
            assert entry is not None
            assert (entry.value, entry.version) == ({"n": n}, revision)
        first.close()
        second.close()

    def test_no_acknowledged_write_is_lost_when_writers_are_killed_at_any_moment(
        self, world: DurableStoreWorld
    ) -> None:
        chance = random.Random(20)
        acknowledged: dict[str, int] = {}
        for _ in range(6):
            writers = [start_worker(world.url, "record", worker, 0) for worker in range(3)]
            for process in writers:
                _read_lines(process, chance.randrange(1, 25), acknowledged)
            for process in writers:
                process.send_signal(signal.SIGKILL)
            for process in writers:
                _read_rest(process, acknowledged)
        store = world.open()
        left, right = ({e.key: e.version for e in store.list(map)} for map in ("left", "right"))
        assert left == right, "a half-written transaction"
        assert acknowledged.items() <= left.items()
        assert len(acknowledged) > 18
        assert len(left) - len(acknowledged) <= 18, (
            "each death leaves at most one write that is there and was not acknowledged"
        )
        store.close()

    @pytest.mark.parametrize(("place", "written"), [("before", 2), ("middle", 2), ("after", 3)])
    def test_a_writer_that_is_killed_around_its_third_transaction_leaves_whole_ones(
        self, world: DurableStoreWorld, place: str, written: int
    ) -> None:
        process = start_worker(world.url, "record", 0, 5, f"store.transact.{place}@3")
        output, _ = process.communicate()
        assert (process.returncode, len(output.splitlines())) == (-signal.SIGKILL, 2)
        store = world.open()
        assert [len(store.list(map)) for map in ("left", "right")] == [written, written]
        run_workers(world.url, "record", workers=1, amount=5)
        assert [len(store.list(map)) for map in ("left", "right")] == [written + 5, written + 5]
        store.close()

    def test_a_process_that_forks_can_go_on_on_both_sides(self, world: DurableStoreWorld) -> None:
        run_workers(world.url, "fork", workers=2, amount=10)
        store = world.open()
        assert [e.value for e in store.list("counters")] == [{"amount": 2 * 4 * 10}]
        store.close()


def _read_lines(process: "subprocess.Popen[str]", lines: int, acknowledged: dict[str, int]) -> None:
    assert process.stdout is not None
    for _ in range(lines):
        _note(process.stdout.readline(), acknowledged)


def _read_rest(process: "subprocess.Popen[str]", acknowledged: dict[str, int]) -> None:
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if line.endswith("\n"):  # the last one may be cut by the kill
                _note(line, acknowledged)
    assert process.returncode == -signal.SIGKILL


def _note(line: str, acknowledged: dict[str, int]) -> None:
    key, revision = line.split()
    acknowledged[key] = int(revision)
