"""The processes of a cluster, requests to them, and waiting for conditions.

Used by cluster_kit and the tests.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.model.errors import TransientError

if TYPE_CHECKING:
    from cluster_kit import Cluster

T = TypeVar("T")
TIMEOUT_S = 90.0
SPARK_TIMEOUT_S = 240.0  # a JVM on a busy machine takes a minute to start
POLL_S = 0.1
ANSWER_S = 10.0
# The product's own command line; only the module that is started as a driver is the test kit's.
PLAIN = """
import functools, tidegate.server as server, tidegate.cli.server as verbs
from tidegate.cli import main
verbs.ServerSettings = functools.partial(
    server.ServerSettings, driver_module="tidegate.testing.plain_driver"
)
main()
"""
SPARK = "from tidegate.cli import main; main()"


class Refused(Exception):
    """A server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


def until(
    what: str,
    condition: Callable[[], T],
    timeout_s: float = TIMEOUT_S,
    describe: Callable[[], str] = lambda: "",
) -> T:
    """Return the first true result. Errors of something not there yet are retried."""
    end_s = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < end_s:
        try:
            found = condition()
        except (OSError, LookupError, TransientError, Refused) as error:
            last = error
        else:
            if found:
                return found
            last = found
        time.sleep(POLL_S)  # poll interval for other processes
    raise AssertionError(f"{what}: not within {timeout_s:g} s, last {last!r}\n{describe()}")


class Member:
    """A server or a worker."""

    def __init__(
        self, cluster: "Cluster", arguments: list[str], failpoint: str, host: str = ""
    ) -> None:
        self.cluster, self.log = cluster, cluster.root / f"member-{next(cluster.numbers)}.log"
        environ = {
            **os.environ,
            "TIDEGATE_HOME": str(cluster.home.root),
            **({"TIDEGATE_FAILPOINT": failpoint} if failpoint else {}),
        }
        command = [
            *(_elsewhere(host) if host else ()),
            sys.executable,
            "-c",
            SPARK if cluster.spark else PLAIN,
            *arguments,
            "--config",
            str(cluster.config),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,
            )
        self.paused = False

    @property
    def alive(self) -> bool:
        """Whether the process exists; it may be paused."""
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to this process; its drivers are sessions of their own."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)

    def pause(self) -> None:
        self.cluster.pause(self.process.pid)
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.process.send_signal(signal.SIGCONT)

    def stands_still(self) -> bool:
        """Whether the process is stopped by a signal, whoever sent it."""
        return stands_still(self.process.pid)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


class Server(Member):
    """A server process and its REST client."""

    port = 0
    id = ""

    def get(self, path: str, timeout_s: float = ANSWER_S) -> Any:
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"), timeout_s)

    def post(self, path: str, body: str | dict[str, Any]) -> Any:
        data = body if isinstance(body, str) else json.dumps(body)
        return self._ask(
            urllib.request.Request(
                f"http://127.0.0.1:{self.port}{path}", data.encode(), method="POST"
            ),
            ANSWER_S * 3,
        )

    def running(self) -> dict[int, dict[str, Any]]:
        """What it lists as running, by job id."""
        return {int(job["jobId"]): job for job in self.get("/running-jobs")}

    def _ask(self, request: urllib.request.Request, timeout_s: float) -> Any:
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, str(json.loads(error.read()).get("message"))) from None


def stands_still(pid: int) -> bool:
    """Whether a process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _elsewhere(host: str) -> list[str]:
    """What runs after this believes to be on another host: it has that name, and its processes are
    not those of anybody else's host.
    """
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
