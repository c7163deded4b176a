"""Records of resources that jobs hold in other systems.

Replication slots, publications, server ids, temporary tables.

| record | map | written by | fenced with |
|---|---|---|---|
| ResourceRecord | external-resources | the submit; the driver before it creates one | version |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.job import BlockKind

RESOURCES = "external-resources"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceRecord:
    """One resource and its owner: a job id and the timestamp of its incarnation.

    `plugin` and `options` are needed to drop it; options may hold secrets.
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
    dropping: bool = False  # a drop has begun, and may have been interrupted by a crash
    attempts: int = 0
    error: str = ""  # why the last attempt failed
    due_ms: int = 0  # no attempt before this time
