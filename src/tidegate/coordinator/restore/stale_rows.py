"""Warnings about rows that a new snapshot leaves in a target.

Called by planning, before the job starts. A snapshot writes every row of the source, and removes
none. A target that was filled before keeps rows that were deleted at the source while its log was
not read.
"""

from collections.abc import Iterator

from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, Plan
from tidegate.plugin import registry

KEEPS = "data_save_mode"
EMPTIES = {KEEPS: ("DROP_DATA", "ERROR_WHEN_DATA_EXISTS"), "schema_save_mode": ("RECREATE_SCHEMA",)}


def fresh_notes(plan: Plan) -> tuple[str, ...]:
    """Return warnings for a job that has run before and begins anew."""
    return tuple(
        f"warning: {sink.operator}: rows that {source.operator} has lost since it was last read"
        " stay in the target, as a snapshot removes none: set data_save_mode = DROP_DATA, or"
        " delete them there"
        for source, sink in _copies(plan)
        if not _empties(sink)
    )


def position_lost_notes(plan: Plan) -> tuple[str, ...]:
    """Return warnings for a job that reads its tables again if the log is lost."""
    return tuple(
        f"warning: {sink.operator}: where the log of {source.operator} is lost, its tables are read"
        " anew (--on-not-held initial), and rows that were deleted meanwhile stay in the target:"
        " delete them there, or start with --restore fresh and data_save_mode = DROP_DATA"
        for source, sink in _copies(plan)
    )


def _copies(plan: Plan) -> Iterator[tuple[Action, Action]]:
    """Yield the sources that read a log after a snapshot, with the keyed sinks they feed."""
    for pipeline in plan.pipelines:
        for source in pipeline.of_kind(BlockKind.SOURCE):
            captures = registry.find(source.kind, source.plugin).capabilities
            if not captures.row_kinds or captures.batch:
                continue
            for sink in pipeline.of_kind(BlockKind.SINK):
                if (
                    KEEPS in sink.options
                    and registry.find(sink.kind, sink.plugin).capabilities.row_kinds
                ):
                    yield source, sink


def _empties(sink: Action) -> bool:
    """Whether the sink's options empty the target, or reject one that is not empty."""
    return any(sink.options.get(key) in values for key, values in EMPTIES.items())
