"""Authenticate callers (basic auth, tokens), and write the audit log of changing requests.

Without authentication (the default on loopback) every caller is the local admin. This module only
finds out who the caller is; each route in `app` declares the role that it needs. `request_origin`
runs first, so that a page of another web site cannot act on behalf of a user who visits it.

An audit line has the caller, the peer, the route, the job, the action and the status. Handlers that
read the job from a body add it with `audit_facts`. Bodies are never logged: they may hold secrets.
"""

import base64
import binascii
import hmac
import logging
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.api.context import ApiContext
from tidegate.api.login_return import login_path
from tidegate.api.request_origin import SAFE_METHODS, RequestCheck
from tidegate.api.seatunnel.responses import BODY_BYTES_MAX, BodyTooLarge, fail
from tidegate.coordinator.tokens import authenticate
from tidegate.model.ids import whole_number
from tidegate.model.records import AccessToken, Role

AUDIT = logging.getLogger("tidegate.audit")
COOKIE = "tidegate_token"
WRITE_ONLY_PATHS = frozenset(
    {"/submit-job", "/submit-job/upload", "/submit-jobs", "/stop-job", "/stop-jobs", "/api/v1/jobs"}
)  # POSTs that read nothing from the cache, and so need not wait for it
# open to callers without a token: responses show them nothing secret
PROBES = frozenset({"/health", "/ready", "/api/v1/health", "/api/v1/ready"})
AUDITED_PARAMETERS = ("jobId", "jobName", "restore", "restoreFrom", "restoreSourceJobId")
AUDITED_PATH = ("job_id", "savepoint_id", "token_id", "quarantine_id", "name")
AUDITED_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request, with its role."""

    name: str
    role: Role
    token: str = ""  # id of the token that was used


LOCAL = Principal("local", Role.ADMIN)
ANONYMOUS = Principal("", Role.VIEWER)  # sees the login page and the probes, nothing else


class AuthMiddleware:
    """Reject callers without valid credentials; pass the others on with their principal."""

    def __init__(self, app: ASGIApp, context: ApiContext) -> None:
        self.app = app
        self.context = context
        self.check = RequestCheck(context.settings.http, context.me.address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it here."""
        if scope["type"] == "websocket":  # not used, and pages of any origin may open one
            return await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        refusal = self.check.refusal(scope, request.headers)
        if refusal is not None:
            if request.method not in SAFE_METHODS:
                _audit(request, ANONYMOUS, scope, refusal.status)
            return await fail(refusal.status, refusal.message)(scope, receive, send)
        path = scope["path"].removeprefix(self.root)
        if (
            self.context.may_miss_own_write()
            and path not in PROBES
            and not (request.method == "POST" and path in WRITE_ONLY_PATHS)
        ):
            await run_in_threadpool(self.context.wait_until_current)
        is_public = path in PROBES or path == "/ui/login" or path.startswith("/ui/static/")
        principal = self._authenticate(request) or (ANONYMOUS if is_public else None)
        if principal is None:
            return await self._challenge(request, path)(scope, receive, send)
        scope.setdefault("state", {})["principal"] = principal
        if request.method in SAFE_METHODS:
            return await self.app(scope, receive, send)
        await self._audited(request, principal, scope, limit_body(receive), send)

    def _challenge(self, request: Request, path: str) -> Response:
        """Redirect browsers to the login page; request credentials from all other clients.

        One header for each scheme: Chromium takes a scheme without parameters after a comma for a
        part of the first one, and then never asks for a password.
        """
        basic = self.context.settings.http.basic_auth
        if (
            request.method in SAFE_METHODS
            and (path == "/" or path.startswith("/ui/"))
            and not basic
        ):
            return RedirectResponse(f"{self.root}{login_path(path, request.url.query)}", 303)
        accepted = "a token (Authorization: Bearer ...)"
        if basic:
            accepted += ", or user name and password"
        response = fail(401, f"Authentication required: send {accepted}")
        if basic:
            response.headers.append("WWW-Authenticate", 'Basic realm="Tidegate", charset="UTF-8"')
        response.headers.append("WWW-Authenticate", 'Bearer realm="Tidegate"')
        return response

    @property
    def root(self) -> str:
        """The prefix of every path: the context path of the server."""
        path = self.context.settings.http.context_path.strip("/")
        return f"/{path}" if path else ""

    def _authenticate(self, request: Request) -> Principal | None:
        http = self.context.settings.http
        if not http.requires_authentication:
            return LOCAL
        header = request.headers.get("authorization") or (
            f"Bearer {request.cookies[COOKIE]}" if COOKIE in request.cookies else ""
        )
        scheme, _, credentials = header.partition(" ")
        if (
            scheme.lower() == "bearer"
            and (
                token := authenticate(credentials.strip(), self._token, self.context.clock.now_ms())
            )
            is not None
        ):
            return Principal(token.name, token.role, token.id)
        if scheme.lower() == "basic" and http.basic_auth and self._password_matches(credentials):
            return Principal(http.username, Role.ADMIN)
        return None

    def _token(self, token_id: str) -> AccessToken | None:
        seen = self.context.cache.tokens().get(token_id)
        return seen.value if seen else None

    def _password_matches(self, encoded: str) -> bool:
        http = self.context.settings.http
        try:
            given = base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            return False
        return hmac.compare_digest(given, f"{http.username}:{http.password}".encode())

    async def _audited(
        self, request: Request, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a changing request on, and write its audit line."""
        status = 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _declared_length(request) > BODY_BYTES_MAX:
                return await fail(413, str(BodyTooLarge()))(scope, receive, send_noting_status)
            await self.app(scope, receive, send_noting_status)
        finally:
            _audit(request, principal, scope, status)


def _audit(request: Request, principal: Principal, scope: Scope, status: int) -> None:
    """Write the audit line of one changing request."""
    facts = {
        key: request.query_params[key][:AUDITED_CHARS_MAX]
        for key in AUDITED_PARAMETERS
        if key in request.query_params
    }
    facts |= {
        key: str(value)[:AUDITED_CHARS_MAX]
        for key, value in scope.get("path_params", {}).items()
        if key in AUDITED_PATH
    }
    facts |= scope.get("state", {}).get("audit", {})
    if (job_id := facts.pop("job_id", None)) is not None:
        facts["jobId"] = job_id
    fields = {
        "by": principal.name,
        "role": principal.role.value if principal is not ANONYMOUS else "",
        "token": principal.token,
        "from": request.client.host if request.client else "",
        "what": f"{request.method} {scope['path'][:AUDITED_CHARS_MAX]}",
        "asked": facts,
        "answer": status,
    }
    AUDIT.info("request_audited", extra=fields)


def audit_facts(request: Request, **facts: Any) -> None:
    """Add what a handler has read from the body to the audit line. Never a secret."""
    request.scope.setdefault("state", {}).setdefault("audit", {}).update(facts)


def limit_body(receive: Receive) -> Receive:
    """Limit the body to BODY_BYTES_MAX, so that a request cannot fill the server's memory."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            raise BodyTooLarge
        return message

    return limited


def _declared_length(request: Request) -> int:
    """Return the Content-Length of a request; 0 if it has none."""
    text = request.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        return 0
    size = whole_number(text, 0, BODY_BYTES_MAX)
    return BODY_BYTES_MAX + 1 if size is None else size


def principal_of(request: Request) -> Principal:
    """Return the caller of a request that AuthMiddleware has passed on."""
    principal = request.scope.get("state", {}).get("principal", LOCAL)
    assert isinstance(principal, Principal)
    return principal


def permission_denied(principal: Principal, needed: Role) -> str:
    """The message for a caller without the role that a route needs."""
    return (
        f"Permission denied: {principal.name} has the role {principal.role.value}, and this needs"
        f" the role {needed.value}"
    )
