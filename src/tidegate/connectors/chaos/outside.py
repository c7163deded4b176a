"""The server that a Chaos source has things on: a directory, with a file for each. For tests of
what becomes of such things; no Spark is needed to drop them.

A file `down` in it means that the server cannot be reached. A file `runway` (JSON: the fields of
plugin.contract.Runway) is what it says of what it holds.
"""

import json
from pathlib import Path

from tidegate.model.errors import TransientError
from tidegate.plugin.contract import LogRetention, Resource
from tidegate.plugin.option import Values

SLOT, TABLE = "chaos slot", "chaos table"


def create(kind: str, name: str, place: str) -> None:
    """Make it; one that is there already is used."""
    _reach(place)
    _file(kind, name, place).touch()


def drop(resource: Resource, values: Values) -> None:  # noqa: ARG001  # the signature of all of them
    """Take it away; missing is fine."""
    _reach(resource.place)
    _file(resource.kind, resource.name, resource.place).unlink(missing_ok=True)


def log_retention(place: str) -> LogRetention:
    told = Path(place, "runway")
    return LogRetention(**json.loads(told.read_text())) if told.exists() else LogRetention(True)


def _reach(place: str) -> None:
    Path(place).mkdir(parents=True, exist_ok=True)
    if Path(place, "down").exists():
        raise TransientError(f"the server {place} is down")


def _file(kind: str, name: str, place: str) -> Path:
    return Path(place, f"{kind.removeprefix('chaos ')}-{name}")
