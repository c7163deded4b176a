"""GET: one function per page, from the cluster cache and the models of the typed API."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tidegate.api.job_index import matching
from tidegate.api.running_jobs import RunningJob
from tidegate.api.seatunnel.logs import LogQueries
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.cluster import coordinators_of, overview_of, workers_of
from tidegate.api.v1.jobs import checkpoints_of, job_details, job_of, submitted_of
from tidegate.api.v1.paging import page
from tidegate.api.v1.serializers import as_plan
from tidegate.api.v1.state import savepoint, storage
from tidegate.model.errors import UserError
from tidegate.model.records import CheckpointHealth, JobStatus
from tidegate.ui.drawing import graph, timeline
from tidegate.ui.history import events_of, restored_of
from tidegate.ui.log_text import readable
from tidegate.ui.page_renderer import PageRenderer

ROWS = 100
ATTENTION_ROWS = 50
LOG_CHARS = 200_000
RECOVERING = frozenset({JobStatus.FAILING, JobStatus.RECOVERING})
WAITING = frozenset({JobStatus.CREATED, JobStatus.PENDING})


class NoSuchPage(UserError):
    """No page has this path."""

    condition = "unknown-page"

    def __init__(self, path: str) -> None:
        super().__init__(f"Not found: {path}")


class Pages:
    def __init__(self, frame: PageRenderer) -> None:
        self.frame = frame
        self.context = frame.context

    async def overview(self, request: Request) -> Response:
        """Show the jobs that need attention and why, and counts."""
        cache, now_ms = self.context.current(), self.context.clock.now_ms()
        running = self.context.job_index.rows(ended=False)
        alive = {row.job_id for row in running}
        ended = matching(
            self.context.job_index.rows(ended=True), status=(JobStatus.FAILED, JobStatus.UNKNOWABLE)
        )
        failed = [
            row for row in ended if row.job_id not in alive
        ]  # one that runs again has been seen to
        unhealthy = [
            job_of(cache, row, now_ms)
            for row in running
            if row.health is not CheckpointHealth.OK or row.status in RECOVERING
        ]
        waiting = [
            job_of(cache, row, now_ms)
            for row in running
            if row.status in WAITING
            and row.health is CheckpointHealth.OK
            and isinstance(row.job, RunningJob)
            and row.job.state.reason
        ]
        return self.frame.page(
            request,
            "overview.html",
            overview=overview_of(self.context),
            running=len(running),
            troubled=len(unhealthy) + len(waiting),
            unhealthy=unhealthy[:ATTENTION_ROWS],
            waiting=waiting[:ATTENTION_ROWS],
            failed_total=len(failed),
            failed=[job_of(cache, row, now_ms) for row in failed[:ATTENTION_ROWS]],
        )

    async def jobs(self, request: Request) -> Response:
        """List jobs; filters and cursor are in the URL."""
        cache, query, now_ms = (
            self.context.current(),
            request.query_params,
            self.context.clock.now_ms(),
        )
        status, name = query.get("status", ""), query.get("name", "").strip()
        ended = {"running": False, "ended": True}.get(query.get("show", ""))
        found = matching(
            self.context.job_index.rows(ended=ended),
            status=[_status(status)] if status else None,
            name=name or None,
        )
        shown, following = page(found, submitted_of, query.get("cursor") or None, ROWS)
        rows = [job_of(cache, row, now_ms) for row in shown]
        chosen = {"status": status, "name": name, "show": query.get("show", "")}
        return self.frame.page(
            request,
            "jobs.html",
            jobs=rows,
            total=len(found),
            following=following,
            chosen=chosen,
            statuses=[s.value for s in JobStatus],
        )

    async def job(self, request: Request) -> Response:
        """Show a job: graph, timeline, failures, metrics and possible actions."""
        cache, job_id = self.context.current(), job_id_of(request.path_params["job_id"])
        details = job_details(cache, job_id, self.context.clock.now_ms())
        lines = {
            p.pipeline: timeline(checkpoints_of(cache, job_id, p.pipeline))
            for p in details.pipelines
        }
        return self.frame.page(
            request,
            "job.html",
            job=details,
            drawn=graph(details.graph),
            lines=lines,
            checkpoints=checkpoints_of(cache, job_id)[:ROWS],
            events=events_of(cache, details),
            restored=as_plan(report) if (report := restored_of(cache, job_id)) else None,
        )

    async def logs(self, request: Request) -> Response:
        """Show the end of the driver's log, if this server has it."""
        job_id = job_id_of(request.path_params["job_id"])
        details = job_details(self.context.current(), job_id, self.context.clock.now_ms())
        reader = LogQueries(self.context)
        names = [
            name
            for name in await run_in_threadpool(reader.file_names)
            if name.startswith(f"{job_id}/")
        ]
        wanted = request.query_params.get("file") or next(
            (name for name in names if name.endswith("driver.log")), names[0] if names else ""
        )
        text = readable(await run_in_threadpool(reader.tail, wanted, LOG_CHARS)) if wanted else ""
        return self.frame.page(
            request, "logs.html", job=details, names=names, wanted=wanted, text=text
        )

    async def unknown(self, request: Request) -> Response:
        """Respond to an unknown path with a not-found page."""
        raise NoSuchPage(request.url.path)

    async def cluster(self, request: Request) -> Response:
        return self.frame.page(
            request,
            "cluster.html",
            workers=workers_of(self.context.current()),
            servers=coordinators_of(self.context),
        )

    async def storage(self, request: Request) -> Response:
        """Show the storage as the collector's last pass found it, savepoints and quarantines."""
        seen, saved = await run_in_threadpool(
            lambda: (storage(self.context), self.context.commands.savepoints.list())
        )
        return self.frame.page(
            request,
            "storage.html",
            storage=seen,
            savepoints=[savepoint(each) for each in saved],
            survey=None,
        )

    async def cleanup(self, request: Request) -> Response:
        """List ended jobs whose state is to be deleted."""
        records = sorted(
            (seen.value for seen in self.context.current().cleanups().values()),
            key=lambda record: record.due_ms,
        )
        return self.frame.page(
            request, "cleanup.html", cleanups=[shapes.cleanup(record) for record in records]
        )


def _status(text: str) -> JobStatus:
    try:
        return JobStatus(text)
    except ValueError:
        raise UserError(
            f"{text!r} is not the status of a job:"
            f" {', '.join(status.value for status in JobStatus)}"
        ) from None
