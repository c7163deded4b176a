"""What jobs have left, and what of it can be used: savepoints, restore plans, the checkpoint
storage and its collector.

These ask the store and the storage themselves, in threads: they are rare, and must be exact.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from tidegate.api.auth import audit_facts, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.job_source import decode_body, format_of, plan_text
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.seatunnel.restore_params import restore_options, submit_query
from tidegate.api.v1 import models
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.jobs import JobIdPath, job_details
from tidegate.api.v1.roles import ADMIN, OPERATOR, VIEWER
from tidegate.checkpoints.gc.classify import UnitKind
from tidegate.checkpoints.gc.collector import Collector
from tidegate.checkpoints.gc.quarantine import Quarantine
from tidegate.checkpoints.gc.usage import Usage
from tidegate.checkpoints.savepoints import Savepoint
from tidegate.coordinator import savepoint_requests
from tidegate.coordinator.collector import StoreWitness, last_report, record, report_of, rules_of
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.namespace_owner import own
from tidegate.coordinator.restore.planning import Incompatible, NeedsConsent, prepare_restore
from tidegate.coordinator.restore.planning import RestoreRequest as Wanted
from tidegate.coordinator.restore.sink_checks import ask_from_here
from tidegate.model.plan import Plan
from tidegate.model.records import SavepointRequest

FINDINGS_MAX = 200
SavepointId = Annotated[str, Path(pattern="^[0-9]{1,20}$", description="the id of a savepoint")]


def routes(context: ApiContext) -> APIRouter:
    router = APIRouter(tags=["state"])

    @router.post("/jobs/{job_id}/savepoints", status_code=202, dependencies=[OPERATOR])
    def make_savepoint(
        job_id: JobIdPath, body: models.SavepointRequestModel, request: Request
    ) -> models.SavepointProgress:
        """Want a savepoint, and with `stop` the end of the job with it.

        While one is being made, this joins it.
        """
        audit_facts(request, action="savepoint and stop" if body.stop else "savepoint")
        made = context.commands.savepoint(
            job_id_of(job_id), stop=body.stop, by=principal_of(request).name
        )
        context.record_write()
        return savepoint_state(made)

    @router.get("/jobs/{job_id}/savepoints/last", dependencies=[VIEWER])
    def last_savepoint(job_id: JobIdPath) -> models.SavepointProgress | None:
        """What became of the last one that was asked for; null where none was."""
        job_details(context.current(), job_id_of(job_id), 0)
        snapshot = read_job(context.store, job_id_of(job_id)).savepoint
        return savepoint_state(snapshot.value) if snapshot else None

    @router.get("/savepoints", dependencies=[VIEWER])
    def list_savepoints(
        job: Annotated[str | None, Query(pattern="^[1-9][0-9]{0,18}$")] = None,
    ) -> list[models.SavepointModel]:
        """All savepoints that can be read, or those of one job."""
        found = context.commands.savepoints.list(job_id_of(job) if job else None)
        return [savepoint(each) for each in found]

    @router.delete("/savepoints/{job_id}/{savepoint_id}", status_code=204, dependencies=[ADMIN])
    def delete_savepoint(job_id: JobIdPath, savepoint_id: SavepointId) -> None:
        """Delete one for good; refused while a job is restored from it, or it is being made."""
        found = context.commands.savepoints.find(job_id_of(job_id), savepoint_id)
        savepoint_requests.delete(context.store, context.commands.savepoints, found)

    @router.post("/restore-plan", dependencies=[OPERATOR])
    def plan_restore(body: models.SubmissionModel) -> models.RestorePlan:
        """What a submit would do, from where and with which replay; nothing is started."""
        query = {
            **submit_query(body.id, body.name, body.restore, body.on_sink_lost),
            **body.list_parameters(),
        }
        plan = plan_text(decode_body(body.text.encode()), format_of(body.format), body.strictness)
        return restore_plan(
            context, plan, job_id_of(body.id) if body.id else 0, body.name or plan.job_name, query
        )

    @router.get("/storage", dependencies=[VIEWER])
    def get_storage() -> models.StorageModel:
        """What the last pass of the collector has seen and done, and what is in quarantine."""
        return storage(context)

    @router.post("/storage/survey", dependencies=[OPERATOR])
    def survey_storage() -> models.StorageSurvey:
        """Look at everything below the namespace now: how much of what there is, and what would be
        collected. Nothing is moved.
        """
        return survey(context)

    @router.post("/storage/collect", dependencies=[ADMIN])
    def collect_storage() -> models.StorageModel:
        """One pass of the collector now: orphans go into quarantine, and quarantines whose time is
        over are deleted.
        """
        collect(context)
        return storage(context)

    @router.post("/storage/quarantines/{quarantine_id}/undo", dependencies=[ADMIN])
    def undo_quarantine(quarantine_id: Annotated[str, Path(max_length=100)]) -> models.UndoResult:
        """Take everything of a quarantine back to where it stood."""
        return undo(context, quarantine_id)

    return router


def savepoint_state(request: SavepointRequest) -> models.SavepointProgress:
    """A request and what became of it."""
    return models.SavepointProgress(
        id=request.id,
        job=str(request.job_id),
        status=request.status.value,
        stop=request.stop,
        reason=request.reason,
        asked=shapes.at(request.asked_ms),
        by=request.by,
    )


def savepoint(found: Savepoint) -> models.SavepointModel:
    """A savepoint as it is shown."""
    return models.SavepointModel(
        id=found.id,
        job=str(found.job_id),
        name=found.name,
        path=found.path,
        made=shapes.at(found.made_ms),
        checkpoints={str(number): point.checkpoint for number, point in found.pipelines.items()},
        bytes=sum(point.bytes for point in found.pipelines.values()),
        overtaken=found.overtaken is not None,
    )


def restore_plan(
    context: ApiContext, plan: Plan, job_id: int, name: str, query: dict[str, str]
) -> models.RestorePlan:
    """The plan of a restore; one that is impossible, or needs consent, is a plan too."""
    snapshot = read_job(context.store, job_id)
    status = (
        snapshot.state.value.status.value
        if snapshot.state
        else snapshot.outcome.status.value
        if snapshot.outcome
        else ""
    )
    ask = ask_from_here(context.store, fresh=True)
    try:
        report = prepare_restore(
            context.store,
            context.commands.storage,
            Wanted(
                snapshot=snapshot,
                name=name,
                plan=plan,
                options=restore_options(query),
                status=status,
                ask=ask,
            ),
        ).report
    except (Incompatible, NeedsConsent) as refusal:
        report = refusal.report
    return shapes.as_plan(report)


def storage(context: ApiContext) -> models.StorageModel:
    """The last pass, and the quarantines."""
    files, last = context.commands.storage.files, last_report(context.store)
    quarantines = Collector(files, StoreWitness(context.store)).quarantines.all()
    return models.StorageModel(
        place=files.describe(),
        at=shapes.moment(last.at_ms) if last else None,
        bytes=dict(last.bytes) if last else {},
        units=dict(last.units) if last else {},
        due=last.due if last else 0,
        warning=last.warning if last else "",
        failed=list(last.failed) if last else [],
        quarantines=[_quarantine(each) for each in quarantines],
    )


def _quarantine(found: Quarantine) -> models.QuarantineModel:
    return models.QuarantineModel(
        id=found.id, begun=shapes.at(found.opened_ms), units=found.units, bytes=found.bytes
    )


def survey(context: ApiContext) -> models.StorageSurvey:
    """Everything below the namespace, added up, and the first things that would be collected or
    that nobody understands.
    """
    usage = Usage()
    findings: list[models.CollectorFindingModel] = []
    collector = Collector(context.commands.storage.files, StoreWitness(context.store))
    for verdict in collector.survey(rules_of(context.settings.checkpoint, context.clock.now_ms())):
        usage.add(verdict)
        if (verdict.due or verdict.kind in (UnitKind.ORPHAN, UnitKind.UNKNOWN)) and len(
            findings
        ) < FINDINGS_MAX:
            findings.append(
                models.CollectorFindingModel(
                    path=verdict.unit.path,
                    kind=verdict.kind.value,
                    why=verdict.reason,
                    due=verdict.due,
                    bytes=verdict.unit.bytes,
                )
            )
    sums: dict[str, Any] = {kind.value: each for kind, each in usage.by_kind.items()}
    return models.StorageSurvey(
        bytes={kind: each.bytes for kind, each in sums.items()},
        units={kind: each.units for kind, each in sums.items()},
        due=usage.due.units,
        due_bytes=usage.due.bytes,
        findings=findings,
    )


def collect(context: ApiContext) -> None:
    """One pass that acts, and its report."""
    files = context.commands.storage.files
    own(files, context.store)
    rules = rules_of(context.settings.checkpoint, context.clock.now_ms())
    report = Collector(files, StoreWitness(context.store)).collect(rules)
    record(context.store, report_of(report, rules, 0), report.usage.by_job)


def undo(context: ApiContext, word: str) -> models.UndoResult:
    """A quarantine back to where it stood."""
    quarantines = Collector(context.commands.storage.files, StoreWitness(context.store)).quarantines
    moved, failed = quarantines.take_back(quarantines.find(word), context.clock.now_ms())
    return models.UndoResult(moved=moved, failed=list(failed))
