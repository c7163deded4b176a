"""Starting a driver process, and the ways to end it: ask, then kill the whole session. Called by coordinator/supervisor."""

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
from tidegate.model.records import ProcessRef
from tidegate.runner.process import ProvenDead, StillThere, kill_session, reference


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOrder:
    """Which generation to start, and with which program."""

    home: Path
    job_id: int
    generation: int
    logs: Path
    environ: Mapping[str, str]
    module: str = "tidegate.driver"
    options: Sequence[str] = ()


class DriverProcess:
    """A driver that was started here. It leads a session of its own and ends when our end of its standard input closes."""

    def __init__(self, process: "subprocess.Popen[bytes]", error_log: Path) -> None:
        self.process, self.error_log = process, error_log
        self.ref: ProcessRef = reference(process.pid)

    @property
    def output(self) -> IO[bytes]:
        """What the driver prints: rows of Console sinks."""
        assert self.process.stdout is not None
        return self.process.stdout

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.process.poll()

    def ask(self) -> None:
        """Stop at the next checkpoint."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)

    def kill(self) -> ProvenDead | StillThere:
        """End the whole session at once and prove it."""
        proof = kill_session(self.ref)
        self.process.wait()
        return proof

    def close(self) -> None:
        """Let go of the pipes; the driver ends at once if it has not."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def last_words(self, lines: int = 1) -> str:
        """The end of what the driver said on standard error."""
        text = self.error_log.read_text(errors="replace").strip() if self.error_log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def launch(order: LaunchOrder) -> DriverProcess:
    """Start a driver in a session of its own."""
    order.logs.mkdir(parents=True, exist_ok=True)
    error_log = order.logs / "driver.err"
    command = [sys.executable, "-m", order.module, "--home", str(order.home), "--job-id", str(order.job_id), "--generation", str(order.generation)]
    failpoint("driver.launch.before")
    with error_log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, *order.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**order.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    failpoint("driver.launch.after")
    return DriverProcess(process, error_log)
