"""The command that a run advises repeats the given options, and nothing else."""

import shlex

import click
import pytest
from click.testing import CliRunner

from tidegate.cli import run_options


@click.command()
@run_options.options
def advised(arguments: run_options.RunArguments) -> None:
    click.echo(run_options.command_line(arguments, {}))


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--strict"],
        ["--lenient"],
        ["--job-id", "7", "--name", "a b", "-i", "day=1", "--json"],
    ],
)
def test_the_advised_command_repeats_the_options_that_were_given(given: list[str]) -> None:
    ran = CliRunner().invoke(advised, ["job.conf", "--home", "/h", *given])
    assert ran.exit_code == 0, ran.output
    words = shlex.split(ran.output)
    assert sorted(words) == sorted(["tidegate", "run", "job.conf", "--home", "/h", *given])
