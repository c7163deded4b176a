"""The pipelines of a job as they are displayed. Pure.

All pipelines of a job that has ended are displayed as ended, whatever an older release has left in
their records.
"""

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.lifecycle.final_statuses import displayed_pipelines
from tidegate.model.records import JobStatus, PipelineState


def pipelines_of(cache: ClusterCache, job_id: int) -> list[PipelineState]:
    """Return all pipelines of a job, by id."""
    pipelines, status = [seen.value for seen in cache.pipelines(job_id)], _status(cache, job_id)
    return (
        displayed_pipelines(pipelines, status)
        if status is not None and status.terminal
        else pipelines
    )


def _status(cache: ClusterCache, job_id: int) -> JobStatus | None:
    """Return the status of the newest incarnation.

    Its tombstone may be gone already, or its outcome may not be there yet.
    """
    state, outcome = cache.state(job_id), cache.outcome(job_id)
    if state is not None:
        return state.value.status
    return (
        JobStatus(outcome.peek("status"))
        if outcome is not None and job_id not in cache.jobs()
        else None
    )
