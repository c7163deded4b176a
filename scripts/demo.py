"""`make demo`: a streaming job is killed with -9, first its driver, then everything. It resumes
each time, and its rows are counted at the end.

Uses `tidegate run` as a user would, and reads the store only to report progress and to find the
processes to kill. Works in a temporary directory and leaves no file and no process behind. Exit
code 1 if a row is missing or duplicated.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.document import from_document
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    CheckpointHistory,
    CheckpointRef,
    PipelineState,
    ProcessRef,
)
from tidegate.runner.process import kill_session, process_ref, session_members
from tidegate.store.base import Store
from tidegate.store.open import open_store

JOB_FILE = Path(__file__).resolve().parent.parent / "examples" / "streaming-orders.conf"
JOB_NAME, JOB_ID = "streaming-orders", 1
BEFORE_KILL, AFTER_KILL = 5, 4  # checkpoints
PATIENCE_S = 120
LOOK_S = 0.02
CHART_COLUMNS = 72
SAY = Console(highlight=False, markup=False, soft_wrap=True)


class Disappointment(Exception):
    """The demonstration cannot continue; the text says why."""


@dataclass(frozen=True, slots=True)
class Kill:
    """When something was killed, and what."""

    at_ms: int
    what: str


@dataclass
class Stage:
    """Where everything happens: the directory, the running command, and what was seen so far."""

    place: Path
    began_ms: int
    run: "subprocess.Popen[str] | None" = None
    store: Store | None = None
    driver: ProcessRef | None = None
    checkpoints: dict[int, CheckpointRef] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)

    @property
    def home(self) -> Home:
        return Home(self.place / "home")

    @property
    def output(self) -> Path:
        return self.place / "out" / JOB_NAME

    def known(self) -> JobSnapshot | None:
        """What the store knows of the job; remembers its checkpoints and its driver on the way."""
        if self.store is None:
            if not (self.home.root / "store" / "tidegate.db").exists():
                return None
            self.store = open_store(self.home.store_url)
        for entry in self.store.list(CHECKPOINT_HISTORY, f"{JOB_ID}/"):
            self.checkpoints |= {
                ref.checkpoint: ref for ref in from_document(CheckpointHistory, entry.value).entries
            }
        known = read_job(self.store, JOB_ID)
        self.driver = (known.driver.value.process if known.driver else None) or self.driver
        return known

    def pipeline(self) -> PipelineState | None:
        """The state of the one pipeline that the job has."""
        known = self.known()
        return known.pipelines[0].value if known and known.pipelines else None


# -- acts


def play(stage: Stage) -> bool:
    """The whole piece; whether every row is there once."""
    act(
        "1. A streaming job",
        "made-up orders, numbered 1, 2, 3, ... -> SQL -> Parquet files, one checkpoint a second",
    )
    start(stage)
    wait_for_checkpoints(stage, BEFORE_KILL)

    act(
        "2. kill -9 of its driver",
        "in the middle of a batch: Python, the JVM and its workers, the whole session of processes",
    )
    kill_driver(stage)
    say("nobody has to do anything: `tidegate run` starts generation 2 by itself")
    wait_for_checkpoints(stage, AFTER_KILL)

    act(
        "3. kill -9 of everything",
        "the driver again, and `tidegate run` itself, as when a machine loses its power",
    )
    kill_everything(stage)
    say(
        "the same command once more, as a scheduler would give it, resumes from the last completed"
        " checkpoint"
    )
    start(stage, "--restore", "auto")
    wait_for_checkpoints(stage, AFTER_KILL)

    act("4. Ctrl-C", "stops at a checkpoint")
    stop(stage)

    act(
        "5. The checkpoints",
        "a bar from begin to completion; a repeated batch begins before the kill and ends after it",
    )
    for line in chart(stage):
        SAY.print(line)
    act("6. The count", f"of the ids in {len(list(stage.output.rglob('*.parquet')))} Parquet files")
    return count(stage)


def start(stage: Stage, *more: str) -> None:
    """Start `tidegate run` in a session of its own, and relay what it says."""
    arguments = [
        "run",
        str(JOB_FILE),
        "--home",
        str(stage.home.root),
        "--job-id",
        str(JOB_ID),
        "-i",
        f"out={stage.place / 'out'}",
        *more,
    ]
    SAY.print(
        Text(
            f"  $ tidegate run examples/{JOB_FILE.name} --job-id {JOB_ID} {' '.join(more)}",
            style="bold",
        )
    )
    command = Path(sys.executable).with_name("tidegate")
    found = (
        [str(command)]
        if command.exists()
        else [sys.executable, "-c", "from tidegate.cli import main; main()"]
    )
    stage.run = subprocess.Popen(
        [*found, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    threading.Thread(target=relay, args=(stage.run,), daemon=True).start()


def relay(run: "subprocess.Popen[str]") -> None:
    """Print the lines of the command, until it has no more."""
    assert run.stdout is not None
    for line in run.stdout:
        SAY.print(Text(f"  | {line.rstrip()}", style="dim"))


def wait_for_checkpoints(stage: Stage, more: int) -> None:
    """Until so many more checkpoints are completed; says each."""
    stage.pipeline()
    wanted = len(stage.checkpoints) + more
    said = set(stage.checkpoints)

    def enough() -> bool:
        stage.pipeline()
        for number in sorted(set(stage.checkpoints) - said):
            ref = stage.checkpoints[number]
            took_s = (ref.completed_ms - ref.begun_ms) / 1000
            say(
                f"checkpoint {number:>2} completed by generation {ref.generation}:"
                f" {ref.rows_read:,} rows, {took_s:.1f} s after its begin"
            )
            said.add(number)
        return len(stage.checkpoints) >= wanted

    wait(stage, enough, f"{more} more checkpoints")


def kill_driver(stage: Stage) -> None:
    """SIGKILL to all processes of the driver's session."""
    wait(stage, lambda: is_staging(stage), "a batch whose files are being written")
    assert stage.driver is not None
    victims = Counter(name_of(pid) for pid in session_members(stage.driver))
    kill_session(stage.driver)
    stage.kills.append(Kill(now_ms(), "kill -9: the driver"))
    say(f"killed {', '.join(f'{number} x {name}' for name, number in victims.items())}")
    tell_place(stage)


def kill_everything(stage: Stage) -> None:
    """SIGKILL to `tidegate run` first, so that nobody restarts anything, then to its driver."""
    assert stage.run is not None
    wait(stage, lambda: is_staging(stage), "a batch whose files are being written")
    kill_session(process_ref(stage.run.pid))
    end_driver(stage)
    stage.run.wait()
    stage.kills.append(Kill(now_ms(), "kill -9: everything"))
    say("nothing runs any more")
    tell_place(stage)


def is_staging(stage: Stage) -> bool:
    """Whether a batch has begun, and has files that are not yet in place."""
    pipeline = stage.pipeline()
    return (
        pipeline is not None
        and pipeline.pending is not None
        and any(path.is_file() for path in stage.output.glob(".tidegate/*/*/staging/*/*"))
    )


def tell_place(stage: Stage) -> None:
    """What a successor finds in the store."""
    pipeline = stage.pipeline()
    assert pipeline is not None
    assert pipeline.latest is not None
    say(
        f"the store says: checkpoint {pipeline.latest.checkpoint} is the last completed one, with"
        f" {pipeline.rows_read:,} rows up to it"
    )
    if pipeline.pending:
        say(
            f"batch {pipeline.pending.checkpoint} had begun: it will be repeated with exactly the"
            " rows that the store has recorded for it"
        )


def stop(stage: Stage) -> None:
    """SIGINT, as Ctrl-C sends it, and the end of the command."""
    assert stage.run is not None
    os.killpg(stage.run.pid, signal.SIGINT)
    wait(
        stage,
        lambda: stage.run is not None and stage.run.poll() is not None,
        "the end of the run",
        ends=True,
    )
    stage.known()
    say(f"exit code {stage.run.returncode} (stopped on request)")


def count(stage: Stage) -> bool:
    """Compare the ids in the files with the rows that were read: 1 to N, each once."""
    pipeline = stage.pipeline()
    assert pipeline is not None
    files = sorted(stage.output.rglob("*.parquet"))
    ids = pq.ParquetDataset(files).read(columns=["id"])["id"]
    distinct, highest = pc.count_distinct(ids).as_py(), pc.max(ids).as_py()
    wanted = pipeline.rows_read
    say(f"rows read up to the last checkpoint  {wanted:>10,}")
    say(f"rows in the files                    {len(ids):>10,}")
    say(f"different ids in them                {distinct:>10,}")
    say(f"highest id                           {highest:>10,}")
    lost, doubled, beyond = max(0, wanted - distinct), len(ids) - distinct, max(0, highest - wanted)
    good = not (lost or doubled or beyond)
    verdict = (
        "no row was lost, no row is there twice"
        if good
        else (
            f"WRONG: {lost:,} rows lost, {doubled:,} doubled, ids reach {beyond:,} beyond what was"
            " read"
        )
    )
    SAY.print()
    SAY.print(
        Text(
            f"  {'=' if good else '!'} {len(stage.kills)} kills, {len(stage.checkpoints)}"
            f" checkpoints: {verdict}",
            style="bold green" if good else "bold red",
        )
    )
    return good


# -- the chart


def chart(stage: Stage) -> Iterator[Text]:
    """One line for each checkpoint along a time axis, with the kills between them."""
    refs = [stage.checkpoints[n] for n in sorted(stage.checkpoints)]
    end_ms = max(ref.completed_ms for ref in refs)
    scale = (CHART_COLUMNS - 1) / max(1, end_ms - stage.began_ms)

    def column(at_ms: int) -> int:
        return max(0, min(CHART_COLUMNS - 1, round((at_ms - stage.began_ms) * scale)))

    yield Text("   id  gen    rows  begun at    took", style="bold")
    for ref in refs:
        bar = [" "] * CHART_COLUMNS
        first, last = column(ref.begun_ms), column(ref.completed_ms)
        bar[first : last + 1] = "━" * (last - first + 1)
        for kill in stage.kills:
            bar[column(kill.at_ms)] = "✗" if ref.begun_ms <= kill.at_ms <= ref.completed_ms else "┊"
        begun_s, took_s = (
            (ref.begun_ms - stage.began_ms) / 1000,
            (ref.completed_ms - ref.begun_ms) / 1000,
        )
        line = Text(
            f"  {ref.checkpoint:>3}  {ref.generation:>3}  {ref.rows_read:>6,}  {begun_s:>6.1f} s "
            f" {took_s:>4.1f} s  "
        )
        yield line.append(
            "".join(bar), style=("cyan", "green", "magenta")[(ref.generation - 1) % 3]
        )
    for kill in stage.kills:
        yield Text(
            (
                " " * (39 + column(kill.at_ms) - 1) + f"✗ {kill.what}"
                if column(kill.at_ms) < CHART_COLUMNS // 2
                else f"{kill.what} ✗".rjust(40 + column(kill.at_ms))
            ),
            style="red",
        )


# -- waiting, telling, ending


def wait(stage: Stage, fact: Callable[[], bool], what: str, *, ends: bool = False) -> None:
    """Until it is so.

    Gives up when it takes too long, or when the command has ended and should not have.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not fact():
        if time.monotonic() > deadline_s:
            raise Disappointment(f"waited {PATIENCE_S} s for {what}")
        if not ends and stage.run is not None and stage.run.poll() is not None:
            raise Disappointment(
                f"`tidegate run` ended with {stage.run.returncode} while waiting for {what}"
            )
        time.sleep(LOOK_S)


def act(title: str, text: str) -> None:
    SAY.print()
    SAY.print(Text(title, style="bold").append(f": {text}", style="not bold"))


def say(text: str) -> None:
    """One line of the story."""
    SAY.print(f"  {text}")


def name_of(pid: int) -> str:
    """The name of a process, or its pid when it is gone already."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return str(pid)


def now_ms() -> int:
    """The wall clock, as the store's records have it."""
    return time.time_ns() // 1_000_000


def end_driver(stage: Stage) -> None:
    """Kill what is left of the driver that was seen last."""
    if stage.driver is not None:
        kill_session(stage.driver)


def end(stage: Stage) -> None:
    """No process and no file stays."""
    if stage.run is not None and stage.run.poll() is None:
        kill_session(process_ref(stage.run.pid))
        stage.run.wait()
    end_driver(stage)
    if stage.store is not None:
        stage.store.close()
    shutil.rmtree(stage.place, ignore_errors=True)


def show_logs(stage: Stage) -> None:
    """The end of what the driver wrote, before it is deleted."""
    for log in sorted(stage.home.root.glob("logs/*/*")):
        lines = log.read_text(errors="replace").splitlines()[-5:]
        SAY.print("\n".join([f"  {log.name}:", *(f"  | {line}" for line in lines)]))


def main() -> int:
    """0 when every row is there once."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began_s = time.monotonic()
    stage = Stage(Path(tempfile.mkdtemp(prefix="tidegate-demo-")), now_ms())
    try:
        good = play(stage)
    except Disappointment as trouble:
        SAY.print(Text(f"\n  ! the demonstration failed: {trouble}", style="bold red"))
        show_logs(stage)
        good = False
    except KeyboardInterrupt:
        SAY.print("\n  interrupted")
        return 130
    finally:
        end(stage)
    say(
        f"{time.monotonic() - began_s:.0f} s in all; nothing is left behind. The job is"
        f" examples/{JOB_FILE.name}; what to read next is in README.md."
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
