"""The application: routes, errors, limits, and who may come in. Called by the server and by tests; starts nothing.

Every answer that is no success is `{"status": "fail", "message": "..."}`: 400 for what a caller can repair, 503 for what mends itself, 500 for our own
mistakes, which are in the log with their trace and in the answer without it.
"""

import base64
import binascii
import hmac
import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.api.desk import Desk
from tidegate.api.prometheus import CONTENT_TYPE, Scrape
from tidegate.api.reads import Reads
from tidegate.api.writes import BodyTooLarge, Writes
from tidegate.checkpoints.reach import StorageRefused
from tidegate.model.engine import HttpSettings
from tidegate.model.errors import TransientError, UserError

LOG = logging.getLogger("tidegate.api")
Handler = Callable[[Request], Awaitable[Response]]
METHODS = {404: "there is no {path} here", 405: "{method} is not for {path}"}


def make_app(desk: Desk) -> Starlette:
    """The API of one server."""
    http = desk.settings.http
    prefix = "/" + http.context_path.strip("/")
    routes: list[BaseRoute] = [*_routes(desk)] if prefix == "/" else [Mount(prefix, routes=_routes(desk))]
    return Starlette(routes=routes, middleware=[Middleware(Door, http=http)], exception_handlers={HTTPException: _not_here})


def _routes(desk: Desk) -> list[BaseRoute]:
    reads, writes, scrape = Reads(desk), Writes(desk), Scrape(desk)

    async def metrics(_request: Request) -> Response:
        return Response(await run_in_threadpool(scrape.text), media_type=CONTENT_TYPE)

    gets: dict[str, Handler] = {
        "/overview": reads.overview,
        "/running-jobs": reads.running_jobs,
        "/job-info": reads.job_info,
        "/job-info/{job_id}": reads.job_info,
        "/running-job": reads.job_info,
        "/running-job/{job_id}": reads.job_info,
        "/finished-jobs": reads.finished_jobs,
        "/finished-jobs/{state}": reads.finished_jobs,
        "/metrics": metrics,
        "/health": reads.health,
    }
    posts: dict[str, Handler] = {"/submit-job": writes.submit_job, "/stop-job": writes.stop_job}
    return [
        *(Route(path, answered(handler), methods=["GET"]) for path, handler in gets.items()),
        *(Route(path, answered(handler), methods=["POST"]) for path, handler in posts.items()),
    ]


def answered(handler: Handler) -> Handler:
    """The handler, with every error as an answer."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except UserError as error:
            return fail(413 if isinstance(error, BodyTooLarge) else 400, str(error))
        except TransientError as error:
            return fail(503, str(error))
        except StorageRefused as error:
            return fail(502, str(error))
        except Exception:
            LOG.exception("a request failed", extra={"why": f"{request.method} {request.url.path}"})
            return fail(500, "this server made a mistake; its log has the details")

    return answer


def fail(status: int, message: str) -> Response:
    """The reference's shape of an error."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"status": "fail", "message": message}, status, headers)


async def _not_here(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = METHODS.get(status, "this cannot be answered").format(path=request.url.path, method=request.method)
    answer = fail(status, text)
    answer.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
    return answer


class Door:
    """Who may come in: with basic auth only who knows the password, and never a form or script of another web site that a person happens to visit."""

    def __init__(self, app: ASGIApp, http: HttpSettings) -> None:
        self.app, self.http = app, http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] == "http" and (refusal := self._refusal(Request(scope))) is not None:
            await refusal(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD") and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return fail(403, "a page of another web site may not do this")
        if self.http.basic_auth and not self._knows_password(request.headers.get("authorization", "")):
            answer = fail(401, "user name and password are needed")
            answer.headers["WWW-Authenticate"] = 'Basic realm="Tidegate"'
            return answer
        return None

    def _knows_password(self, header: str) -> bool:
        scheme, _, encoded = header.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True) if scheme.lower() == "basic" else b""
        except (ValueError, binascii.Error):
            return False
        return hmac.compare_digest(given, f"{self.http.username}:{self.http.password}".encode())
