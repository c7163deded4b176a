"""GET: checkpoints of a job by pipeline, in SeaTunnel's format.

Unlike in the other routes numbers are numbers, and times are milliseconds. Answered from the
cluster cache. The history is limited where it is written; requests can limit it further.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.context import ApiContext
from tidegate.api.pipelines import pipelines_of
from tidegate.api.seatunnel.queries import job_id_of, positive
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.errors import UserError
from tidegate.model.records import (
    CheckpointKind,
    CheckpointRef,
    PendingBatch,
    PipelineState,
    PipelineStatus,
)

HISTORY_DEFAULT = 20
STATUSES = ("COMPLETED", "FAILED", "CANCELED")
TYPES = {
    CheckpointKind.CHECKPOINT: "CHECKPOINT_TYPE",
    CheckpointKind.SAVEPOINT: "SAVEPOINT_TYPE",
    CheckpointKind.COMPLETED_POINT: "COMPLETED_POINT_TYPE",
}


class CheckpointQueries:
    def __init__(self, context: ApiContext) -> None:
        self.context = context

    async def overview(self, request: Request) -> Response:
        """Return counts, the latest checkpoints and the history of every pipeline."""
        job_id, cache = job_id_of(request.path_params["job_id"]), self.context.current()
        pipelines = pipelines_of(cache, job_id)
        updated = max(
            (
                each
                for p in pipelines
                for each in (p.confirmed_ms, p.latest.completed_ms if p.latest else 0)
            ),
            default=0,
        )
        document = {
            "jobId": str(job_id),
            "updatedAt": updated,
            "pipelines": [_pipeline(cache, p) for p in pipelines],
        }
        return JSONResponse(document)

    async def history(self, request: Request) -> Response:
        """Return the last checkpoints of one pipeline or of all, newest first."""
        job_id, cache = job_id_of(request.path_params["job_id"]), self.context.current()
        pipeline = positive(request, "pipelineId")
        limit = positive(request, "limit") or HISTORY_DEFAULT
        status = request.query_params.get("status", "").upper()
        if status and status not in STATUSES:
            raise UserError(f"status={status} is unknown: use {', '.join(STATUSES)}")
        found = [
            (ref.completed_ms, {"pipelineId": p.value.pipeline, "checkpoint": _checkpoint(ref)})
            for p in cache.pipelines(job_id)
            if pipeline in (None, p.value.pipeline) and status in ("", "COMPLETED")
            for ref in _history(cache, p.value)
        ]
        found.sort(key=lambda each: each[0], reverse=True)
        return JSONResponse([entry for _, entry in found[:limit]])


def _pipeline(cache: ClusterCache, state: PipelineState) -> dict[str, Any]:
    history = _history(cache, state)
    saved = next((ref for ref in history if ref.kind is CheckpointKind.SAVEPOINT), None)
    begun = [state.pending] if state.pending and state.status is not PipelineStatus.FINISHED else []
    return {
        "pipelineId": state.pipeline,
        "counts": {
            "triggered": state.checkpoints + len(begun),
            "completed": state.checkpoints,
            # a batch is repeated until it is complete or the job fails: checkpoints never fail
            "failed": 0,
            "inProgress": len(begun),
            "restored": int(state.restarts > 0),
        },
        "latestCompleted": _checkpoint(state.latest) if state.latest else None,
        "latestFailed": None,
        "latestSavepoint": _checkpoint(saved) if saved else None,
        "inProgress": [_in_progress(pending) for pending in begun],
        "history": [
            {"pipelineId": state.pipeline, "checkpoint": _checkpoint(ref)} for ref in history
        ],
    }


def _history(cache: ClusterCache, state: PipelineState) -> Sequence[CheckpointRef]:
    for seen in cache.history(state.job_id):
        if seen.key.rpartition("/")[2] == str(state.pipeline):
            return tuple(reversed(seen.value.entries))
    return tuple(reversed(state.retained))


def _checkpoint(ref: CheckpointRef) -> dict[str, Any]:
    return {
        "checkpointId": ref.checkpoint,
        "checkpointType": TYPES[ref.kind],
        "status": "COMPLETED",
        "triggerTimestamp": ref.begun_ms,
        "completedTimestamp": ref.completed_ms,
        "durationMillis": max(0, ref.completed_ms - ref.begun_ms),
        "stateSize": ref.bytes,
        "failureReason": None,
        "rowsRead": ref.rows_read,
        "rowsWritten": ref.rows_written,
        "generation": ref.generation,
    }


def _in_progress(pending: PendingBatch) -> dict[str, Any]:
    return {
        "checkpointId": pending.checkpoint,
        "checkpointType": TYPES[CheckpointKind.CHECKPOINT],
        "triggerTimestamp": pending.begun_ms,
        "acknowledged": 0,
        "total": 1,
    }
