"""Final statuses of the pipelines of an ended job: none of them runs any more.

Pure; called by the process that ends a job, and by displays of an ended one.
"""

from collections.abc import Sequence
from dataclasses import replace

from tidegate.model.records import JobStatus, PipelineState, PipelineStatus

ENDED = frozenset({PipelineStatus.FINISHED, PipelineStatus.CANCELED, PipelineStatus.FAILED})


def final_statuses(pipelines: Sequence[PipelineState], job: JobStatus) -> list[PipelineStatus]:
    """Return how each pipeline ended.

    One that had not ended by itself has failed if the whole job did, and was canceled if another
    pipeline is to blame.
    """
    failed = any(p.status is PipelineStatus.FAILED for p in pipelines)
    match job:
        case JobStatus.FINISHED:
            other = PipelineStatus.FINISHED
        case JobStatus.FAILED | JobStatus.UNKNOWABLE if not failed:
            other = PipelineStatus.FAILED
        case _:
            other = PipelineStatus.CANCELED
    return [p.status if p.status in ENDED else other for p in pipelines]


def displayed_pipelines(pipelines: Sequence[PipelineState], job: JobStatus) -> list[PipelineState]:
    """Return the pipelines of an ended job for display: without a pending batch.

    The pending batch stays stored, since a resume repeats it.
    """
    return [
        replace(p, status=status, pending=None)
        for p, status in zip(pipelines, final_statuses(pipelines, job), strict=True)
    ]
