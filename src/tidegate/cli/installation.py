"""The store and the checkpoint storage that the engine's settings name, for commands that look at
them. Asking never makes an installation.
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
from tidegate.model.errors import TidegateError, UserError, system_sentence
from tidegate.model.problem import Severity
from tidegate.store.base import Store
from tidegate.store.open import open_store

SQLITE = "sqlite:///"


class NoInstallation(UserError):
    """Nothing has run here yet."""

    condition = "no-installation"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} holds no installation yet: nothing has run there. Name another home with"
            " --home, or the engine's file with --config"
        )


@dataclass(frozen=True, slots=True)
class LocalInstallation:
    """An installation that is there."""

    home: Home
    settings: EngineSettings
    store: Store
    storage: CheckpointStorage


@contextmanager
def installation(home: str | None, config: Path | None) -> Iterator[LocalInstallation]:
    """Open it. What is wrong, here or inside, is one sentence, and the end of the command."""
    place = Home.find(home, os.environ)
    settings, _, problems = load_engine(config, os.environ, home=place)
    if any(problem.severity is Severity.ERROR for problem in problems):
        job_file.print_problems(problems, sys.stderr)
        raise SystemExit(exits.BAD_INPUT)
    url = settings.store_url or place.store_url
    try:
        if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE[:-1])).exists():
            raise NoInstallation(str(place.root))
        store = open_store(url, compaction_threshold=settings.compaction_threshold)
        try:
            yield LocalInstallation(
                place, settings, store, open_storage(settings.checkpoint, place)
            )
        finally:
            store.close()
    except (TidegateError, OSError) as error:
        fail(error)


def fail(error: Exception) -> NoReturn:
    """Say what is wrong and end."""
    click.echo(
        f"tidegate: {system_sentence(error) if isinstance(error, OSError) else error}", err=True
    )
    sys.exit(exits.code_of(error))
