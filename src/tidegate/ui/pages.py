"""GET: one function for each page. Everything comes from this server's picture of the store, as the models of the typed API have it."""

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tidegate.api.logs import Logs
from tidegate.api.reads import job_id_of
from tidegate.api.v1 import models, shapes
from tidegate.api.v1.cluster import coordinators_of, overview_of, workers_of
from tidegate.api.v1.jobs import checkpoints_of, filter_of, found_jobs, job_details, job_of, order_of
from tidegate.api.v1.paging import page
from tidegate.api.v1.state import as_plan, savepoint, storage
from tidegate.model.errors import UserError
from tidegate.model.records import CheckpointHealth, JobStatus
from tidegate.model.restore import RestoreReport
from tidegate.ui.drawing import graph, timeline
from tidegate.ui.frame import Frame

ROWS = 100
ATTENTION_ROWS = 50
LOG_CHARS = 200_000
TROUBLED = frozenset({JobStatus.FAILING, JobStatus.RECOVERING})


class Pages:
    """The handlers."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.desk = frame, frame.desk

    async def overview(self, request: Request) -> Response:
        """What needs attention, and why; then the figures."""
        picture, now_ms = self.desk.current(), self.desk.clock.now_ms()
        running = [job_of(picture, each, now_ms) for each in found_jobs(picture, ended=False, wanted=lambda _: True)]
        failed = found_jobs(picture, ended=True, wanted=filter_of([JobStatus.FAILED, JobStatus.UNKNOWABLE], None, None))[:ATTENTION_ROWS]
        sick = [job for job in running if job.health is not CheckpointHealth.OK or job.status in TROUBLED]
        waiting = [job for job in running if job.status is JobStatus.PENDING and job.reason]
        return self.frame.page(
            request,
            "overview.html",
            overview=overview_of(self.desk),
            running=len(running),
            sick=sick[:ATTENTION_ROWS],
            waiting=waiting[:ATTENTION_ROWS],
            failed=[job_of(picture, each, now_ms) for each in failed],
        )

    async def jobs(self, request: Request) -> Response:
        """The list; filters and pages are in the address."""
        picture, query, now_ms = self.desk.current(), request.query_params, self.desk.clock.now_ms()
        status, name = query.get("status", ""), query.get("name", "").strip()
        ended = {"running": False, "ended": True}.get(query.get("show", ""))
        found = found_jobs(picture, ended=ended, wanted=filter_of([_status(status)] if status else None, None, name or None))
        shown, following = page(found, order_of, query.get("cursor") or None, ROWS)
        rows = [job_of(picture, each, now_ms) for each in shown]
        chosen = {"status": status, "name": name, "show": query.get("show", "")}
        return self.frame.page(request, "jobs.html", jobs=rows, total=len(found), following=following, chosen=chosen, statuses=[s.value for s in JobStatus])

    async def job(self, request: Request) -> Response:
        """One job: graph, timeline, failures, figures, what can be done."""
        picture, job_id = self.desk.current(), job_id_of(request.path_params["job_id"])
        details = job_details(picture, job_id, self.desk.clock.now_ms())
        lines = {p.pipeline: timeline(checkpoints_of(picture, job_id, p.pipeline)) for p in details.pipelines}
        return self.frame.page(
            request,
            "job.html",
            job=details,
            drawn=graph(details.graph, details.pipelines),
            lines=lines,
            checkpoints=checkpoints_of(picture, job_id)[:ROWS],
            events=_events(details),
            restored=as_plan(report) if (report := self._report(job_id)) else None,
        )

    def _report(self, job_id: int) -> RestoreReport | None:
        """What was restored when it was submitted, where it is known."""
        record = self.desk.picture.jobs().get(job_id)
        return record.value.restore if record is not None else None

    async def logs(self, request: Request) -> Response:
        """The end of the driver's log, as this server has it."""
        job_id = job_id_of(request.path_params["job_id"])
        details = job_details(self.desk.current(), job_id, self.desk.clock.now_ms())
        reader = Logs(self.desk)
        names = [name for name in await run_in_threadpool(reader.file_names) if name.startswith(f"{job_id}/")]
        wanted = request.query_params.get("file") or next((name for name in names if name.endswith("driver.log")), names[0] if names else "")
        text = await run_in_threadpool(reader.tail, wanted, LOG_CHARS) if wanted else ""
        return self.frame.page(request, "logs.html", job=details, names=names, wanted=wanted, text=text)

    async def cluster(self, request: Request) -> Response:
        """Workers and servers."""
        return self.frame.page(request, "cluster.html", workers=workers_of(self.desk.current()), servers=coordinators_of(self.desk))

    async def storage(self, request: Request) -> Response:
        """What is below the namespace, as the last pass of the collector saw it; savepoints; quarantines."""
        seen, saved = await run_in_threadpool(lambda: (storage(self.desk), self.desk.commands.savepoints.list()))
        return self.frame.page(request, "storage.html", storage=seen, savepoints=[savepoint(each) for each in saved], survey=None)

    async def cleanup(self, request: Request) -> Response:
        """What ended jobs have left."""
        records = sorted((seen.value for seen in self.desk.current().cleanups().values()), key=lambda record: record.due_ms)
        return self.frame.page(request, "cleanup.html", cleanups=[shapes.cleanup(record) for record in records])


def _status(text: str) -> JobStatus:
    try:
        return JobStatus(text)
    except ValueError:
        raise UserError(f"{text!r} is not the status of a job: {', '.join(status.value for status in JobStatus)}") from None


def _events(job: models.JobDetails) -> list[Mapping[str, Any]]:
    """What happened, the newest first: when each failure was, and when the job came and went."""
    told: list[dict[str, Any]] = [{"at": failure.at, "what": failure.condition, "why": failure.message, "bad": True} for failure in job.failures]
    stages = ((job.submitted, "submitted"), (job.started, "started"), (job.ended, job.status.value))
    told += [{"at": at, "what": what, "why": "", "bad": False} for at, what in stages if at]
    return sorted(told, key=lambda each: each["at"], reverse=True)
