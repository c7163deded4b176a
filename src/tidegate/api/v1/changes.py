"""Accept a table change that has stopped a job."""

from fastapi import APIRouter, Request

from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.commands import JobCommands
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.v1 import models, serializers
from tidegate.api.v1.jobs import JobIdPath
from tidegate.api.v1.roles import OPERATOR
from tidegate.model.table_changes import AcceptedChange


def routes(context: ApiContext) -> APIRouter:
    """Create the routes for decisions about changes."""
    router = APIRouter(prefix="/jobs", tags=["jobs"])
    commands = JobCommands(context)

    @router.post("/{job_id}/accept-change", status_code=202, dependencies=[OPERATOR])
    def accept_change(
        job_id: JobIdPath, body: models.ChangeDecision, request: Request
    ) -> models.ResumedJob:
        """Resume a job with a decision about the table change that has stopped it.

        It resumes from its last checkpoint. Rejected if the job is not stopped at this change.
        """
        record = commands.accept_change(
            job_id_of(job_id),
            AcceptedChange(at=body.at, choice=body.choice, table=body.table),
            request,
        )
        notes = list(record.restore.notes) if record.restore else []
        return models.ResumedJob(
            id=str(record.job_id),
            name=record.name,
            submitted=serializers.to_time(record.initialization_ms),
            notes=notes,
        )

    return router
