"""Runs of a job that may be killed at any failpoint, a hundred a minute: real processes in sessions
of their own, real SIGKILL, the plain engine.

A zygote process (`python -m tidegate.testing.crash_runs`, driven by `CrashRuns`) imports everything
once and forks a child for each run, which takes the job up as `tidegate run` does (claim, driver,
end), only in one process.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from tidegate import failpoint
from tidegate.cli import main
from tidegate.home import Home
from tidegate.plugin import registry
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine

KILLED = -9
HUNG = -int(signal.SIGALRM)
RUN_S_MAX = 240  # a run takes a moment; one that takes so long will never end


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One run: which job, where, from which point, and where it is killed."""

    home: str
    file: str
    failpoints: str = ""
    restore: str = "auto"
    job_id: int = 7
    stop_at_rows: int | None = (
        None  # stop at the checkpoint after so many rows are read, as Ctrl-C would
    )
    compaction_threshold: int = 10_000
    restore_from: int | None = None  # another job, whose state it takes
    save: bool = False  # end with a savepoint, unless there is one
    skip_files: tuple[str, ...] = ()  # left out, as --skip-file says
    accept_changes: tuple[str, ...] = ()  # decided, as --accept-change says
    command: tuple[str, ...] = ()  # not a run: this command of the CLI


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: `code` as a process's return code (KILLED, HUNG, 0 where it ended well),
    `status` as the job's.
    """

    code: int
    status: str = ""
    error: str = ""
    restored: Mapping[str, int] = field(default_factory=dict)


class CrashRuns:
    """The zygote, from the test's side."""

    def __init__(self) -> None:
        environment = {**os.environ, "TIDEGATE_FAILPOINT": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.testing.crash_runs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> "CrashRuns":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, request: RunRequest) -> RunResult:
        """One run, from its start to its end or its death."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(request)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the zygote died"
        return RunResult(**json.loads(answer))


def serve() -> None:
    """The zygote: fork a child for each request, wait for it, answer."""
    for line in sys.stdin:
        request = RunRequest(**json.loads(line))
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _child(request, write_end)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as said:
            text = said.read()
        _, status = os.waitpid(child, 0)
        answer: dict[str, Any] = {
            "code": os.waitstatus_to_exitcode(status),
            **(json.loads(text) if text else {}),
        }
        print(json.dumps(answer), flush=True)


def _child(request: RunRequest, answer: int) -> None:
    """In the child: a session of its own, nothing of the zygote's pipes; ends with os._exit.

    One that hangs says where, and dies of it.
    """
    os.setsid()
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(RUN_S_MAX)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    code = 1
    try:
        said = _run(request)
        code = 0
    except BaseException as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    os.write(answer, json.dumps(said).encode())
    os._exit(code)


def _run(request: RunRequest) -> dict[str, Any]:
    home = Home(Path(request.home))
    failpoint.arm(request.failpoints)
    if request.command:
        return _command(request.command)
    ran = run_in_process(
        request.file,
        home,
        PlainEngine(),
        job_id=request.job_id,
        restore=request.restore,
        stop_at_rows=request.stop_at_rows,
        compaction_threshold=request.compaction_threshold,
        restore_from=request.restore_from,
        save=request.save,
        skip_files=request.skip_files,
        accept_changes=request.accept_changes,
    )
    failures = "; ".join(f.message for f in ran.outcome.failures)
    return {
        "status": ran.outcome.status.value,
        "restored": {str(p): c for p, c in ran.claim.restored.items()},
        "error": failures,
    }


def _command(words: Sequence[str]) -> dict[str, Any]:
    """A command; one that does not end well is an error."""
    try:
        main(list(words), standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise
    return {"status": "done"}


def _warm() -> None:
    """Import what every run needs, before the first fork."""
    for connector in registry.connectors():
        if connector.capabilities.fusable:
            connector.load()
    for module in (
        "tidegate.cli.state",
        "pandas",
        "pyarrow.pandas_compat",
    ):  # the last two by Arrow, when it makes its first array
        import_module(module)


if __name__ == "__main__":
    _warm()
    serve()
