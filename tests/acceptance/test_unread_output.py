"""Output that nobody reads, or that cannot be written: a run stops and can be resumed, other verbs
end, and nobody sees a traceback.
"""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from embedded_kit import PROGRAM, TIMEOUT_S, Installation, finish

from tidegate.model.records import JobStatus

TIDEGATE = str(Path(sys.executable).parent / "tidegate")
VERBS = (
    ["connectors", "list"],
    ["connectors", "show", "LocalFile"],
    ["--help"],
    ["run", "--help"],
    ["config", "show"],
    ["validate", "job.conf"],
)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    it = Installation(tmp_path)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def console_job(installation: Installation) -> Path:
    file = installation.job(mode="STREAMING", rows=100_000_000, rate=1000)
    text = file.read_text()
    file.write_text(text[: text.index("sink {")] + 'sink { Console { plugin_input = "t" } }')
    return file


def start(installation: Installation, *arguments: str, **streams: Any) -> "subprocess.Popen[str]":
    environ = {**os.environ, "TIDEGATE_HOME": str(installation.home)}
    command = [sys.executable, "-c", PROGRAM, str(console_job(installation)), *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, text=True, env=environ, start_new_session=True, **streams
    )
    installation.started.append(process)
    return process


def can_be_resumed(installation: Installation) -> bool:
    """Whether the run was stopped in order, nothing of it is alive, and it can be resumed."""
    known = installation.known()
    assert known is not None
    return installation.status() is JobStatus.CANCELED and bool(
        known.cleanup is None or known.cleanup.value.resumable
    )


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_run_whose_reader_has_gone_stops_with_the_code_of_a_closed_pipe(
    installation: Installation, arguments: tuple[str, ...]
) -> None:
    process = start(installation, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    output = process.stderr.read() if process.stderr else ""
    assert process.wait(TIMEOUT_S) == 141
    assert "Traceback" not in output
    assert can_be_resumed(installation)
    if not arguments:
        assert "nobody reads the output any more" in output
        assert "--restore latest" in output or "--restore auto" in output


def test_a_run_whose_notes_and_rows_nobody_reads_stops_too(installation: Installation) -> None:
    process = start(installation, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 141
    assert can_be_resumed(installation)


def test_a_run_whose_standard_error_nobody_reads_stops_too(installation: Installation) -> None:
    process = start(installation, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline()
    process.stderr.close()
    assert process.wait(TIMEOUT_S) == 141
    assert can_be_resumed(installation)


def test_a_run_whose_output_goes_to_a_full_disk_fails_and_says_why(
    installation: Installation,
) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(installation, stdout=full, stderr=subprocess.PIPE)
    output = process.stderr.read() if process.stderr else ""
    assert process.wait(TIMEOUT_S) == 1
    assert "No space left on device" in output
    assert "Traceback" not in output
    assert can_be_resumed(installation)


def test_a_run_on_a_terminal_that_is_closed_stops_and_can_be_resumed(
    installation: Installation,
) -> None:
    """The terminal's reader closes; the process is in another session and gets no SIGHUP."""
    ours, theirs = pty.openpty()
    process = start(installation, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert process.wait(TIMEOUT_S) in (1, 130)
    assert can_be_resumed(installation)


def test_rows_go_to_a_file_also_where_the_notes_go_to_a_terminal(
    installation: Installation,
) -> None:
    ours, theirs = pty.openpty()
    rows = installation.root / "rows.txt"
    with rows.open("w") as stream:
        process = start(installation, stdout=stream, stderr=theirs)
    os.close(theirs)
    drawn: list[bytes] = []
    reader = threading.Thread(target=drain, args=(ours, drawn))
    reader.start()
    installation.until(lambda: "rowIndex=1:" in rows.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 130
    reader.join()
    os.close(ours)
    assert b"CANCELED" in b"".join(drawn)
    assert b"rowIndex" not in b"".join(drawn)


def drain(terminal: int, drawn: list[bytes]) -> None:
    """Read what is drawn until the other side closes."""
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            drawn.append(part)


def test_a_run_without_standard_streams_runs_to_its_end(installation: Installation) -> None:
    file = installation.job(rows=20, rate=1000)
    command = (
        f"exec {sys.executable} -c 'from tidegate.cli import main; main()' explain {file} >&-"
        " 2>&- <&-"
    )
    assert subprocess.run(["sh", "-c", command], timeout=TIMEOUT_S, check=False).returncode == 0


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_verb_whose_output_nobody_reads_ends_without_a_traceback(
    installation: Installation, verb: list[str]
) -> None:
    installation.job(rows=20)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [TIDEGATE, *verb],
        cwd=installation.root,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TIDEGATE, *verb],
            cwd=installation.root,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "tidegate: the output cannot be written: No space left on device\n",
    )


def test_a_character_that_the_terminal_cannot_show_does_not_stop_a_run(
    installation: Installation,
) -> None:
    file = installation.job(rows=20, rate=1000)
    text = file.read_text().replace('job.name = "orders"', 'job.name = "wörld €"')
    file.write_text(text)
    environ = {**os.environ, "TIDEGATE_HOME": str(installation.home), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), "--json"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "FINISHED"


def test_the_code_of_a_run_whose_job_was_done_is_zero(installation: Installation) -> None:
    assert finish(installation.start(installation.job(rows=20, rate=1000)))[0] == 0
