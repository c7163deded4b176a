"""Jobs: list, one, its checkpoints; submit, stop.

Reads come from the picture and wait for nothing; wishes are durable before they are answered.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response

from tidegate.api.auth import audit_facts, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.job_index import JobRow, matching
from tidegate.api.running_jobs import RunningJob, running_job_of
from tidegate.api.seatunnel.commands import JobCommands, StopMode
from tidegate.api.seatunnel.job_source import format_of
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.seatunnel.restore_params import submit_query
from tidegate.api.v1 import models
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.page_cache import PageCache, tag_of
from tidegate.api.v1.paging import page
from tidegate.api.v1.roles import OPERATOR, VIEWER
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.commands import UnknownJob
from tidegate.model.records import CheckpointHealth, JobStatus
from tidegate.store.errors import StoreDamaged
from tidegate.store.follow import CachedEntry

JobIdPath = Annotated[str, Path(pattern="^[1-9][0-9]{0,18}$", description="the id of a job")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]
KEY_MAX = 200
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "the caller has it already: If-None-Match is its ETag"}
}


def routes(context: ApiContext) -> APIRouter:
    router, writes, cards = (
        APIRouter(prefix="/jobs", tags=["jobs"]),
        JobCommands(context),
        PageCache(context.cache),
    )

    @router.get("", dependencies=[VIEWER], response_model=models.JobPage, responses=NOT_MODIFIED)
    async def list_jobs(
        request: Request,
        status: Annotated[
            list[JobStatus] | None, Query(description="only these; may be repeated")
        ] = None,
        health: Annotated[
            list[CheckpointHealth] | None,
            Query(description="only jobs that run, and are as healthy as this"),
        ] = None,
        name: Annotated[
            str | None, Query(max_length=500, description="a part of the name, in any case")
        ] = None,
        ended: Annotated[
            bool | None,
            Query(description="only those that have ended, or only those that have not"),
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        """Jobs, the newest first: those that run or wait, and those that have ended.

        The page's ETag changes when anything of its jobs does.
        """
        context.current()
        found = matching(
            context.job_index.rows(ended=ended), status=status, health=health, name=name
        )
        shown, following = page(found, submitted_of, cursor, limit)
        keys = cards.keys(shown)
        tag = tag_of(keys, following, len(found))
        return unchanged(request, tag) or json_answer(
            cards.page(shown, keys, following, len(found), context.clock.now_ms()), tag
        )

    @router.post("", status_code=201, dependencies=[OPERATOR])
    def submit_job(
        body: models.SubmissionModel,
        request: Request,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=KEY_MAX,
                description="the same key is the same job, however often it is sent",
            ),
        ] = None,
    ) -> models.SubmissionAccepted:
        """Take a job in.

        It is durable when this is answered, and runs as soon as there is a slot.
        """
        query = {
            **submit_query(body.id, body.name, body.restore, body.on_sink_lost),
            **body.list_parameters(),
        }
        query["lenient"] = str(body.lenient)
        record = writes.submit(
            body.text.encode(),
            format_of(body.format),
            query,
            principal_of(request).name,
            idempotency_key or "",
        )
        audit_facts(request, jobId=str(record.job_id), jobName=record.name, action="submit")
        notes = list(record.restore.notes) if record.restore else []
        return models.SubmissionAccepted(
            id=str(record.job_id),
            name=record.name,
            submitted=shapes.at(record.initialization_ms),
            notes=notes,
        )

    @router.get(
        "/{job_id}", dependencies=[VIEWER], response_model=models.JobDetails, responses=NOT_MODIFIED
    )
    async def get_job(job_id: JobIdPath, request: Request) -> Response:
        """One job with its pipelines, its graph and its failures.

        Its ETag changes when anything of it does.
        """
        cache = context.current()
        tag = etag(cache, job_id_of(job_id))
        return unchanged(request, tag) or json_answer(
            job_details(cache, job_id_of(job_id), context.clock.now_ms()).model_dump_json(), tag
        )

    @router.post("/{job_id}/stop", status_code=202, dependencies=[OPERATOR])
    def stop_job(
        job_id: JobIdPath, body: models.StopRequest, request: Request
    ) -> models.JobDetails:
        """Want a job to end: at its next checkpoint, with a savepoint, or killed at once.

        A job that has ended stays as it is.
        """
        wanted = job_id_of(job_id)
        audit_facts(request, action=str(body.how))
        job_details(context.current(), wanted, 0)  # an id that nobody knows is told
        writes.stop(wanted, StopMode(body.how), principal_of(request).name)
        context.wait_until_current()
        return job_details(context.current(), wanted, context.clock.now_ms())

    @router.get("/{job_id}/checkpoints", dependencies=[VIEWER])
    def list_checkpoints(
        job_id: JobIdPath,
        pipeline: Annotated[int | None, Query(ge=1)] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> models.CheckpointPage:
        """The last checkpoints of a job, the newest first.

        The history is bounded: 32 for each pipeline.
        """
        picture, wanted = context.current(), job_id_of(job_id)
        job_details(picture, wanted, 0)
        found = checkpoints_of(picture, wanted, pipeline)
        shown, following = page(found, _checkpoint_order, cursor, limit)
        return models.CheckpointPage(checkpoints=shown, next=following)

    @router.get("/{job_id}/failures", dependencies=[VIEWER])
    def list_failures(job_id: JobIdPath) -> list[models.FailureModel]:
        """What went wrong, the newest first; bounded."""
        return job_details(context.current(), job_id_of(job_id), 0).failures

    return router


def unchanged(request: Request, tag: str) -> Response | None:
    """The answer to a caller that has it already; None where it has not."""
    return (
        Response(status_code=304, headers={"ETag": tag})
        if request.headers.get("if-none-match") == tag
        else None
    )


def json_answer(text: str, tag: str) -> Response:
    """JSON that is text already: it was made by the models, and is not made or checked a second
    time.
    """
    return Response(text, media_type="application/json", headers={"ETag": tag})


def submitted_of(row: JobRow) -> tuple[int, int]:
    return row.submitted


def _checkpoint_order(each: models.CheckpointModel) -> tuple[float, int, int]:
    return each.completed.timestamp(), each.pipeline, each.checkpoint


def job_of(cache: ClusterCache, row: JobRow, now_ms: int) -> models.Job:
    """A job as it is shown."""
    return (
        shapes.running(cache, row.job, now_ms)
        if isinstance(row.job, RunningJob)
        else shapes.ended(row.job.value)
    )


def job_details(cache: ClusterCache, job_id: int, now_ms: int) -> models.JobDetails:
    """One job with all that belongs to it; UnknownJob."""
    record, outcome = cache.jobs().get(job_id), cache.outcome(job_id)
    job = running_job_of(cache, record) if record is not None else None
    if job is not None and (outcome is None or not job.state.status.terminal):
        return shapes.details(cache, job, now_ms)
    if outcome is None and (damage := cache.damage(job_id)):
        raise StoreDamaged(damage)
    if outcome is None:
        raise UnknownJob(job_id)
    return shapes.ended_details(cache, outcome.value)


def checkpoints_of(
    cache: ClusterCache, job_id: int, pipeline: int | None = None
) -> list[models.CheckpointModel]:
    """The last checkpoints of a job, or of one of its pipelines, the newest first."""
    entries = {seen.key: seen.value.entries for seen in cache.history(job_id)}
    found = [
        shapes.checkpoint(ref, p.value)
        for p in cache.pipelines(job_id)
        if pipeline in (None, p.value.pipeline)
        for ref in entries.get(p.key, p.value.retained)
    ]
    found.sort(key=_checkpoint_order, reverse=True)
    return found


def etag(cache: ClusterCache, job_id: int) -> str:
    """Made of the versions of all records of a job."""
    seen: tuple[CachedEntry[Any] | None, ...] = (
        cache.jobs().get(job_id),
        cache.state(job_id),
        cache.outcome(job_id),
        cache.assignment(job_id),
    )
    more: Iterator[CachedEntry[Any]] = chain(cache.pipelines(job_id), cache.metrics(job_id))
    parts = [str(each.version if each else 0) for each in chain(seen, more)]
    if (instead := cache.shown_health(job_id)) is not None:  # while it cannot be written
        parts.append(instead.level.value)
    return f'W/"{"-".join(parts)}"'
