"""Clients that hold connections open: half heads, endless bodies, silent handshakes, streams.

A real server with few descriptors still answers, and still starts drivers.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_members import until

TIMEOUT_S = 90
PLAIN = """
import functools, tidegate.server as server, tidegate.cli.server as verbs
from tidegate.cli import main
verbs.ServerSettings = functools.partial(
    server.ServerSettings, driver_module="tidegate.testing.plain_driver"
)
main()
"""
JOB = """env {{ job.mode = "BATCH", job.name = "small" }}
source {{ FakeSource {{ plugin_output = "t", row.num = 50, schema {{ fields {{ id = bigint
  name = string }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{place}", file_format_type = "csv" }} }}
"""
DESCRIPTORS = 256
HELD = 300


class Site:
    """A server with its worker and so many descriptors."""

    def __init__(self, place: Path, http: str, descriptors: int, certificate: str = "") -> None:
        self.place = place
        self.certificate = certificate
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        (place / "tidegate.yaml").write_text(f"tidegate:\n  http:\n    host: 127.0.0.1\n{http}")
        command = [
            sys.executable,
            "-c",
            PLAIN,
            "server",
            "--home",
            str(place / "home"),
            "--http-port",
            str(self.port),
        ]
        few = (descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        with open(place / "server.txt", "wb") as log:
            self.process = subprocess.Popen(
                [*command, "--config", str(place / "tidegate.yaml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(os.environ),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few),
            )
        until("the server", lambda: self.ask("/overview"))

    def ask(self, path: str, body: bytes | None = None) -> str:
        context = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
        scheme = "https" if self.certificate else "http"
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.port}{path}", body)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            return str(answer.read().decode())

    def connect(self, text: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        made.sendall(text)
        return made

    def runs_a_job(self, job_id: int) -> None:
        """A driver can be started, and ends well."""
        self.ask(
            f"/submit-job?format=hocon&jobId={job_id}",
            JOB.format(place=self.place / f"out-{job_id}").encode(),
        )
        until(
            f"the end of job {job_id}",
            lambda: json.loads(self.ask(f"/job-info/{job_id}")).get("jobStatus") == "FINISHED",
        )

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def serving(
    place: Path, http: str = "", descriptors: int = DESCRIPTORS, certificate: str = ""
) -> Iterator[Site]:
    site = Site(place, http, descriptors, certificate)
    try:
        yield site
    finally:
        site.close()
    written = (place / "server.txt").read_text() + "".join(
        path.read_text() for path in (place / "home" / "logs").glob("server-*.log")
    )
    assert "Too many open files" not in written


@contextlib.contextmanager
def held(site: Site, text: bytes, count: int = HELD) -> Iterator[list[socket.socket]]:
    """So many connections that say this, and no more."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(site.connect(text))) for _ in range(count)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("certificate")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    new = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "3650",
    )
    files = ("-keyout", str(place / "server.key"), "-out", str(place / "server.pem"))
    subprocess.run(
        [*new, *subject, *files],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
    )
    return str(place / "server.pem")


def https(certificate: str) -> str:
    key = certificate.replace(".pem", ".key")
    return (
        f"    enable-https: true\n    certificate-file: {certificate}\n    private-key-file:"
        f" {key}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET /overview HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
        b"POST /submit-job HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    ],
    ids=["silent", "half head", "half body"],
)
def test_requests_are_answered_and_drivers_start_while_others_hold_connections_open(
    tmp_path: Path, text: bytes
) -> None:
    with (
        serving(tmp_path, "    header-timeout-ms: 600000\n    body-timeout-ms: 600000\n") as site,
        held(site, text),
    ):
        site.ask("/overview")
        site.runs_a_job(1)
        with held(site, text):
            site.ask("/overview")


def test_silent_handshakes_block_no_client_and_are_closed(tmp_path: Path, certificate: str) -> None:
    with (
        serving(
            tmp_path, f"{https(certificate)}    header-timeout-ms: 2000\n", certificate=certificate
        ) as site,
        held(site, b"") as silent,
    ):
        site.ask("/overview")
        site.runs_a_job(1)
        for connection in silent:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100) == b"", "closed by the server"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET / HT",
        b"GET /overview HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
        b"POST /submit-job HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        (
            b"POST /submit-job HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:"
            b" chunked\r\n\r\n5\r\nab"
        ),
        (
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
            b" application/json\r\nContent-Length: 1000\r\n\r\n{"
        ),
        b"POST /nowhere HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n{",
        b"GET /overview HTTP/1.1\r\nHost: localhost\r\n\r\nGET /overview HTT",
    ],
)
def test_a_connection_that_waits_too_long_is_closed(slow: Site, text: bytes) -> None:
    with contextlib.closing(slow.connect(text)) as connection:
        heard = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(10_000):
                heard += part
        assert b" 500 " not in heard
    slow.ask("/overview")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    timeouts = (
        "    header-timeout-ms: 700\n    body-timeout-ms: 700\n    keep-alive-timeout-ms: 1000\n"
    )
    with serving(tmp_path_factory.mktemp("slow"), timeouts) as site:
        yield site
    assert "request_failed" not in "".join(
        path.read_text() for path in (site.place / "home" / "logs").glob("server-*.log")
    )


def test_two_hundred_listeners_of_one_peer_leave_room_for_requests(tmp_path: Path) -> None:
    listen = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        serving(tmp_path, "    header-timeout-ms: 700\n", descriptors=1024) as site,
        held(site, listen, 200) as listeners,
    ):
        for listener in listeners:
            assert listener.recv(15).startswith(b"HTTP/1.1 200")
        with held(site, b"GET /overview HTTP/1.1\r\nX-Half: ", 400):
            site.runs_a_job(1)
        for listener in listeners:
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    assert listener.recv(100_000), "a stream is never closed for others"


def test_a_request_that_the_parser_refuses_is_no_internal_error(slow: Site) -> None:
    for text in (
        b"GET /overview HTTP/1.1\r\n\r\n",
        b"GET /overview HTTP/1.0\r\n\r\n",
        b"GET /overview HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET http://evil.example/overview HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (
            b"POST http://localhost/stop-job HTTP/1.1\r\nHost: evil.example\r\nContent-Length:"
            b" 0\r\n\r\n"
        ),
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        (
            b"GET /overview HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection:"
            b" Upgrade\r\nOrigin: http://evil.example\r\n\r\n"
        ),
    ):
        with contextlib.closing(slow.connect(text)) as connection:
            first = connection.recv(12)
        assert first in (b"HTTP/1.1 400", b"HTTP/1.1 421") or b"websocket" in text, (text, first)
        assert b"101" not in first
