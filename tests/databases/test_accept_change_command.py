"""`tidegate accept-change` as in the error of the job, by the command line and a server.

Jobs run on the plain engine.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accept_kit import CopyJob, copy_job_of
from database_kit import Place

from tidegate.testing.servers.postgres import PostgresServer

TIMEOUT_S = 60
PLAIN = """
import functools, sys, tidegate.server as server, tidegate.cli.server as verbs
from tidegate.cli import main, run
original = run.RunOptions
run.RunOptions = lambda **options: original(
    **options, driver_module="tidegate.testing.plain_driver"
)
verbs.ServerSettings = functools.partial(
    server.ServerSettings, driver_module="tidegate.testing.plain_driver"
)
main()
"""


def until(what: str, holds: Callable[[], object]) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end_s, f"not in time: {what}"
        time.sleep(0.1)  # poll interval


class Shell:
    """Commands on the home of one job; processes that remain are ended with the test."""

    def __init__(self, flow: CopyJob) -> None:
        self.flow = flow
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> "subprocess.Popen[str]":
        environ = {**os.environ, "TIDEGATE_HOME": str(self.flow.home.root)}
        process = subprocess.Popen(
            [sys.executable, "-c", PLAIN, *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def ends(self, *words: str) -> tuple[int, str]:
        """Return the exit code and the output of a command."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, said

    def close(self) -> None:
        for process in self.started:
            process.kill()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if (
                    str(self.flow.home.root).encode() in Path("/proc", pid, "environ").read_bytes()
                    and int(pid) != os.getpid()
                ):
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue
        for process in self.started:
            process.communicate()


@pytest.fixture
def shell(pg: Place, postgres: PostgresServer, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(copy_job_of(pg, postgres, tmp_path))
    yield made
    made.close()


def advised(text: str, choice: str) -> list[str]:
    """Return the command that the error advises, without its first word."""
    line = next(
        line
        for line in text.splitlines()
        if line.strip().startswith("tidegate accept-change")
        and line.rstrip().endswith(f"--choice {choice}")
    )
    return shlex.split(line)[1:]


@pytest.mark.timeout(300)
def test_the_command_that_the_error_advises_resumes_the_job(shell: Shell) -> None:
    flow = shell.flow
    flow.change("alter table orders drop column w", "insert into orders values (5, 'e')")
    code, said = shell.ends("run", str(flow.file), "--restore", "latest")
    assert (code, "and are id integer, v character varying(20)" in said) == (1, True), said
    words = advised(said, "adopt")
    assert "--restore latest" not in said.rpartition("continue")[2]

    wrong = [*words[: words.index("--at") + 1], "0/4", *words[words.index("--at") + 2 :]]
    assert shell.ends(*wrong)[0] == 3
    code, said = shell.ends(*words[:-1], "skip")
    assert (code, "the choices are adopt, reread" in said) == (2, True), said
    assert shell.ends("accept-change", "nobody", *words[2:])[0] == 3

    running = shell.start(*words)
    until("the row after the change", lambda: [row[0] for row in flow.copied()] == [1, 2, 3, 5])
    assert shell.ends(*words)[0] == 0  # the same decision again
    code, said = shell.ends(*words[:-1], "reread")
    assert (code, "is not stopped at a change" in said) == (3, True), said
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 130, text
    assert "is accepted (adopt)" in text


@pytest.mark.timeout(300)
def test_a_server_resumes_the_job(shell: Shell) -> None:
    flow = shell.flow
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = f"http://127.0.0.1:{port}"
    shell.start("server", "--http-port", str(port))
    until("the server", lambda: shell.ends("jobs", "--server", server)[0] == 0)
    assert (
        shell.ends(
            "submit", str(flow.file), "--job-id", "7", "--restore", "latest", "--server", server
        )[0]
        == 0
    )
    flow.change("insert into orders values (4, 'd', 'u')")
    until("the row before the change", lambda: (4, "d", "u") in flow.copied())
    flow.change("alter table orders drop column w", "insert into orders values (5, 'e')")
    until("the stop", lambda: "FAILED" in shell.ends("show", "7", "--server", server)[1])
    words = advised(shell.ends("show", "7", "--server", server)[1], "reread")
    assert shell.ends(*words[:-1], "skip", "--server", server)[0] == 2
    assert shell.ends(*[word.replace("0/", "9/") for word in words], "--server", server)[0] == 3
    code, said = shell.ends(*words, "--server", server)
    assert (code, "rows that the table no longer has stay in the target" in said) == (0, True), said
    until(
        "the rows that are read again",
        lambda: (
            [row[:2] for row in flow.copied()] == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
        ),
    )
    assert (
        shell.ends(*words, "--server", server)[0] == 0
    )  # the same decision again: an answer that was lost
    assert shell.ends("stop", "7", "--wait", "--server", server)[0] == 0
