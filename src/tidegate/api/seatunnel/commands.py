"""POST: submit and stop jobs.

A command is written to the store by a thread, and is durable before the response; the response does
not wait until the command takes effect.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.auth import audit_facts, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.job_source import decode_body, format_of, plan_text, strictness_of
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.api.seatunnel.restore_params import flag, in_parameters, restore_options
from tidegate.config.load import Format
from tidegate.model.errors import UserError
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.records import DesiredState, JobRecord
from tidegate.model.table_changes import AcceptedChange


class StopMode(StrEnum):
    """How to stop a job."""

    CANCEL = "cancel"  # at its next checkpoint
    SAVEPOINT = "savepoint"  # with a savepoint
    FORCE = "force-stop"  # kill it now


# a savepoint is a request of its own, not a desired state
DESIRED_STATES = {
    StopMode.CANCEL: DesiredState.CANCEL,
    StopMode.FORCE: DesiredState.FORCE_STOP,
}


class JobCommands:
    def __init__(self, context: ApiContext) -> None:
        self.context = context

    async def submit_job(self, request: Request) -> Response:
        """Submit a job; the response has its id."""
        query, body = request.query_params, await read_body(request)
        record = await run_in_threadpool(
            self.submit, body, format_of(query.get("format")), query, principal_of(request).name
        )
        audit_facts(request, jobId=str(record.job_id), jobName=record.name, action="submit")
        return JSONResponse({"jobId": str(record.job_id), "jobName": record.name})

    def submit(
        self, body: bytes, format: Format, query: Mapping[str, str], by: str, request_key: str = ""
    ) -> JobRecord:
        """Submit a job; blocks. `query` has the parameters of the request."""
        if "dryRun" in query:
            raise UserError(
                "dryRun is not supported: `tidegate validate` checks a job file without starting it"
            )
        options, name = restore_options(query), query.get("jobName") or None
        job_id = job_id_of(query["jobId"]) if "jobId" in query else None
        if request_key and job_id is None:
            job_id = id_of_key(request_key, by)
        plan = plan_text(decode_body(body), format, strictness_of(query.get("lenient")))
        try:
            record = self.context.commands.submit(
                plan,
                file="",
                job_id=job_id,
                name=name,
                restore=options,
                by=by,
                key=digest_of(request_key),
            )
        except UserError as error:
            raise in_parameters(error) from error
        self.context.record_write()
        return record

    def accept_change(self, job_id: int, change: AcceptedChange, request: Request) -> JobRecord:
        """Resume a job with a decision about the change that has stopped it; blocks."""
        audit_facts(request, action="accept-change", change=str(change)[:200])
        try:
            record = self.context.commands.accept_change(
                job_id, change, by=principal_of(request).name
            )
        except UserError as error:
            raise in_parameters(error) from error
        self.context.record_write()
        return record

    async def stop_job(self, request: Request) -> Response:
        """Request that a job stops. Like in SeaTunnel, an unknown id gets the same response."""
        given = json_object(await read_body(request))
        job_id = job_id_of(scalar_text(given.get("jobId")))
        mode = parse_stop_mode(given)
        audit_facts(request, jobId=str(job_id), action=mode.value)
        await run_in_threadpool(self.stop, job_id, mode, principal_of(request).name)
        return JSONResponse({"jobId": str(job_id)})

    def stop(self, job_id: int, mode: StopMode, by: str) -> None:
        """Record a stop request; blocks. Has no effect on an ended or unknown job."""
        try:
            if mode is StopMode.SAVEPOINT:
                self.context.commands.savepoint(job_id, stop=True, by=by)
            else:
                self.context.commands.stop(job_id, DESIRED_STATES[mode], by=by)
        except UserError as error:
            if error.condition not in ("unknown-job", "job-ended"):
                raise
        self.context.record_write()


async def read_body(request: Request) -> bytes:
    """Read the whole body. AuthMiddleware raises BodyTooLarge at the limit."""
    parts = [part async for part in request.stream()]
    if not any(parts):
        raise UserError("the body of the request is empty")
    return b"".join(parts)


def id_of_key(key: str, by: str) -> int:
    """Derive a job id from an idempotency key: the same for the same key of the same caller."""
    return int.from_bytes(hashlib.sha256(f"{by}\n{key}".encode()).digest()[:8]) % JOB_ID_MAX + 1


def digest_of(key: str) -> str:
    """Return the digest of an idempotency key that is stored; empty without a key."""
    return hashlib.sha256(key.encode()).hexdigest() if key else ""


def json_object(body: bytes) -> Mapping[str, Any]:
    """Parse a body that must be a JSON object."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise UserError("the body of the request is not a JSON object")
    return value


def parse_stop_mode(given: Mapping[str, Any]) -> StopMode:
    """Read the stop mode from the body of a stop request."""
    if flag(given, "isStopWithSavePoint"):
        return StopMode.SAVEPOINT
    return StopMode.FORCE if flag(given, "force") else StopMode.CANCEL


def scalar_text(value: Any) -> str:
    """Format a scalar as text; empty for null."""
    if value is None:
        return ""
    if isinstance(value, int | str) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value)
