"""Decisions about changes of tables that have stopped a job."""

from fastapi import APIRouter, Request

from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.commands import JobCommands
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.v1 import models
from tidegate.api.v1 import serializers as shapes
from tidegate.api.v1.jobs import JobIdPath
from tidegate.api.v1.roles import OPERATOR
from tidegate.model.table_changes import AcceptedChange


def routes(context: ApiContext) -> APIRouter:
    """The routes below /jobs that decide."""
    router, writes = APIRouter(prefix="/jobs", tags=["jobs"]), JobCommands(context)

    @router.post("/{job_id}/accept-change", status_code=202, dependencies=[OPERATOR])
    def accept_change(
        job_id: JobIdPath, body: models.ChangeDecision, request: Request
    ) -> models.ResumedJob:
        """Decide about a change of a table that has stopped a job: it goes on from its last
        checkpoint. Refused where it is not stopped there.
        """
        record = writes.accept_change(
            job_id_of(job_id),
            AcceptedChange(at=body.at, choice=body.choice, table=body.table),
            request,
        )
        notes = list(record.restore.notes) if record.restore else []
        return models.ResumedJob(
            id=str(record.job_id),
            name=record.name,
            submitted=shapes.at(record.initialization_ms),
            notes=notes,
        )

    return router
