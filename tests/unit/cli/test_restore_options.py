"""The restore options of the command line, including those of SeaTunnel."""

import os
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tidegate.cli import restore_options
from tidegate.cli.restore_options import RestoreArguments
from tidegate.coordinator.restore.options import RestoreOptions, RestoreSource
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost


def said(*arguments: str) -> Any:
    """What a command with these options is given; the text of the refusal where there is one."""
    given = []

    @click.command()
    @restore_options.options
    def command(restoring: RestoreArguments) -> None:
        given.append(restoring)

    done = CliRunner().invoke(command, arguments)
    return given[0] if given else done.output


@pytest.mark.parametrize(
    ("arguments", "restoring"),
    [
        ((), RestoreArguments(RestoreOptions(RestoreSource.ASK))),
        (("--restore", "latest"), RestoreArguments(RestoreOptions(RestoreSource.LATEST))),
        (("-r", "7"), RestoreArguments(RestoreOptions(RestoreSource.LATEST), 7)),
        (
            ("-r", "/checkpoints/savepoint/7/1700000000000"),
            RestoreArguments(
                RestoreOptions(
                    RestoreSource.PATH, location="/checkpoints/savepoint/7/1700000000000"
                )
            ),
        ),
        (
            ("-r", "savepoint:savepoint/7/1700000000000"),
            RestoreArguments(
                RestoreOptions(RestoreSource.SAVEPOINT, location="savepoint/7/1700000000000")
            ),
        ),
        (
            ("--restore-with-checkpoint", "7"),
            RestoreArguments(RestoreOptions(RestoreSource.LATEST, source_job=7), None, True),
        ),
        (
            ("--restore-from", "7", "--restore", "checkpoint:3"),
            RestoreArguments(RestoreOptions(RestoreSource.CHECKPOINT, 3, source_job=7)),
        ),
        (
            ("--takeover", "--allow-duplicates"),
            RestoreArguments(RestoreOptions(RestoreSource.ASK, takeover=True, duplicates=True)),
        ),
        (
            (
                "-r",
                "latest",
                "--skip-file",
                "/in/b.csv",
                "--skip-file",
                "/in/c/",
                "--accept-file",
                "/d",
            ),
            RestoreArguments(
                RestoreOptions(
                    RestoreSource.LATEST, skip_files=("/in/b.csv", "/in/c"), accept_files=("/d",)
                )
            ),
        ),
        (
            ("--skip-file", "b.csv"),
            RestoreArguments(
                RestoreOptions(RestoreSource.ASK, skip_files=(os.path.abspath("b.csv"),))
            ),
        ),
        (
            (
                "-r",
                "auto",
                "--on-missing",
                "fresh",
                "--on-damaged",
                "fail",
                "--on-incompatible",
                "drop",
                "--on-not-held",
                "latest",
            ),
            RestoreArguments(
                RestoreOptions(
                    RestoreSource.AUTO,
                    on_missing=OnMissing.FRESH,
                    on_damaged=OnDamaged.FAIL,
                    on_incompatible=OnIncompatible.DROP,
                    on_position_lost=OnPositionLost.LATEST,
                )
            ),
        ),
    ],
)
def test_command_line_options_become_restore_options(
    arguments: tuple[str, ...], restoring: RestoreArguments
) -> None:
    assert said(*arguments) == restoring


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--restore", "yesterday"), "is invalid: use latest"),
        (("--skip-file", "/x") * 101, "--skip-file is given 101 times"),
        (("--restore", "fresh", "--restore-from", "7"), "cannot be combined with"),
        (("--restore-with-checkpoint", "7", "--restore", "latest"), "omit --restore"),
        (("--on-missing", "perhaps"), "'fail', 'fresh'"),
        (("--restore-from", "0"), "0 is not in the range"),
    ],
)
def test_contradictory_options_are_a_usage_error(arguments: tuple[str, ...], word: str) -> None:
    assert word in " ".join(said(*arguments).split())
