"""How the pipelines of a job end with it: none of them runs any more.

Pure; called by whoever ends a job, and by those who show one that has ended.
"""

from collections.abc import Sequence
from dataclasses import replace

from tidegate.model.records import JobStatus, PipelineState, PipelineStatus

ENDED = frozenset({PipelineStatus.FINISHED, PipelineStatus.CANCELED, PipelineStatus.FAILED})


def ended_statuses(pipelines: Sequence[PipelineState], job: JobStatus) -> list[PipelineStatus]:
    """Of each pipeline, how it ended.

    One that had not ended by itself has failed where the whole job did, and was canceled where
    another one is to blame.
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


def shown_ended(pipelines: Sequence[PipelineState], job: JobStatus) -> list[PipelineState]:
    """The pipelines of a job that has ended, as they are shown: no batch is being made.

    The record of one stays stored, as who resumes the job repeats it.
    """
    return [
        replace(p, status=status, pending=None)
        for p, status in zip(pipelines, ended_statuses(pipelines, job), strict=True)
    ]
