"""Who may come in, and how far: basic auth, tokens, roles; and a line in the audit log for every
request that wants to change something.

Called by app.py. Without guard (on loopback, by default) everybody is the local admin. The role
that a route needs is part of its name in `app`; here is only who the caller is. A page of another
web site can never act in the name of a person who happens to visit it: request_origin decides that
first.

The audit line names the caller, the peer, the route, the job, the action and the status. Handlers
that read the job from a body report it with `audit_facts`; bodies are never written, as they may
hold secrets.
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
from tidegate.coordinator.tokens import recognised
from tidegate.model.ids import whole_number
from tidegate.model.records import AccessToken, Role

AUDIT = logging.getLogger("tidegate.audit")
COOKIE = "tidegate_token"
WRITE_ONLY_PATHS = frozenset(
    {"/submit-job", "/submit-job/upload", "/submit-jobs", "/stop-job", "/stop-jobs", "/api/v1/jobs"}
)  # wishes that look at nothing here
PROBES = frozenset(
    {"/health", "/ready", "/api/v1/health", "/api/v1/ready"}
)  # callers without a token see nothing secret there
AUDITED_PARAMETERS = ("jobId", "jobName", "restore", "restoreFrom", "restoreSourceJobId")
AUDITED_PATH = ("job_id", "savepoint_id", "token_id", "quarantine_id", "name")
AUDITED_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    role: Role
    token: str = ""  # the id of the token that was shown


LOCAL = Principal("local", Role.ADMIN)
ANONYMOUS = Principal("", Role.VIEWER)  # sees the page where one says who one is, and nothing else


class AuthMiddleware:
    """Answers who is a stranger; lets the others pass, with their name."""

    def __init__(self, app: ASGIApp, context: ApiContext) -> None:
        self.app = app
        self.context = context
        self.check = RequestCheck(context.settings.http, context.me.address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if (
            scope["type"] == "websocket"
        ):  # there are none; a page of any origin may open one, so none is let through
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
        open_to_all = path in PROBES or path == "/ui/login" or path.startswith("/ui/static/")
        who = self._authenticate(request) or (ANONYMOUS if open_to_all else None)
        if who is None:
            return await self._challenge(request, path)(scope, receive, send)
        scope.setdefault("state", {})["who"] = who
        if request.method in SAFE_METHODS:
            return await self.app(scope, receive, send)
        await self._audited(request, who, scope, limit_body(receive), send)

    def _challenge(self, request: Request, path: str) -> Response:
        """Send a person to the login page, and ask everybody else for credentials.

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
        way = "a token (Authorization: Bearer ...)" + (
            ", or user name and password" if basic else ""
        )
        answer = fail(401, f"authentication required: send {way}")
        if basic:
            answer.headers.append("WWW-Authenticate", 'Basic realm="Tidegate", charset="UTF-8"')
        answer.headers.append("WWW-Authenticate", 'Bearer realm="Tidegate"')
        return answer

    @property
    def root(self) -> str:
        """What stands in front of every path."""
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
            and (token := recognised(credentials.strip(), self._token, self.context.clock.now_ms()))
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
        self, request: Request, who: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Who wanted what, from where, and how it was answered.

        Bodies are not written down: they may hold secrets.
        """
        status = 500

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _declared_length(request) > BODY_BYTES_MAX:
                return await fail(413, str(BodyTooLarge()))(scope, receive, heard)
            await self.app(scope, receive, heard)
        finally:
            _audit(request, who, scope, status)


def _audit(request: Request, who: Principal, scope: Scope, status: int) -> None:
    """Write the line of one request that wanted to change something."""
    asked = {
        key: request.query_params[key][:AUDITED_CHARS_MAX]
        for key in AUDITED_PARAMETERS
        if key in request.query_params
    }
    asked |= {
        key: str(value)[:AUDITED_CHARS_MAX]
        for key, value in scope.get("path_params", {}).items()
        if key in AUDITED_PATH
    }
    asked |= scope.get("state", {}).get("audit", {})
    if (job_id := asked.pop("job_id", None)) is not None:
        asked["jobId"] = job_id
    more = {
        "by": who.name,
        "role": who.role.value if who is not ANONYMOUS else "",
        "token": who.token,
        "from": request.client.host if request.client else "",
        "what": f"{request.method} {scope['path'][:AUDITED_CHARS_MAX]}",
        "asked": asked,
        "answer": status,
    }
    AUDIT.info("wish", extra=more)


def audit_facts(request: Request, **facts: Any) -> None:
    """Add to the audit line of this request what its handler has read from the body.

    Never a secret.
    """
    request.scope.setdefault("state", {}).setdefault("audit", {}).update(facts)


def limit_body(receive: Receive) -> Receive:
    """What a request sends, as long as it is not too much: nobody fills this server's memory."""
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
    """How much a request says it will send; 0 where it does not."""
    text = request.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        return 0
    size = whole_number(text, 0, BODY_BYTES_MAX)
    return BODY_BYTES_MAX + 1 if size is None else size


def principal_of(request: Request) -> Principal:
    """The caller of a request that has passed the door."""
    who = request.scope.get("state", {}).get("who", LOCAL)
    assert isinstance(who, Principal)
    return who
