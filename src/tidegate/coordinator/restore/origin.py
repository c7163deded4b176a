"""Finds the state to restore: the last run, another job's, a savepoint, a storage path.

Called by planning; reads only. Returns the state of every pipeline as found at the origin. The
callers decide which checkpoint is used and whose lineage continues.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidegate.checkpoints import paths
from tidegate.checkpoints.manifest import Damaged, Manifest
from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.checkpoints.storage import CheckpointStorage, Published, reference
from tidegate.coordinator.job_snapshot import (
    JobSnapshot,
    last_generation,
    next_checkpoint,
    read_job,
)
from tidegate.coordinator.restore.options import NothingToRestore, RestoreOptions, RestoreSource
from tidegate.model.document import NewerDocument
from tidegate.model.errors import UserError, check_same_lineage
from tidegate.model.option_error import OptionError, OptionMention
from tidegate.model.plan import Plan
from tidegate.model.records import PIPELINES, RUNNING_JOBS, CheckpointRef, PipelineState
from tidegate.store.base import DamagedEntry, Store, undamaged


class SavepointOvertaken(UserError):
    """The sinks no longer hold the rows that a savepoint counts as written."""

    condition = "savepoint-overtaken"


class ContinuedElsewhere(OptionError):
    """Another job continues this job's state."""

    condition = "continued-elsewhere"

    def __init__(self, job_id: int, by: int) -> None:
        super().__init__(
            f"the state of job {job_id} has been continued by job {by}: continue with that one, or"
            " restore from it with ",
            OptionMention("--restore-from", str(by)),
        )
        self.job_id = job_id
        self.by = by


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreOrigin:
    """State that can be continued.

    `snapshot` holds the records of the job that made it; `plan` is the plan that it was made with,
    if known.
    """

    what: str  # a description
    job_id: int
    lineage: str
    states: tuple[PipelineState, ...]
    snapshot: JobSnapshot
    next_checkpoint: int
    generation: int
    plan: Plan | None = None
    savepoint: Savepoint | None = None
    named: bool = False  # by its location: exactly these checkpoints, whatever else exists


def own_origin(snapshot: JobSnapshot, storage: CheckpointStorage) -> RestoreOrigin:
    """Return the last run of a job: from the store, else from what it has left in the storage.

    LineageMismatch if its records are not of one run.
    """
    check_lineage(snapshot)
    states = tuple(p.value for p in snapshot.pipelines) or (
        rebuild_states(storage, snapshot.job_id)
        if is_forgotten(snapshot) and not snapshot.unused
        else ()
    )
    what = (
        f"the last run of job {snapshot.job_id}"
        if snapshot.pipelines
        else f"what is left of job {snapshot.job_id} under"
        f" {storage.files.describe(str(snapshot.job_id))}"
    )
    return _origin(what, snapshot, states)


def check_lineage(snapshot: JobSnapshot) -> None:
    """Check that the job and its pipelines have the same lineage."""
    job = (
        snapshot.record.value.lineage
        if snapshot.record
        else snapshot.outcome.lineage
        if snapshot.outcome
        else None
    )
    claims = {} if job is None else {"the job": job}
    check_same_lineage(
        snapshot.job_id,
        claims | {f"pipeline {p.value.pipeline}": p.value.lineage for p in snapshot.pipelines},
    )


def origin_of(
    store: Store, storage: CheckpointStorage, snapshot: JobSnapshot, options: RestoreOptions
) -> RestoreOrigin:
    """Find the state that the options name; `snapshot` is the job that continues it.

    NothingToRestore, NoSavepoint and Damaged name what is missing.
    """
    if options.start is RestoreSource.SAVEPOINT:
        return _of_savepoint(
            store,
            storage,
            Savepoints(storage.files).find(options.source_job or snapshot.job_id, options.location),
        )
    if options.start is RestoreSource.PATH:
        return _of_path(store, storage, options.location)
    source = snapshot if options.source_job is None else read_job(store, options.source_job)
    if options.start is not RestoreSource.CHECKPOINT and _continues(snapshot, source):
        source = snapshot  # a repeated request of an orchestrator: this job has continued since
    origin = own_origin(source, storage)
    if (
        options.start is RestoreSource.LATEST
        and not origin.states
        and is_forgotten(origin.snapshot)
        and not origin.snapshot.unused
    ):
        left = [
            savepoint
            for savepoint in Savepoints(storage.files).list(origin.job_id)
            if savepoint.superseded is None
        ]
        return _of_savepoint(store, storage, left[-1]) if left else origin
    return origin


def _continues(snapshot: JobSnapshot, source: JobSnapshot) -> bool:
    """Whether a job already continues this other job's state."""
    own = {p.value.lineage for p in snapshot.pipelines} | (
        {snapshot.outcome.lineage} if snapshot.outcome else set()
    )
    state = source.state.value if source.state else None
    return (
        state is not None
        and state.continued_by == snapshot.job_id
        and {p.value.lineage for p in source.pipelines} <= own
    )


def is_forgotten(snapshot: JobSnapshot) -> bool:
    """Whether the store has no record of a job.

    It never ran, its history has expired, or the store was lost.
    """
    return (
        snapshot.record is None
        and snapshot.state is None
        and snapshot.outcome is None
        and not snapshot.pipelines
    )


def rebuild_states(storage: CheckpointStorage, job_id: int) -> tuple[PipelineState, ...]:
    """Rebuild the pipeline states of a job unknown to the store from its manifests.

    Uses the newest lineage; all ids begin above the existing ones.
    """
    found = {
        pipeline: storage.checkpoints(job_id, pipeline) for pipeline in storage.pipelines(job_id)
    }
    manifests = {
        path: manifest
        for entries in found.values()
        for _, path in entries
        if (manifest := _manifest(storage, path)) is not None
    }
    newest = max(manifests.values(), key=lambda m: (m.generation, m.checkpoint), default=None)
    following = max((id for entries in found.values() for id, _ in entries), default=0) + 1
    states = []
    for pipeline, entries in found.items():
        refs = tuple(
            ref
            for id, path in entries
            if (ref := _left(id, path, manifests.get(path), newest)) is not None
        )
        if refs:
            states.append(_state(storage, job_id, pipeline, newest, refs, following))
    return tuple(states)


def _left(
    id: int, path: str, manifest: Manifest | None, newest: Manifest | None
) -> CheckpointRef | None:
    """Return a checkpoint of the newest lineage.

    One that cannot be read counts too: it is tried, found damaged, and reported.
    """
    if manifest is None:
        return CheckpointRef(checkpoint=id, path=path, generation=0, begun_ms=0, completed_ms=0)
    if newest is not None and manifest.lineage == newest.lineage:
        return _found(manifest, path)
    return None


def _found(manifest: Manifest, path: str) -> CheckpointRef:
    return reference(
        manifest, Published(path, sum(entry.bytes for entry in manifest.files.values()))
    )


def _state(
    storage: CheckpointStorage,
    job_id: int,
    pipeline: int,
    newest: Manifest | None,
    refs: tuple[CheckpointRef, ...],
    following: int,
) -> PipelineState:
    return PipelineState(
        job_id=job_id,
        pipeline=pipeline,
        lineage=newest.lineage if newest else "",
        generation=newest.generation if newest else 0,
        initial=_offsets(storage, reversed(refs)),
        next_checkpoint=following,
        retained=refs,
        rows_read=sum(ref.rows_read for ref in refs),
        rows_written=sum(ref.rows_written for ref in refs),
        checkpoints=len(refs),
    )


def _offsets(storage: CheckpointStorage, refs: Iterable[CheckpointRef]) -> dict[str, Any] | None:
    """Return the offsets of the first of these checkpoints that is sound."""
    for ref in refs:
        try:
            states = storage.read(ref.path).states
        except (Damaged, NewerDocument):
            continue
        return {
            operator: state["offset"]
            for operator, state in states.items()
            if isinstance(state, dict) and "offset" in state
        }
    return None


def _of_savepoint(store: Store, storage: CheckpointStorage, savepoint: Savepoint) -> RestoreOrigin:
    """Return a savepoint as origin: exactly its checkpoints, in their own directory."""
    states = []
    for pipeline, point in savepoint.pipelines.items():
        manifest = storage.manifest(point.path)
        states.append(
            _state(
                storage,
                savepoint.job_id,
                pipeline,
                manifest,
                (_found(manifest, point.path),),
                manifest.checkpoint + 1,
            )
        )
    origin = _origin(
        f"savepoint {savepoint.id} of job {savepoint.job_id}",
        read_job(store, savepoint.job_id),
        tuple(states),
    )
    return replace(origin, savepoint=savepoint, named=True, lineage=savepoint.lineage)


def _of_path(store: Store, storage: CheckpointStorage, text: str) -> RestoreOrigin:
    """Return the origin at a path: a savepoint, a checkpoint, or all checkpoints of a job."""
    path = _below(storage, text)
    if storage.files.exists(f"{path}/{paths.SAVEPOINT_HEAD}"):
        return _of_savepoint(store, storage, Savepoints(storage.files).read(path))
    if path.isdecimal():
        snapshot = read_job(store, int(path))
        states = rebuild_states(storage, int(path))
        if states:
            return replace(
                _origin(f"the checkpoints under {storage.files.describe(path)}", snapshot, states),
                named=True,
            )
    elif storage.files.exists(path):
        manifest = storage.manifest(path)
        state = _state(
            storage,
            manifest.job_id,
            manifest.pipeline,
            manifest,
            (_found(manifest, path),),
            manifest.checkpoint + 1,
        )
        return replace(
            _origin(
                f"the checkpoint {storage.files.describe(path)}",
                read_job(store, manifest.job_id),
                (state,),
            ),
            named=True,
        )
    raise NothingToRestore(
        f"there is no state under {storage.files.describe(path)}: give the directory of a"
        " savepoint, of a checkpoint (<job>/<pipeline>/<checkpoint>) or of a job"
    )


def _below(storage: CheckpointStorage, text: str) -> str:
    """Return a path relative to the root of the storage."""
    root = storage.files.describe().rstrip("/")
    path = text.removeprefix("file://") if root.startswith("/") else text
    if path.rstrip("/").startswith(f"{root}/"):
        path = path[len(root) + 1 :]
    path = path.strip("/") if not path.startswith("/") else path.rstrip("/")
    if not path or path.startswith("/") or "://" in path or ".." in path.split("/"):
        raise NothingToRestore(
            f"{text} is not below the checkpoint storage {root}: copy it there first (`tidegate"
            " savepoints import` for a savepoint)"
        )
    return path


def _origin(what: str, snapshot: JobSnapshot, states: tuple[PipelineState, ...]) -> RestoreOrigin:
    record = snapshot.record.value if snapshot.record else None
    return RestoreOrigin(
        what=what,
        job_id=snapshot.job_id,
        lineage=states[0].lineage if states else "",
        states=states,
        snapshot=snapshot,
        next_checkpoint=max([next_checkpoint(snapshot), *(s.next_checkpoint for s in states)]),
        generation=max([last_generation(snapshot), *(s.generation for s in states)]),
        plan=record.plan if record else snapshot.outcome.plan if snapshot.outcome else None,
    )


def _manifest(storage: CheckpointStorage, path: str) -> Manifest | None:
    try:
        return storage.manifest(path)
    except (Damaged, NewerDocument):
        return None


def in_use_by(store: Store, lineage: str, except_for: int) -> int | None:
    """Return the other job that is running with this lineage, if any."""
    for entry in store.list(RUNNING_JOBS):
        if entry.key == str(except_for):
            continue
        records = (
            [entry, *store.list(PIPELINES, f"{entry.key}/")]
            if isinstance(entry, DamagedEntry)
            else [entry]
        )
        if any(record.value.get("lineage") == lineage for record in undamaged(records)):
            return int(entry.key)
    return None


def check_free(origin: RestoreOrigin, job_id: int, *, fork: bool) -> None:
    """Check that a job may continue this lineage.

    No other job may have continued it, and none may have gone back behind the savepoint.
    """
    if fork:
        return
    state = origin.snapshot.state.value if origin.snapshot.state else None
    if state is not None and state.status.terminal and state.continued_by not in (0, job_id):
        raise ContinuedElsewhere(origin.job_id, state.continued_by)
    if origin.savepoint is not None and origin.savepoint.superseded is not None:
        mark = origin.savepoint.superseded
        there = ", ".join(f"checkpoint {c} of pipeline {p}" for p, c in mark.checkpoints.items())
        raise SavepointOvertaken(
            f"{origin.what} cannot be restored any more: job {mark.job_id} has gone back behind it"
            f" (to {there}), and its sinks have rolled back rows that the savepoint counts as"
            " written. Use a newer savepoint or checkpoint; another job may still begin from it"
            " while this one runs"
        )
