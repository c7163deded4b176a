"""One client for several servers (see the package)."""

import base64
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tidegate.model.errors import TransientError, UserError
from tidegate.model.ids import JOB_ID_MAX

ANSWER_TIMEOUT_S = 10.0
RETRY_FOR_S = 20.0  # a leader that dies is followed by another one within seconds
PAUSE_S = 0.3
BODY_CHARS_SHOWN = 200


class Refused(UserError):
    """A server says no; its words."""

    condition = "refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotAllowed(Refused):
    """A server does not know the caller, or the caller may not do this."""

    condition = "not-allowed"


class Unreachable(TransientError):
    condition = "servers-unreachable"

    def __init__(self, servers: Sequence[str], why: str) -> None:
        super().__init__(
            f"no server answers at {', '.join(servers)}: {why}. Say where one is: --server"
            " http://host:port, or TIDEGATE_SERVER"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Who we are to the servers, and whom we trust. Never shown."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    authorities: str = ""  # PEM file, where the servers' certificates are signed by one of our own
    certificate: str = ""  # PEM file, where the servers ask for one
    private_key: str = ""

    def headers(self) -> dict[str, str]:
        """What a request says about us."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user:
            return {
                "Authorization": (
                    "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
                )
            }
        return {}

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.authorities or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.private_key or None)
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"the certificates cannot be read: {error.strerror or error}") from None
        return context


NO_CREDENTIALS = Credentials()


class Client:
    """Asks the servers in turn, beginning with the one that answered last."""

    def __init__(
        self,
        servers: Sequence[str],
        access: Credentials = NO_CREDENTIALS,
        *,
        retry_for_s: float = RETRY_FOR_S,
        sleep: Callable[[float], None] = time.sleep,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.servers = [_server_url(server) for server in servers]
        self.access = access
        self.retry_for_s = retry_for_s
        self.sleep = sleep
        self.monotonic_s = monotonic_s
        handlers: list[Any] = [urllib.request.ProxyHandler({})]
        if any(server.startswith("https:") for server in self.servers):
            handlers.append(urllib.request.HTTPSHandler(context=access.context()))
        self._opener = urllib.request.build_opener(*handlers)
        self._first = 0

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The JSON of an answer."""
        return json.loads(self._request("GET", path, query))

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """The text of an answer."""
        return self._request("GET", path, query).decode("utf-8", "replace")

    def post(self, path: str, body: Any, query: Mapping[str, str] | None = None) -> Any:
        """A wish that may be repeated."""
        return json.loads(
            self._request(
                "POST", path, query, body if isinstance(body, bytes) else json.dumps(body).encode()
            )
        )

    def delete(self, path: str) -> None:
        """A wish that something be gone; it may be repeated, and the repeat may find it gone."""
        self._request("DELETE", path, None)

    def submit(self, text: bytes, query: Mapping[str, str]) -> dict[str, str]:
        """Take a job in, once: it has an id before it is sent, and an answer that was lost is
        looked for.
        """
        asked = dict(query)
        asked.setdefault("jobId", str(secrets.randbelow(JOB_ID_MAX - 1) + 1))
        doubtful = False
        for server in self._servers_in_turn():
            try:
                answer = json.loads(self._request_once(server, "POST", "/submit-job", asked, text))
                return {"jobId": str(answer["jobId"]), "jobName": str(answer["jobName"])}
            except Refused as refusal:
                if doubtful and (snapshot := self._job(asked["jobId"])) is not None:
                    return snapshot  # it was taken in by the request whose answer was lost
                raise refusal from None
            except _NoAnswer as lost:
                doubtful = doubtful or lost.sent
        raise AssertionError("the turns end by raising")

    def _job(self, job_id: str) -> dict[str, str] | None:
        job = self.get(f"/job-info/{job_id}")
        return {"jobId": job_id, "jobName": str(job["jobName"])} if job.get("jobName") else None

    def _request(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None = None
    ) -> bytes:
        for server in self._servers_in_turn():
            try:
                return self._request_once(server, method, path, query or {}, body)
            except _NoAnswer:
                continue
        raise AssertionError("the turns end by raising")

    def _servers_in_turn(self) -> Iterator[str]:
        """Servers to ask, until patience ends: then Unreachable, with what the last one said."""
        began_s, self._last_error = self.monotonic_s(), ""
        while True:
            first = self._first  # other threads may learn meanwhile who answers
            for offset in range(len(self.servers)):
                index = (first + offset) % len(self.servers)
                yield self.servers[index]
                self._first = (index + 1) % len(self.servers)
            if self.monotonic_s() - began_s >= self.retry_for_s:
                raise Unreachable(self.servers, self._last_error)
            self.sleep(PAUSE_S)

    def _request_once(
        self, server: str, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> bytes:
        url = server + quote(path) + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": "application/json", **self.access.headers()}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=ANSWER_TIMEOUT_S) as answer:
                data: bytes = answer.read()
            self._first = self.servers.index(server)
            return data
        except urllib.error.HTTPError as error:
            with error:
                self._raise_refusal(error.code, error.read())
        except (urllib.error.URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            self._last_error = (
                f"{server}: {getattr(reason, 'strerror', None) or reason or type(reason).__name__}"
            )
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise UserError(
                    f"{server} is not trusted: {reason.verify_message}. Give its authority with"
                    " --ca-file"
                ) from None
            if server.startswith("https:") and isinstance(
                reason, ssl.SSLError | ConnectionResetError | BrokenPipeError
            ):  # so ends who shows no certificate
                self._last_error += (
                    ". Does it want a certificate (TIDEGATE_CLIENT_CERTIFICATE,"
                    " TIDEGATE_CLIENT_KEY)"
                )
            raise _NoAnswer(sent=not isinstance(reason, ConnectionRefusedError)) from None
        raise AssertionError("an answer is an answer or a refusal")

    def _raise_refusal(self, status: int, body: bytes) -> None:
        message = _message(body)
        if status in (502, 503, 504):
            self._last_error = message
            raise _NoAnswer(sent=True)
        raise (NotAllowed if status in (401, 403) else Refused)(message, status)


class _NoAnswer(Exception):
    """No answer. `sent`: the server may have heard us all the same."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


def _message(body: bytes) -> str:
    try:
        value = json.loads(body)
        return str(value.get("message") or value.get("detail") or value)
    except (ValueError, AttributeError):
        return body.decode("utf-8", "replace")[:BODY_CHARS_SHOWN]


def _server_url(server: str) -> str:
    parts = urlsplit(server if "//" in server else f"http://{server}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UserError(
            f"{parts.hostname or server!r} is not the address of a server: http://host:port or"
            " https://host:port, without a password in it"
        )
    return parts.geturl().rstrip("/")
