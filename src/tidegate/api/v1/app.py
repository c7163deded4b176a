"""The application of the typed API. Its errors are problem+json with a stable `condition`."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from tidegate import __version__
from tidegate.api.context import ApiContext
from tidegate.api.health import HealthReport
from tidegate.api.seatunnel.responses import BodyTooLarge, internal_error
from tidegate.api.v1 import catalog, changes, cluster, jobs, state, tokens
from tidegate.api.v1.live import EventStream
from tidegate.api.v1.models import ProblemModel
from tidegate.api.v1.openapi import without_model_suffix
from tidegate.api.v1.roles import describe_roles
from tidegate.checkpoints.files.errors import StorageRefused
from tidegate.model.document import UnreadableDocument
from tidegate.model.errors import LineageMismatch, TidegateError, TransientError, UserError
from tidegate.model.problem import BadJob
from tidegate.store.errors import StoreDamaged

LOG = logging.getLogger("tidegate.api")
MEDIA = "application/problem+json"
STATUSES = {
    "unknown-job": 404,
    "unknown-plugin": 404,
    "unknown-token": 404,
    "not-allowed": 403,
    "job-exists": 409,
    "cleanup-pending": 409,
    "needs-restore-choice": 409,
    "nothing-to-restore": 409,
    "restore-incompatible": 409,
    "job-alive": 409,
    "job-ended": 409,
    "not-stopped-at-change": 409,
    "needs-consent": 409,
    "savepoint-in-use": 409,
    "no-savepoint": 404,
    "quarantine-missing": 404,
    "namespace-of-another-store": 409,
}
TITLES = {
    400: "bad request",
    401: "authentication required",
    403: "permission denied",
    404: "not found",
    405: "method not allowed",
    409: "conflict",
    413: "request body too large",
    422: "bad request",
    500: "internal server error",
    502: "the checkpoint storage rejects the request",
    503: "temporarily unavailable; try again",
}
RESPONSES: dict[int | str, dict[str, object]] = {
    status: {"description": TITLES[status], "model": ProblemModel, "content": {MEDIA: {}}}
    for status in (400, 401, 403, 404, 409, 413, 422, 502, 503)
}


class TypedApi(FastAPI):
    """FastAPI with our schema names in the OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """Generate the document once, with the public schema names."""
        if self.openapi_schema is None:
            self.openapi_schema = without_model_suffix(super().openapi())
        return self.openapi_schema


def typed_api(context: ApiContext) -> FastAPI:
    """Build the application to mount at /api/v1."""
    app = TypedApi(
        title="Tidegate",
        version=__version__,
        description="Jobs, checkpoints, savepoints and the cluster.",
        docs_url=None,
        redoc_url=None,
        responses=RESPONSES,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in (
        jobs.routes(context),
        changes.routes(context),
        cluster.routes(context),
        catalog.routes(),
        state.routes(context),
        tokens.routes(context),
    ):
        describe_roles(router)
        app.include_router(router)
    probes = HealthReport(context)
    app.add_route("/health", probes.health, methods=["GET"], include_in_schema=False)
    app.add_route("/ready", probes.ready, methods=["GET"], include_in_schema=False)
    app.add_route("/events", EventStream(context).events, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(TidegateError, _known_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, unknown_path)
    app.add_exception_handler(Exception, _unexpected_error)
    return app


def problem(
    status: int, detail: str, condition: str, problems: list[str] | None = None
) -> Response:
    """Build an error response in the format of RFC 9457."""
    document = ProblemModel(
        title=TITLES.get(status, "error"),
        status=status,
        detail=detail,
        condition=condition,
        problems=problems or [],
    )
    return JSONResponse(
        document.model_dump(),
        status,
        {"Retry-After": "1"} if status == 503 else None,
        media_type=MEDIA,
    )


async def _known_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError)
    if isinstance(error, BadJob):
        return problem(422, str(error), error.condition, [str(each) for each in error.problems])
    if isinstance(error, BodyTooLarge):
        return problem(413, str(error), error.condition)
    if isinstance(error, UserError):
        return problem(STATUSES.get(error.condition, 400), str(error), error.condition)
    if isinstance(error, LineageMismatch | UnreadableDocument):
        return problem(409, str(error), error.condition)
    if isinstance(error, StorageRefused):
        return problem(502, str(error), error.condition)
    return problem(
        503 if isinstance(error, TransientError | StoreDamaged) else 500,
        str(error),
        error.condition,
    )


async def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()
    ]
    return problem(422, "; ".join(problems), "invalid-request", problems)


async def unknown_path(request: Request, error: Exception) -> Response:
    """Respond to an unknown path, or to a method that the path does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    details = {
        404: f"Not found: {request.url.path}",
        405: f"Method {request.method} is not allowed for {request.url.path}",
    }
    response = problem(
        status,
        details.get(status, "The request cannot be processed"),
        {404: "unknown-path", 405: "wrong-method"}.get(status, "error"),
    )
    response.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
    return response


async def _unexpected_error(request: Request, _error: Exception) -> Response:
    return problem(500, internal_error(request, LOG), "internal")
