"""Jobs: list, details, checkpoints and failures; submit, stop.

Reads are answered from the cluster cache without waiting; commands are durable before the response.
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
from tidegate.api.v1 import models, serializers
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
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the previous page")]
KEY_MAX = 200
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "not modified: If-None-Match equals the ETag"}
}


def routes(context: ApiContext) -> APIRouter:
    """Create the routes below /jobs."""
    router = APIRouter(prefix="/jobs", tags=["jobs"])
    _add_lists(router, context)
    _add_commands(router, context)
    _add_details(router, context)
    return router


def _add_lists(router: APIRouter, context: ApiContext) -> None:
    pages = PageCache(context.cache)

    @router.get("", dependencies=[VIEWER], response_model=models.JobPage, responses=NOT_MODIFIED)
    async def list_jobs(
        request: Request,
        status: Annotated[
            list[JobStatus] | None, Query(description="only these statuses; may be repeated")
        ] = None,
        health: Annotated[
            list[CheckpointHealth] | None,
            Query(description="only running jobs with this health; may be repeated"),
        ] = None,
        name: Annotated[
            str | None, Query(max_length=500, description="a part of the name, ignoring case")
        ] = None,
        ended: Annotated[
            bool | None,
            Query(description="true: only jobs that have ended; false: only the others"),
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response:
        """List jobs, newest first: running, waiting and ended ones.

        The ETag of a page changes whenever one of its jobs changes.
        """
        context.current()
        found = matching(
            context.job_index.rows(ended=ended), status=status, health=health, name=name
        )
        shown, following = page(found, submitted_of, cursor, limit)
        keys = pages.keys(shown)
        tag = tag_of(keys, following, len(found))
        return unchanged(request, tag) or json_answer(
            pages.page(shown, keys, following, len(found), context.clock.now_ms()), tag
        )


def _add_commands(router: APIRouter, context: ApiContext) -> None:
    commands = JobCommands(context)

    @router.post("", status_code=201, dependencies=[OPERATOR])
    def submit_job(
        body: models.SubmissionModel,
        request: Request,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=KEY_MAX,
                description="requests with the same key submit the job once",
            ),
        ] = None,
    ) -> models.SubmissionAccepted:
        """Submit a job. It is durable before the response, and runs as soon as there is a slot."""
        query = {
            **submit_query(body.id, body.name, body.restore, body.on_sink_lost),
            **body.list_parameters(),
        }
        query["lenient"] = str(body.lenient)
        record = commands.submit(
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
            submitted=serializers.to_time(record.initialization_ms),
            notes=notes,
        )

    @router.post("/{job_id}/stop", status_code=202, dependencies=[OPERATOR])
    def stop_job(
        job_id: JobIdPath, body: models.StopRequest, request: Request
    ) -> models.JobDetails:
        """Stop a job: at its next checkpoint, with a savepoint, or by killing it at once.

        Has no effect on a job that has ended.
        """
        id = job_id_of(job_id)
        audit_facts(request, action=str(body.mode))
        job_details(context.current(), id, 0)  # UnknownJob
        commands.stop(id, StopMode(body.mode), principal_of(request).name)
        context.wait_until_current()
        return job_details(context.current(), id, context.clock.now_ms())


def _add_details(router: APIRouter, context: ApiContext) -> None:
    @router.get(
        "/{job_id}", dependencies=[VIEWER], response_model=models.JobDetails, responses=NOT_MODIFIED
    )
    async def get_job(job_id: JobIdPath, request: Request) -> Response:
        """Get a job with its pipelines, graph and failures. Its ETag changes whenever it does."""
        cache = context.current()
        tag = etag(cache, job_id_of(job_id))
        return unchanged(request, tag) or json_answer(
            job_details(cache, job_id_of(job_id), context.clock.now_ms()).model_dump_json(), tag
        )

    @router.get("/{job_id}/checkpoints", dependencies=[VIEWER])
    def list_checkpoints(
        job_id: JobIdPath,
        pipeline: Annotated[int | None, Query(ge=1)] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> models.CheckpointPage:
        """List the last checkpoints of a job, newest first: at most 32 for each pipeline."""
        cache, id = context.current(), job_id_of(job_id)
        job_details(cache, id, 0)  # UnknownJob
        found = checkpoints_of(cache, id, pipeline)
        shown, following = page(found, _checkpoint_order, cursor, limit)
        return models.CheckpointPage(checkpoints=shown, next=following)

    @router.get("/{job_id}/failures", dependencies=[VIEWER])
    def list_failures(job_id: JobIdPath) -> list[models.FailureModel]:
        """List the last failures of a job, newest first."""
        return job_details(context.current(), job_id_of(job_id), 0).failures


def unchanged(request: Request, tag: str) -> Response | None:
    """Return 304 if the caller has this version already; otherwise None."""
    return (
        Response(status_code=304, headers={"ETag": tag})
        if request.headers.get("if-none-match") == tag
        else None
    )


def json_answer(text: str, tag: str) -> Response:
    """Respond with JSON text that the models have produced, without validating it again."""
    return Response(text, media_type="application/json", headers={"ETag": tag})


def submitted_of(row: JobRow) -> tuple[int, int]:
    return row.submitted


def _checkpoint_order(each: models.CheckpointModel) -> tuple[float, int, int]:
    return each.completed.timestamp(), each.pipeline, each.checkpoint


def job_of(cache: ClusterCache, row: JobRow, now_ms: int) -> models.Job:
    """Return the model of a listed job."""
    return (
        serializers.running(cache, row.job, now_ms)
        if isinstance(row.job, RunningJob)
        else serializers.ended(row.job.value)
    )


def job_details(cache: ClusterCache, job_id: int, now_ms: int) -> models.JobDetails:
    """Return a job with its details; raises UnknownJob."""
    record, outcome = cache.jobs().get(job_id), cache.outcome(job_id)
    job = running_job_of(cache, record) if record is not None else None
    if job is not None and (outcome is None or not job.state.status.terminal):
        return serializers.details(cache, job, now_ms)
    if outcome is None and (damage := cache.damage(job_id)):
        raise StoreDamaged(damage)
    if outcome is None:
        raise UnknownJob(job_id)
    return serializers.ended_details(cache, outcome.value)


def checkpoints_of(
    cache: ClusterCache, job_id: int, pipeline: int | None = None
) -> list[models.CheckpointModel]:
    """Return the last checkpoints of a job or of one of its pipelines, newest first."""
    entries = {seen.key: seen.value.entries for seen in cache.history(job_id)}
    found = [
        serializers.checkpoint(ref, p.value)
        for p in cache.pipelines(job_id)
        if pipeline in (None, p.value.pipeline)
        for ref in entries.get(p.key, p.value.retained)
    ]
    found.sort(key=_checkpoint_order, reverse=True)
    return found


def etag(cache: ClusterCache, job_id: int) -> str:
    """Build an ETag from the versions of all records of a job."""
    seen: tuple[CachedEntry[Any] | None, ...] = (
        cache.jobs().get(job_id),
        cache.state(job_id),
        cache.outcome(job_id),
        cache.assignment(job_id),
    )
    more: Iterator[CachedEntry[Any]] = chain(cache.pipelines(job_id), cache.metrics(job_id))
    parts = [str(each.version if each else 0) for each in chain(seen, more)]
    # differs from the stored health while the store cannot be written
    if (health := cache.displayed_health(job_id)) is not None:
        parts.append(health.level.value)
    return f'W/"{"-".join(parts)}"'
