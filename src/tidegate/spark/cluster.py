"""What is different where tasks run in other processes and on other hosts (spark://, k8s://, yarn).
Called by session.py, engine.py and the `spark-conf` verb.

The driver always runs where it was started (Spark's client mode): it is the driver that the store
knows, fences and kills. Executors only stage; what they leave behind when they are lost, or go on
writing when they are only cut off, is named by nobody and swept.

How long a loss can go unnoticed, with the settings from here (a user's own win):

    executor or Python worker killed     at once: the connection closes; its tasks run again elsewhere, `spark.task.maxFailures` (4) times each
    worker process killed                at once: its executor ends by itself
    executor hung, host gone or cut off  spark.network.timeout + spark.network.timeoutInterval = 70 s (Spark's own: 180 s)
    no executor at all                   NO_EXECUTOR_S_MAX after the last one was seen; then the batch fails and is tried again
    master gone                          a batch goes on with the executors that it has; a driver that starts meanwhile says so at once
"""

import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from os import SEEK_END
from pathlib import Path
from site import getsitepackages, getusersitepackages

import tidegate
from tidegate.model.errors import Domain, TransientError, UserError

# before the job counts as stalled, which would cost the driver: executors that are on their way
# serve the next attempt
NO_EXECUTOR_S_MAX = 45.0
NO_EXECUTOR_KEY = "spark.tidegate.noExecutorTimeout"
CONNECT_S_MAX = 5.0
STANDALONE_PORT = 7077
YARN_REPORT = re.compile(r"Application report for (\S+) \(state: (\w+)\)")
LOG_TAIL_BYTES = 64 * 1024
YARN_WAITING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED")
LOCAL = re.compile(r"local(\[|$)")  # not local-cluster[..], which has executors
SOCKETS = "/tmp"  # every host has it, and no other name is surely short enough for a socket
LOSS_NOTICED: Mapping[str, str] = {
    "spark.network.timeout": "60s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "10s",
}


class MasterUnreachable(TransientError):
    """Nobody listens where the job file or the engine's file says that Spark's master is."""

    condition = "spark-master-unreachable"
    domain = Domain.EXTERNAL


class NoExecutors(TransientError):
    """A batch waits, and the cluster has nothing that could run it."""

    condition = "no-executors"
    domain = Domain.EXTERNAL

    def __init__(self, master: str, waited_s: float) -> None:
        super().__init__(
            f"no executor for {waited_s:.0f} seconds at {master}: it has no free worker, or cannot"
            " start executors there; spark.log and the pages of the cluster say more"
            f" ({NO_EXECUTOR_KEY} is how long to wait)"
        )


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM."""
    return LOCAL.match(master.strip()) is not None


def cluster_conf(master: str, user: Mapping[str, str], *, sockets_in_tmp: bool) -> dict[str, str]:
    """Settings of ours for a cluster; the user's come after these, and win. `sockets_in_tmp`: the
    driver's directory for temporary files has a short name.

    No spark.local.dir: it would be the driver's directory on every host. The driver's own files go
    where its JVM's temporary files go, the executors' where their host says.
    """
    check_deploy_mode(user)
    sockets = (
        {}
        if sockets_in_tmp and not master.startswith("yarn")
        else {"spark.python.unix.domain.socket.dir": SOCKETS}
    )  # YARN's directories have long names
    return {**LOSS_NOTICED, **sockets, **_source_tree(master, user)}


def executor_java_options(master: str, user: Mapping[str, str]) -> dict[str, str]:
    """The user's options for executors, with ours before them; in the driver's JVM there are no
    others.
    """
    key = "spark.executor.extraJavaOptions"
    return (
        {}
        if is_local(master)
        else {key: " ".join(filter(None, ["-Duser.timezone=UTC", user.get(key, "")]))}
    )


def check_deploy_mode(user: Mapping[str, str]) -> None:
    """UserError where Spark is to start the driver by itself, on some other host."""
    if user.get("spark.submit.deployMode", "client") != "client":
        raise UserError(
            "spark.submit.deployMode must be client: the driver is a process that Tidegate starts"
            " and fences; only executors are elsewhere"
        )


def _source_tree(master: str, user: Mapping[str, str]) -> dict[str, str]:
    """Workers import this package too.

    Installed, they find it by their Python; a source tree is named, which helps on hosts that share
    it.
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
    """The hosts and ports of spark://host:port,host:port."""
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
    """MasterUnreachable where no master takes a connection.

    Spark itself would try for a minute and end without a reason.
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
    """What the start of Spark waits for: the JVM, or the cluster, as far as spark.log says from
    here on.
    """

    def __init__(self, master: str, spark_log: Path) -> None:
        self._master = master
        self._log = spark_log
        self._offset = spark_log.stat().st_size if spark_log.exists() else 0

    def describe(self) -> str:
        """One sentence for a person."""
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
    """How long a batch may wait for a first executor.

    Seconds, or with a unit as in all settings of Spark.
    """
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
    """How many executors a context has. Asked while a batch runs, from a thread of its own."""

    def __init__(self, context: object) -> None:
        self._context = context

    def count(self) -> int | None:
        """None where Spark does not tell: the JVM has ended, or is of another kind."""
        with suppress(Exception):  # whoever runs the batch will see what is wrong
            known = self._context._jsc.sc().getExecutorMemoryStatus().size()  # type: ignore[attr-defined]  # PySpark has no name for it
            return int(known) - 1  # the driver is among them
        return None
