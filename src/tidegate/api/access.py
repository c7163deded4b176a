"""Who may come in, and how far: basic auth, tokens, roles; and a line in the audit log for every request that wants to change something.

Called by app.py. Without guard (on loopback, by default) everybody is the local admin. The role that a route needs is part of its name in `app`; here is only
who the caller is. A page of another web site can never act in the name of a person who happens to visit it.
"""

import base64
import binascii
import hmac
import logging
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.api.answers import BODY_BYTES_MAX, BodyTooLarge, fail
from tidegate.api.desk import Desk
from tidegate.api.return_path import login_path
from tidegate.coordinator.tokens import recognised
from tidegate.model.records import AccessToken, Role

AUDIT = logging.getLogger("tidegate.audit")
COOKIE = "tidegate_token"
SAFE = ("GET", "HEAD", "OPTIONS")
UNSEEING = frozenset({"/submit-job", "/submit-job/upload", "/submit-jobs", "/stop-job", "/stop-jobs", "/api/v1/jobs"})  # wishes that look at nothing here
PROBES = frozenset({"/health", "/ready", "/api/v1/health", "/api/v1/ready"})  # callers without a token see nothing secret there
CHALLENGE = 'Basic realm="Tidegate", Bearer'


@dataclass(frozen=True, slots=True)
class Who:
    """A caller."""

    name: str
    role: Role


LOCAL = Who("local", Role.ADMIN)
STRANGER = Who("", Role.VIEWER)  # sees the page where one says who one is, and nothing else


class Door:
    """Answers who is a stranger; lets the others pass, with their name."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self.app, self.desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        if request.method not in SAFE and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return await fail(403, "a page of another web site may not do this")(scope, receive, send)
        path = scope["path"].removeprefix(self.root)
        if self.desk.behind() and path not in PROBES and not (request.method == "POST" and path in UNSEEING):
            await run_in_threadpool(self.desk.look)
        open_to_all = path in PROBES or path == "/ui/login" or path.startswith("/ui/static/")
        who = self._who(request) or (STRANGER if open_to_all else None)
        if who is None and request.method in SAFE and (path == "/" or path.startswith("/ui/")) and not self.desk.settings.http.basic_auth:
            return await RedirectResponse(f"{self.root}{login_path(path, request.url.query)}", 303)(scope, receive, send)
        if who is None:
            answer = fail(401, "who are you? Send a token (Authorization: Bearer ...), or user name and password where the server has them")
            answer.headers["WWW-Authenticate"] = CHALLENGE
            return await answer(scope, receive, send)
        scope.setdefault("state", {})["who"] = who
        if request.method in SAFE:
            return await self.app(scope, receive, send)
        await self._audited(request, who, scope, within_limit(receive), send)

    @property
    def root(self) -> str:
        """What stands in front of every path."""
        path = self.desk.settings.http.context_path.strip("/")
        return f"/{path}" if path else ""

    def _who(self, request: Request) -> Who | None:
        http = self.desk.settings.http
        if not http.guarded:
            return LOCAL
        header = request.headers.get("authorization") or (f"Bearer {request.cookies[COOKIE]}" if COOKIE in request.cookies else "")
        scheme, _, credentials = header.partition(" ")
        if scheme.lower() == "bearer" and (token := recognised(credentials.strip(), self._token, self.desk.clock.now_ms())) is not None:
            return Who(token.name, token.role)
        if scheme.lower() == "basic" and http.basic_auth and self._knows_password(credentials):
            return Who(http.username, Role.ADMIN)
        return None

    def _token(self, token_id: str) -> AccessToken | None:
        seen = self.desk.picture.tokens().get(token_id)
        return seen.value if seen else None

    def _knows_password(self, encoded: str) -> bool:
        http = self.desk.settings.http
        try:
            given = base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            return False
        return hmac.compare_digest(given, f"{http.username}:{http.password}".encode())

    async def _audited(self, request: Request, who: Who, scope: Scope, receive: Receive, send: Send) -> None:
        """Who wanted what, from where, and how it was answered. Bodies are not written down: they may hold secrets."""
        status = 500

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _declared(request) > BODY_BYTES_MAX:
                return await fail(413, str(BodyTooLarge()))(scope, receive, heard)
            await self.app(scope, receive, heard)
        finally:
            place = request.client.host if request.client else ""
            asked = {key: request.query_params[key] for key in ("jobId", "jobName", "restore") if key in request.query_params}
            more = {"by": who.name, "role": who.role.value, "from": place, "what": f"{request.method} {scope['path']}", "asked": asked, "answer": status}
            AUDIT.info("wish", extra=more)


def within_limit(receive: Receive) -> Receive:
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


def _declared(request: Request) -> int:
    """How much a request says it will send; 0 where it does not."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def who_of(request: Request) -> Who:
    """The caller of a request that has passed the door."""
    who = request.scope.get("state", {}).get("who", LOCAL)
    assert isinstance(who, Who)
    return who
