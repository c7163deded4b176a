"""Workers, servers, pending cleanups, and an overview of the installation."""

from collections import Counter

from fastapi import APIRouter

from tidegate import __version__
from tidegate.api.context import ApiContext
from tidegate.api.running_jobs import running_jobs
from tidegate.api.v1 import models, serializers
from tidegate.api.v1.roles import VIEWER
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.server_heartbeat import live_servers
from tidegate.model.records import CheckpointHealth, ServerRecord


def routes(context: ApiContext) -> APIRouter:
    """Create the routes, all read-only."""
    router = APIRouter(tags=["cluster"], dependencies=[VIEWER])

    @router.get("/overview")
    def get_overview() -> models.Overview:
        """Get counts of jobs, workers and servers, and the jobs that need attention."""
        return overview_of(context)

    @router.get("/workers")
    def list_workers() -> list[models.WorkerModel]:
        """List every worker that holds a lease, with the jobs that are assigned to it."""
        return workers_of(context.current())

    @router.get("/coordinators")
    def list_coordinators() -> list[models.Coordinator]:
        """List every live server, and which of them is the leader."""
        return coordinators_of(context)

    @router.get("/cleanups")
    def list_cleanups() -> list[models.Cleanup]:
        """List ended jobs whose state is to be deleted, the next one first."""
        records = [entry.value for entry in context.current().cleanups().values()]
        records.sort(key=lambda record: record.due_ms)
        return [serializers.cleanup(record) for record in records]

    return router


def workers_of(cache: ClusterCache) -> list[models.WorkerModel]:
    """Return every worker with the jobs that are assigned to it."""
    assigned: dict[str, list[int]] = {}
    for job in running_jobs(cache):
        assignment = cache.assignment(job.state.job_id)
        if assignment is not None:
            assigned.setdefault(assignment.value.worker, []).append(job.state.job_id)
    return [
        serializers.worker(entry.value, sorted(assigned.get(key, [])))
        for key, entry in sorted(cache.workers().items())
    ]


def overview_of(context: ApiContext) -> models.Overview:
    """Count jobs, workers and servers, and find the jobs that need attention."""
    cache, lease = context.current(), context.cache.lease()
    jobs, workers = running_jobs(cache), workers_of(cache)
    counts = Counter(job.state.status.value for job in jobs) + Counter(
        context.job_index.ended_counts()
    )
    return models.Overview(
        version=__version__,
        jobs=dict(counts),
        attention=[
            str(job.state.job_id) for job in jobs if job.state.health is not CheckpointHealth.OK
        ],
        workers=len(workers),
        slots=sum(worker.slots for worker in workers),
        free_slots=sum(worker.free_slots for worker in workers),
        coordinators=len(coordinators_of(context)),
        cleanups=len(cache.cleanups()),
        leader=lease.value.address if lease else None,
    )


def coordinators_of(context: ApiContext) -> list[models.Coordinator]:
    """Return the live servers.

    This server and the leader are included even if they have no heartbeat (yet), as servers of
    older releases have none.
    """
    cache, lease, me = context.current(), context.cache.lease(), context.me
    leader = lease.value if lease else None
    found = {
        me.id: ServerRecord(
            id=me.id, address=me.address, release=__version__, started_ms=me.since_ms
        )
    }
    if leader is not None and leader.holder != me.id:
        found[leader.holder] = ServerRecord(id=leader.holder, address=leader.address)
    found |= {
        each.id: each
        for each in live_servers(cache, context.settings.coordinator.lease_ms, context.clock)
    }
    return [
        models.Coordinator(
            id=each.id,
            address=each.address,
            since=serializers.to_optional_time(each.started_ms) if each.started_ms else None,
            version=each.release,
            leads=leader is not None and leader.holder == each.id,
            term=leader.term if leader is not None and leader.holder == each.id else None,
            answers=each.id == me.id,
        )
        for each in sorted(found.values(), key=lambda each: (each.address, each.id))
    ]
