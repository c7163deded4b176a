"""The pipelines of a job as they are shown: those of a job that has ended have ended too, whatever
an older release has left in their records. Pure.
"""

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.lifecycle.terminal import shown_ended
from tidegate.model.records import JobStatus, PipelineState


def pipelines_of(picture: ClusterCache, job_id: int) -> list[PipelineState]:
    """All of them, by id."""
    pipelines, status = [seen.value for seen in picture.pipelines(job_id)], _status(picture, job_id)
    return shown_ended(pipelines, status) if status is not None and status.terminal else pipelines


def _status(picture: ClusterCache, job_id: int) -> JobStatus | None:
    """Of the newest incarnation: its tombstone may be gone, or its outcome not be there yet."""
    state, outcome = picture.state(job_id), picture.outcome(job_id)
    if state is not None:
        return state.value.status
    return (
        JobStatus(outcome.peek("status"))
        if outcome is not None and job_id not in picture.jobs()
        else None
    )
