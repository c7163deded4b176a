"""The pipelines of a job as they are shown: those of a job that has ended have ended too, whatever
an older release has left in their records. Pure.
"""

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.lifecycle.final_statuses import shown_ended
from tidegate.model.records import JobStatus, PipelineState


def pipelines_of(cache: ClusterCache, job_id: int) -> list[PipelineState]:
    """All of them, by id."""
    pipelines, status = [seen.value for seen in cache.pipelines(job_id)], _status(cache, job_id)
    return shown_ended(pipelines, status) if status is not None and status.terminal else pipelines


def _status(cache: ClusterCache, job_id: int) -> JobStatus | None:
    """Of the newest incarnation: its tombstone may be gone, or its outcome not be there yet."""
    state, outcome = cache.state(job_id), cache.outcome(job_id)
    if state is not None:
        return state.value.status
    return (
        JobStatus(outcome.peek("status"))
        if outcome is not None and job_id not in cache.jobs()
        else None
    )
