"""Settings and checks for tasks in other processes and on other hosts (spark://, k8s://, yarn).

Called by session.py, engine.py and the `spark-conf` command. The driver always runs where it was
started (Spark's client mode), because the store knows, fences and kills the driver. Executors only
stage data. What a lost executor leaves behind, or what one that is cut off still writes, is named
by no commit and is swept.

How long a failure can go unnoticed with these defaults (the user's own settings win):

- Executor or Python worker killed: noticed at once, because the connection closes. Its tasks run
  again elsewhere, up to `spark.task.maxFailures` (4) times each.
- Worker process killed: noticed at once; its executor ends by itself.
- Executor hung, host down or cut off: spark.network.timeout + spark.network.timeoutInterval = 70 s
  (Spark's default: 180 s).
- No executor at all: NO_EXECUTOR_S_MAX after the last one was seen, the batch fails and is retried.
- Master down: a batch continues on its executors; a driver that starts meanwhile fails at once.
"""

import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from os import SEEK_END
from pathlib import Path
from site import getsitepackages, getusersitepackages
from typing import Any

import tidegate
from tidegate.model.errors import Domain, TransientError, UserError

# less than the time after which the job counts as stalled, which would end the driver; executors
# that start meanwhile serve the next attempt
NO_EXECUTOR_S_MAX = 45.0
NO_EXECUTOR_KEY = "spark.tidegate.noExecutorTimeout"
CONNECT_S_MAX = 5.0
STANDALONE_PORT = 7077
YARN_REPORT = re.compile(r"Application report for (\S+) \(state: (\w+)\)")
LOG_TAIL_BYTES = 64 * 1024
YARN_WAITING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED")
LOCAL = re.compile(r"local(\[|$)")  # not local-cluster[..], which has executors
SOCKETS = "/tmp"  # exists on every host and is short enough for the path of a socket
LOSS_NOTICED: Mapping[str, str] = {
    "spark.network.timeout": "60s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "10s",
}


class MasterUnreachable(TransientError):
    """Spark's master does not answer at the configured address."""

    condition = "spark-master-unreachable"
    domain = Domain.EXTERNAL


class NoExecutors(TransientError):
    """A batch waits, and the cluster provides no executor."""

    condition = "no-executors"
    domain = Domain.EXTERNAL

    def __init__(self, master: str, waited_s: float) -> None:
        super().__init__(
            f"no executor for {waited_s:.0f} seconds at {master}: it has no free worker, or cannot"
            " start executors there; spark.log and the pages of the cluster say more"
            f" ({NO_EXECUTOR_KEY} is how long to wait)"
        )


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's JVM."""
    return LOCAL.match(master.strip()) is not None


def cluster_conf(master: str, user: Mapping[str, str], *, sockets_in_tmp: bool) -> dict[str, str]:
    """Return our defaults for a cluster; the user's settings override them.

    `sockets_in_tmp`: the path of the driver's temporary directory is short enough for sockets.
    spark.local.dir is not set, because it would be the driver's directory on every host: the driver
    uses its JVM's temporary directory, and executors that of their host.
    """
    check_deploy_mode(user)
    sockets = (
        {}
        if sockets_in_tmp and not master.startswith("yarn")
        else {"spark.python.unix.domain.socket.dir": SOCKETS}
    )  # YARN's directories have long names
    return {**LOSS_NOTICED, **sockets, **_source_tree(master, user)}


def executor_java_options(master: str, user: Mapping[str, str]) -> dict[str, str]:
    """Return our JVM options for executors and then the user's; none for a local master."""
    key = "spark.executor.extraJavaOptions"
    return (
        {}
        if is_local(master)
        else {key: " ".join(filter(None, ["-Duser.timezone=UTC", user.get(key, "")]))}
    )


def check_deploy_mode(user: Mapping[str, str]) -> None:
    """Raise UserError for cluster mode, in which Spark starts the driver on another host."""
    if user.get("spark.submit.deployMode", "client") != "client":
        raise UserError(
            "spark.submit.deployMode must be client: the driver is a process that Tidegate starts"
            " and fences; only executors run elsewhere"
        )


def _source_tree(master: str, user: Mapping[str, str]) -> dict[str, str]:
    """Return PYTHONPATH for the workers if this package is a source tree.

    Workers import it too: an installed one is found by their Python, a source tree on hosts that
    share it.
    """
    place = Path(tidegate.__file__).parent.parent
    installed = [
        Path(site)
        for site in (*getsitepackages(), getusersitepackages(), *sys.path)
        if Path(site).name in ("site-packages", "dist-packages")
    ]
    if (
        "spark.executorEnv.PYTHONPATH" in user
        or not master.startswith(("spark://", "local"))
        or place in installed
    ):
        return {}
    return {"spark.executorEnv.PYTHONPATH": str(place)}


def masters(master: str) -> list[tuple[str, int]]:
    """Parse the hosts and ports of spark://host:port,host:port."""
    if not master.startswith("spark://"):
        return []
    found = []
    for part in master.removeprefix("spark://").split(","):
        host, _, port = part.strip().rpartition(":")
        found.append(
            (host.strip("[]"), int(port))
            if host and port.isdigit()
            else (part.strip().strip("[]"), STANDALONE_PORT)
        )
    return found


def check_master(master: str) -> None:
    """Raise MasterUnreachable if no master accepts a connection.

    Spark itself would try for a minute and fail without a reason.
    """
    why = ""
    for host, port in masters(master):
        try:
            socket.create_connection((host, port), timeout=CONNECT_S_MAX).close()
            return
        except OSError as error:
            why = f"{host}:{port}: {error.strerror or error}"
    if why:
        raise MasterUnreachable(f"no Spark master answers at {master} ({why})")


class StartState:
    """Describes what the start of Spark waits for, from new lines of spark.log."""

    def __init__(self, master: str, spark_log: Path) -> None:
        self._master = master
        self._log = spark_log
        self._offset = spark_log.stat().st_size if spark_log.exists() else 0

    def describe(self) -> str:
        """Return one sentence for the user."""
        if is_local(self._master):
            return "Spark's JVM is starting"
        if not self._master.startswith("yarn"):
            return (
                f"Spark is starting at {self._master}: the application is not registered there yet"
            )
        reports = YARN_REPORT.findall(self._new_lines())
        if not reports:
            return (
                "Spark is starting at yarn: the ResourceManager has not accepted the"
                " application yet"
            )
        application, state = reports[-1]
        granted = ", no container granted" if state in YARN_WAITING else ""
        return f"YARN: {application} is {state}{granted}; `yarn application -status` says more"

    def _new_lines(self) -> str:
        with suppress(OSError), self._log.open("rb") as lines:
            lines.seek(max(self._offset, lines.seek(0, SEEK_END) - LOG_TAIL_BYTES))
            return lines.read().decode("utf-8", "replace")
        return ""


def no_executor_s_max(conf: Mapping[str, str]) -> float:
    """Read how long a batch may wait for an executor: seconds, or a time with Spark's units."""
    given = conf.get(NO_EXECUTOR_KEY, "")
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*", given)
    if not given:
        return NO_EXECUTOR_S_MAX
    if found is None:
        raise UserError(f"{NO_EXECUTOR_KEY} must be a time such as 45s or 5m, not {given!r}")
    return (
        int(found[1])
        * {"ms": 0.001, None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[found[2]]
    )


class Executors:
    """Counts the executors of a context. Called from a separate thread while a batch runs."""

    def __init__(self, context: object) -> None:
        self._context = context

    def count(self) -> int | None:
        """Return the number of executors; None if it is unknown, because the JVM has ended."""
        with suppress(Exception):  # the thread that runs the batch reports the error
            context: Any = self._context._jsc.sc()  # type: ignore[attr-defined]  # private API
            known = context.getExecutorMemoryStatus().size()
            return int(known) - 1  # the driver is among them
        return None
