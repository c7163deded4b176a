"""Servers that announce themselves, as real processes: all of them are shown by each, also those
without a worker; every server that ends or dies is gone from the list.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_members import until

from tidegate import __version__
from tidegate.home import Home
from tidegate.model.records import SERVERS
from tidegate.store.open import open_store
from tidegate.testing.failpoints import failpoint_names

TIMEOUT_S = 120
SERVER = [sys.executable, "-c", "from tidegate.cli import main; main()", "server", "--no-worker"]
OF_ONE = ("server.announce", "server.withdraw")
QUICK = {"server.announce.after", "server.withdraw.before"}


class Member:
    def __init__(self, place: Path, failpoint: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            *SERVER,
            "--home",
            str(place / "home"),
            "--config",
            str(place / "tidegate.yaml"),
            "--http-port",
            str(self.port),
        ]
        environ = {**os.environ, **({"TIDEGATE_FAILPOINT": failpoint} if failpoint else {})}
        with open(place / f"{self.port}.txt", "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def send(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        if self.alive:
            self.process.kill()
        self.process.wait()


class Installation:
    def __init__(self, place: Path) -> None:
        self.place, self.members = place, list[Member]()
        (place / "tidegate.yaml").write_text("tidegate:\n  coordinator:\n    lease-ms: 1500\n")

    def start(self, failpoint: str = "") -> Member:
        self.members.append(Member(self.place, failpoint))
        return self.members[-1]

    def serve(self) -> Member:
        made = self.start()
        until("a server", lambda: made.ask("/health"))
        return made

    def kept(self) -> list[str]:
        """The names that the store has."""
        with closing(open_store(Home(self.place / "home").store_url)) as store:
            return [entry.key for entry in store.list(SERVERS)]

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    yield made
    made.close()


def addresses(member: Member) -> set[str]:
    return {each["address"] for each in member.ask("/api/v1/coordinators")}


def test_each_server_shows_all_and_nothing_is_left_of_those_that_end_or_die(
    installation: Installation,
) -> None:
    leader = installation.serve()
    until("a leader", lambda: leader.ask("/api/v1/overview")["leader"])
    follower, lost = installation.serve(), installation.serve()
    for each in (leader, follower, lost):
        until(
            "all three", lambda each=each: addresses(each) == {leader.url, follower.url, lost.url}
        )
    seen = {each["address"]: each for each in follower.ask("/api/v1/coordinators")}
    assert [
        (seen[m.url]["leads"], seen[m.url]["answers"], bool(seen[m.url]["term"]))
        for m in (leader, follower)
    ] == [
        (True, False, True),
        (False, True, False),
    ]
    assert {(each["version"], bool(each["since"])) for each in seen.values()} == {
        (__version__, True)
    }
    assert follower.ask("/api/v1/overview")["coordinators"] == 3
    assert {each["port"] for each in follower.ask("/system-monitoring-information")} == {
        str(m.port) for m in (leader, follower, lost)
    }

    lost.send(signal.SIGKILL)
    until("two in the store", lambda: len(installation.kept()) == 2)
    until("two at the follower", lambda: addresses(follower) == {leader.url, follower.url})
    assert leader.send(signal.SIGTERM) == 0
    until(
        "one, which leads",
        lambda: (
            [(each["address"], each["leads"]) for each in follower.ask("/api/v1/coordinators")]
            == [(follower.url, True)]
        ),
    )
    assert follower.send(signal.SIGTERM) == 0
    assert installation.kept() == []


def places() -> list[object]:
    names = [name for name in failpoint_names() if name.startswith(OF_ONE)]
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in names]


def test_all_places_of_announcements_are_in_the_two_tests_below() -> None:
    steps = {name.rpartition(".")[0] for name in failpoint_names() if name.startswith("server.")}
    assert steps == {*OF_ONE, "server.sweep"}


@pytest.mark.parametrize("place", places())
def test_a_server_that_dies_while_it_comes_or_goes_leaves_nothing(
    installation: Installation, place: str
) -> None:
    leader = installation.serve()
    victim = installation.start(f"{place}@2" if place.startswith("server.announce") else place)
    if place.startswith("server.withdraw"):
        until("the victim", lambda: victim.ask("/health"))
        until("its name", lambda: len(installation.kept()) == 2)
        victim.process.send_signal(signal.SIGTERM)
    assert victim.process.wait(TIMEOUT_S) == -signal.SIGKILL
    until("its name gone", lambda: len(installation.kept()) == 1)
    until("alone", lambda: addresses(leader) == {leader.url})


@pytest.mark.soak
@pytest.mark.parametrize("side", ["before", "after"])
def test_the_next_leader_continues_the_cleanup_of_a_dead_one(
    installation: Installation, side: str
) -> None:
    victim = installation.start(f"server.sweep.{side}")
    until("a leader", lambda: victim.ask("/api/v1/overview")["leader"])
    lost, heir = installation.serve(), installation.serve()
    until("three", lambda: len(installation.kept()) == 3)
    lost.send(signal.SIGKILL)
    assert victim.process.wait(TIMEOUT_S) == -signal.SIGKILL
    until("only the heir", lambda: len(installation.kept()) == 1 and addresses(heir) == {heir.url})
