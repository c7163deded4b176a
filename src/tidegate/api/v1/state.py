"""Savepoints, restore plans, the checkpoint storage and its collector.

These handlers read the store and the storage themselves, in threads: they are rare, and must be
exact.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from tidegate.api.auth import audit_facts, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.job_source import decode_body, format_of, plan_text
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.seatunnel.restore_params import restore_options, submit_query
from tidegate.api.v1 import models, serializers
from tidegate.api.v1.jobs import JobIdPath, job_details
from tidegate.api.v1.roles import ADMIN, OPERATOR, VIEWER
from tidegate.checkpoints.gc.classify import UnitKind
from tidegate.checkpoints.gc.collector import Collector
from tidegate.checkpoints.gc.quarantine import Quarantine
from tidegate.checkpoints.gc.usage import Usage
from tidegate.checkpoints.savepoints import Savepoint
from tidegate.coordinator import savepoint_requests
from tidegate.coordinator.collector import StoreFacts, last_report, record, report_of, rules_of
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.namespace_owner import claim_namespace
from tidegate.coordinator.restore.planning import Incompatible, NeedsConsent, prepare_restore
from tidegate.coordinator.restore.planning import RestoreRequest as Wanted
from tidegate.coordinator.restore.sink_checks import ask_from_here
from tidegate.model.plan import Plan
from tidegate.model.records import SavepointRequest

FINDINGS_MAX = 200
SavepointId = Annotated[str, Path(pattern="^[0-9]{1,20}$", description="the id of a savepoint")]


def routes(context: ApiContext) -> APIRouter:
    """Create the routes of savepoints, restore plans and the storage."""
    router = APIRouter(tags=["state"])
    _add_savepoints(router, context)
    _add_storage(router, context)
    return router


def _add_savepoints(router: APIRouter, context: ApiContext) -> None:

    @router.post("/jobs/{job_id}/savepoints", status_code=202, dependencies=[OPERATOR])
    def make_savepoint(
        job_id: JobIdPath, body: models.SavepointRequestModel, request: Request
    ) -> models.SavepointProgress:
        """Take a savepoint, and with `stop` stop the job after it.

        While one is in progress, the request joins it.
        """
        audit_facts(request, action="savepoint and stop" if body.stop else "savepoint")
        recorded = context.commands.savepoint(
            job_id_of(job_id), stop=body.stop, by=principal_of(request).name
        )
        context.record_write()
        return savepoint_progress(recorded)

    @router.get("/jobs/{job_id}/savepoints/last", dependencies=[VIEWER])
    def last_savepoint(job_id: JobIdPath) -> models.SavepointProgress | None:
        """Get the status of the last requested savepoint; null if there is none."""
        job_details(context.current(), job_id_of(job_id), 0)  # UnknownJob
        request = read_job(context.store, job_id_of(job_id)).savepoint
        return savepoint_progress(request.value) if request else None

    @router.get("/savepoints", dependencies=[VIEWER])
    def list_savepoints(
        job: Annotated[str | None, Query(pattern="^[1-9][0-9]{0,18}$")] = None,
    ) -> list[models.SavepointModel]:
        """List all readable savepoints, or those of one job."""
        found = context.commands.savepoints.list(job_id_of(job) if job else None)
        return [savepoint(each) for each in found]

    @router.delete("/savepoints/{job_id}/{savepoint_id}", status_code=204, dependencies=[ADMIN])
    def delete_savepoint(job_id: JobIdPath, savepoint_id: SavepointId) -> None:
        """Delete a savepoint. Rejected while it is in progress, or a job is restored from it."""
        found = context.commands.savepoints.find(job_id_of(job_id), savepoint_id)
        savepoint_requests.delete_savepoint(context.store, context.commands.savepoints, found)

    @router.post("/restore-plan", dependencies=[OPERATOR])
    def plan_restore(body: models.SubmissionModel) -> models.RestorePlan:
        """Show what submitting a job would restore and replay. Starts nothing."""
        query = {
            **submit_query(body.id, body.name, body.restore, body.on_sink_lost),
            **body.list_parameters(),
        }
        plan = plan_text(decode_body(body.text.encode()), format_of(body.format), body.strictness)
        return restore_plan(
            context, plan, job_id_of(body.id) if body.id else 0, body.name or plan.job_name, query
        )


def _add_storage(router: APIRouter, context: ApiContext) -> None:
    @router.get("/storage", dependencies=[VIEWER])
    def get_storage() -> models.StorageModel:
        """Get the results of the collector's last pass, and the quarantines."""
        return storage(context)

    @router.post("/storage/survey", dependencies=[OPERATOR])
    def survey_storage() -> models.StorageSurvey:
        """Inspect the namespace now: its usage, and what would be collected. Moves nothing."""
        return survey(context)

    @router.post("/storage/collect", dependencies=[ADMIN])
    def collect_storage() -> models.StorageModel:
        """Run the collector now: it quarantines orphans, and deletes expired quarantines."""
        collect(context)
        return storage(context)

    @router.post("/storage/quarantines/{quarantine_id}/undo", dependencies=[ADMIN])
    def undo_quarantine(quarantine_id: Annotated[str, Path(max_length=100)]) -> models.UndoResult:
        """Move everything in a quarantine back."""
        return undo(context, quarantine_id)


def savepoint_progress(request: SavepointRequest) -> models.SavepointProgress:
    """Convert a savepoint request and its status."""
    return models.SavepointProgress(
        id=request.id,
        job=str(request.job_id),
        status=request.status.value,
        stop=request.stop,
        reason=request.reason,
        requested=serializers.to_time(request.asked_ms),
        by=request.by,
    )


def savepoint(found: Savepoint) -> models.SavepointModel:
    """Convert a savepoint to its model."""
    return models.SavepointModel(
        id=found.id,
        job=str(found.job_id),
        name=found.name,
        path=found.path,
        created=serializers.to_time(found.made_ms),
        checkpoints={str(number): point.checkpoint for number, point in found.pipelines.items()},
        bytes=sum(point.bytes for point in found.pipelines.values()),
        overtaken=found.superseded is not None,
    )


def restore_plan(
    context: ApiContext, plan: Plan, job_id: int, name: str, query: dict[str, str]
) -> models.RestorePlan:
    """Plan a restore; the result may also be that it is impossible or needs consent."""
    snapshot = read_job(context.store, job_id)
    status = ""
    if snapshot.state:
        status = snapshot.state.value.status.value
    elif snapshot.outcome:
        status = snapshot.outcome.status.value
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
                ask_sink=ask,
            ),
        ).report
    except (Incompatible, NeedsConsent) as refusal:
        report = refusal.report
    return serializers.as_plan(report)


def storage(context: ApiContext) -> models.StorageModel:
    """Return the results of the collector's last pass, and the quarantines."""
    files, last = context.commands.storage.files, last_report(context.store)
    quarantines = Collector(files, StoreFacts(context.store)).quarantines.all()
    return models.StorageModel(
        location=files.describe(),
        at=serializers.to_optional_time(last.at_ms) if last else None,
        bytes=dict(last.bytes) if last else {},
        units=dict(last.units) if last else {},
        due=last.due if last else 0,
        warning=last.warning if last else "",
        failed=list(last.failed) if last else [],
        quarantines=[_quarantine(each) for each in quarantines],
    )


def _quarantine(found: Quarantine) -> models.QuarantineModel:
    return models.QuarantineModel(
        id=found.id,
        created=serializers.to_time(found.opened_ms),
        units=found.units,
        bytes=found.bytes,
    )


def survey(context: ApiContext) -> models.StorageSurvey:
    """Sum up the namespace, and list the first units that would be collected or are unknown."""
    usage = Usage()
    findings: list[models.CollectorFindingModel] = []
    collector = Collector(context.commands.storage.files, StoreFacts(context.store))
    for verdict in collector.survey(rules_of(context.settings.checkpoint, context.clock.now_ms())):
        usage.add(verdict)
        if (verdict.due or verdict.kind in (UnitKind.ORPHAN, UnitKind.UNKNOWN)) and len(
            findings
        ) < FINDINGS_MAX:
            findings.append(
                models.CollectorFindingModel(
                    path=verdict.unit.path,
                    kind=verdict.kind.value,
                    reason=verdict.reason,
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
    """Run one pass of the collector, and store its report."""
    files = context.commands.storage.files
    claim_namespace(files, context.store)
    rules = rules_of(context.settings.checkpoint, context.clock.now_ms())
    report = Collector(files, StoreFacts(context.store)).collect(rules)
    record(context.store, report_of(report, rules, 0), report.usage.by_job)


def undo(context: ApiContext, quarantine_id: str) -> models.UndoResult:
    """Move everything in a quarantine back."""
    quarantines = Collector(context.commands.storage.files, StoreFacts(context.store)).quarantines
    moved, failed = quarantines.restore(quarantines.find(quarantine_id), context.clock.now_ms())
    return models.UndoResult(moved=moved, failed=list(failed))
