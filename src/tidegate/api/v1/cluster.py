"""Workers, servers, the queue of cleanups, and the whole in figures."""

from collections import Counter

from fastapi import APIRouter

from tidegate import __version__
from tidegate.api.context import ApiContext
from tidegate.api.running_jobs import running_jobs
from tidegate.api.v1 import models
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.roles import VIEWER
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.server_heartbeat import living
from tidegate.model.records import CheckpointHealth, ServerRecord


def routes(context: ApiContext) -> APIRouter:
    """All of them only read."""
    router = APIRouter(tags=["cluster"], dependencies=[VIEWER])

    @router.get("/overview")
    def get_overview() -> models.Overview:
        """What there is, and what needs attention."""
        return overview_of(context)

    @router.get("/workers")
    def listworkers_of() -> list[models.WorkerModel]:
        """Every worker that has a lease, with the jobs in its hands."""
        return workers_of(context.current())

    @router.get("/coordinators")
    def list_coordinators() -> list[models.Coordinator]:
        """Every server that lives, and which of them leads."""
        return coordinators_of(context)

    @router.get("/cleanups")
    def list_cleanups() -> list[models.Cleanup]:
        """What ended jobs have left, the next one to go first."""
        records = [seen.value for seen in context.current().cleanups().values()]
        return [
            shapes.cleanup(record) for record in sorted(records, key=lambda record: record.due_ms)
        ]

    return router


def workers_of(cache: ClusterCache) -> list[models.WorkerModel]:
    """Every worker with the jobs in its hands."""
    held: dict[str, list[int]] = {}
    for job in running_jobs(cache):
        assignment = cache.assignment(job.state.job_id)
        if assignment is not None:
            held.setdefault(assignment.value.worker, []).append(job.state.job_id)
    return [
        shapes.worker(seen.value, sorted(held.get(key, [])))
        for key, seen in sorted(cache.workers().items())
    ]


def overview_of(context: ApiContext) -> models.Overview:
    """What there is, and what needs attention."""
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
    """The servers that live.

    This one does, and so does the leader, also if they have not announced themselves yet, or are of
    a release that does not.
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
        for each in living(cache, context.settings.coordinator.lease_ms, context.clock)
    }
    return [
        models.Coordinator(
            id=each.id,
            address=each.address,
            since=shapes.moment(each.started_ms) if each.started_ms else None,
            version=each.release,
            leads=leader is not None and leader.holder == each.id,
            term=leader.term if leader is not None and leader.holder == each.id else None,
            answers=each.id == me.id,
        )
        for each in sorted(found.values(), key=lambda each: (each.address, each.id))
    ]
