"""Files that disappear, change or cannot be read, while a job runs or between two runs of it.

Nothing is lost or doubled, and every advice of a message works.

Runs are processes with the plain engine, killed with -9; a disk that is not mounted is a
directory that was renamed away, with an empty one in its place.
"""

import json
import threading
import time
from pathlib import Path

import pytest

from tidegate.coordinator.job_snapshot import read_job
from tidegate.home import Home
from tidegate.lifecycle.health import PipelineSignals, ProgressPolicy, pipeline_health
from tidegate.model.records import JobStatus, PipelineMetrics, PipelineState
from tidegate.pipeline.engine import Engine
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest, RunResult
from tidegate.testing.in_process import Ran, Shared, run_in_process
from tidegate.testing.plain_engine import PlainEngine

FILES = 20
ROWS_EACH = 5
TIMEOUT_S = 60
BAD = "7,not a number\n"


class Job:
    """A job from csv files to json files, and its directory."""

    def __init__(self, root: Path, mode: str = "BATCH", sinks: int = 1, files: int = 2) -> None:
        self.root = root
        self.mode = mode
        self.source = root / "disk"
        self.other = root / "elsewhere"
        for place in (self.source, self.other):
            place.mkdir(parents=True)
        self.outputs = [root / f"out-{i}" for i in range(sinks)]
        self.home = Home(root / "home")
        self.file = root / "job.conf"
        discovery = "continuous" if mode == "STREAMING" else "once"
        schema = "schema { table = %s, fields { id = bigint, n = bigint } }"
        tables = ", ".join(
            f'{{ path = "{path}", file_format_type = csv, {schema % path.name} }}'
            for path in (self.source, self.other)
        )
        written = ", ".join(
            f'LocalFile {{ plugin_input = "t", path = "{path}", file_format_type = "json" }}'
            for path in self.outputs
        )
        self.file.write_text(
            f"""env {{ job.mode = "{mode}", job.name = "files", checkpoint.interval = 10,
              batch.max-files = {files}, job.retry.times = 0 }}
            source {{ LocalFile {{ plugin_output = "t", discovery_mode = {discovery},
              scan_interval = 0, tables_configs = [{tables}] }} }}
            sink {{ {written} }}"""
        )

    def fill(self, first: int = 0, count: int = FILES, place: Path | None = None) -> "Job":
        for number in range(first, first + count):
            rows = range(number * ROWS_EACH, (number + 1) * ROWS_EACH)
            path = (place or self.source) / f"f{number:03}.csv"
            path.write_text("".join(f"{row},{row}\n" for row in rows))
        return self

    def request(self, **more: object) -> RunRequest:
        values = {"home": str(self.home.root), "file": str(self.file), **more}
        return RunRequest(**values)  # type: ignore[arg-type]  # the tests name its fields

    def run(
        self,
        restore: str = "latest",
        engine: Engine | None = None,
        skip: tuple[str, ...] = (),
        stop: int | None = None,
    ) -> Ran:
        return run_in_process(
            str(self.file),
            self.home,
            engine or PlainEngine(),
            restore=restore,
            skip_files=skip,
            stop_at_rows=stop,
        )

    def unmount(self) -> None:
        self.source.rename(self.root / "away")
        self.source.mkdir()

    def mount(self) -> None:
        self.source.rmdir()
        (self.root / "away").rename(self.source)

    def state(self) -> PipelineState:
        store = open_store(self.home.store_url)
        try:
            return read_job(store, 7).pipelines[0].value
        finally:
            store.close()

    def rows(self, output: int = 0) -> list[int]:
        found = self.outputs[output].rglob("*.json")
        shown = [p for p in found if ".tidegate" not in p.parts]
        return sorted(json.loads(line)["id"] for p in shown for line in p.read_text().splitlines())


def failed(ran: Ran) -> str:
    assert ran.outcome.status is JobStatus.FAILED
    return ran.outcome.failures[-1].message


def killed(result: RunResult) -> None:
    assert result.code == KILLED, result


@pytest.mark.parametrize(
    "place", ["batch.write.before@4", "batch.commit.middle@4", "ledger.complete.after@4"]
)
def test_a_disk_that_is_gone_after_a_kill_fails_the_job_by_name(
    tmp_path: Path, runs: CrashRuns, place: str
) -> None:
    job = Job(tmp_path).fill()
    killed(runs.run(job.request(failpoints=place)))
    job.unmount()
    for _ in range(2):
        message = failed(job.run())
        assert str(job.source) in message
        assert " missing: " in message
        assert "--skip-file" in message
    job.mount()
    assert job.run().outcome.status is JobStatus.FINISHED
    assert job.rows() == list(range(FILES * ROWS_EACH))


def test_a_lost_file_is_skipped_only_when_a_user_agrees(tmp_path: Path, runs: CrashRuns) -> None:
    job = Job(tmp_path).fill()
    killed(runs.run(job.request(failpoints="ledger.complete.after@2")))
    lost = [job.source / "f010.csv", job.source / "f015.csv"]
    for path in lost:
        path.unlink()
    job.fill(first=50, count=1)  # added since: not read
    message = failed(job.run())
    assert all(f"{path} (" in message for path in lost)
    assert "f050" not in message
    assert "f015" in failed(job.run(skip=(str(lost[0]),)))
    ran = job.run(skip=tuple(map(str, lost)))
    assert ran.outcome.status is JobStatus.FINISHED
    assert ran.outcome.restore is not None
    assert [note for note in ran.outcome.restore.notes if str(lost[0]) in note]
    gone = {
        row for number in (10, 15) for row in range(number * ROWS_EACH, (number + 1) * ROWS_EACH)
    }
    assert job.rows() == sorted(set(range(FILES * ROWS_EACH)) - gone)


def test_files_that_come_back_are_not_read_again(tmp_path: Path) -> None:
    job = Job(tmp_path, "STREAMING", files=50).fill()
    assert job.run("auto", stop=100).outcome.status is JobStatus.CANCELED
    job.unmount()
    job.fill(first=30, count=1, place=job.other)
    assert job.run(stop=105).outcome.status is JobStatus.CANCELED
    job.mount()
    job.fill(first=31, count=1, place=job.other)
    assert job.run(stop=110).outcome.status is JobStatus.CANCELED
    assert job.rows() == [*range(100), *range(150, 160)]


def test_a_directory_that_is_away_is_waited_for_and_named(tmp_path: Path) -> None:
    job = Job(tmp_path, "STREAMING", files=50).fill()
    ran: list[Ran] = []
    thread = threading.Thread(target=lambda: ran.append(job.run("auto", stop=105)))
    thread.start()
    try:
        wait_for(lambda: len(job.rows()) == 100)
        job.source.rename(tmp_path / "away")
        wait_for(
            lambda: (error := job.state().error) is not None and str(job.source) in error.message
        )
        error = job.state().error
        assert error is not None
        assert error.condition == "source-unreachable"
        assert "source unreachable" in reason_of(job.state())
        assert str(job.source) in reason_of(job.state())
    finally:
        if (tmp_path / "away").exists():
            (tmp_path / "away").rename(job.source)
        job.fill(first=20, count=1)
        thread.join(TIMEOUT_S)
    assert [each.outcome.status for each in ran] == [JobStatus.CANCELED]
    assert job.rows() == list(range(105))


def reason_of(state: PipelineState) -> str:
    """Why the job is LATE or STALLED, when it has been like this for long enough."""
    metrics = PipelineMetrics(pipeline=1, generation=state.generation, phase="planning")
    rhythm = ProgressPolicy(interval_ms=1000, timeout_ms=1000)
    return pipeline_health(
        rhythm, PipelineSignals(state=state, metrics=metrics, age_ms=3_600_000)
    ).reason


def wait_for(fact: object) -> None:
    assert callable(fact)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if fact():
                return
        except (FileNotFoundError, IndexError):
            pass  # not there yet
        assert time.monotonic() < deadline
        time.sleep(0.05)  # what is waited for happens in another thread


def poisoned(job: Job) -> Path:
    """The job has failed at its fourth batch, of a bad file and a good one."""
    bad = job.source / "f006.csv"
    bad.write_text(BAD)
    message = failed(job.run("auto"))
    assert f"batch {job.state().next_checkpoint - 1}" in message
    assert str(bad) in message
    assert "Repair it and restart with --restore latest" in message
    assert f"--skip-file {bad}" in message
    assert failed(job.run()) == message  # as long as nothing is done about it
    return bad


def finish(job: Job, ran: Ran) -> None:
    assert ran.outcome.status is (JobStatus.FINISHED if job.mode == "BATCH" else JobStatus.CANCELED)


MODES = pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])


@MODES
def test_a_repaired_file_is_read_as_it_is_then(tmp_path: Path, mode: str) -> None:
    job = Job(tmp_path, mode).fill()
    bad = poisoned(job)
    job.fill(first=6, count=1)
    assert bad.stat().st_size != len(BAD)
    finish(job, job.run(stop=None if mode == "BATCH" else 100))
    assert job.rows() == list(range(100))


def test_files_repaired_elsewhere_are_read_when_a_user_agrees(tmp_path: Path) -> None:
    job = Job(tmp_path).fill()
    poisoned(job)
    job.fill(first=6, count=1)
    besides = job.source / "f012.csv"
    besides.write_text("900,900\n")
    message = failed(job.run())
    assert f"--accept-file {besides}" in message
    ran = run_in_process(
        str(job.file),
        job.home,
        PlainEngine(),
        restore="latest",
        accept_files=(str(besides),),
    )
    assert ran.outcome.status is JobStatus.FINISHED
    assert job.rows() == sorted([row for row in range(100) if row // ROWS_EACH != 12] + [900])


@MODES
def test_a_bad_file_is_left_out_for_good(tmp_path: Path, mode: str) -> None:
    job = Job(tmp_path, mode).fill()
    bad = poisoned(job)
    finish(job, job.run(skip=(str(bad),), stop=None if mode == "BATCH" else 60))
    if mode == "STREAMING":
        finish(job, job.run(stop=95))  # nobody has to say it again
    assert job.rows() == [row for row in range(100) if row // ROWS_EACH != 6]


def test_a_bad_file_that_is_removed_is_missing_until_the_batch_is_given_up(tmp_path: Path) -> None:
    job = Job(tmp_path, "STREAMING").fill()
    bad = poisoned(job)
    bad.unlink()
    message = failed(job.run())
    assert f"{bad} ({len(BAD)} bytes)" in message
    assert " missing: " in message
    latest = job.state().latest
    assert latest is not None
    finish(job, job.run(f"checkpoint:{latest.checkpoint}", stop=95))
    assert job.rows() == [row for row in range(100) if row // ROWS_EACH != 6]


KILLS = {
    "repair": ("STREAMING", ["claim.fence.after", "ledger.begin.before", "ledger.begin.after"]),
    "skip": ("BATCH", ["claim.restore.after", "ledger.begin.after", "batch.commit.middle"]),
    "checkpoint": ("BATCH", ["ledger.begin.before", "batch.write.after", "ledger.complete.before"]),
}


@pytest.mark.parametrize("way", KILLS)
def test_a_kill_while_a_batch_is_given_up_changes_nothing(
    tmp_path: Path, runs: CrashRuns, way: str
) -> None:
    mode, places = KILLS[way]
    for place in places:
        job = Job(tmp_path / place, mode, sinks=2).fill(count=10)
        bad = poisoned(job)
        if way != "skip":
            job.fill(first=6, count=1)
        skip = (str(bad),) if way == "skip" else ()
        latest = job.state().latest
        assert latest is not None
        restore = f"checkpoint:{latest.checkpoint}" if way == "checkpoint" else "latest"
        killed(runs.run(job.request(restore=restore, skip_files=skip, failpoints=place)))
        expected = [row for row in range(50) if way != "skip" or row // ROWS_EACH != 6]
        finish(job, job.run(skip=skip, stop=None if mode == "BATCH" else len(expected)))
        assert [job.rows(0), job.rows(1)] == [expected, expected], place


@pytest.mark.parametrize("place", ["ledger.give_up.before", "ledger.give_up.after"])
def test_a_kill_while_a_batch_is_given_up_for_nothing_changes_nothing(
    tmp_path: Path, runs: CrashRuns, place: str
) -> None:
    job = Job(tmp_path, "STREAMING").fill(count=6)
    job.fill(first=9, count=1)
    bad = job.source / "f009.csv"
    bad.write_text(BAD)
    assert str(bad) in failed(job.run("auto"))
    skip = (str(bad),)
    killed(runs.run(job.request(restore="latest", skip_files=skip, failpoints=place)))
    job.fill(first=6, count=1)
    finish(job, job.run(skip=skip, stop=35))
    assert job.rows() == list(range(35))


def test_a_batch_that_a_sink_has_is_not_given_up_in_silence(
    tmp_path: Path, runs: CrashRuns
) -> None:
    job = Job(tmp_path, sinks=2).fill()
    killed(runs.run(job.request(failpoints="batch.commit.middle@5")))  # of two sinks the first one
    before = job.state()
    assert before.pending is not None
    assert before.latest is not None
    changed = job.source / "f004.csv"
    changed.write_text("900,900\n")
    message = failed(job.run())
    assert f"batch {before.pending.checkpoint} cannot be repeated ({changed} has changed" in message
    assert f"--restore checkpoint:{before.latest.checkpoint}" in message
    assert job.run(f"checkpoint:{before.latest.checkpoint}").outcome.status is JobStatus.FINISHED
    expected = sorted([row for row in range(100) if row // ROWS_EACH != 4] + [900])
    assert [job.rows(0), job.rows(1)] == [expected, expected]


def test_spark_gives_the_same_ways_out(tmp_path: Path, shared_engine: Shared) -> None:
    job = Job(tmp_path).fill(count=8)
    bad = job.source / "f006.csv"
    bad.write_text(BAD)
    message = failed(job.run("auto", shared_engine))
    assert "batch 4: " in message
    assert f"--skip-file {bad}" in message
    assert job.run(engine=shared_engine, skip=(str(bad),)).outcome.status is JobStatus.FINISHED
    assert job.rows() == [row for row in range(40) if row // ROWS_EACH != 6]
