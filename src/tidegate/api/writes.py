"""POST: wishes. Handlers for app.py. What they do to the store is done in threads, and durable before the answer; the answer does not wait for its effect."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.access import who_of
from tidegate.api.desk import Desk
from tidegate.api.job_text import decoded, format_of, plan_text
from tidegate.api.reads import job_id_of
from tidegate.config.load import Format
from tidegate.coordinator.wish import From, RestoreWish
from tidegate.model.errors import UserError
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.records import JobRecord, Wish

BODY_BYTES_MAX = 10 * 1024 * 1024
NO_SAVEPOINTS = "savepoints are not available yet; stop without one keeps every checkpoint"


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
        record = await run_in_threadpool(self.submit, body, format_of(query.get("format")), query, who_of(request).name)
        return JSONResponse({"jobId": str(record.job_id), "jobName": record.name})

    def submit(self, body: bytes, format: Format, query: Mapping[str, str], by: str, request_key: str = "") -> JobRecord:
        """Take a job in, in a thread; `query` are the parameters of the request."""
        if "dryRun" in query:
            raise UserError("dryRun is not known here: `tidegate validate` judges a job file without starting anything")
        wish, name = wish_of(query), query.get("jobName") or None
        job_id = job_id_of(query["jobId"]) if "jobId" in query else None
        if request_key and job_id is None:
            job_id = id_of_key(request_key, by)
        plan = plan_text(decoded(body), format)
        try:
            record = self.desk.commands.submit(plan, file="", job_id=job_id, name=name, restore=wish, by=by, key=digest_of(request_key))
        except UserError as error:
            raise refused(error) from error
        self.desk.catch_up()
        return record

    async def stop_job(self, request: Request) -> Response:
        """Want a job to end. An id that nobody knows is answered like any other, as the reference does."""
        given = object_of(await body_of(request))
        job_id = job_id_of(scalar_text(given.get("jobId")))
        await run_in_threadpool(self.stop, job_id, stop_wish(given), who_of(request).name)
        return JSONResponse({"jobId": str(job_id)})

    def stop(self, job_id: int, wish: Wish, by: str) -> None:
        """Record the wish, in a thread."""
        try:
            self.desk.commands.stop(job_id, wish, by=by)
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


def id_of_key(key: str, by: str) -> int:
    """The id of a job that has none: the same for the same key of the same caller."""
    return int.from_bytes(hashlib.sha256(f"{by}\n{key}".encode()).digest()[:8]) % JOB_ID_MAX + 1


def digest_of(key: str) -> str:
    """What is kept of an idempotency key."""
    return hashlib.sha256(key.encode()).hexdigest() if key else ""


def object_of(body: bytes) -> Mapping[str, Any]:
    """A body that is a JSON object."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise UserError("the body of the request is not a JSON object")
    return value


def stop_wish(given: Mapping[str, Any]) -> Wish:
    """What a request to stop wants."""
    if flag(given, "isStopWithSavePoint"):
        raise UserError(NO_SAVEPOINTS)
    return Wish.FORCE_STOP if flag(given, "force") else Wish.CANCEL


def flag(values: Mapping[str, Any], name: str) -> bool:
    """A boolean, or its text."""
    match values.get(name, False):
        case bool(value):
            return value
        case "true" | "false" as text:
            return bool(text == "true")
        case other:
            raise UserError(f"{name} is {json.dumps(other)}; it must be true or false")


def wish_of(query: Mapping[str, str]) -> RestoreWish:
    """From where the job shall go on: `restore`, or the reference's isStartWithSavePoint."""
    start = {**query, "isStartWithSavePoint": query.get("isStartWithSavePoint", "false").lower()}
    try:
        wish = RestoreWish.parse(query.get("restore"))
    except UserError as error:
        raise refused(error) from error
    if not flag(start, "isStartWithSavePoint"):
        return wish
    if "jobId" not in query:
        raise UserError("isStartWithSavePoint=true needs the jobId of the job that shall go on")
    return RestoreWish(From.LATEST) if wish.start is From.ASK else wish


def refused(error: UserError) -> UserError:
    """The same refusal in the words of a request: what is an option of the command line is a parameter here."""
    text = str(error).replace("--restore ", "restore=").replace("without --restore", "without restore")
    changed = UserError(text)
    changed.condition = error.condition
    return changed


def scalar_text(value: Any) -> str:
    """A plain value as text; empty where there is none."""
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else "" if value is None else json.dumps(value)
