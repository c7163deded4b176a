"""Decisions about table changes as options, and the commands that a run advises."""

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tidegate.cli import main
from tidegate.cli.restore_options import RestoreArguments, options
from tidegate.cli.run import decision_commands
from tidegate.home import Home
from tidegate.model.table_changes import AcceptedChange, ChangeChoice, ChangeStop

STOP = ChangeStop(
    table="shop.my orders",
    at="bin.4:120",
    statement="ALTER ...",
    choices=(ChangeChoice.ADOPT, ChangeChoice.REREAD),
)


@click.command()
@options
def said(restoring: RestoreArguments) -> None:
    click.echo("\n".join(map(str, restoring.options.accept_changes)))


def test_decisions_may_be_repeated() -> None:
    ran = CliRunner().invoke(
        said,
        [
            "--restore",
            "latest",
            "--accept-change",
            "bin.4:120=ADOPT",
            "--accept-change",
            "a.b@0/1=skip",
        ],
    )
    assert (ran.exit_code, ran.output.split()) == (
        0,
        ["bin.4:120=adopt", "a.b@0/1=skip"],
    ), ran.output


@pytest.mark.parametrize("word", ["bin.4:120", "bin.4:120=perhaps", "=adopt"])
def test_an_invalid_decision_is_a_usage_error(word: str) -> None:
    ran = CliRunner().invoke(said, ["--accept-change", word])
    assert (ran.exit_code, "is invalid" in ran.output) == (2, True)


def test_advised_commands_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_HOME", raising=False)
    lines = decision_commands([STOP], "7", Home(tmp_path / "a home")).splitlines()[1:]
    assert [shlex.split(line)[-3] for line in lines] == ["adopt", "reread"]
    for line in lines:
        words = shlex.split(line)
        context = main.make_context("tidegate", words[1:2], resilient_parsing=True)
        command = main.get_command(context, words[1])
        assert command is not None
        given = command.make_context(words[1], words[2:]).params
        assert (given["job"], given["at"], given["table"], given["home"]) == (
            "7",
            STOP.at,
            STOP.table,
            str(tmp_path / "a home"),
        )
        assert AcceptedChange(
            at=given["at"], choice=ChangeChoice(given["choice"]), table=given["table"]
        ).applies_to(STOP.table, STOP.at)
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    assert "--home" not in decision_commands([STOP], "7", Home(tmp_path))


def test_a_home_without_a_job_has_nothing_to_decide(tmp_path: Path) -> None:
    ran = CliRunner().invoke(
        main,
        ["accept-change", "7", "--at", "0/1", "--choice", "adopt", "--home", str(tmp_path)],
        env={"TIDEGATE_SERVER": ""},
    )
    assert (ran.exit_code, "no installation" in ran.output) == (2, True), ran.output
