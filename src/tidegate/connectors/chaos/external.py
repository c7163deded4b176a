"""Simulates the server of a Chaos source as a directory with one file per resource.

For tests of external resources; dropping them needs no Spark. A file `down` means that the server
is unreachable. A file `runway` contains the retention that the server reports (JSON: the fields of
plugin.contract.LogRetention).
"""

import json
from pathlib import Path

from tidegate.model.errors import TransientError
from tidegate.plugin.contract import LogRetention, Resource
from tidegate.plugin.option import Values

SLOT, TABLE = "chaos slot", "chaos table"


def create(kind: str, name: str, directory: str) -> None:
    """Create a resource, or use the existing one."""
    _reach(directory)
    _file(kind, name, directory).touch()


def drop(
    resource: Resource,
    values: Values,  # noqa: ARG001  # the signature of Connector.drop
) -> None:
    """Drop a resource, which may be missing."""
    _reach(resource.location)
    _file(resource.kind, resource.name, resource.location).unlink(missing_ok=True)


def log_retention(directory: str) -> LogRetention:
    file = Path(directory, "runway")
    return LogRetention(**json.loads(file.read_text())) if file.exists() else LogRetention(True)


def _reach(directory: str) -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    if Path(directory, "down").exists():
        raise TransientError(f"the server {directory} is down")


def _file(kind: str, name: str, directory: str) -> Path:
    return Path(directory, f"{kind.removeprefix('chaos ')}-{name}")
