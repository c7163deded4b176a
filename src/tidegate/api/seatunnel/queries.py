"""GET: jobs and overview, answered from the cluster cache without reading the store or waiting."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate import __version__
from tidegate.api.context import ApiContext
from tidegate.api.running_jobs import FinishedJobsCache, RunningJob, RunningJobsCache, dumps
from tidegate.api.seatunnel import serializers
from tidegate.api.seatunnel.serializers import WAITING
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.errors import UserError
from tidegate.model.ids import JOB_ID_MAX, whole_number
from tidegate.model.records import Failure, JobStatus
from tidegate.store.errors import StoreDamaged

T = TypeVar("T")
ROWS_DEFAULT = 10
FAILURES_DEFAULT = 100
SHOWN_CHARS_MAX = 80


class JobQueries:
    """Handlers, with the cached texts of the jobs that they share."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.running = RunningJobsCache(context.cache)
        self.finished = FinishedJobsCache()

    async def overview(self, request: Request) -> Response:
        """Count workers, slots and jobs. Query parameters select workers by their tags."""
        await self.running.refresh_queue.refresh_in_slices()
        cache = self.context.current()
        jobs = [entry.job for entry in self.running.entries()]
        ended = self.context.job_index.ended_counts()
        return JSONResponse(overview(cache, jobs, ended, dict(request.query_params)))

    async def running_jobs(self, request: Request) -> Response:
        """List jobs that have not ended, newest first."""
        await self.running.refresh_queue.refresh_in_slices()
        self.context.current()
        now_ms, page = self.context.clock.now_ms(), _page(request)
        return (
            _listed(self.running.entries(), lambda entry: entry.json(now_ms), page)
            if page
            else json_text(self.running.all_json(now_ms))
        )

    async def finished_jobs(self, request: Request) -> Response:
        """List jobs that have ended, the last one first.

        `state` is case-insensitive; an unknown state has no jobs.
        """
        cache, state = self.context.current(), request.path_params.get("state", "").upper()
        self.finished.prune(cache)
        return _listed(
            self.context.job_index.finished(state),
            lambda row: self.finished.json(row.outcome),
            _page(request),
        )

    async def job_info(self, request: Request) -> Response:
        """Return a job, running or ended. For an unknown id the response has only the id."""
        job_id, cache = job_id_of(request.path_params.get("job_id", "")), self.context.current()
        entry, outcome = self.running.entry(job_id), cache.outcome(job_id)
        if entry is not None and (outcome is None or not entry.job.state.status.terminal):
            return json_text(entry.json(self.context.clock.now_ms()))
        if outcome is None and (damage := cache.damage(job_id)):
            raise StoreDamaged(damage)
        return json_text(
            self.finished.json(outcome) if outcome is not None else dumps({"jobId": str(job_id)})
        )

    async def failures(self, request: Request) -> Response:
        """List the failures of a job, newest first. They are limited when they are written."""
        job_id, cache = job_id_of(request.path_params["job_id"]), self.context.current()
        limit = positive(request, "limit") or FAILURES_DEFAULT
        state, outcome = cache.state(job_id), cache.outcome(job_id)
        failures: Sequence[Failure] = ()
        if state and (state.value.failures or outcome is None):
            failures = state.value.failures
        elif outcome:
            failures = outcome.value.failures
        return JSONResponse([serializers.failure(each) for each in reversed(failures)][:limit])


def overview(
    cache: ClusterCache,
    jobs: Sequence[RunningJob],
    ended: Mapping[str, int],
    tags: Mapping[str, str],
) -> dict[str, str]:
    """Return the counts of the overview, all as text."""
    workers = {
        key: w.value
        for key, w in cache.workers().items()
        if all(w.value.tags.get(tag) == value for tag, value in tags.items())
    }
    slots = sum(worker.slots for worker in workers.values())
    assigned = [
        a for job in jobs if (a := cache.assignment(job.state.job_id)) and a.value.worker in workers
    ]
    waiting = sum(job.state.status in WAITING for job in jobs)
    counts = {
        "totalSlot": slots,
        "unassignedSlot": max(0, slots - len(assigned)),
        "workers": len(workers),
        "runningJobs": len(jobs) - waiting,
        "pendingJobs": waiting,
        "finishedJobs": ended.get(JobStatus.FINISHED, 0),
        "failedJobs": ended.get(JobStatus.FAILED, 0),
        "cancelledJobs": ended.get(JobStatus.CANCELED, 0),
    }
    return {
        "projectVersion": __version__,
        "gitCommitAbbrev": "",
        **{key: str(count) for key, count in counts.items()},
    }


def job_id_of(text: str) -> int:
    """Parse a job id, a whole number from 1 to JOB_ID_MAX."""
    if not text:
        raise UserError("the jobId is missing")
    job_id = whole_number(text, 1, JOB_ID_MAX)
    if job_id is None:
        raise UserError(
            f"{text[:SHOWN_CHARS_MAX]!r} is not a jobId, which is a whole number from 1 to"
            f" {JOB_ID_MAX}"
        )
    return job_id


def _page(request: Request) -> slice | None:
    """Return the requested part of a list; None = all of it."""
    page, rows = positive(request, "page"), positive(request, "rows")
    if page is None:
        return None
    rows = rows or ROWS_DEFAULT
    return slice((page - 1) * rows, page * rows)


def _listed(items: Sequence[T], text: Callable[[T], str], page: slice | None) -> Response:
    """Return all items, or one page of them with the total."""
    if page is None:
        return json_text(f"[{','.join(map(text, items))}]")
    return json_text(f'{{"data":[{",".join(map(text, items[page]))}],"total":{len(items)}}}')


def positive(request: Request, name: str) -> int | None:
    """Parse a parameter that must be a whole number from 1; None if it is not given."""
    given = request.query_params.get(name)
    if given is None:
        return None
    value = whole_number(given, 1, 2**31 - 1)
    if value is None:
        raise UserError(
            f"{name}={given[:SHOWN_CHARS_MAX]} is not a whole number from 1 to {2**31 - 1}"
        )
    return value


def json_text(text: str | bytes) -> Response:
    """Respond with JSON that is already serialized."""
    return Response(text, media_type="application/json")
