"""POST: submit or stop lists of jobs, and submit a job as an uploaded file."""

import json
from collections.abc import Iterator, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import PurePosixPath
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.auth import audit_facts, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.commands import JobCommands, parse_stop_mode, read_body, scalar_text
from tidegate.api.seatunnel.queries import job_id_of
from tidegate.config.load import Format
from tidegate.model.errors import TransientError, UserError

JOBS_MAX = 1_000
PART = "config_file"
FORMATS = {".json": Format.JSON, ".conf": Format.HOCON, ".config": Format.HOCON, ".sql": Format.SQL}


class BulkCommands:
    def __init__(self, context: ApiContext, writes: JobCommands) -> None:
        self.context = context
        self.commands = writes

    async def submit_jobs(self, request: Request) -> Response:
        """Submit a list of jobs, each with its `params`; each item has its own result."""
        items = _object_list(await read_body(request))
        results = [
            await run_in_threadpool(self._submit_one, item, i, principal_of(request).name)
            for i, item in enumerate(items)
        ]
        accepted = [result["jobId"] for result in results if "jobId" in result]
        audit_facts(request, action="submit", jobs=accepted, refused=len(results) - len(accepted))
        return JSONResponse(results)

    def _submit_one(self, item: Mapping[str, Any], index: int, by: str) -> dict[str, str]:
        params = item.get("params", {})
        try:
            if not isinstance(params, Mapping):
                raise UserError("params is not an object")
            query = {
                str(key): (
                    scalar_text(value).lower() if isinstance(value, bool) else scalar_text(value)
                )
                for key, value in params.items()
            }
            job = {key: value for key, value in item.items() if key != "params"}
            record = self.commands.submit(json.dumps(job).encode(), Format.JSON, query, by)
        except (UserError, TransientError) as error:
            return {"status": "fail", "message": f"job {index + 1}: {error}"}
        return {"jobId": str(record.job_id), "jobName": record.name}

    async def stop_jobs(self, request: Request) -> Response:
        """Stop a list of jobs. All ids are validated before any job is stopped."""
        items = _object_list(await read_body(request))
        stops = [
            (job_id_of(scalar_text(item.get("jobId"))), parse_stop_mode(item)) for item in items
        ]
        audit_facts(
            request, action="stop", jobs=[f"{job_id} {mode.value}" for job_id, mode in stops]
        )
        for job_id, mode in stops:
            await run_in_threadpool(self.commands.stop, job_id, mode, principal_of(request).name)
        return JSONResponse([{"jobId": job_id} for job_id, _ in stops])

    async def upload(self, request: Request) -> Response:
        """Submit a job file sent as form part `config_file`; its name determines the format."""
        name, content = part_of(request.headers.get("content-type", ""), await read_body(request))
        format = FORMATS.get(PurePosixPath(name).suffix.lower())
        if format is None:
            raise UserError(
                f"the file {name!r} is not a job file: its name must end with {', '.join(FORMATS)}"
            )
        record = await run_in_threadpool(
            self.commands.submit,
            content,
            format,
            dict(request.query_params),
            principal_of(request).name,
        )
        audit_facts(request, jobId=str(record.job_id), jobName=record.name, action="submit")
        return JSONResponse({"jobId": str(record.job_id), "jobName": record.name})


def _object_list(body: bytes) -> list[Mapping[str, Any]]:
    try:
        items = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the body of the request is not JSON") from None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UserError("the body of the request is not a list of objects")
    if len(items) > JOBS_MAX:
        raise UserError(f"{len(items)} jobs are too many for one request: send {JOBS_MAX} at most")
    return items


def part_of(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Return file name and content of the part `config_file` of a form."""
    if not content_type.lower().startswith("multipart/form-data"):
        raise UserError(
            f"the request is not a form: send the job file as part {PART} of multipart/form-data"
        )
    for name, file, content in parts_of(content_type, body):
        if name == PART:
            return file, content
    raise UserError(f"the form has no part {PART}: the job file")


def parts_of(content_type: str, body: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield name, file name and content of every part of a form."""
    message = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n" + body
    )
    for part in message.iter_parts() if message.is_multipart() else ():
        content = part.get_payload(decode=True)
        yield (
            str(part.get_param("name", header="content-disposition") or ""),
            part.get_filename() or "",
            content if isinstance(content, bytes) else b"",
        )
