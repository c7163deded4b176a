"""The help texts: every command has a valid example, and shells can complete commands."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from tidegate.cli import COMMANDS, exits, main
from tidegate.cli.completion import completer


def verb(name: str) -> click.Command:
    module, _, function = COMMANDS[name].partition(":")
    command: click.Command = getattr(import_module(module), function)
    return command


def examples(command: click.Command) -> Iterator[list[str]]:
    """The words of each example in a help, and of those below it."""
    for line in re.split("Examples?:", command.help or "")[-1].splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tidegate"]:
            yield words[1 : words.index(">") if ">" in words else None]
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from examples(below)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_every_command_has_valid_examples(
    name: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    found = list(examples(verb(name)))
    assert [words for words in found if words[0] == name], "an example of its own"
    for words in found:
        parsed(main, words)


def parsed(command: click.Command, words: list[str]) -> None:
    """Raise where these words are not understood. Nothing is done."""
    context = command.make_context(command.name, words)
    if isinstance(command, click.Group):
        _, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        parsed(below, rest)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    printed = CliRunner().invoke(main, ["completion", shell], prog_name="tidegate")
    assert printed.exit_code == 0
    assert f"_TIDEGATE_COMPLETE={shell}_complete" in printed.output
    answers = completer(main, shell)
    assert [item.value for item in answers.get_completions([], "")] == sorted(COMMANDS)
    assert [item.value for item in answers.get_completions(["restore-plan"], "--restore")] == [
        "--restore",
        "--restore-from",
        "--restore-with-checkpoint",
    ]


def test_every_exit_code_has_a_meaning() -> None:
    codes = {
        value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)
    }
    assert codes == set(exits.MEANINGS)
