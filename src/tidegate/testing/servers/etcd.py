"""Real etcd servers for tests: one, or a cluster of three on this host. Used by test modules and by
benchmarks only.

The program `etcd` must be installed (Debian: etcd-server). Every server has a private directory and
free ports on the loopback interface, and is ended by its pid. Nothing is configured to be faster
than it is in production but the election, so that a test of it does not take long.
"""

import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_TIMEOUT_S = 30.0
POLL_S = 0.02
STARTS_MAX = 5  # a free port may be taken by somebody else before etcd has it


class EtcdServer:
    """One server, running when it is made.

    Not `alone`: one of several, which the caller starts and waits for.
    """

    def __init__(
        self, directory: Path, *, name: str = "one", options: Sequence[str] = (), alone: bool = True
    ) -> None:
        self.directory = directory
        self.name = name
        self.options = tuple(options)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, self.peer_port = free_ports(2)
        self.cluster = f"{name}=http://127.0.0.1:{self.peer_port}"
        self.process: subprocess.Popen[bytes] | None = None
        if alone:
            self._start_on_free_ports()

    @property
    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}/tidegate"

    def url_of(self, prefix: str) -> str:
        """Another store on the same server."""
        return f"etcd://127.0.0.1:{self.port}/{prefix}"

    def start(self) -> None:
        """Start it again, with the data and at the address that it had."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        ends_with_us = (
            ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        )  # even if the tests are killed
        command = [
            *ends_with_us,
            "etcd",
            "--name",
            self.name,
            "--data-dir",
            str(self.directory / "data"),
            "--logger",
            "zap",
        ]
        command += [
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
        ]
        command += ["--initial-cluster", self.cluster, "--log-level", "warn", *self.options]
        with (self.directory / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_ready(self) -> None:
        """Until it answers, with a leader."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._healthy():
            if (
                self.process is None
                or self.process.poll() is not None
                or time.monotonic() > deadline
            ):
                self.kill()
                raise RuntimeError(
                    "etcd did not start:"
                    f" {(self.directory / 'etcd.log').read_text(errors='replace')[-2000:]}"
                )
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End it in an orderly way. May be repeated."""
        if self.process is not None:
            self.process.terminate()
            self._wait()

    def kill(self) -> None:
        """End it as a power cut would. May be repeated."""
        if self.process is not None:
            self.process.kill()
            self._wait()

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call of the JSON gateway, past everything that is under test."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _start_on_free_ports(self) -> None:
        for start in range(1, STARTS_MAX + 1):
            try:
                return self.start()
            except RuntimeError as error:
                if start == STARTS_MAX or "address already in use" not in str(error):
                    raise
            shutil.rmtree(self.directory / "data", ignore_errors=True)
            self.port, self.peer_port = free_ports(2)
            self.cluster = f"{self.name}=http://127.0.0.1:{self.peer_port}"
        raise AssertionError("unreachable")

    def _wait(self) -> None:
        if self.process is not None:
            self.process.wait()
            self.process = None

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/health")
            return b'"true"' in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class EtcdCluster:
    """Three servers that elect a leader in well under a second, running when it is made."""

    def __init__(self, directory: Path) -> None:
        options = ("--heartbeat-interval", "50", "--election-timeout", "500")
        self.servers = [
            EtcdServer(directory / name, name=name, options=options, alone=False)
            for name in ("one", "two", "three")
        ]
        together = ",".join(server.cluster for server in self.servers)
        for server in self.servers:
            server.cluster = together
            server.launch()
        try:
            for server in self.servers:
                server.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    @property
    def url(self) -> str:
        return f"etcd://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}/tidegate"

    def leader(self) -> EtcdServer:
        """Who leads at this moment, of those that run."""
        for server in self.servers:
            if server.process is not None:
                status = server.ask("/v3/maintenance/status", {})
                if status.get("leader") == status["header"]["member_id"]:
                    return server
        raise RuntimeError("no server leads")

    def kill(self) -> None:
        """End all of them. May be repeated."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
