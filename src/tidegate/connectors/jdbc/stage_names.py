"""Names of staging tables, with their sink, generation, batch and task attempt.

Pure. Only this module creates such names:
`tidegate_s_<sink>_<lineage>_<generation>_<checkpoint>_<attempt>_<table>`: a sink finds its dead
staging tables by these names, and touches no others.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

from tidegate.plugin.contract import OperatorContext

PREFIX = "tidegate_s_"
_NAME = re.compile(rf"{PREFIX}([0-9a-f]{{8}})_([0-9a-f]{{6}})_(\d+)_(\d+)_([0-9a-f]+)_(\d+)")


@dataclass(frozen=True, slots=True)
class StageName:
    sink: str
    lineage: str
    generation: int
    checkpoint: int
    attempt: str
    table: int

    def __str__(self) -> str:
        return (
            f"{PREFIX}{self.sink}_{self.lineage}_{self.generation}"
            f"_{self.checkpoint}_{self.attempt}_{self.table}"
        )

    @staticmethod
    def parse(name: str) -> "StageName | None":
        """Parse a table name; None if it is not a staging table."""
        found = _NAME.fullmatch(name)
        return (
            StageName(found[1], found[2], int(found[3]), int(found[4]), found[5], int(found[6]))
            if found
            else None
        )


def _digest(text: str, digits: int) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()[:digits]


def sink_digest(context: OperatorContext) -> str:
    """Identifies a sink of a job, across all its lineages."""
    return _digest(f"{context.job_id}/{context.pipeline}/{context.operator}", 8)


def lineage_digest(lineage: str) -> str:
    return _digest(lineage, 6)


def record_id(context: OperatorContext, lineage: str) -> str:
    """The key of a sink's record."""
    return _digest(f"{lineage}/{context.pipeline}/{context.operator}", 32)


def stage_prefix(context: OperatorContext) -> str:
    """The name prefix of all staging tables of a sink."""
    return f"{PREFIX}{sink_digest(context)}_"


def is_dead(stage: StageName, lineage: str, generation: int) -> bool:
    """Whether a staging table is obsolete when this generation opens the sink.

    None of its tasks runs yet, and a job has one incarnation at a time.
    """
    return stage.lineage != lineage_digest(lineage) or stage.generation <= generation
