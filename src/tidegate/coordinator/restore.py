"""From where a job goes on: what there is of an earlier run, whether it fits the job file, which checkpoint each pipeline takes.

Called by claim (embedded runs), commands (submit) and transitions (every start of a generation). Reads checkpoints; writes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidegate.checkpoints.resolve import AllDamaged, Candidate, Chosen, NoCheckpoint, NotRetained, Resolution, WantedDamaged, resolve
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.registry import Known, last_generation, next_checkpoint
from tidegate.coordinator.wish import Condition
from tidegate.model.errors import UserError
from tidegate.model.plan import Plan
from tidegate.model.records import CleanupRecord, JobStatus, PipelineState, PipelineStatus


class Incompatible(UserError):
    """The checkpoint and the job file do not fit together."""

    condition = "restore-incompatible"


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """Where one pipeline goes on: its state from there, and what a person should know."""

    state: PipelineState
    notes: tuple[str, ...] = ()


def restore_points(storage: CheckpointStorage, pipelines: Iterable[PipelineState], wanted: int | None) -> list[RestorePoint]:
    """The restore point of every unfinished pipeline; raises, in words for a person, where one of them has none."""
    points = []
    for state in pipelines:
        if state.status is not PipelineStatus.FINISHED:
            resolution = resolve([Candidate(ref, storage.damage(ref.path)) for ref in state.retained], wanted)
            points.append(RestorePoint(restored_state(state, resolution, str(storage.root)), tuple(describe(state.pipeline, resolution))))
    return points


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """Where the numbers of a new incarnation begin: above all that the id has ever had."""

    next_checkpoint: int
    last_generation: int


def numbers_of(known: Known, storage: CheckpointStorage) -> Numbers:
    """By what the store knows; where it has forgotten the id, by the checkpoints that were left on disk: nothing deletes them when a history expires."""
    checkpoint, generation = next_checkpoint(known), last_generation(known)
    if known.state is not None or known.outcome is not None:
        return Numbers(next_checkpoint=checkpoint, last_generation=generation)
    left = storage.newest(known.job_id)
    return Numbers(next_checkpoint=max(checkpoint, left.checkpoint + 1), last_generation=max(generation, left.generation))


def condition_of(known: Known, cleanup: CleanupRecord | None) -> Condition:
    """What there is of an earlier run; `cleanup` is what is still to be deleted of it."""
    status = known.state.value.status if known.state else known.outcome.status if known.outcome else None
    if status is JobStatus.FINISHED:
        return Condition.FINISHED
    if status is None or not known.pipelines:
        return Condition.NONE
    if cleanup is not None and known.record is None and not cleanup.resumable:
        return Condition.DISCARDED  # whether its cleanup has begun or not: a restore must not depend on who is quicker
    return Condition.WORK_DONE if known.work_done else Condition.UNFINISHED


def place_of(known: Known) -> str:
    """Where an unfinished run stands, in words."""
    latest = {p.value.pipeline: p.value.latest.checkpoint for p in known.pipelines if p.value.latest}
    if not latest:
        return "no checkpoint completed yet"
    if len(known.pipelines) == 1:
        return f"last completed checkpoint {next(iter(latest.values()))}"
    return "last completed checkpoints " + ", ".join(f"{c} of pipeline {p}" for p, c in latest.items())


def restored_state(state: PipelineState, resolution: Resolution, root: str) -> PipelineState:
    """The state from which the next generation starts. Raises, in words for a person, where there is no such state."""
    started = replace(state, status=PipelineStatus.CREATED, ready_to_close=(), error=None, confirmed_ms=0)
    match resolution:
        case NoCheckpoint():
            return started
        case Chosen(ref, _, newer):
            # Batches after the restore point are undone by the sinks, so the pending one is only repeated when nothing was skipped.
            pending = state.pending if not newer else None
            kept = tuple(r for r in state.retained if r.checkpoint <= ref.checkpoint)
            return replace(
                started,
                retained=kept,
                doomed=(*state.doomed, *newer),
                pending=pending,
                rows_read=state.rows_read - sum(r.rows_read for r in newer),
                rows_written=state.rows_written - sum(r.rows_written for r in newer),
            )
        case NotRetained(wanted, available):
            there = ", ".join(map(str, available)) or "none"
            raise UserError(f"checkpoint {wanted} of pipeline {state.pipeline} is not retained under {root}; there are: {there}")
        case WantedDamaged(candidate, available):
            there = ", ".join(map(str, available)) or "none"
            raise UserError(f"{candidate.damage}. Sound checkpoints of pipeline {state.pipeline}: {there}")
        case AllDamaged(skipped):
            reasons = "\n".join(f"  {c.damage}" for c in skipped)
            raise UserError(
                f"no checkpoint of pipeline {state.pipeline} can be used:\n{reasons}\nRestore them under {root}, or start over with --restore fresh"
            )


def describe(pipeline: int, resolution: Resolution) -> list[str]:
    """What a person should know about a restore."""
    if not isinstance(resolution, Chosen):
        return []
    notes = [f"{c.damage}; it is not used" for c in resolution.skipped]
    if resolution.newer:
        rows = sum(ref.rows_read for ref in resolution.newer)
        notes.append(f"pipeline {pipeline} goes back to checkpoint {resolution.ref.checkpoint}: {rows} rows will be read again")
    return notes


def check_compatible(plan: Plan, known: Known, storage: CheckpointStorage) -> None:
    """State without an owner is an error, never dropped silently."""
    owners = {a.operator: p.id for p in plan.pipelines for a in p.actions}
    problems = []
    for pipeline in known.pipelines:
        latest = pipeline.value.latest
        for operator in sorted({*(storage.operators(latest.path) if latest else ()), *(pipeline.value.initial or ())}):
            if operator not in owners:
                problems.append(f"{operator} has state in the unfinished run and is no longer in the job file")
            elif owners[operator] != pipeline.value.pipeline:
                problems.append(f"{operator} has moved from pipeline {pipeline.value.pipeline} to pipeline {owners[operator]}")
    if problems:
        raise Incompatible(
            "the job file does not fit the state of its unfinished run:\n  " + "\n  ".join(problems) + "\nBring it back, or start over with --restore fresh"
        )
