"""GET /pending-jobs: waiting jobs with their reasons, and the resources of the cluster.

Numbers are numbers, and times are milliseconds unless `pretty=true`. A job is scheduled as a whole:
it needs one slot, for its driver. So a waiting job lacks one task group, and all its pipelines have
the same reason.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.context import ApiContext
from tidegate.api.running_jobs import RunningJob, running_jobs
from tidegate.api.seatunnel.queries import job_id_of, positive
from tidegate.api.seatunnel.serializers import WAITING, shown_status, time_text
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.records import JobStatus

LIMIT_DEFAULT = 100


class PendingJobQueries:
    def __init__(self, context: ApiContext) -> None:
        self.context = context

    async def jobs(self, request: Request) -> Response:
        """Return the queue, the workers, and every waiting job with its reason."""
        cache = self.context.current()
        query = request.query_params
        now_ms = self.context.clock.now_ms()
        all_jobs = running_jobs(cache)
        waiting = sorted((job for job in all_jobs if job.state.status in WAITING), key=_since)
        shown = waiting
        if "jobId" in query:
            job_id = job_id_of(query["jobId"])
            shown = [job for job in waiting if job.state.job_id == job_id]
        shown = shown[: positive(request, "limit") or LIMIT_DEFAULT]
        pretty = query.get("pretty", "").lower() == "true"
        document = {
            "queueSummary": _queue(waiting, pretty),
            "clusterSnapshot": _cluster(cache, all_jobs),
            "pendingJobs": [_job(job, now_ms, pretty) for job in shown],
        }
        return JSONResponse(document)


def _since(job: RunningJob) -> int:
    return job.state.entered.get(job.state.status.value) or job.record.value.initialization_ms


def _moment(ms: int, pretty: bool) -> int | str:
    return time_text(ms) if pretty else ms


def _queue(waiting: Sequence[RunningJob], pretty: bool) -> dict[str, Any]:
    times = [_since(job) for job in waiting]
    return {
        "size": len(waiting),
        "scheduleStrategy": "WAIT",
        "oldestEnqueueTimestamp": _moment(min(times, default=0), pretty),
        "newestEnqueueTimestamp": _moment(max(times, default=0), pretty),
        "lackingTaskGroups": len(waiting),
    }


def _cluster(cache: ClusterCache, jobs: Sequence[RunningJob]) -> dict[str, Any]:
    assigned: dict[str, list[str]] = {}  # job ids by worker
    for job in jobs:
        assignment = cache.assignment(job.state.job_id)
        if assignment is not None:
            assigned.setdefault(assignment.value.worker, []).append(str(job.state.job_id))
    workers = [
        {
            "address": worker.value.address or worker.value.host,
            "tags": dict(worker.value.tags),
            "totalSlots": worker.value.slots,
            "freeSlots": max(0, worker.value.slots - len(assigned.get(key, ()))),
            "dynamicSlot": False,
            "cpuUsage": None,
            "memUsage": None,
            "runningJobIds": assigned.get(key, []),
        }
        for key, worker in cache.workers().items()
    ]
    total = sum(w.value.slots for w in cache.workers().values())
    free = sum(int(str(w["freeSlots"])) for w in workers)
    return {
        "totalSlots": total,
        "freeSlots": free,
        "assignedSlots": total - free,
        "workerCount": len(workers),
        "workers": workers,
    }


def _job(job: RunningJob, now_ms: int, pretty: bool) -> dict[str, Any]:
    record, state, since = job.record.value, job.state, _since(job)
    lack = {"totalTaskGroups": 1, "allocatedTaskGroups": 0, "lackingTaskGroups": 1}
    reason = "RESOURCE_NOT_ENOUGH" if state.reason else None
    diagnosis = {
        "taskGroupLocation": {"jobId": state.job_id, "pipelineId": 1, "taskGroupId": 1},
        "taskFullName": f"driver of {record.name}",
        "allocated": False,
        "failureReason": reason,
        "failureMessage": state.reason or None,
    }
    return {
        "jobId": state.job_id,
        "jobName": record.name,
        "pendingSourceState": (
            "RESTORE" if state.status is JobStatus.RECOVERING or record.restored else "SUBMIT"
        ),
        "jobStatus": shown_status(state.status),
        "enqueueTimestamp": _moment(since, pretty),
        "checkTime": _moment(now_ms, pretty),
        "waitDurationMs": max(0, now_ms - since),
        "checkCount": state.restarts,
        **lack,
        "failureReason": reason,
        "failureMessage": state.reason or None,
        "tagFilter": dict(record.plan.env.tags),
        "blockingJobIds": [],
        "pipelines": [
            {
                "pipelineId": p.id,
                "pipelineName": f"pipeline-{p.id}",
                **lack,
                "taskGroupDiagnostics": [diagnosis],
            }
            for p in record.plan.pipelines
        ],
        "lackingTaskGroupDiagnostics": [diagnosis],
    }
