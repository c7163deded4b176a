"""A sink's target that was emptied, unmounted, moved, replaced or put back: the job stops by name,
and continues when the target is back or a user agrees.

Real jobs on the plain engine. What happens to the target happens between two runs, or at an exact
batch of a run.
"""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.checkpoints.savepoints import Savepoints
from tidegate.cli import main
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.restore.planning import NeedsConsent
from tidegate.home import Home
from tidegate.model.errors import TransientError
from tidegate.model.records import JobOutcome, JobStatus
from tidegate.pipeline import sink_records as memory
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.store.open import open_store
from tidegate.testing import in_process
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.in_process import Ran, run_in_process
from tidegate.testing.plain_engine import PlainEngine

ROWS, BATCH_ROWS = 80, 10
LOST = "has lost its record: checkpoint"


class AtBatch(PlainEngine):
    """Does something to the target once, right after the tasks of a batch: before its commit."""

    def __init__(self, checkpoint: int, act: Callable[[], object]) -> None:
        self.checkpoint = checkpoint
        self.act = act
        self.done = False

    def run(self, graph: Graph, batch: Batch) -> Written:
        written = super().run(graph, batch)
        if batch.checkpoint == self.checkpoint and not self.done:
            self.done = True
            self.act()
        return written


class FailsFrom(PlainEngine):
    """Runs no batch from this one on."""

    def __init__(self, checkpoint: int) -> None:
        self.checkpoint = checkpoint

    def run(self, graph: Graph, batch: Batch) -> Written:
        if batch.checkpoint >= self.checkpoint:
            raise TransientError("the engine fails, as the test wants it")
        return super().run(graph, batch)


class CopiesAndFails(AtBatch):
    """As AtBatch, and the sixth batch fails."""

    def run(self, graph: Graph, batch: Batch) -> Written:
        return super().run(graph, batch) if batch.checkpoint < 6 else FailsFrom(6).run(graph, batch)


class Scenario:
    """A job of eighty rows, ten a batch, into one target."""

    def __init__(self, root: Path, kind: str, *, retries: int = 0, more: str = "") -> None:
        self.root = root
        self.kind = kind
        self.home = Home(root / "home")
        self.file = root / "job.conf"
        self.target = root / "target"
        self.database = self.target / "rows.db"
        sinks = {
            "files": f'LocalFile {{ path = "{self.target}", file_format_type = "parquet" {more} }}',
            "sqlite": (
                f'Jdbc {{ url = "jdbc:sqlite:{self.database}", driver = "org.sqlite.JDBC", table ='
                f' "t", generate_sink_sql = true {more} }}'
            ),
            "chaos": f'Chaos {{ path = "{self.target}" {more} }}',
        }
        self.file.write_text(
            f"""env {{ job.mode = "BATCH", job.name = "lost", checkpoint.interval = 10
  batch.max-rows = {BATCH_ROWS}
  checkpoint.max-retained = 3, job.retry.times = {retries}, job.retry.interval.seconds = 0 }}
source {{ FakeSource {{ row.num = {ROWS}, seed = 3, bigint.fake.mode = "SEQUENCE", schema {{
  fields {{ id = bigint }} }} }} }}
sink {{ {sinks[kind]} }}"""
        )

    def run(self, restore: str = "auto", engine: PlainEngine | None = None, **more: object) -> Ran:
        return run_in_process(
            str(self.file), self.home, engine or PlainEngine(), restore=restore, **more
        )  # type: ignore[arg-type]  # as it is asked for

    def stopped(self) -> "Scenario":
        """Failed after its fourth checkpoint, with the fifth batch begun."""
        assert self.run(engine=FailsFrom(5)).outcome.status is JobStatus.FAILED
        assert self.ids() == list(range(4 * BATCH_ROWS))
        return self

    def ids(self) -> list[int]:
        if self.kind == "files":
            return (
                sorted(
                    pyarrow.dataset.dataset(str(self.target), format="parquet")
                    .to_table()["id"]
                    .to_pylist()
                )
                if any(self.target.iterdir())
                else []
            )
        if self.kind == "sqlite":
            with sqlite3.connect(self.database) as db:
                return [i for (i,) in db.execute("select id from t order by id")]
        from tidegate.connectors.chaos.sink import committed_ids

        return sorted(committed_ids(str(self.target)))

    def seen(self) -> list[str]:
        return sorted(str(path) for path in self.target.rglob("*")) if self.target.exists() else []

    def failure(self) -> tuple[str, str]:
        store = open_store(self.home.store_url)
        try:
            error = read_job(store, 7).pipelines[0].value.error
            assert error is not None
            return error.condition, error.message
        finally:
            store.close()


def empty(scenario: Scenario) -> None:
    """A mount point without its disk."""
    shutil.rmtree(scenario.target)
    scenario.target.mkdir()


def remove(scenario: Scenario) -> None:
    shutil.rmtree(scenario.target)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a disk that will not come back."""
    monkeypatch.setattr(memory, "RECORD_WAIT_S", 0.0)


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a server whose workers are on other hosts: the target is not read before the driver
    does.
    """
    monkeypatch.setattr(in_process, "ask_recorded", lambda *_: None)


@pytest.mark.parametrize("kind", ["files", "sqlite", "chaos"])
@pytest.mark.parametrize("harm", [empty, remove])
def test_a_restore_into_a_target_without_its_record_needs_consent(
    tmp_path: Path, kind: str, harm: Callable[[Scenario], None]
) -> None:
    scenario = Scenario(tmp_path, kind).stopped()
    harm(scenario)
    before = scenario.seen()
    with pytest.raises(NeedsConsent, match=LOST) as refused:
        scenario.run("latest")
    assert str(scenario.target) in str(refused.value)
    assert "--on-sink-lost continue" in str(refused.value)
    assert scenario.seen() == before, "nothing was written"
    ran = scenario.run("latest", on_sink_lost="continue")
    assert ran.outcome.status is JobStatus.FINISHED, ran.outcome.failures
    assert scenario.ids() == list(range(4 * BATCH_ROWS, ROWS))


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize("kind", ["files", "sqlite", "chaos"])
@pytest.mark.parametrize("harm", [empty, remove])
def test_a_driver_that_finds_no_record_fails_by_name_and_writes_nothing(
    tmp_path: Path, kind: str, harm: Callable[[Scenario], None]
) -> None:
    scenario = Scenario(tmp_path, kind, retries=1).stopped()
    harm(scenario)
    before = scenario.seen()
    assert scenario.run("latest").outcome.status is JobStatus.FAILED
    condition, message = scenario.failure()
    assert condition == "sink-record-lost"
    assert LOST in message
    assert str(scenario.target) in message
    assert scenario.seen() == before


@pytest.mark.parametrize("kind", ["files", "sqlite", "chaos"])
def test_a_target_that_is_back_is_gone_on_with(tmp_path: Path, kind: str) -> None:
    scenario = Scenario(tmp_path, kind).stopped()
    scenario.target.rename(tmp_path / "away")
    with pytest.raises(NeedsConsent):
        scenario.run("latest")
    (tmp_path / "away").rename(scenario.target)
    assert scenario.run("latest").outcome.status is JobStatus.FINISHED
    assert scenario.ids() == list(range(ROWS))


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize("kind", ["files", "sqlite", "chaos"])
def test_an_older_copy_of_the_target_is_not_taken_for_it(tmp_path: Path, kind: str) -> None:
    scenario = Scenario(tmp_path, kind)
    engine = CopiesAndFails(3, lambda: shutil.copytree(scenario.target, tmp_path / "backup"))
    scenario.run(engine=engine)
    shutil.rmtree(scenario.target)
    (tmp_path / "backup").rename(scenario.target)
    before = scenario.ids()
    assert scenario.run("latest").outcome.status is JobStatus.FAILED
    assert "its newest record there is of checkpoint 2" in scenario.failure()[1]
    assert scenario.ids() == before


@pytest.mark.parametrize(
    "statement", ["delete from tidegate_sink_record", "drop table tidegate_sink_record"]
)
def test_a_database_whose_record_was_deleted_is_distinguished(
    tmp_path: Path, statement: str
) -> None:
    scenario = Scenario(tmp_path, "sqlite").stopped()
    with sqlite3.connect(scenario.database) as db:
        db.execute(statement)
    with pytest.raises(NeedsConsent, match=LOST):
        scenario.run("latest")


# -- while a driver runs
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["files", "sqlite"])
@pytest.mark.parametrize("harm", [empty, remove])
def test_a_target_that_is_emptied_under_a_driver_is_noticed_before_the_next_commit(
    tmp_path: Path, kind: str, harm: Callable[[Scenario], None]
) -> None:
    scenario = Scenario(tmp_path, kind, retries=2)
    ran = scenario.run(engine=AtBatch(4, lambda: harm(scenario)))
    assert ran.outcome.status is JobStatus.FAILED
    assert scenario.failure()[0] == "sink-record-lost"
    assert scenario.seen() in ([], [str(scenario.database)])
    assert all(
        "disk that all hosts share" not in failure.message for failure in ran.outcome.failures
    )


def test_without_retries_the_message_names_the_removed_directory(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "files")
    assert (
        scenario.run(engine=AtBatch(4, lambda: remove(scenario))).outcome.status is JobStatus.FAILED
    )
    condition, message = scenario.failure()
    assert condition == "sink-directory-removed"
    assert "was removed" in message
    assert "hosts share" not in message


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_directory_that_is_moved_away_for_a_moment_costs_a_retry(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "RECORD_WAIT_S", 60.0)
    scenario = Scenario(tmp_path, kind, retries=3)
    back = threading.Event()

    def away() -> None:
        scenario.target.rename(tmp_path / "away")
        asked, real = threading.Event(), memory.read_target_record

        def seen(*given: object) -> object:
            asked.set()
            return real(*given)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr("tidegate.pipeline.recovery.read_target_record", seen)

        def bring() -> None:
            asked.wait()
            (tmp_path / "away").rename(scenario.target)
            back.set()

        threading.Thread(target=bring).start()

    ran = scenario.run(engine=AtBatch(4, away))
    assert back.is_set()
    assert ran.outcome.status is JobStatus.FINISHED, ran.outcome.failures
    assert scenario.ids() == list(range(ROWS))


def test_a_directory_that_is_replaced_by_its_copy_under_a_driver_is_noticed(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "files", retries=1)

    def replaced() -> None:
        shutil.copytree(scenario.target, tmp_path / "copy")
        remove(scenario)
        (tmp_path / "copy").rename(scenario.target)

    ran = scenario.run(engine=AtBatch(4, replaced))
    assert ran.outcome.status is JobStatus.FINISHED, (
        "the copy holds every checkpoint: opened anew, it is as good"
    )
    assert scenario.ids() == list(range(ROWS))


def test_a_consent_covers_one_loss_and_not_the_next(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "files", retries=1).stopped()
    remove(scenario)
    ran = scenario.run(
        "latest", engine=AtBatch(7, lambda: remove(scenario)), on_sink_lost="continue"
    )
    assert ran.outcome.status is JobStatus.FAILED
    assert scenario.failure()[0] == "sink-record-lost"


# -- what is no loss
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["files", "sqlite", "chaos"])
def test_a_job_without_a_commit_is_restored_into_an_empty_target(tmp_path: Path, kind: str) -> None:
    scenario = Scenario(tmp_path, kind)
    with CrashRuns() as runs:
        assert (
            runs.run(
                RunRequest(
                    home=str(scenario.home.root),
                    file=str(scenario.file),
                    failpoints="batch.commit.before",
                )
            ).code
            == KILLED
        )
    if scenario.target.exists():
        remove(scenario)
    assert scenario.run("latest").outcome.status is JobStatus.FINISHED
    assert scenario.ids() == list(range(ROWS))


@pytest.mark.parametrize("kind", ["files", "sqlite", "chaos"])
def test_a_savepoint_of_a_finished_job_is_restored_and_its_output_must_be_there(
    tmp_path: Path, kind: str
) -> None:
    scenario = Scenario(tmp_path, kind, more=", primary_keys = [id]" if kind == "sqlite" else "")
    assert scenario.stopped().run("latest", save=True).outcome.status is JobStatus.SAVEPOINT_DONE
    (saved,) = Savepoints(scenario.home.checkpoints).list()
    assert scenario.run("latest").outcome.status is JobStatus.FINISHED
    assert scenario.ids() == list(range(ROWS))
    assert scenario.run(f"savepoint:{saved.id}").outcome.status is JobStatus.FINISHED
    assert scenario.ids() == list(range(ROWS))
    empty(scenario)
    with pytest.raises(NeedsConsent, match=LOST):
        scenario.run(f"savepoint:{saved.id}")


def test_a_finished_job_leaves_no_record_in_its_target(tmp_path: Path) -> None:
    for kind in ("files", "sqlite"):
        (tmp_path / kind).mkdir()
        scenario = Scenario(tmp_path / kind, kind)
        assert scenario.run().outcome.status is JobStatus.FINISHED
        assert not (scenario.target / ".tidegate").exists()
        if kind == "sqlite":
            with sqlite3.connect(scenario.database) as db:
                assert db.execute("select count(*) from tidegate_sink_record").fetchone() == (0,)


def test_files_without_transactions_are_missed_too(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "files", more=", is_enable_transaction = false").stopped()
    empty(scenario)
    with pytest.raises(NeedsConsent, match=LOST):
        scenario.run("latest")


def test_another_path_for_the_sink_is_a_new_target(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "files").stopped()
    scenario.file.write_text(
        scenario.file.read_text().replace(f'"{scenario.target}"', f'"{tmp_path / "other"}"')
    )
    scenario.target = tmp_path / "other"
    with pytest.raises(Exception, match="on-incompatible drop"):
        scenario.run("latest")


# -- the plan and the warning
# --------------------------------------------------------------------------------------------------


def plan_of(scenario: Scenario, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "restore-plan",
                str(scenario.file),
                "--home",
                str(scenario.home.root),
                "--job-id",
                "7",
                *more,
            ]
        )
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_restore_plan_reports_it_in_advance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path, "files").stopped()
    assert plan_of(scenario, capsys, "--restore", "latest")[0] == 0
    empty(scenario)
    code, text = plan_of(scenario, capsys, "--restore", "latest")
    assert code == 3
    assert "verdict: needs consent" in text
    assert LOST in text
    code, text = plan_of(scenario, capsys, "--restore", "latest", "--on-sink-lost", "continue")
    assert code == 0
    assert "the job continues anyway" in text


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_job_that_appends_to_rows_of_another_lineage_warns(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path, kind)
    assert warnings(scenario, scenario.run().outcome) == ()
    assert "holds" in plan_of(scenario, capsys)[1]
    found = warnings(scenario, scenario.run(engine=FailsFrom(5)).outcome)
    assert len(found) == 1
    assert "of another lineage" in found[0]
    assert str(scenario.target) in found[0] or "t" in found[0]
    assert "holds" not in plan_of(scenario, capsys, "--restore", "latest")[1], (
        "a resume says nothing"
    )
    scenario.run("latest")
    assert len(scenario.ids()) == 2 * ROWS


def warnings(scenario: Scenario, outcome: JobOutcome) -> tuple[str, ...]:
    if outcome.status is JobStatus.FINISHED:
        text = (
            (scenario.home.logs(7) / "driver.log").read_text()
            if (scenario.home.logs(7) / "driver.log").exists()
            else ""
        )
        return ("of another lineage",) if "target_holds_other_rows" in text else ()
    store = open_store(scenario.home.store_url)
    try:
        return read_job(store, 7).pipelines[0].value.warnings
    finally:
        store.close()
