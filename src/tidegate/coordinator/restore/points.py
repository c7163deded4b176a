"""Restore points: the previous run, the checkpoint that each pipeline uses, and its copy.

Called by claim (embedded runs), commands (submit) and transitions (every start of a generation).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.checkpoints import paths
from tidegate.checkpoints.resolve import (
    AllDamaged,
    Candidate,
    Chosen,
    NoCheckpoint,
    NotRetained,
    Resolution,
    WantedDamaged,
    resolve,
)
from tidegate.checkpoints.savepoints import Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.job_snapshot import JobSnapshot, last_generation, next_checkpoint
from tidegate.coordinator.restore.options import PreviousRun
from tidegate.coordinator.restore.origin import RestoreOrigin, is_forgotten
from tidegate.failpoint import failpoint
from tidegate.model.errors import UserError
from tidegate.model.option_error import OptionError, OptionMention
from tidegate.model.records import (
    CheckpointRef,
    CleanupRecord,
    JobStatus,
    PipelineState,
    PipelineStatus,
)
from tidegate.model.restore import OnDamaged
from tidegate.model.throughput import subtract_volumes

GENERATIONS_UNSEEN_MAX = 1000
"""Generations that completed no checkpoint are not in the storage, but the sinks have been fenced
by them: a new one begins above them too.
"""


class NewestDamaged(OptionError):
    """The newest checkpoint cannot be used, and the options forbid an older one."""

    condition = "checkpoint-damaged"

    def __init__(self, resolution: Chosen) -> None:
        reasons = "; ".join(c.damage for c in resolution.skipped)
        rows = sum(ref.rows_read for ref in resolution.newer)
        super().__init__(
            f"{reasons}. ",
            OptionMention("--on-damaged", "fail"),
            f" was given; checkpoint {resolution.ref.checkpoint} is sound: with ",
            OptionMention("--on-damaged", "older"),
            f" the job resumes from it, and {rows} rows are read again",
        )


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """The state from which one pipeline resumes, with notes for the user."""

    state: PipelineState
    notes: tuple[str, ...] = ()
    replays_rows: int = 0  # of checkpoints that lie after it


def restore_points(
    storage: CheckpointStorage,
    pipelines: Iterable[PipelineState],
    wanted: int | None,
    on_damaged: str = OnDamaged.OLDER.value,
) -> list[RestorePoint]:
    """Return the restore point of every unfinished pipeline.

    Raises, with a message for users, if one of them has none.
    """
    points = []
    for state in pipelines:
        if state.status is not PipelineStatus.FINISHED:
            resolution = resolve(
                [Candidate(ref, storage.damage(ref.path)) for ref in state.retained], wanted
            )
            if (
                isinstance(resolution, Chosen)
                and resolution.skipped
                and on_damaged == OnDamaged.FAIL
            ):
                raise NewestDamaged(resolution)
            points.append(
                RestorePoint(
                    restored_state(
                        state, resolution, storage.files.describe(), on_purpose=wanted is not None
                    ),
                    tuple(describe(state.pipeline, resolution)),
                    (
                        sum(ref.rows_read for ref in resolution.newer)
                        if isinstance(resolution, Chosen)
                        else 0
                    ),
                )
            )
    return points


def copy_checkpoints(
    storage: CheckpointStorage, state: PipelineState, generation: int
) -> PipelineState:
    """Return the state with every checkpoint in the job's own directory, under its own id.

    Checkpoints of other jobs are copied. Repeatable.
    """
    own = paths.pipeline_directory(state.job_id, state.pipeline).as_posix()

    def mine(ref: CheckpointRef) -> CheckpointRef:
        if ref.path.rpartition("/")[0] == own:
            return ref
        copy = storage.adopt(
            ref.path, state.job_id, state.pipeline, generation, lineage=state.lineage
        )
        return replace(copy, completed_ms=ref.completed_ms)

    failpoint("restore.adopt.before")
    # Older ones of a run that had ended may be gone, by the cleanup of that run.
    retained = tuple(
        mine(ref)
        for ref in state.retained
        if ref == state.latest or storage.files.exists(f"{ref.path}/{paths.MANIFEST}")
    )
    failpoint("restore.adopt.after")
    return replace(state, retained=retained) if retained != state.retained else state


def supersede_savepoints(
    storage: CheckpointStorage, states: Iterable[PipelineState], now_ms: int
) -> None:
    """Mark newer savepoints of the lineage of pipelines that go back on request.

    This happens before any sink rolls back a row.
    """
    back = {state.pipeline: state for state in states if state.rewind}
    if back:
        first = next(iter(back.values()))
        places = {
            pipeline: state.latest.checkpoint if state.latest else 0
            for pipeline, state in back.items()
        }
        Savepoints(storage.files).mark_superseded(
            first.lineage, places, job_id=first.job_id, at_ms=now_ms
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class IdFloor:
    """The lower bound of the ids of a new incarnation: above all that this job id ever used."""

    next_checkpoint: int
    last_generation: int


def id_floor(snapshot: JobSnapshot, storage: CheckpointStorage, *origins: RestoreOrigin) -> IdFloor:
    """Return the lower bound of ids from the store.

    If the store has forgotten the job id, from the checkpoints left on disk: an expiry of history
    does not delete them. The ids are also above those of the continued state of another job.
    """
    checkpoint = max([next_checkpoint(snapshot), *(o.next_checkpoint for o in origins)])
    generation = max([last_generation(snapshot), *(o.generation for o in origins)])
    if snapshot.unused or snapshot.state is not None or snapshot.outcome is not None:
        return IdFloor(next_checkpoint=checkpoint, last_generation=generation)
    left = storage.highest_ids(snapshot.job_id)
    unseen = GENERATIONS_UNSEEN_MAX if left.checkpoint else 0
    return IdFloor(
        next_checkpoint=max(checkpoint, left.checkpoint + 1),
        last_generation=max(generation, left.generation) + unseen,
    )


def previous_run(
    snapshot: JobSnapshot, cleanup: CleanupRecord | None, *, left: bool = False
) -> PreviousRun:
    """Return what exists of an earlier run; `cleanup` is what is still to be deleted of it.

    `left`: the store has no record, and checkpoints exist.
    """
    if left and is_forgotten(snapshot):
        return PreviousRun.UNFINISHED
    status = (
        snapshot.state.value.status
        if snapshot.state
        else snapshot.outcome.status
        if snapshot.outcome
        else None
    )
    if status is JobStatus.FINISHED:
        return PreviousRun.FINISHED
    if status is None or not snapshot.pipelines:
        return PreviousRun.NONE
    if cleanup is not None and snapshot.record is None and not cleanup.resumable:
        return (
            PreviousRun.DISCARDED
        )  # whether its cleanup has begun or not: a restore must not depend on who is quicker
    return PreviousRun.WORK_DONE if snapshot.work_done else PreviousRun.UNFINISHED


def describe_position(states: Sequence[PipelineState]) -> str:
    """Describe the last checkpoints of an unfinished run."""
    latest = {state.pipeline: state.latest.checkpoint for state in states if state.latest}
    if not latest:
        return "no checkpoint completed yet"
    if len(states) == 1:
        return f"last completed checkpoint {next(iter(latest.values()))}"
    return "last completed checkpoints " + ", ".join(
        f"{c} of pipeline {p}" for p, c in latest.items()
    )


def restored_state(
    state: PipelineState, resolution: Resolution, root: str, *, on_purpose: bool = False
) -> PipelineState:
    """Return the state from which the next generation starts.

    Raises, with a message for users, if there is none. Only a restore that goes back on request
    makes the sinks roll back newer rows. If newer checkpoints are damaged, the records of the sinks
    say how to continue.
    """
    started = replace(
        state, status=PipelineStatus.CREATED, ready_to_close=(), error=None, confirmed_ms=0
    )
    match resolution:
        case NoCheckpoint():
            return started
        case Chosen(ref, _, newer):
            # Batches after the restore point are undone or reported by sinks, so the pending one is
            # only repeated when nothing was skipped.
            pending = state.pending if not newer else None
            kept = tuple(r for r in state.retained if r.checkpoint <= ref.checkpoint)
            return replace(
                started,
                retained=kept,
                pending_deletion=(*state.pending_deletion, *newer),
                pending=pending,
                rewind=state.rewind or (on_purpose and bool(newer)),
                rows_read=state.rows_read - sum(r.rows_read for r in newer),
                rows_written=state.rows_written - sum(r.rows_written for r in newer),
                volumes=subtract_volumes(state.volumes, (r.volumes for r in newer)),
            )
        case NotRetained(wanted, available):
            there = ", ".join(map(str, available)) or "none"
            raise UserError(
                f"checkpoint {wanted} of pipeline {state.pipeline} is not retained under {root};"
                f" retained checkpoints: {there}"
            )
        case WantedDamaged(candidate, available):
            there = ", ".join(map(str, available)) or "none"
            raise UserError(
                f"{candidate.damage}. Sound checkpoints of pipeline {state.pipeline}: {there}"
            )
        case AllDamaged(skipped):
            reasons = "\n".join(f"  {c.damage}" for c in skipped)
            raise OptionError(
                f"no checkpoint of pipeline {state.pipeline} can be used:\n{reasons}\nRestore them"
                f" under {root}, or start over with ",
                OptionMention("--restore", "fresh"),
            )


def describe(pipeline: int, resolution: Resolution) -> list[str]:
    """Return notes for the user about a restore."""
    if not isinstance(resolution, Chosen):
        return []
    notes = [f"{c.damage}; it is not used" for c in resolution.skipped]
    if resolution.newer:
        rows = sum(ref.rows_read for ref in resolution.newer)
        notes.append(
            f"pipeline {pipeline} goes back to checkpoint {resolution.ref.checkpoint}: {rows} rows"
            " will be read again"
        )
    return notes
