"""The OpenAPI document of SeaTunnel's API (`/openapi.json`). The typed API generates its own.

One table of operations; a test compares it with the routes. Almost every scalar is a string, as in
SeaTunnel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate import __version__
from tidegate.model.records import Role

JSON = "application/json"
TEXT: Mapping[str, Any] = {"type": "string"}
NUMBER: Mapping[str, Any] = {"type": "integer"}
FLAG: Mapping[str, Any] = {"type": "boolean"}
WHOLE: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
ID: Mapping[str, Any] = {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"}
ANY: Mapping[str, Any] = {"type": "object"}
ERRORS = {
    400: "invalid request",
    401: "authentication required",
    403: "the caller's role does not allow this",
    413: "the request body is too large",
    503: "the store cannot be reached; try again",
}


def listed(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def named(name: str) -> dict[str, str]:
    """Reference a schema of the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def texts(*keys: str, more: bool = True) -> dict[str, Any]:
    """The schema of an object with these text values."""
    return {
        "type": "object",
        "properties": dict.fromkeys(keys, TEXT),
        "required": list(keys),
        "additionalProperties": True if more else TEXT,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationDescription:
    """One method of one path."""

    method: str = "get"
    path: str
    summary: str
    response: Mapping[str, Any] | None = None  # None: text
    media: str = JSON
    other_media: tuple[str, ...] = ()  # other media types of the response
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    body_media: str = JSON
    admin: bool = False

    @property
    def role(self) -> Role:
        """The role that a caller needs."""
        if self.admin:
            return Role.ADMIN
        return Role.VIEWER if self.method == "get" else Role.OPERATOR


_PAGED = {"page": WHOLE, "rows": WHOLE}
_SUBMIT = {
    "jobId": ID,
    "jobName": TEXT,
    "isStartWithSavePoint": FLAG,
    "format": {"type": "string", "enum": ["json", "hocon", "sql"]},
    "restore": TEXT,
}
_STOP = {
    "type": "object",
    "properties": {"jobId": {"oneOf": [ID, WHOLE]}, "isStopWithSavePoint": FLAG, "force": FLAG},
    "required": ["jobId"],
}
_JOBS = {
    "oneOf": [
        listed(named("Job")),
        {
            "type": "object",
            "properties": {"data": listed(named("Job")), "total": NUMBER},
            "required": ["data", "total"],
        },
    ]
}
_ENDED = {
    "oneOf": [
        listed(named("EndedJob")),
        {
            "type": "object",
            "properties": {"data": listed(named("EndedJob")), "total": NUMBER},
            "required": ["data", "total"],
        },
    ]
}
_LEVEL = {
    "type": "object",
    "properties": {"name": TEXT, "level": {"type": ["string", "null"]}, "effectiveLevel": TEXT},
    "required": ["name", "effectiveLevel"],
}

OPERATIONS = (
    OperationDescription(
        path="/overview",
        summary="Counts of workers, slots and jobs",
        response=texts("projectVersion", "totalSlot", "workers", "runningJobs"),
    ),
    OperationDescription(
        path="/running-jobs",
        summary="Jobs that have not ended, newest first",
        response=_JOBS,
        query=_PAGED,
    ),
    OperationDescription(
        path="/running-jobs/summary", summary="As /running-jobs", response=_JOBS, query=_PAGED
    ),
    OperationDescription(
        path="/pending-jobs",
        summary="Waiting jobs and their reasons",
        response=ANY,
        query={"jobId": ID, "limit": WHOLE, "pretty": FLAG},
    ),
    OperationDescription(
        path="/job-info/{job_id}",
        summary="One job, running or ended; for an unknown id only the id",
        response=texts("jobId"),
    ),
    OperationDescription(
        path="/job-info/{job_id}/failures",
        summary="Failures of a job, newest first",
        response=listed(ANY),
        query={"limit": WHOLE},
    ),
    OperationDescription(
        path="/running-job/{job_id}", summary="As /job-info", response=texts("jobId")
    ),
    OperationDescription(
        path="/finished-jobs",
        summary="Jobs that have ended, the last one first",
        response=_ENDED,
        query=_PAGED,
    ),
    OperationDescription(
        path="/finished-jobs/{state}",
        summary="Jobs that have ended in this state",
        response=_ENDED,
        query=_PAGED,
    ),
    OperationDescription(
        path="/jobs/checkpoints/{job_id}", summary="Checkpoints by pipeline", response=ANY
    ),
    OperationDescription(
        path="/jobs/checkpoints/history/{job_id}",
        summary="The last checkpoints, newest first",
        response=listed(ANY),
        query={
            "pipelineId": WHOLE,
            "limit": WHOLE,
            "status": {"type": "string", "enum": ["COMPLETED", "FAILED", "CANCELED"]},
        },
    ),
    OperationDescription(
        path="/system-monitoring-information",
        summary="Metrics of this server and addresses of the others",
        response=listed(texts("host", "port", "isMaster")),
    ),
    OperationDescription(
        path="/thread-dump", summary="Stack traces of this server's threads", response=listed(ANY)
    ),
    OperationDescription(
        path="/running-threads",
        summary="Names of this server's threads",
        response=listed(texts("threadName", "classLoader")),
    ),
    OperationDescription(
        path="/logs",
        summary="Links to log files",
        response=listed(texts("node", "logLink", "logName")),
        other_media=("text/html",),
        query={"format": {"type": "string", "enum": ["json"]}},
    ),
    OperationDescription(
        path="/logs/{name}",
        summary="Links to the log files of a job, or the text of a file",
        response=listed(texts("node")),
        other_media=("text/html", "text/plain"),
        query={"format": {"type": "string", "enum": ["json"]}},
    ),
    OperationDescription(
        path="/log", summary="The log files of this node as a page", media="text/html"
    ),
    OperationDescription(path="/log/{name}", summary="The text of a file", media="text/plain"),
    OperationDescription(
        path="/get-all-log-name", summary="The names of the log files", response=listed(TEXT)
    ),
    OperationDescription(
        path="/option-rules",
        summary="The options of a connector",
        response=ANY,
        query={"type": {"type": "string", "enum": ["source", "transform", "sink"]}, "plugin": TEXT},
    ),
    OperationDescription(path="/metrics", summary="Metrics for Prometheus", media="text/plain"),
    OperationDescription(
        path="/openmetrics",
        summary="The same metrics in the OpenMetrics format",
        media="application/openmetrics-text",
    ),
    OperationDescription(
        path="/health",
        summary="Whether this server can read and write the store, and who leads; without a token",
        response=ANY,
    ),
    OperationDescription(
        path="/ready",
        summary="Whether this server answers from a current view of the store; without a token",
        response=ANY,
    ),
    OperationDescription(path="/loggers", summary="Log levels", response=listed(_LEVEL)),
    OperationDescription(path="/loggers/{name}", summary="Level of one logger", response=_LEVEL),
    OperationDescription(
        method="post",
        path="/loggers/{name}",
        summary="Set the level of a logger",
        response=_LEVEL,
        query={"level": TEXT},
        admin=True,
    ),
    OperationDescription(
        method="put",
        path="/loggers/{name}",
        summary="Set the level of a logger",
        response=_LEVEL,
        query={"level": TEXT},
        admin=True,
    ),
    OperationDescription(
        method="delete",
        path="/loggers/{name}",
        summary="Reset the level of a logger",
        response=_LEVEL,
        admin=True,
    ),
    OperationDescription(
        method="post",
        path="/submit-job",
        summary="Submit a job",
        response=named("SubmittedJob"),
        query=_SUBMIT,
        body=ANY,
    ),
    OperationDescription(
        method="post",
        path="/submit-job/upload",
        summary="Submit a job as a file",
        response=named("SubmittedJob"),
        query=_SUBMIT,
        body=ANY,
        body_media="multipart/form-data",
    ),
    OperationDescription(
        method="post",
        path="/submit-jobs",
        summary="Submit several jobs",
        response=listed(ANY),
        body=listed(ANY),
    ),
    OperationDescription(
        method="post",
        path="/stop-job",
        summary="Stop a job",
        response=texts("jobId"),
        body=_STOP,
    ),
    OperationDescription(
        method="post",
        path="/stop-jobs",
        summary="Stop several jobs",
        response=listed(ANY),
        body=listed(_STOP),
    ),
    OperationDescription(
        method="post",
        path="/encrypt-config",
        summary="Encrypt the secrets of a job file",
        response=ANY,
        body=ANY,
    ),
    OperationDescription(
        method="post",
        path="/update-tags",
        summary="Replace the tags of this server's worker",
        response=texts("status"),
        body={"type": "object", "additionalProperties": TEXT},
        admin=True,
    ),
)
_SCHEMAS = {
    "Error": {
        "type": "object",
        "properties": {"status": {"const": "fail"}, "message": TEXT},
        "required": ["status", "message"],
    },
    "SubmittedJob": texts("jobId", "jobName"),
    "Job": {
        "type": "object",
        "properties": {
            **dict.fromkeys(
                (
                    "jobId",
                    "jobName",
                    "jobStatus",
                    "createTime",
                    "startTime",
                    "lastCheckpointId",
                    "lastCheckpointTime",
                ),
                TEXT,
            ),
            **dict.fromkeys(
                ("secondsSinceLastCheckpoint", "checkpointHealth", "healthReason", "statusReason"),
                TEXT,
            ),
            **dict.fromkeys(("envOptions", "jobDag", "metrics"), ANY),
            "pluginJarsUrls": listed(texts("jarPath")),
            "isStartWithSavePoint": FLAG,
            "restorable": FLAG,
            "runway": ANY,
        },
        "required": [
            "jobId",
            "jobName",
            "jobStatus",
            "envOptions",
            "createTime",
            "jobDag",
            "pluginJarsUrls",
            "isStartWithSavePoint",
            "metrics",
        ],
    },
    "EndedJob": {
        "type": "object",
        "properties": {
            **dict.fromkeys(
                ("jobId", "jobName", "jobStatus", "createTime", "startTime", "finishTime"), TEXT
            ),
            "errorMsg": {"type": ["string", "null"]},
            **dict.fromkeys(("jobDag", "metrics"), ANY),
            "pluginJarsUrls": listed(ANY),
        },
        "required": [
            "jobId",
            "jobName",
            "jobStatus",
            "errorMsg",
            "createTime",
            "finishTime",
            "jobDag",
            "pluginJarsUrls",
            "metrics",
        ],
    },
}


def document(prefix: str) -> dict[str, Any]:
    """Build the document; `prefix` is the context path of the server."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate, in the shapes of SeaTunnel's REST API v2",
            "version": __version__,
        },
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(operation: OperationDescription) -> dict[str, Any]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    path_parameters = [
        {"name": name, "in": "path", "required": True, "schema": ID if name == "job_id" else TEXT}
        for name in names
    ]
    query_parameters = [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in operation.query.items()
    ]
    error = {"content": {JSON: {"schema": named("Error")}}}
    content = {
        operation.media: {"schema": operation.response or TEXT},
        **{media: {"schema": TEXT} for media in operation.other_media},
    }
    responses: dict[str, Any] = {"200": {"description": "success", "content": content}}
    errors = {**ERRORS, **({404: "not found"} if set(names) - {"job_id"} else {})}
    responses |= {
        str(status): {"description": why, **error} for status, why in sorted(errors.items())
    }
    described: dict[str, Any] = {
        "operationId": f"{operation.method}{operation.path}",
        "summary": operation.summary,
        "x-role": operation.role.value,
        "parameters": [*path_parameters, *query_parameters],
        "responses": responses,
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {operation.body_media: {"schema": operation.body}},
        }
    return described
