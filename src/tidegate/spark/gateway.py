"""Start the JVM of a driver and connect to it. Called by session.py, once per process.

The JVM is a child of this process, and its stdin is the lifeline: when this process ends, however,
the JVM ends. Everything that the JVM and the Python workers print goes to one file. If
startup_cache.py has the exact command line, the JVM is started directly; otherwise by Spark's
launcher, which costs the start of a second JVM.
"""

import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from tidegate.model.errors import Domain, TerminalError, TransientError
from tidegate.redact import DELICATE, mask_value

START_S_MAX = 180  # includes the download of packages
POLL_S = 0.02
SCALA_VERSION = "2.13"  # the only one of Spark 4; Spark's scripts export it
TAIL_BYTES_MAX = 65536
BEFORE_CONTEXT = (
    "spark.master",
    "spark.driver.",
    "spark.jars",
    "spark.submit.",
    "spark.files",
    "spark.archives",
    "spark.kubernetes.",
    "spark.yarn.",
)
ALWAYS_ON_COMMAND_LINE = (
    "spark.master",
    "spark.driver.",
    "spark.jars",
    "spark.submit.",
)  # except options whose name says that they are secret
TRANSIENT_OUTPUT = re.compile(
    r"annot allocate memory|insufficient memory|Address already in use|[Cc]onnection"
    r" (refused|reset|timed out)|unresponsive|UnknownHost|download failed",
    re.I,
)
USEFUL = re.compile(
    r"^(Error[: ]|Exception in thread|Caused by: |Unrecognized |Invalid |Improperly |Could not"
    r" |.*\b\w+(Error|Exception): )"
)


class JvmNotStarted(TerminalError):
    """The JVM ended before Spark was started, and would do so again."""

    condition = "jvm-not-started"
    domain = Domain.EXTERNAL


class JvmNotStartedYet(TransientError):
    """The JVM ended before Spark was started, for a transient reason."""

    condition = "jvm-not-started"
    domain = Domain.EXTERNAL


@dataclass(frozen=True, kw_only=True, slots=True)
class JvmLaunch:
    """How to start a JVM."""

    command: Sequence[str]
    environ: Mapping[str, str]
    output: Path  # the output of the JVM is appended to this file
    tmp: Path


def spark_home() -> Path:
    """Return the directory of this Python's Spark."""
    return Path(_find_spark_home())


def submit_command(conf: Mapping[str, str]) -> list[str]:
    """Return the command that starts the JVM by Spark's launcher."""
    return [str(spark_home() / "bin" / "spark-submit"), *submit_arguments(conf)]


def submit_arguments(conf: Mapping[str, str]) -> list[str]:
    """Return the arguments of SparkSubmit: only settings needed before the SparkContext exists.

    Every user of the host can read command lines. The other settings, which may be secret, are sent
    to the context through the connection to the JVM.
    """
    told = [
        (key, value)
        for key, value in conf.items()
        if key.startswith(BEFORE_CONTEXT) and _is_public(key, value)
    ]
    return [part for key, value in told for part in ("--conf", f"{key}={value}")] + [
        "pyspark-shell"
    ]


def _is_public(key: str, value: str) -> bool:
    return (
        not DELICATE.search(key)
        if key.startswith(ALWAYS_ON_COMMAND_LINE)
        else mask_value(key, value) == value
    )


def start_jvm(launch: JvmLaunch) -> Any:
    """Start a JVM and return the connected py4j gateway; its `proc` is the JVM's process."""
    answer_dir = Path(tempfile.mkdtemp(prefix="gateway-", dir=launch.tmp))
    try:
        answer = answer_dir / "answer"
        environ = {
            **launch.environ,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
        }
        with launch.output.open("ab") as output:
            began = output.tell()
            process = subprocess.Popen(
                list(launch.command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environ,
                preexec_fn=_ignore_interrupts,
            )
        try:
            _await(process, answer, launch.output, began)
        except BaseException:
            _end(process)
            raise
        port, secret = _read_answer(answer)
    finally:
        shutil.rmtree(answer_dir, ignore_errors=True)
    return _connect(process, port, secret)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in the JVM: it reaches the whole process group, and the driver handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _await(process: "subprocess.Popen[bytes]", answer: Path, output: Path, began: int) -> None:
    deadline = time.monotonic() + START_S_MAX
    while not answer.exists():
        if process.poll() is not None:
            raise not_started(process.returncode, _tail(output, began), output)
        if time.monotonic() > deadline:
            raise JvmNotStartedYet(
                f"Spark's JVM did not answer within {START_S_MAX} seconds; its output is in"
                f" {output}"
            )
        time.sleep(POLL_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def kill_process_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill the JVM and its children with SIGKILL.

    Worker daemons lead their own process groups, which contain their workers.
    """
    for pid in children(process.pid):
        with suppress(OSError):
            (
                os.killpg(pid, signal.SIGKILL)
                if os.getpgid(pid) == pid
                else os.kill(pid, signal.SIGKILL)
            )
    _end(process)


def children(parent: int) -> list[int]:
    """Return the child processes of a process."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError, ValueError):
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(entry))
    return found


def _read_answer(answer: Path) -> tuple[int, str]:
    """Read port and secret of the JVM: two 4-byte numbers, the second is the secret's length."""
    raw = answer.read_bytes()
    port, length = struct.unpack(">ii", raw[:8])
    return port, raw[8 : 8 + length].decode("utf-8")


def _tail(output: Path, began: int) -> str:
    with output.open("rb") as stream:
        stream.seek(max(began, output.stat().st_size - TAIL_BYTES_MAX))
        return stream.read().decode("utf-8", "replace")


def not_started(code: int, said: str, output: Path) -> JvmNotStarted | JvmNotStartedYet:
    """Return the error for a JVM that ended with this exit code and output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    line = next(
        (line for line in lines if USEFUL.match(line)), lines[-1] if lines else "it printed nothing"
    )
    passing = code < 0 or bool(TRANSIENT_OUTPUT.search(said))
    kind = JvmNotStartedYet if passing else JvmNotStarted
    return kind(
        f"Spark's JVM did not start (exit code {code}): {line[:500]}; the rest is in {output}"
    )


def _connect(process: "subprocess.Popen[bytes]", port: int, secret: str) -> Any:
    """Connect pyspark to the JVM, which it finds by environment variables."""
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # no types
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process
    return gateway
