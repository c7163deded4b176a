"""The application: routes, errors, limits, and who may come in. Called by the server and by tests;
starts nothing.

Every answer that is no success is `{"status": "fail", "message": "..."}`: 400 for what a caller can
repair, 503 for what mends itself, 500 for our own mistakes, which are in the log with their trace
and in the answer without it.
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

from tidegate.api.auth import AuthMiddleware, principal_of
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
from tidegate.api.seatunnel.responses import BodyTooLarge, fail, internal_error
from tidegate.api.seatunnel.tools import encrypt_config, option_rules
from tidegate.api.v1.app import typed_api, unknown_path
from tidegate.checkpoints.files.retry import StorageRefused
from tidegate.model.document import UnreadableDocument
from tidegate.model.errors import LineageMismatch, TransientError, UserError
from tidegate.model.records import Role
from tidegate.store.errors import StoreDamaged

LOG = logging.getLogger("tidegate.api")
Handler = Callable[[Request], Awaitable[Response]]
METHODS = {404: "there is no {path} here", 405: "{method} is not for {path}"}


def make_app(context: ApiContext, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The API of one server, and the pages beside it."""
    http = context.settings.http
    prefix = "/" + http.context_path.strip("/")
    routes: list[BaseRoute] = (
        [*_routes(context), *pages]
        if prefix == "/"
        else [Mount(prefix, routes=[*_routes(context), *pages])]
    )
    typed = f"{prefix.rstrip('/')}/api/v1/"

    async def nowhere(request: Request, error: Exception) -> Response:
        """A path with a line break in it reaches no mounted application: it is answered here, as
        that one would.
        """
        return await (unknown_path if request.url.path.startswith(typed) else _unknown_path)(
            request, error
        )

    async def broken(request: Request, _error: Exception) -> Response:
        """What no handler has caught, an error page that cannot be drawn among it."""
        return fail(500, internal_error(request, LOG))

    handlers: dict[Any, Any] = {HTTPException: nowhere, Exception: broken}
    return Starlette(
        routes=routes,
        middleware=[Middleware(AuthMiddleware, context=context)],
        exception_handlers=handlers,
    )


def _routes(context: ApiContext) -> list[BaseRoute]:
    reads, writes, scrape, probes = (
        JobQueries(context),
        JobCommands(context),
        MetricsRenderer(context),
        HealthReport(context),
    )
    many, checkpoints, pending, logs, nodes = (
        BulkCommands(context, writes),
        CheckpointQueries(context),
        PendingJobQueries(context),
        LogQueries(context),
        NodeHandlers(context),
    )

    async def metrics(_request: Request) -> Response:
        await scrape.catch_up()
        return Response(scrape.text(), media_type=CONTENT_TYPE)

    async def open_metrics(_request: Request) -> Response:
        await scrape.catch_up()
        return Response(scrape.open_text(), media_type=OPEN_CONTENT_TYPE)

    async def description(_request: Request) -> Response:
        return JSONResponse(document(context.settings.http.context_path.rstrip("/")))

    gets: dict[str, Handler] = {
        "/openapi.json": description,
        "/overview": reads.overview,
        "/running-jobs": reads.running_jobs,
        "/running-jobs/summary": reads.running_jobs,
        "/pending-jobs": pending.jobs,
        "/job-info": reads.job_info,
        "/job-info/{job_id}": reads.job_info,
        "/job-info/{job_id}/failures": reads.failures,
        "/running-job": reads.job_info,
        "/running-job/{job_id}": reads.job_info,
        "/finished-jobs": reads.finished_jobs,
        "/finished-jobs/{state}": reads.finished_jobs,
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
        "/metrics": metrics,
        "/openmetrics": open_metrics,
        "/health": probes.health,
        "/ready": probes.ready,
    }
    posts: dict[str, Handler] = {
        "/submit-job": writes.submit_job,
        "/submit-job/upload": many.upload,
        "/submit-jobs": many.submit_jobs,
        "/stop-job": writes.stop_job,
        "/stop-jobs": many.stop_jobs,
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


def handled(handler: Handler, needed: Role) -> Handler:
    """The handler, for those who may, with every error as an answer."""

    async def answer(request: Request) -> Response:
        who = principal_of(request)
        if not who.role.may(needed):
            return fail(
                403, f"{who.name} is {who.role.value} here, and this needs the role {needed.value}"
            )
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
            return fail(400, "the connection ended before the body of the request did")
        except Exception:
            return fail(500, internal_error(request, LOG))

    return answer


async def _unknown_path(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = METHODS.get(status, "this cannot be answered").format(
        path=request.url.path, method=request.method
    )
    answer = fail(status, text)
    answer.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
    return answer
