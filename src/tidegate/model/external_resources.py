"""What the store keeps about things that jobs have outside: replication slots, publications, server
ids, temporary tables.

| record | map | written by | fenced with |
|---|---|---|---|
| ResourceRecord | external-resources | the submit; the driver before it creates one; whoever drops it | version of the row |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.job import BlockKind

RESOURCES = "external-resources"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceRecord:
    """One thing and its owner: a job id and the mark of its incarnation.

    `plugin` and `options` are what it is dropped with; options may hold secrets.
    """

    version: int = 1
    kind: str
    name: str
    location: str = field(metadata={"key": "place"})
    lasting: bool = True
    job_id: int
    initialization_ms: int
    block: BlockKind
    plugin: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    recorded_ms: int = 0
    dropping: bool = False  # somebody is at it, or died at it
    attempts: int = 0
    error: str = ""  # why the last attempt failed
    due_ms: int = 0  # not to be tried before
