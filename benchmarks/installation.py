"""A control plane of real processes: servers on one home and store, asked over HTTP.

Called by control_plane.py and warm_start.py.
"""

import http.client
import json
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.sides import ROOT, Trouble, environ

READY_S_MAX = 60.0
POLL_S = 0.005
KEPT_S = 2.0  # servers close a connection that nobody uses


class Server:
    """One `tidegate server`, ready when it is made."""

    def __init__(self, home: Path, settings: Mapping[str, Any], *, worker: bool) -> None:
        home.mkdir(parents=True, exist_ok=True)
        config = home / "engine.yaml"
        config.write_text(
            "tidegate:\n"
            + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in settings.items())
        )
        command = [
            str(Path(sys.executable).with_name("tidegate")),
            "server",
            "--home",
            str(home),
            "--http-port",
            "0",
            "--config",
            str(config),
        ]
        with (home / "server.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *([] if worker else ["--no-worker"])],
                bufsize=0,  # a second line must not hide in a buffer that select cannot see
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ(),
                cwd=ROOT,
                start_new_session=True,
            )
        self.errors = home / "server.err"
        self.port = self._port()

    def connect(self) -> "Connection":
        """A connection that is kept open."""
        return Connection(self.port)

    def leads(self) -> bool:
        """Whether this one is the leader, as it sees it."""
        with self.connect() as line:
            return bool(json.loads(line.get("/health"))["leading"])

    def kill(self) -> None:
        """Kill it with SIGKILL, without any notice."""
        self.process.kill()
        self._wait()

    def stop(self) -> None:
        """In order. May be repeated."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _port(self) -> int:
        assert self.process.stdout is not None
        deadline_s = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline_s:
            if not select.select([self.process.stdout], [], [], 1.0)[0]:
                continue
            line = self.process.stdout.readline()
            if found := re.search(rb"server ready at http://[^:]+:(\d+)", line):
                return int(found[1])
            if not line:
                break
        self.kill()
        raise Trouble(
            "a server did not start; its last words:"
            f" {self.errors.read_text(errors='replace')[-500:]}"
        )

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Connection:
    """One client of a server."""

    def __init__(self, port: int) -> None:
        self.line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.used_s = time.monotonic()

    def get(self, path: str) -> bytes:
        """The body of an answer that is a success."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: str) -> bytes:
        """The same, with a body of ours."""
        return self._asked("POST", path, body)

    def _asked(self, method: str, path: str, body: str | None) -> bytes:
        if time.monotonic() - self.used_s > KEPT_S:
            self.line.close()  # it opens itself again
        self.line.request(method, path, body)
        answer = self.line.getresponse()
        data = answer.read()
        self.used_s = time.monotonic()
        if answer.status != 200:
            raise Trouble(
                f"{method} {path} was answered with {answer.status}:"
                f" {data[:300].decode(errors='replace')}"
            )
        return data

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.line.close()


@contextmanager
def helper(module: str, *arguments: str, said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the benchmark that ends when its standard input does."""
    with said.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            env=environ(),
            cwd=ROOT,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(what: str, seconds: float, look: Callable[[], bool], *, every_s: float = POLL_S) -> float:
    """Poll until it holds; return how long it took."""
    began_s = time.perf_counter()
    while not look():
        if time.perf_counter() - began_s > seconds:
            raise Trouble(f"{what}: not within {seconds:g} s")
        time.sleep(every_s)
    return time.perf_counter() - began_s
