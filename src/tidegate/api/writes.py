"""POST: wishes. Handlers for app.py. What they do to the store is done in threads, and durable before the answer; the answer does not wait for its effect."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.desk import Desk
from tidegate.api.job_text import decoded, format_of, plan_text
from tidegate.api.reads import job_id_of
from tidegate.api.restore_words import flag, refused, wish_of
from tidegate.config.load import Format
from tidegate.coordinator.wish import RestoreWish
from tidegate.model.errors import UserError
from tidegate.model.records import JobRecord, Wish

BODY_BYTES_MAX = 10 * 1024 * 1024


class BodyTooLarge(UserError):
    """A body over the limit."""

    condition = "body-too-large"

    def __init__(self) -> None:
        super().__init__(f"the body of the request is larger than {BODY_BYTES_MAX // 1024 // 1024} MB")


class Writes:
    """The handlers."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def submit_job(self, request: Request) -> Response:
        """Take a job in; the answer has its id."""
        query, body = request.query_params, await body_of(request)
        if "dryRun" in query:
            raise UserError("dryRun is not known here: `tidegate validate` judges a job file without starting anything")
        format, wish = format_of(query.get("format")), wish_of(query)
        job_id = job_id_of(query["jobId"]) if "jobId" in query else None
        record = await run_in_threadpool(self._submit, body, format, job_id, query.get("jobName") or None, wish)
        return JSONResponse({"jobId": str(record.job_id), "jobName": record.name})

    def _submit(self, body: bytes, format: Format, job_id: int | None, name: str | None, wish: RestoreWish) -> JobRecord:
        plan = plan_text(decoded(body), format)
        try:
            record = self.desk.commands.submit(plan, file="", job_id=job_id, name=name, restore=wish, by="rest")
        except UserError as error:
            raise refused(error) from error
        self.desk.catch_up()
        return record

    async def stop_job(self, request: Request) -> Response:
        """Want a job to end. An id that nobody knows is answered like any other, as the reference does."""
        given = object_of(await body_of(request))
        job_id = job_id_of(_scalar_text(given.get("jobId")))
        if flag(given, "isStopWithSavePoint"):
            await run_in_threadpool(self._stop_with_savepoint, job_id)
            return JSONResponse({"jobId": str(job_id)})
        wish = Wish.FORCE_STOP if flag(given, "force") else Wish.CANCEL
        await run_in_threadpool(self._stop, job_id, wish)
        return JSONResponse({"jobId": str(job_id)})

    def _stop_with_savepoint(self, job_id: int) -> None:
        """As `_stop`: a job that has ended, or was never there, stays as it is."""
        try:
            self.desk.commands.savepoint(job_id, stop=True, by="rest")
        except UserError as error:
            if error.condition not in ("unknown-job", "job-ended"):
                raise
        self.desk.catch_up()

    def _stop(self, job_id: int, wish: Wish) -> None:
        try:
            self.desk.commands.stop(job_id, wish, by="rest")
        except UserError as error:
            if error.condition != "unknown-job":
                raise
        self.desk.catch_up()


async def body_of(request: Request) -> bytes:
    """The whole body, within the limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise BodyTooLarge
        parts.append(part)
    if not size:
        raise UserError("the body of the request is empty")
    return b"".join(parts)


def object_of(body: bytes) -> Mapping[str, Any]:
    """A body that is a JSON object."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise UserError("the body of the request is not a JSON object")
    return value


def _scalar_text(value: Any) -> str:
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else "" if value is None else json.dumps(value)
