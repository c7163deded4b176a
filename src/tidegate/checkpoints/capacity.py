"""How much checkpoint storage jobs need: from the sizes that were measured, and by estimate for a
job that has not run. Pure. Caller: `tidegate capacity`.

    checkpoint   = manifest + the state of every source and sink            (measured: the largest one that the store remembers)
    pipeline     = checkpoint x (retained + 1)                              one more is being written while the oldest still stands
    storage      = sum over the pipelines x 1.5, and one checkpoint of each pipeline for every savepoint

One checkpoint is made at a time, so the number of concurrent checkpoints is always 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, Plan

SAFETY = 1.5
MANIFEST_BYTES = 400  # without its lines for the states
OF_AN_OPERATOR_BYTES = 250  # the manifest's line, and the frame around the state
DEFAULT_BYTES = {BlockKind.SOURCE: (100, 4_000), BlockKind.SINK: (50, 1_000)}
# Of one table. What a source keeps between a snapshot's first and last chunk is the upper bound.
TYPICAL_BYTES: Mapping[str, tuple[int, int]] = {
    "MySQL-CDC": (1_000, 10_000),
    "Postgres-CDC": (1_000, 50_000),
    "Oracle-CDC": (50_000, 2_000_000),
}
TABLE_LISTS = ("table-names", "tables_configs", "table_list", "tables")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSizes:
    """The checkpoints of one pipeline, as measured. `bytes` are in order of their ids."""

    pipeline: int
    retained_max: int
    bytes: tuple[int, ...]
    interval_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a job needs.

    `low_bytes` is the least of an estimate; of a measured job it is the same.
    """

    checkpoint_bytes: int
    low_bytes: int
    storage_bytes: int
    retained_max: int
    measured: bool

    @property
    def savepoint_bytes(self) -> int:
        """Each savepoint, beside all that."""
        return self.checkpoint_bytes


def measured(pipelines: Iterable[PipelineSizes]) -> Need | None:
    """What a job needs by its own checkpoints; None where it has none yet."""
    known = [each for each in pipelines if each.bytes]
    if not known:
        return None
    checkpoint = sum(max(each.bytes) for each in known)
    storage = sum(max(each.bytes) * (each.retained_max + 1) for each in known)
    return Need(
        checkpoint_bytes=checkpoint,
        low_bytes=checkpoint,
        storage_bytes=round(storage * SAFETY),
        retained_max=max(each.retained_max for each in known),
        measured=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorEstimate:
    """The state of one operator that has not run, and where the figure is from."""

    operator: str
    plugin: str
    low_bytes: int
    high_bytes: int
    tables: int
    source: str


def estimated_operator(action: Action, seen: Mapping[str, Sequence[int]]) -> OperatorEstimate:
    """By what operators of the same plugin have here; else by what is typical."""
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
    """How many tables a block is about, as far as its options tell."""
    lists = [
        value for key in TABLE_LISTS if isinstance(value := action.options.get(key), list | tuple)
    ]
    return max([1, *map(len, lists)])


def estimated(
    plan: Plan, retained_max: int, seen: Mapping[str, Sequence[int]]
) -> tuple[Need, list[OperatorEstimate]]:
    """What a job file will need, and the operators that it comes from. Transforms keep no state."""
    rows = [
        estimated_operator(a, seen)
        for p in plan.pipelines
        for a in p.actions
        if a.kind is not BlockKind.TRANSFORM
    ]
    frame = MANIFEST_BYTES * len(plan.pipelines) + OF_AN_OPERATOR_BYTES * len(rows)
    high = frame + sum(row.high_bytes for row in rows)
    need = Need(
        checkpoint_bytes=high,
        low_bytes=frame + sum(row.low_bytes for row in rows),
        storage_bytes=round(high * (retained_max + 1) * SAFETY),
        retained_max=retained_max,
        measured=False,
    )
    return need, rows
