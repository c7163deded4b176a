"""Starting a driver process, and the ways to end it: ask, then kill the whole session. Called by
coordinator/supervisor and the worker.

Every driver leads a session of its own and is told what to do on its standard input. Embedded ones
are held by that pipe: when it closes they end, and what they print is read here. Detached ones hold
on to nothing of ours, only to files, so that they outlive whoever started them.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tidegate.failpoint import failpoint
from tidegate.model.engine import DriverSpec
from tidegate.model.records import ProcessRef
from tidegate.runner import driver_spec as orders
from tidegate.runner.process import (
    ProvenDead,
    StillThere,
    kill_session,
    reference,
    terminate_session,
)

ERROR_LOG = "driver.err"
CONSOLE_LOG = "console.log"
LAST_WORDS_BYTES = 16 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What is started as a driver."""

    environ: Mapping[str, str]
    module: str = "tidegate.driver"

    def command(self, options: Sequence[str]) -> list[str]:
        """Its command line. Everyone can read it: nothing secret is there."""
        return [sys.executable, "-m", self.module, *options]

    @property
    def environment(self) -> dict[str, str]:
        return {**self.environ, "PYTHONUNBUFFERED": "1"}


class DriverProcess:
    """A driver that was started here. It leads a session of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", error_log: Path) -> None:
        self.process = process
        self.error_log = error_log
        self.ref: ProcessRef = reference(process.pid)

    @property
    def output(self) -> IO[bytes]:
        """What an embedded driver prints: rows of Console sinks."""
        assert self.process.stdout is not None
        return self.process.stdout

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.process.poll()

    def ask(self) -> None:
        """Stop at the next checkpoint."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Give the running batches up, and end. Only for embedded drivers."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended, or its pipe is closed
                os.write(self.process.stdin.fileno(), orders.INTERRUPT)

    def terminate(self) -> None:
        """SIGTERM to every process of its session."""
        terminate_session(self.ref)

    def kill(self) -> ProvenDead | StillThere:
        """End the whole session at once and prove it.

        A process that cannot be killed is not waited for.
        """
        proof = kill_session(self.ref)
        if isinstance(proof, ProvenDead):
            self.process.wait()
        return proof

    def close(self) -> None:
        """Let go of the pipes; an embedded driver ends at once if it has not."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def stderr_tail(self, lines: int = 1) -> str:
        """The end of what the driver said on standard error."""
        return stderr_tail(self.error_log, lines)


def stderr_tail(error_log: Path, lines: int = 1) -> str:
    """The last lines of a driver's error log."""
    try:
        with error_log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            text = stream.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def launch(order: DriverSpec, program: Program) -> DriverProcess:
    """Start a driver in a session of its own, with its order."""
    logs = orders.home_of(order).logs(order.job_id)
    logs.mkdir(parents=True, exist_ok=True)
    command = program.command(
        ["--job-id", str(order.job_id), "--generation", str(order.generation)]
    )
    failpoint("driver.launch.before")
    process = (
        _detached(command, order, program, logs)
        if order.detached
        else _embedded(command, order, program, logs)
    )
    failpoint("driver.launch.after")
    return DriverProcess(process, logs / ERROR_LOG)


def _embedded(
    command: Sequence[str], order: DriverSpec, program: Program, logs: Path
) -> "subprocess.Popen[bytes]":
    with open_errors(logs) as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=program.environment,
            start_new_session=True,
        )
    assert process.stdin is not None
    orders.send(order, process.stdin.fileno())
    return process


def _detached(
    command: Sequence[str], order: DriverSpec, program: Program, logs: Path
) -> "subprocess.Popen[bytes]":
    """The order is in a file without a name, whole before the process begins: a death of ours in
    between leaves no driver that waits.
    """
    with (
        os.fdopen(os.memfd_create("order"), "r+b", buffering=0) as line,
        (logs / CONSOLE_LOG).open("ab") as console,
        open_errors(logs) as errors,
    ):
        orders.send(order, line.fileno())
        line.seek(0)
        return subprocess.Popen(
            command,
            stdin=line,
            stdout=console,
            stderr=errors,
            env=program.environment,
            start_new_session=True,
        )


def open_errors(logs: Path) -> IO[bytes]:
    """A new error log. Appended to: a driver of an older generation may still write into it."""
    return os.fdopen(
        os.open(logs / ERROR_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644), "wb"
    )
