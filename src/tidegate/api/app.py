"""The ASGI application: routes, roles and error responses. Starts nothing.

Every error response is `{"status": "fail", "message": "..."}`: 400 for what the caller can correct,
503 for what is temporary, 500 for bugs. The log has the stack trace of a 500, the response does
not.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from tidegate.api.auth import AuthMiddleware, permission_denied, principal_of
from tidegate.api.context import ApiContext
from tidegate.api.health import HealthReport
from tidegate.api.metrics import CONTENT_TYPE, OPEN_CONTENT_TYPE, MetricsRenderer
from tidegate.api.seatunnel.bulk import BulkCommands
from tidegate.api.seatunnel.checkpoints import CheckpointQueries
from tidegate.api.seatunnel.commands import JobCommands
from tidegate.api.seatunnel.logs import LogQueries
from tidegate.api.seatunnel.nodes import NodeHandlers
from tidegate.api.seatunnel.openapi import document
from tidegate.api.seatunnel.pending_jobs import PendingJobQueries
from tidegate.api.seatunnel.queries import JobQueries
from tidegate.api.seatunnel.responses import (
    INCOMPLETE_BODY,
    BodyTooLarge,
    fail,
    internal_error,
)
from tidegate.api.seatunnel.tools import encrypt_config, option_rules
from tidegate.api.v1.app import typed_api, unknown_path
from tidegate.checkpoints.files.errors import StorageRefused
from tidegate.model.document import UnreadableDocument
from tidegate.model.errors import LineageMismatch, TransientError, UserError
from tidegate.model.records import Role
from tidegate.store.errors import StoreDamaged

LOG = logging.getLogger("tidegate.api")
Handler = Callable[[Request], Awaitable[Response]]
ROUTING_ERRORS = {404: "Not found: {path}", 405: "Method {method} is not allowed for {path}"}


def make_app(context: ApiContext, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Build the application of one server: the API, and `pages` next to it."""
    http = context.settings.http
    prefix = "/" + http.context_path.strip("/")
    routes: list[BaseRoute] = (
        [*_routes(context), *pages]
        if prefix == "/"
        else [Mount(prefix, routes=[*_routes(context), *pages])]
    )
    typed = f"{prefix.rstrip('/')}/api/v1/"

    async def nowhere(request: Request, error: Exception) -> Response:
        # A path with a line break matches no mounted application: respond here as it would.
        return await (unknown_path if request.url.path.startswith(typed) else _unknown_path)(
            request, error
        )

    async def broken(request: Request, _error: Exception) -> Response:
        # What no handler has caught, such as an error page that cannot be rendered.
        return fail(500, internal_error(request, LOG))

    handlers: dict[Any, Any] = {HTTPException: nowhere, Exception: broken}
    return Starlette(
        routes=routes,
        middleware=[Middleware(AuthMiddleware, context=context)],
        exception_handlers=handlers,
    )


def _routes(context: ApiContext) -> list[BaseRoute]:
    jobs = JobQueries(context)
    commands = JobCommands(context)
    bulk = BulkCommands(context, commands)
    checkpoints = CheckpointQueries(context)
    pending = PendingJobQueries(context)
    logs = LogQueries(context)
    nodes = NodeHandlers(context)
    probes = HealthReport(context)

    async def description(_request: Request) -> Response:
        return JSONResponse(document(context.settings.http.context_path.rstrip("/")))

    gets: dict[str, Handler] = {
        "/openapi.json": description,
        "/overview": jobs.overview,
        "/running-jobs": jobs.running_jobs,
        "/running-jobs/summary": jobs.running_jobs,
        "/pending-jobs": pending.jobs,
        "/job-info": jobs.job_info,
        "/job-info/{job_id}": jobs.job_info,
        "/job-info/{job_id}/failures": jobs.failures,
        "/running-job": jobs.job_info,
        "/running-job/{job_id}": jobs.job_info,
        "/finished-jobs": jobs.finished_jobs,
        "/finished-jobs/{state}": jobs.finished_jobs,
        "/jobs/checkpoints/history/{job_id}": checkpoints.history,
        "/jobs/checkpoints/{job_id}": checkpoints.overview,
        "/system-monitoring-information": nodes.monitoring,
        "/thread-dump": nodes.thread_dump,
        "/running-threads": nodes.running_threads,
        "/logs": logs.listed,
        "/logs/{name:path}": logs.listed,
        "/log": logs.here,
        "/log/{name:path}": logs.here,
        "/get-all-log-name": logs.names,
        "/option-rules": option_rules,
        **_metrics_handlers(context),
        "/health": probes.health,
        "/ready": probes.ready,
    }
    posts: dict[str, Handler] = {
        "/submit-job": commands.submit_job,
        "/submit-job/upload": bulk.upload,
        "/submit-jobs": bulk.submit_jobs,
        "/stop-job": commands.stop_job,
        "/stop-jobs": bulk.stop_jobs,
        "/encrypt-config": encrypt_config,
    }
    admins: dict[str, Handler] = {"/update-tags": nodes.update_tags}
    return [
        Mount("/api/v1", typed_api(context)),
        # POST first: routes are tried in order, and submits are the most frequent requests.
        *(
            Route(path, handled(handler, Role.OPERATOR), methods=["POST"])
            for path, handler in posts.items()
        ),
        *(
            Route(path, handled(handler, Role.VIEWER), methods=["GET"])
            for path, handler in gets.items()
        ),
        *(
            Route(path, handled(handler, Role.ADMIN), methods=["POST"])
            for path, handler in admins.items()
        ),
        Route("/loggers", handled(nodes.loggers, Role.VIEWER), methods=["GET"]),
        Route("/loggers/{name}", handled(nodes.loggers, Role.VIEWER), methods=["GET"]),
        Route(
            "/loggers/{name}",
            handled(nodes.loggers, Role.ADMIN),
            methods=["POST", "PUT", "DELETE"],
        ),
    ]


def _metrics_handlers(context: ApiContext) -> dict[str, Handler]:
    renderer = MetricsRenderer(context)

    async def metrics(_request: Request) -> Response:
        await renderer.catch_up()
        return Response(renderer.text(), media_type=CONTENT_TYPE)

    async def open_metrics(_request: Request) -> Response:
        await renderer.catch_up()
        return Response(renderer.open_text(), media_type=OPEN_CONTENT_TYPE)

    return {"/metrics": metrics, "/openmetrics": open_metrics}


def handled(handler: Handler, needed: Role) -> Handler:
    """Wrap a handler: check the caller's role, and turn every error into a response."""

    async def handle(request: Request) -> Response:
        principal = principal_of(request)
        if not principal.role.may(needed):
            return fail(403, permission_denied(principal, needed))
        try:
            return await handler(request)
        except UserError as error:
            return fail(413 if isinstance(error, BodyTooLarge) else 400, str(error))
        except (TransientError, StoreDamaged) as error:
            return fail(503, str(error))
        except (LineageMismatch, UnreadableDocument) as error:
            return fail(409, str(error))
        except StorageRefused as error:
            return fail(502, str(error))
        except ClientDisconnect:
            return fail(400, INCOMPLETE_BODY)
        except Exception:
            return fail(500, internal_error(request, LOG))

    return handle


async def _unknown_path(request: Request, error: Exception) -> Response:
    """Respond to an unknown path, or to a method that the path does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = ROUTING_ERRORS.get(status, "The request cannot be processed").format(
        path=request.url.path, method=request.method
    )
    response = fail(status, text)
    response.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
    return response
