"""Estimate the checkpoint storage of jobs. Pure. Caller: `tidegate capacity`.

    checkpoint   = manifest + the state of every source and sink
    pipeline     = checkpoint x (retained + 1), because one is written while the oldest still exists
    storage      = sum over the pipelines x 1.5, and one checkpoint per pipeline for each savepoint

For a job that has run, the checkpoint size is the largest that the store remembers; otherwise it is
an estimate. Only one checkpoint of a pipeline is made at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, Plan

SAFETY = 1.5
MANIFEST_BYTES = 400  # without its lines for the states
OPERATOR_BYTES = 250  # the manifest's line, and the frame around the state
DEFAULT_BYTES = {BlockKind.SOURCE: (100, 4_000), BlockKind.SINK: (50, 1_000)}
# Per table. The upper bound is what a source keeps during a snapshot.
TYPICAL_BYTES: Mapping[str, tuple[int, int]] = {
    "MySQL-CDC": (1_000, 10_000),
    "Postgres-CDC": (1_000, 50_000),
    "Oracle-CDC": (50_000, 2_000_000),
}
TABLE_LISTS = ("table-names", "tables_configs", "table_list", "tables")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSizes:
    """Measured checkpoint sizes of one pipeline, in order of their ids."""

    pipeline: int
    retained_max: int
    bytes: tuple[int, ...]
    interval_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageNeed:
    """The storage that a job needs.

    `low_bytes` is the lower bound of an estimate; for a measured job it equals `checkpoint_bytes`.
    """

    checkpoint_bytes: int
    low_bytes: int
    storage_bytes: int
    retained_max: int
    measured: bool

    @property
    def savepoint_bytes(self) -> int:
        """Additional bytes for each savepoint."""
        return self.checkpoint_bytes


def measured(pipelines: Iterable[PipelineSizes]) -> StorageNeed | None:
    """Compute the need of a job from its own checkpoints; None if it has none yet."""
    known = [each for each in pipelines if each.bytes]
    if not known:
        return None
    checkpoint = sum(max(each.bytes) for each in known)
    storage = sum(max(each.bytes) * (each.retained_max + 1) for each in known)
    return StorageNeed(
        checkpoint_bytes=checkpoint,
        low_bytes=checkpoint,
        storage_bytes=round(storage * SAFETY),
        retained_max=max(each.retained_max for each in known),
        measured=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorEstimate:
    """Estimated state of one operator that has not run; `source` says how it was estimated."""

    operator: str
    plugin: str
    low_bytes: int
    high_bytes: int
    tables: int
    source: str


def estimated_operator(action: Action, seen: Mapping[str, Sequence[int]]) -> OperatorEstimate:
    """Estimate from operators of the same plugin in this installation, else from typical sizes."""
    tables = tables_of(action)
    sizes = seen.get(action.plugin, ())
    if sizes:
        return OperatorEstimate(
            operator=action.operator,
            plugin=action.plugin,
            low_bytes=min(sizes),
            high_bytes=max(sizes),
            tables=tables,
            source=f"{len(sizes)} measured here",
        )
    low, high = TYPICAL_BYTES.get(action.plugin, DEFAULT_BYTES.get(action.kind, (0, 0)))
    return OperatorEstimate(
        operator=action.operator,
        plugin=action.plugin,
        low_bytes=low * tables,
        high_bytes=high * tables,
        tables=tables,
        source="typical of such a block",
    )


def tables_of(action: Action) -> int:
    """Count the tables of a block, as far as its options name them."""
    lists = [
        value for key in TABLE_LISTS if isinstance(value := action.options.get(key), list | tuple)
    ]
    return max([1, *map(len, lists)])


def estimated(
    plan: Plan, retained_max: int, seen: Mapping[str, Sequence[int]]
) -> tuple[StorageNeed, list[OperatorEstimate]]:
    """Estimate the need of a job file, with its operators. Transforms keep no state."""
    rows = [
        estimated_operator(a, seen)
        for p in plan.pipelines
        for a in p.actions
        if a.kind is not BlockKind.TRANSFORM
    ]
    frame = MANIFEST_BYTES * len(plan.pipelines) + OPERATOR_BYTES * len(rows)
    high = frame + sum(row.high_bytes for row in rows)
    need = StorageNeed(
        checkpoint_bytes=high,
        low_bytes=frame + sum(row.low_bytes for row in rows),
        storage_bytes=round(high * (retained_max + 1) * SAFETY),
        retained_max=retained_max,
        measured=False,
    )
    return need, rows
