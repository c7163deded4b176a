"""Opens the store and the checkpoint storage of an existing installation, for commands.

It never creates an installation.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from tidegate.checkpoints.open import open_storage
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli import exits, job_file
from tidegate.config.engine.settings import load_engine
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError, UserError, describe_os_error
from tidegate.model.problem import Severity
from tidegate.store.base import Store
from tidegate.store.open import open_store

SQLITE = "sqlite:///"


class NoInstallation(UserError):
    """The home has no store, because nothing has run there."""

    condition = "no-installation"

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} holds no installation yet: nothing has run there. Choose another home"
            " with --home, or the engine's file with --config"
        )


@dataclass(frozen=True, slots=True)
class LocalInstallation:
    """An existing installation with its open store and storage."""

    home: Home
    settings: EngineSettings
    store: Store
    storage: CheckpointStorage


@contextmanager
def installation(home: str | None, config: Path | None) -> Iterator[LocalInstallation]:
    """Open the installation.

    An error, here or in the body, is printed in one sentence and ends the command.
    """
    found = Home.find(home, os.environ)
    settings, _, problems = load_engine(config, os.environ, home=found)
    if any(problem.severity is Severity.ERROR for problem in problems):
        job_file.print_problems(problems, sys.stderr)
        raise SystemExit(exits.BAD_INPUT)
    url = settings.store_url or found.store_url
    try:
        if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE[:-1])).exists():
            raise NoInstallation(str(found.root))
        store = open_store(url, compaction_threshold=settings.compaction_threshold)
        try:
            yield LocalInstallation(
                found, settings, store, open_storage(settings.checkpoint, found)
            )
        finally:
            store.close()
    except (TidegateError, OSError) as error:
        fail(error)


def fail(error: Exception) -> NoReturn:
    """Print an error and end the command with its exit code."""
    click.echo(
        f"tidegate: {describe_os_error(error) if isinstance(error, OSError) else error}", err=True
    )
    sys.exit(exits.code_of(error))
