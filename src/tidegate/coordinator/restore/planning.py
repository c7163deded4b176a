"""Plans what a submission begins with: decided and checked before anything is written.

Called by claim (`tidegate run`), commands (submit) and `restore-plan`. Reads the store and the
checkpoint storage, and returns the pipeline states of the new incarnation, its lineage, its id
floor and its restore plan. A rejection is a UserError that says what is wrong, where, and which
option would change it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.checkpoints import paths
from tidegate.checkpoints.savepoints import NoSavepoint
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.accepted_changes import acceptance_notes, check_offered, table_stops
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.coordinator.restore.options import (
    CHANGES_MAX,
    NothingToRestore,
    RestoreOptions,
    StartMode,
    decide,
)
from tidegate.coordinator.restore.origin import (
    ContinuedElsewhere,
    RestoreOrigin,
    check_free,
    in_use_by,
    is_forgotten,
    origin_of,
    own_origin,
)
from tidegate.coordinator.restore.points import (
    IdFloor,
    RestorePoint,
    describe_position,
    id_floor,
    previous_run,
    restore_points,
)
from tidegate.coordinator.restore.report import PipelineRestore, PositionProbe, report_of
from tidegate.coordinator.restore.sink_checks import (
    AskSink,
    SinkFindings,
    fresh_findings,
    resumed_findings,
)
from tidegate.coordinator.restore.stale_rows import fresh_notes, position_lost_notes
from tidegate.model.document import to_document
from tidegate.model.option_error import MessagePart, OptionError, OptionMention
from tidegate.model.plan import Plan
from tidegate.model.records import (
    JOB_STATES,
    RESTORE_CLAIMS,
    RUNNING_JOBS,
    JobRecord,
    PipelineState,
    PipelineStatus,
    RestoreClaim,
)
from tidegate.model.restore import (
    OnIncompatible,
    OnMissing,
    OnPositionLost,
    OnSinkLost,
    PipelineReport,
    Replan,
    RestoreReport,
    Verdict,
)
from tidegate.model.table_changes import AcceptedChange, merge_accepted
from tidegate.model.throughput import subtract_volumes
from tidegate.pipeline.sink_records import CHOICES
from tidegate.store.base import Check, Delete, Put, Store


class Incompatible(OptionError):
    """The checkpoint and the job file do not match."""

    condition = "restore-incompatible"

    def __init__(self, report: RestoreReport) -> None:
        super().__init__(
            "the job file does not match the state of its unfinished run:\n  "
            + "\n  ".join(report.problems)
            + "\nRevert the job file, drop that state with ",
            OptionMention("--on-incompatible", "drop"),
            ", or start over with ",
            OptionMention("--restore", "fresh"),
        )
        self.report = report


class NeedsConsent(OptionError):
    """Rows would be written twice, or a sink has lost rows, and the user has not agreed to it."""

    condition = "needs-consent"

    def __init__(self, report: RestoreReport) -> None:
        parts: list[MessagePart] = []
        if twice := [text for text in report.consents if text not in report.lost]:
            listed = "\n  ".join(twice)
            parts += [
                f"going back would write rows twice:\n  {listed}\nAgree with ",
                OptionMention("--allow-duplicates"),
                ", or choose a newer restore point",
            ]
        if report.lost:
            parts += ["\n" if parts else "", "\n".join(report.lost), ".\n", *CHOICES]
        super().__init__(*parts)
        self.report = report


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreRequest:
    """The job to restore, its job file and the options.

    `probe` asks a source whether it still retains a position, if that is possible.
    """

    snapshot: JobSnapshot
    name: str
    plan: Plan
    options: RestoreOptions
    status: str  # a description of the last run
    probe: PositionProbe | None = None
    ask_sink: AskSink | None = None  # what the sinks remember, where they can be asked from here


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRestore:
    """The state that the new incarnation begins with.

    `states` are the pipelines that resume; checkpoints of other jobs are copied before a driver
    starts.
    """

    start: StartMode
    report: RestoreReport
    id_floor: IdFloor
    lineage: str = ""  # empty: a new one
    states: Mapping[int, PipelineState]
    source: JobSnapshot | None = None  # the other, ended job whose lineage continues
    claimed: tuple[str, ...] = ()  # paths of checkpoints that stand elsewhere
    left: bool = False  # the store knew nothing of this job, and its checkpoints are there
    accepted_changes: tuple[
        AcceptedChange, ...
    ] = ()  # of the state's earlier runs, and what is decided now


def prepare_restore(
    store: Store, storage: CheckpointStorage, request: RestoreRequest
) -> PreparedRestore:
    """Check everything that can be known before the first write."""
    options, snapshot = request.options, request.snapshot
    try:
        origin = origin_of(store, storage, snapshot, options)
    except (NoSavepoint, NothingToRestore):
        if options.on_missing is not OnMissing.FRESH:
            raise
        return _fresh(storage, request)
    own = origin.job_id == snapshot.job_id
    start = _decide(storage, request, origin)
    if start is StartMode.FRESH:
        return _fresh(storage, request, origin if own and not origin.named else None)
    if start is StartMode.NOTHING and own:
        states = {s.pipeline: s for s in origin.states}
        return PreparedRestore(
            start=start,
            report=_base(request, start, origin),
            id_floor=id_floor(snapshot, storage),
            lineage=origin.lineage,
            states=states,
        )
    try:
        return _resumed(store, storage, request, origin)
    except Incompatible:
        if options.on_incompatible is not OnIncompatible.FRESH:
            raise
        return _fresh(storage, request)


def _decide(
    storage: CheckpointStorage, request: RestoreRequest, origin: RestoreOrigin
) -> StartMode:
    snapshot, options = origin.snapshot, request.options
    cleanup = snapshot.cleanup.value if snapshot.cleanup else None
    other = snapshot.job_id != request.snapshot.job_id
    return decide(
        options,
        previous_run(snapshot, cleanup, left=bool(origin.states)),
        job=f"job {snapshot.job_id}" if other else f"job {request.name!r} ({snapshot.job_id})",
        status=request.status or "the store knows nothing of it",
        position=describe_position(origin.states),
        searched=f"the store and {storage.files.describe(str(snapshot.job_id))}",
        checkpoints=any(state.latest for state in origin.states),
    )


def _fresh(
    storage: CheckpointStorage, request: RestoreRequest, own: RestoreOrigin | None = None
) -> PreparedRestore:
    """Plan a start from the beginning; `own` is what the job has left, if already read."""
    own = own or own_origin(request.snapshot, storage)
    base = _base(request, StartMode.FRESH, None)
    report = report_of(base, request.plan, None, {}, drop=False, consent=True, probe=None)
    before = fresh_notes(request.plan) if own.states or request.snapshot.outcome is not None else ()
    report = replace(
        report,
        notes=(*report.notes, *before, *fresh_findings(request.ask_sink, request.plan).notes),
    )
    left = bool(own.states) and not request.snapshot.pipelines
    return PreparedRestore(
        start=StartMode.FRESH,
        report=report,
        id_floor=id_floor(request.snapshot, storage, own),
        states={},
        left=left,
    )


def _resumed(
    store: Store, storage: CheckpointStorage, request: RestoreRequest, origin: RestoreOrigin
) -> PreparedRestore:
    options, snapshot = request.options, request.snapshot
    same = origin.job_id == snapshot.job_id and not origin.named
    # Of its own last run the store knows whether another job has taken it up; only a store that was
    # lost does not.
    user = (
        in_use_by(store, origin.lineage, snapshot.job_id)
        if not same or is_forgotten(snapshot)
        else None
    )
    if same and user is not None:
        raise ContinuedElsewhere(snapshot.job_id, user)
    fork = user is not None
    check_free(origin, snapshot.job_id, fork=fork)
    numbers = id_floor(snapshot, storage, origin)
    points = {
        p.state.pipeline: p
        for p in restore_points(
            storage, origin.states, options.checkpoint or None, options.on_damaged
        )
    }
    if origin.named and not fork:
        points = {number: _named(origin, point) for number, point in points.items()}
    finished = {s.pipeline: s for s in origin.states if s.status is PipelineStatus.FINISHED}
    places = {s.pipeline: _place(storage, points.get(s.pipeline), s) for s in origin.states}
    base = replace(_base(request, StartMode.RESUME, origin), fork=fork)
    for change in options.accept_changes:
        check_offered(change, table_stops(origin.snapshot.outcome))
    report = report_of(
        base,
        request.plan,
        origin.plan,
        places,
        drop=options.on_incompatible is OnIncompatible.DROP,
        consent=options.duplicates,
        probe=request.probe,
    )
    if not fork:
        going = {number: (point.state, places[number].states) for number, point in points.items()}
        found = resumed_findings(
            request.ask_sink,
            request.plan,
            going,
            report.dropped_operators,
            numbers.last_generation + 1,
        )
        report = with_findings(report, found, consent=options.on_sink_lost is OnSinkLost.CONTINUE)
    check_verdict(report)
    states = (
        {s.pipeline: s for s in origin.states}
        if same
        else {**{number: point.state for number, point in points.items()}, **finished}
    )
    planned = {p.id for p in request.plan.pipelines}
    states = {n: _without(s, report.dropped_operators) for n, s in states.items() if n in planned}
    if not same:
        states = {n: _moved(s, request, numbers, origin, fork=fork) for n, s in states.items()}
    own = paths.job_directory(snapshot.job_id).as_posix()
    return PreparedRestore(
        start=StartMode.RESUME,
        report=report,
        id_floor=numbers,
        lineage="" if fork else origin.lineage,
        states=states,
        source=origin.snapshot
        if not same and not fork and origin.job_id != snapshot.job_id
        else None,
        claimed=tuple(
            ref.path for s in states.values() for ref in s.retained if ref.path.split("/")[0] != own
        ),
        accepted_changes=merge_accepted(
            () if fork else accepted_before(origin), options.accept_changes
        )[-CHANGES_MAX:],
    )


def accepted_before(origin: RestoreOrigin) -> tuple[AcceptedChange, ...]:
    """Return the decisions of earlier runs of this state.

    A position that is reached again needs no new decision.
    """
    record, outcome = origin.snapshot.record, origin.snapshot.outcome
    last = record.value if record is not None else outcome
    return last.accepted_changes if last is not None and last.lineage == origin.lineage else ()


def check_verdict(report: RestoreReport) -> None:
    """Raise the error that belongs to the verdict."""
    if report.verdict is Verdict.IMPOSSIBLE:
        raise Incompatible(report)
    if report.verdict is Verdict.CONSENT:
        raise NeedsConsent(report)


def with_findings(report: RestoreReport, found: SinkFindings, *, consent: bool) -> RestoreReport:
    """Add what the targets of the sinks reported to the plan."""
    if consent or not found.lost:
        agreed = [f"{text}; the job continues anyway, as requested" for text in found.lost]
        return replace(report, notes=(*report.notes, *found.notes, *agreed))
    verdict = report.verdict if report.verdict is Verdict.IMPOSSIBLE else Verdict.CONSENT
    return replace(
        report,
        verdict=verdict,
        lost=found.lost,
        consents=(*report.consents, *found.lost),
        notes=(*report.notes, *found.notes),
    )


def _named(origin: RestoreOrigin, point: RestorePoint) -> RestorePoint:
    """Add to a state named by its location how far the lineage has gone beyond it.

    If the store does not know that, the sinks are rewound.
    """
    state = point.state
    assert state.latest is not None
    there = next(
        (
            p.value
            for p in origin.snapshot.pipelines
            if (p.value.pipeline, p.value.lineage) == (state.pipeline, state.lineage)
        ),
        None,
    )
    if there is None:
        return replace(point, state=replace(state, rewind=True))
    newer = [ref for ref in there.retained if ref.checkpoint > state.latest.checkpoint]
    rows = (
        max(0, there.rows_read - sum(ref.rows_read for ref in newer)),
        max(0, there.rows_written - sum(ref.rows_written for ref in newer)),
    )
    beyond = (
        bool(newer)
        or there.pending is not None
        or there.next_checkpoint > state.latest.checkpoint + 1
    )
    moved = replace(
        state,
        rewind=beyond,
        initial=there.initial or state.initial,
        rows_read=rows[0],
        rows_written=rows[1],
        volumes=subtract_volumes(there.volumes, (ref.volumes for ref in newer)),
        checkpoints=there.checkpoints,
    )
    return replace(point, state=moved, replays_rows=sum(ref.rows_read for ref in newer))


def _place(
    storage: CheckpointStorage, point: RestorePoint | None, before: PipelineState
) -> PipelineRestore:
    state = point.state if point else before
    latest = state.latest
    whole = storage.read(latest.path).states if latest and point else {}
    known = set(whole) if latest else set()
    report = PipelineReport(
        pipeline=state.pipeline,
        checkpoint=latest.checkpoint if latest else 0,
        path=storage.files.describe(latest.path) if latest else "",
        replays_rows=point.replays_rows if point else 0,
        rewind=state.rewind,
    )
    return PipelineRestore(
        report=report,
        states=whole,
        snapshot=frozenset(known | set(state.initial or ())),
        finished=state.status is PipelineStatus.FINISHED,
        pending=state.pending is not None,
        notes=point.notes if point else (),
    )


def _without(state: PipelineState, dropped: tuple[str, ...]) -> PipelineState:
    """Return the state without the dropped operators."""
    if not dropped:
        return state
    initial = (
        {k: v for k, v in state.initial.items() if k not in dropped}
        if state.initial is not None
        else None
    )
    return replace(state, dropped_operators=dropped, initial=initial)


def _moved(
    state: PipelineState,
    request: RestoreRequest,
    numbers: IdFloor,
    origin: RestoreOrigin,
    *,
    fork: bool,
) -> PipelineState:
    """Return another job's state, or a named one, as this job's.

    Only with the checkpoint that it begins from; of a savepoint of its own also with older ones.
    """
    latest = state.latest
    mine = [
        p.value
        for p in request.snapshot.pipelines
        if (p.value.pipeline, p.value.lineage) == (state.pipeline, state.lineage)
    ]
    own = origin.job_id == request.snapshot.job_id and not fork
    older = (
        tuple(
            ref
            for place in mine
            for ref in place.retained
            if latest and ref.checkpoint < latest.checkpoint
        )
        if own
        else ()
    )
    return replace(
        state,
        job_id=request.snapshot.job_id,
        lineage="" if fork else state.lineage,
        rewind=state.rewind and not fork,
        pending=None if fork or origin.named else state.pending,
        retained=(*older, latest) if latest and state.status is not PipelineStatus.FINISHED else (),
        pending_deletion=(),
        next_checkpoint=numbers.next_checkpoint,
    )


def _base(request: RestoreRequest, start: StartMode, origin: RestoreOrigin | None) -> RestoreReport:
    options = request.options
    notes = [
        f"{path} is left out (--skip-file): what is not read of it is given up"
        for path in options.skip_files
    ]
    notes += [f"{path} is read as it is now (--accept-file)" for path in options.accept_files]
    notes += acceptance_notes(
        options.accept_changes,
        (origin or request).snapshot.outcome,
        resumed=start is not StartMode.FRESH,
    )
    notes += (
        position_lost_notes(request.plan)
        if options.on_position_lost is OnPositionLost.INITIAL and start is StartMode.RESUME
        else ()
    )
    return RestoreReport(
        notes=tuple(notes),
        job_id=request.snapshot.job_id,
        start=start.value,
        origin=origin.what if origin else "",
        source_job=origin.job_id if origin and origin.job_id != request.snapshot.job_id else 0,
        lineage=origin.lineage if origin else "",
    )


@dataclass(frozen=True, slots=True)
class SubmitChanges:
    """Checks and writes that a restore adds to the transaction of a submit."""

    checks: tuple[Check, ...] = ()
    writes: tuple[Put | Delete, ...] = ()


def source_changes(prepared: PreparedRestore, job_id: int, now_ms: int) -> SubmitChanges:
    """Return the claim on checkpoints of other jobs, and the mark of a continued job.

    The mark prevents the job whose lineage continues from being resumed besides this one.
    """
    checks, writes = [], []
    if prepared.claimed:
        source = prepared.report.source_job
        claim = RestoreClaim(job_id=job_id, paths=prepared.claimed, source_job=source, at_ms=now_ms)
        writes.append(Put(RESTORE_CLAIMS, str(job_id), to_document(claim)))
    if prepared.source is not None:
        key, state = str(prepared.source.job_id), prepared.source.state
        checks += [
            Check(RUNNING_JOBS, key, 0),
            Check(JOB_STATES, key, state.version if state else 0),
        ]
        if state is not None:
            writes.append(
                Put(JOB_STATES, key, to_document(replace(state.value, continued_by=job_id)))
            )
    return SubmitChanges(tuple(checks), tuple(writes))


def restore_fields(prepared: PreparedRestore, options: RestoreOptions) -> dict[str, Any]:
    """Return what the record of an incarnation keeps of its restore."""
    resumed = prepared.start is not StartMode.FRESH
    return {
        "restored": resumed,
        "checkpoint": options.checkpoint if resumed else 0,
        "source_job": prepared.report.source_job,
        "fork": prepared.report.fork,
        "on_damaged": options.on_damaged.value,
        "on_position_lost": options.on_position_lost.value,
        "on_sink_lost": options.on_sink_lost.value,
        "restore": prepared.report if resumed or prepared.report.notes else None,
        "skip_files": options.skip_files,
        "accept_files": options.accept_files,
        "accepted_changes": prepared.accepted_changes,
    }


def points_of(
    store: Store,
    storage: CheckpointStorage,
    job: JobRecord,
    states: Sequence[PipelineState],
    *,
    first: bool,
) -> list[RestorePoint]:
    """Return the restore points of a generation.

    The first generation uses the requested ones, later ones the newest sound ones.
    """
    if not first or not job.restored:
        return restore_points(storage, states, None)
    if job.fork and not job.checkpoint:
        states = [_forked(store, storage, job, state) for state in states]
    points = restore_points(storage, states, job.checkpoint or None, job.on_damaged)
    return [
        replace(
            point,
            state=replace(point.state, replan=Replan.ASKED if job.checkpoint else Replan.CHANGED),
        )
        for point in points
    ]


def _forked(
    store: Store, storage: CheckpointStorage, job: JobRecord, state: PipelineState
) -> PipelineState:
    """Return the newest checkpoints of a forked job if the planned one was deleted.

    The job that is forked continues, and may have deleted it meanwhile.
    """
    latest, theirs = (
        state.latest,
        paths.pipeline_directory(job.source_job, state.pipeline).as_posix(),
    )
    if (
        latest is None
        or latest.path.rpartition("/")[0] != theirs
        or not storage.damage(latest.path)
    ):
        return state
    there = [
        p.value
        for p in read_job(store, job.source_job).pipelines
        if p.value.pipeline == state.pipeline
    ]
    refs = tuple(ref for p in there for ref in p.retained if ref.path.rpartition("/")[0] == theirs)
    return (
        replace(
            state,
            retained=refs,
            next_checkpoint=max([state.next_checkpoint, *(ref.checkpoint + 1 for ref in refs)]),
        )
        if refs
        else state
    )
