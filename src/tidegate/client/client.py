"""HTTP client with failover between servers (see the package)."""

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
    """A server has rejected the request; the message is the server's."""

    condition = "refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotAllowed(Refused):
    """The caller is not authenticated, or its role does not allow the request."""

    condition = "not-allowed"


class Unreachable(TransientError):
    """No server has answered within the retry time."""

    condition = "servers-unreachable"

    def __init__(self, servers: Sequence[str], why: str) -> None:
        super().__init__(
            f"no server answers at {', '.join(servers)}: {why}. Set the address of a server with"
            " --server http://host:port or TIDEGATE_SERVER"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Credentials of the client, and the certificate authorities it trusts. Never displayed."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    authorities: str = ""  # PEM file of a private certificate authority
    certificate: str = ""  # PEM file of a client certificate
    private_key: str = ""

    def headers(self) -> dict[str, str]:
        """Return the Authorization header; empty without credentials."""
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
    """Sends requests to the servers in turn, beginning with the one that answered last."""

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
        """GET a resource and parse the JSON response."""
        return json.loads(self._request("GET", path, query))

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """GET a resource as text."""
        return self._request("GET", path, query).decode("utf-8", "replace")

    def post(self, path: str, body: Any, query: Mapping[str, str] | None = None) -> Any:
        """POST a command. It may be sent more than once, so it must be idempotent."""
        return json.loads(
            self._request(
                "POST", path, query, body if isinstance(body, bytes) else json.dumps(body).encode()
            )
        )

    def delete(self, path: str) -> None:
        """DELETE a resource. It may be sent more than once: the repeat may not find it any more."""
        self._request("DELETE", path, None)

    def submit(self, text: bytes, query: Mapping[str, str]) -> dict[str, str]:
        """Submit a job exactly once.

        The id is chosen here; after a lost response the job is looked up by its id.
        """
        params = dict(query)
        params.setdefault("jobId", str(secrets.randbelow(JOB_ID_MAX - 1) + 1))
        maybe_submitted = False
        for server in self._servers_in_turn():
            try:
                answer = json.loads(self._request_once(server, "POST", "/submit-job", params, text))
                return {"jobId": str(answer["jobId"]), "jobName": str(answer["jobName"])}
            except Refused as refusal:
                if maybe_submitted and (job := self._job(params["jobId"])) is not None:
                    return job  # submitted by the request whose response was lost
                raise refusal from None
            except _NoAnswer as lost:
                maybe_submitted = maybe_submitted or lost.sent
        raise AssertionError("_servers_in_turn ends by raising Unreachable")

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
        raise AssertionError("_servers_in_turn ends by raising Unreachable")

    def _servers_in_turn(self) -> Iterator[str]:
        """Yield servers to try; after `retry_for_s` raise Unreachable with the last error."""
        began_s, self._last_error = self.monotonic_s(), ""
        while True:
            first = self._first  # other threads may change it
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
                    f"{server} is not trusted: {reason.verify_message}. Specify its certificate"
                    " authority with --ca-file"
                ) from None
            if server.startswith("https:") and isinstance(
                reason, ssl.SSLError | ConnectionResetError | BrokenPipeError
            ):  # the server rejects clients without a certificate like this
                self._last_error += (
                    ". Does it require a client certificate (TIDEGATE_CLIENT_CERTIFICATE,"
                    " TIDEGATE_CLIENT_KEY)?"
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
    """No response. `sent`: the server may have received the request all the same."""

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
