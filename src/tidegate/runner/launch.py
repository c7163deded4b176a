"""Starts driver processes, and ends them: request a stop, then kill the whole session.

Called by coordinator/supervisor and the worker. Every driver leads a session of its own and
receives its spec on standard input. An embedded driver exits when that pipe closes, and its output
is read here. A detached driver is connected only to files, so that it outlives its starter.
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
from tidegate.runner import driver_spec
from tidegate.runner.process import (
    ProvenDead,
    StillRunning,
    kill_session,
    process_ref,
    terminate_session,
)

ERROR_LOG = "driver.err"
CONSOLE_LOG = "console.log"
STDERR_TAIL_BYTES = 16 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """The command that starts a driver, and its environment."""

    environ: Mapping[str, str]
    module: str = "tidegate.driver"

    def command(self, options: Sequence[str]) -> list[str]:
        """Return the command line, which all users can read, so it has no secrets."""
        return [sys.executable, "-m", self.module, *options]

    @property
    def environment(self) -> dict[str, str]:
        return {**self.environ, "PYTHONUNBUFFERED": "1"}


class DriverProcess:
    """A driver that this process has started, and that leads a session of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", error_log: Path) -> None:
        self.process = process
        self.error_log = error_log
        self.ref: ProcessRef = process_ref(process.pid)

    @property
    def output(self) -> IO[bytes]:
        """The standard output of an embedded driver: rows of Console sinks."""
        assert self.process.stdout is not None
        return self.process.stdout

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self.process.poll()

    def request_stop(self) -> None:
        """Request a stop at the next checkpoint."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Make an embedded driver cancel its running batches and exit."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended, or its pipe is closed
                os.write(self.process.stdin.fileno(), driver_spec.INTERRUPT)

    def terminate(self) -> None:
        """Send SIGTERM to every process of its session."""
        terminate_session(self.ref)

    def kill(self) -> ProvenDead | StillRunning:
        """Kill the whole session, and confirm that it is empty.

        Gives up after a deadline, because some processes cannot be killed.
        """
        proof = kill_session(self.ref)
        if isinstance(proof, ProvenDead):
            self.process.wait()
        return proof

    def close(self) -> None:
        """Close the pipes; an embedded driver that still runs exits at once."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def stderr_tail(self, lines: int = 1) -> str:
        """Return the last lines of the driver's standard error."""
        return stderr_tail(self.error_log, lines)


def stderr_tail(error_log: Path, lines: int = 1) -> str:
    """Return the last lines of a driver's error log."""
    try:
        with error_log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - STDERR_TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def launch(spec: DriverSpec, program: Program) -> DriverProcess:
    """Start a driver in a session of its own, and send it its spec."""
    logs = driver_spec.home_of(spec).logs(spec.job_id)
    logs.mkdir(parents=True, exist_ok=True)
    command = program.command(["--job-id", str(spec.job_id), "--generation", str(spec.generation)])
    failpoint("driver.launch.before")
    process = (
        _detached(command, spec, program, logs)
        if spec.detached
        else _embedded(command, spec, program, logs)
    )
    failpoint("driver.launch.after")
    return DriverProcess(process, logs / ERROR_LOG)


def _embedded(
    command: Sequence[str], spec: DriverSpec, program: Program, logs: Path
) -> "subprocess.Popen[bytes]":
    with open_error_log(logs) as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=program.environment,
            start_new_session=True,
        )
    assert process.stdin is not None
    driver_spec.send(spec, process.stdin.fileno())
    return process


def _detached(
    command: Sequence[str], spec: DriverSpec, program: Program, logs: Path
) -> "subprocess.Popen[bytes]":
    """Start a driver that reads its spec from an anonymous file.

    The file is complete before the process starts, so a crash of this process in between leaves no
    driver that waits for its spec.
    """
    with (
        os.fdopen(os.memfd_create("driver-spec"), "r+b", buffering=0) as line,
        (logs / CONSOLE_LOG).open("ab") as console,
        open_error_log(logs) as errors,
    ):
        driver_spec.send(spec, line.fileno())
        line.seek(0)
        return subprocess.Popen(
            command,
            stdin=line,
            stdout=console,
            stderr=errors,
            env=program.environment,
            start_new_session=True,
        )


def open_error_log(logs: Path) -> IO[bytes]:
    """Open a new error log for appending: a driver of an older generation may still write to it."""
    return os.fdopen(
        os.open(logs / ERROR_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644), "wb"
    )
