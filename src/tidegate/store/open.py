"""The only door to a store: the address decides the backend."""

from pathlib import Path

from tidegate.model.errors import UserError
from tidegate.store.backend import DEFAULT_COMPACTION_THRESHOLD, Retention
from tidegate.store.base import Store
from tidegate.store.memory import MemoryBackend
from tidegate.store.sqlite import SqliteBackend

CHOICES = "sqlite:///absolute/path (one host, several processes), memory: (this process only)"


def open_store(url: str, *, compaction_threshold: int = DEFAULT_COMPACTION_THRESHOLD) -> Store:
    """Open the store at this address, and make it if it is not there.

    `sqlite:///path`: the path is absolute and literal (nothing in it is unquoted), so `f"sqlite:///{path}"` is right for any absolute path.
    `compaction_threshold`: rows that the change log may have; what is older is Compacted.
    """
    if compaction_threshold < 1:
        raise UserError(f"compaction-threshold is {compaction_threshold}; it must be at least 1")
    retention = Retention(compaction_threshold)
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest:
        return Store(MemoryBackend(retention=retention))
    if scheme == "sqlite" and rest.startswith("///"):
        path = "/" + rest.lstrip("/")
        if path == "/" or "\0" in path:
            raise UserError(f"{_shown(url)} names no file; the choices are {CHOICES}")
        return Store(SqliteBackend(Path(path), retention=retention))
    raise UserError(f"{_shown(url)} is not the address of a store; the choices are {CHOICES}")


def _shown(url: str) -> str:
    """An address may carry a password: only its scheme is shown where there is a user part."""
    scheme, _, rest = url.partition(":")
    return repr(f"{scheme}:...") if "@" in rest else repr(url)
