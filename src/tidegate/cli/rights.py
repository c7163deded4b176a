"""Finds files with secrets that other users of this machine can access.

Called when a server or worker starts, and by `tidegate doctor`. It only warns, because the
permissions may be intended, and a server that does not start would be worse.
"""

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.config.engine.settings import load_engine
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.redact import secret_texts

FORBIDDEN_MODE = (
    stat.S_IRWXO | stat.S_IWGRP
)  # a group that may read is often meant: that of certificates, of a mounted volume
TOKEN_FILE = "TIDEGATE_TOKEN_FILE"


@dataclass(frozen=True, slots=True)
class ExposedFile:
    """A file or directory that other users can access, and its content."""

    path: Path
    what: str
    mode: int

    @property
    def repair(self) -> str:
        """The command that restricts the access."""
        directory = stat.S_ISDIR(self.mode)
        return f"chmod {'700' if directory else '600'} {self.path}"

    def __str__(self) -> str:
        return (
            f"warning: {self.path} ({self.what}) can be accessed by other users of this machine,"
            f" mode {stat.S_IMODE(self.mode):04o}: {self.repair}"
        )


def exposed_files(
    home: Home, settings: EngineSettings, file: str, environ: Mapping[str, str]
) -> list[ExposedFile]:
    """Return the files of this installation that other users can read or change."""
    return list(_checked(home, settings, file, environ))


def exposed_files_of(home: Path, environ: Mapping[str, str]) -> list[ExposedFile]:
    """Load the settings, and return the files that other users can read or change.

    Raises UserError if the engine's file cannot be read.
    """
    installation = Home(home)
    settings, sources, _ = load_engine(None, environ, home=installation)
    return exposed_files(installation, settings, sources.file, environ)


def holds_secrets(settings: EngineSettings) -> bool:
    """Return whether the engine's file contains secrets."""
    http = settings.http
    own = (http.basic_auth and http.password) or settings.events.headers or settings.events.url
    texts = secret_texts({"store": settings.store_url, **settings.spark}) | secret_texts(
        settings.checkpoint.storage_options, free=True
    )
    return bool(own or texts)


def _checked(
    home: Home, settings: EngineSettings, file: str, environ: Mapping[str, str]
) -> Iterator[ExposedFile]:
    yield from _file(str(home.root), "store, checkpoints and logs")
    for name in ("store", "checkpoints", "logs", "work"):
        if _mode(home.root) is None or (_mode(home.root) or 0) & FORBIDDEN_MODE:
            yield from _file(str(home.root / name), f"{name} of the home")
    yield from _file(settings.http.private_key, "the private key of https")
    if holds_secrets(settings):
        yield from _file(file, "the engine's file, which holds secrets")
    yield from _file(environ.get(TOKEN_FILE, ""), f"the token of {TOKEN_FILE}")


def _file(path: str, what: str) -> Iterator[ExposedFile]:
    mode = _mode(Path(path)) if path else None
    if mode is not None and mode & FORBIDDEN_MODE:
        yield ExposedFile(Path(path), what, mode)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError:
        return None
