"""Access tokens, created and revoked by commands that are killed -9: each exists or does not, and
the others stay valid.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tidegate.clock import SystemClock
from tidegate.coordinator.tokens import Tokens, authenticate
from tidegate.home import Home
from tidegate.model.records import Role
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest, RunResult
from tidegate.testing.failpoints import failpoint_names


class Installation:
    """An installation with one token that is in use."""

    def __init__(self, home: Path, runs: CrashRuns) -> None:
        self.home = Home(home)
        self.runs = runs
        self.home.create()
        with self.tokens() as tokens:
            self.used, self.text = tokens.create("used", Role.OPERATOR)

    @contextmanager
    def tokens(self) -> Iterator[Tokens]:
        with closing(open_store(self.home.store_url)) as store:
            yield Tokens(store, SystemClock())

    def names(self) -> list[str]:
        with self.tokens() as tokens:
            return sorted(token.name for token in tokens.all())

    def comes_in(self) -> bool:
        """Whether the token in use is accepted."""
        with self.tokens() as tokens:
            return (
                authenticate(self.text, {token.id: token for token in tokens.all()}.get, 0)
                == self.used
            )

    def command(self, *words: str, failpoint: str = "") -> RunResult:
        home = str(self.home.root)
        return self.runs.run(
            RunRequest(
                home=home, file="", failpoints=failpoint, command=("token", "--home", home, *words)
            )
        )


def test_all_places_of_tokens_are_in_the_two_tests_below() -> None:
    steps = {name.rpartition(".")[0] for name in failpoint_names() if name.startswith("token.")}
    assert steps == {"token.create", "token.revoke"}


@pytest.mark.parametrize(
    ("place", "there"), [("token.create.before", ["used"]), ("token.create.after", ["new", "used"])]
)
def test_a_token_whose_making_is_killed_is_there_or_not_and_can_be_made_again(
    memory_disk: Path, runs: CrashRuns, place: str, there: list[str]
) -> None:
    installation = Installation(memory_disk / "home", runs)
    assert installation.command("create", "new", failpoint=place).code == KILLED
    assert installation.names() == there
    assert installation.command("create", "new").code == 0
    assert installation.names() == sorted([*there, "new"])
    assert installation.comes_in()


@pytest.mark.parametrize(
    ("place", "there"), [("token.revoke.before", ["used"]), ("token.revoke.after", [])]
)
def test_a_token_whose_revocation_is_killed_is_valid_or_gone_and_a_repeat_reports_it(
    memory_disk: Path, runs: CrashRuns, place: str, there: list[str]
) -> None:
    installation = Installation(memory_disk / "home", runs)
    assert installation.command("revoke", installation.used.id, failpoint=place).code == KILLED
    assert installation.names() == there
    assert installation.comes_in() == bool(there)
    again = installation.command("revoke", installation.used.id)
    assert again.code == 0 if there else "there is no token" in again.error
    assert installation.names() == []
