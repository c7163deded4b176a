"""Rows that a new snapshot leaves in a target because the source has lost them meanwhile: said
before the job starts. Called by prepare.

A snapshot brings every row that the source has, and removes none. A target that was filled before
keeps what was deleted at the source while nobody read its log.
"""

from collections.abc import Iterator

from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, Plan
from tidegate.plugin import registry

KEEPS = "data_save_mode"
EMPTIES = {KEEPS: ("DROP_DATA", "ERROR_WHEN_DATA_EXISTS"), "schema_save_mode": ("RECREATE_SCHEMA",)}


def fresh_notes(plan: Plan) -> tuple[str, ...]:
    """For a job that has run before and begins anew."""
    return tuple(
        f"warning: {sink.operator}: rows that {source.operator} has lost since it was last read"
        " stay in the target, as a snapshot removes none: set data_save_mode = DROP_DATA, or"
        " delete them there"
        for source, sink in _copies(plan)
        if not _empties(sink)
    )


def position_lost_notes(plan: Plan) -> tuple[str, ...]:
    """For a job that reads its tables anew where its log is lost."""
    return tuple(
        f"warning: {sink.operator}: where the log of {source.operator} is lost, its tables are read"
        " anew (--on-not-held initial), and rows that were deleted meanwhile stay in the target:"
        " delete them there, or start with --restore fresh and data_save_mode = DROP_DATA"
        for source, sink in _copies(plan)
    )


def _copies(plan: Plan) -> Iterator[tuple[Action, Action]]:
    """The sources that read a log after a snapshot, each with the sinks of its pipeline that keep
    rows by key.
    """
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
    """Whether its options empty the target, or refuse one that is not."""
    return any(sink.options.get(key) in words for key, words in EMPTIES.items())
