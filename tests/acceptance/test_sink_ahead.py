"""Sinks that hold more than the retained checkpoints, or more than is wanted: each scenario
ends with exactly the rows of its plan.

The first run is killed with -9 in a process of its own; then the store is lost, checkpoints are
damaged, or an older point is asked for; the second run continues in this process. Plain engine, and
once on Spark.
"""

import json
import shutil
import threading
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.connectors.chaos.sink import committed_ids
from tidegate.coordinator.job_snapshot import read_job
from tidegate.home import Home
from tidegate.model.records import JobStatus, PipelineState
from tidegate.pipeline.engine import Batch, Engine, Written
from tidegate.pipeline.graph import Graph
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.in_process import Ran, Shared, run_in_process
from tidegate.testing.plain_engine import PlainEngine

ROWS = 80
BATCH_ROWS = 10
TIMEOUT_S = 120
ALL_HAVE_IT = "batch.commit.after@5"
ONE_LACKS_IT = "batch.commit.middle@9"  # of two sinks, the first has batch 5
NOTHING_PENDING = "ledger.complete.after@5"


class Scenario:
    """A job with a file sink and another one, and where it happens."""

    def __init__(self, root: Path, runs: CrashRuns | None = None, second: str = "files") -> None:
        self.root = root
        self.runs = runs
        self.home = Home(root / "home")
        self.file = root / "job.conf"
        self.outputs = [root / "out", root / second]
        root.mkdir(exist_ok=True)
        self.file.write_text(self.text(self.outputs))

    def text(self, outputs: list[Path]) -> str:
        sinks = [
            f'LocalFile {{ plugin_input = "t", path = "{outputs[0]}", file_format_type ='
            ' "parquet" }'
        ]
        if outputs[1].name == "chaos":
            sinks.append(f'Chaos {{ plugin_input = "t", path = "{outputs[1]}" }}')
        else:
            sinks.append(
                f'LocalFile {{ plugin_input = "t", path = "{outputs[1]}", file_format_type ='
                ' "parquet" }'
            )
        return f"""env {{ job.mode = "BATCH", job.name = "ahead", checkpoint.interval = 10
  batch.max-rows = {BATCH_ROWS}, checkpoint.max-retained = 3
  job.retry.times = 0 }}
source {{ FakeSource {{ plugin_output = "t", row.num = {ROWS}, seed = 3
  bigint.fake.mode = "SEQUENCE", schema {{ fields {{ id = bigint }} }} }} }}
sink {{ {", ".join(sinks)} }}"""

    def killed(self, place: str) -> "Scenario":
        assert self.runs is not None
        result = self.runs.run(
            RunRequest(home=str(self.home.root), file=str(self.file), failpoints=place)
        )
        assert result.code == KILLED, result.error
        return self

    def lose_the_store(self) -> None:
        shutil.rmtree(self.home.root / "store")

    def damage(self, *checkpoints: int) -> None:
        for checkpoint in checkpoints:
            (self.home.checkpoints / "7" / "1" / str(checkpoint) / "_manifest.json").write_bytes(
                b""
            )

    def resume(self, restore: str = "latest", engine: Engine | None = None) -> Ran:
        ran = run_in_process(str(self.file), self.home, engine or PlainEngine(), restore=restore)
        assert ran.outcome.status is JobStatus.FINISHED, ran.outcome.failures
        return ran

    def state(self, job_id: int = 7) -> PipelineState:
        store = open_store(self.home.store_url)
        try:
            return read_job(store, job_id).pipelines[0].value
        finally:
            store.close()


def ids_in(directory: Path) -> list[int]:
    if directory.name == "chaos":
        return sorted(committed_ids(str(directory)))
    return (
        sorted(
            pyarrow.dataset.dataset(str(directory), format="parquet").to_table()["id"].to_pylist()
        )
        if directory.exists()
        else []
    )


def published(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*.parquet")}


class Listening(PlainEngine):
    """Remembers which batches were run."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def run(self, graph: Graph, batch: Batch) -> Written:
        self.batches.append(batch.checkpoint)
        return super().run(graph, batch)


@pytest.mark.parametrize("second", ["files", "chaos"])
@pytest.mark.parametrize("killed_at", [ALL_HAVE_IT, ONE_LACKS_IT])
def test_the_store_is_lost_after_the_commit_and_before_complete(
    memory_disk: Path, runs: CrashRuns, killed_at: str, second: str
) -> None:
    scenario = Scenario(memory_disk, runs, second).killed(killed_at)
    before = published(scenario.outputs[0])
    assert ids_in(scenario.outputs[0]) == list(range(50))
    assert len(ids_in(scenario.outputs[1])) == (50 if killed_at == ALL_HAVE_IT else 40)
    scenario.lose_the_store()
    engine = Listening()

    ran = scenario.resume(engine=engine)

    assert ran.claim.restored == {1: 4}
    assert engine.batches == [
        5,
        6,
        7,
        8,
    ], "the batch that a sink had was not repeated under its own id"
    assert before < published(scenario.outputs[0]), "what was in place was written again"
    assert [ids_in(output) for output in scenario.outputs] == [list(range(ROWS))] * 2


def test_the_store_is_lost_between_the_first_checkpoint_of_one_pipeline_and_the_first_of_another(
    memory_disk: Path, runs: CrashRuns
) -> None:
    scenario = Scenario(memory_disk, runs)
    first, second = (
        f'FakeSource {{ plugin_output = "{name}", row.num = 30, seed = 3, bigint.fake.mode ='
        ' "SEQUENCE", schema { fields { id = bigint } } }'
        for name in "ab"
    )
    sinks = [
        f'LocalFile {{ plugin_input = "{name}", path = "{memory_disk / name}", file_format_type ='
        ' "parquet" }'
        for name in "ab"
    ]
    scenario.file.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "ahead", checkpoint.interval = 10
  batch.max-rows = 10 }}
source {{ {first}, {second} }}
sink {{ {sinks[0]}, {sinks[1]} }}"""
    )
    scenario.killed(
        "ledger.complete.after@1"
    )  # one pipeline has a checkpoint; whether the other has committed its batch is left to chance
    scenario.lose_the_store()
    scenario.resume()
    assert [ids_in(memory_disk / name) for name in "ab"] == [list(range(30))] * 2


@pytest.mark.parametrize("second", ["files", "chaos"])
@pytest.mark.parametrize(
    ("killed_at", "repeated"),
    [(NOTHING_PENDING, [4, 5]), (ALL_HAVE_IT, [3, 4, 5]), (ONE_LACKS_IT, [3, 4, 5])],
)
@pytest.mark.parametrize("store_too", [False, True], ids=["store-kept", "store-lost"])
def test_the_two_newest_checkpoints_are_damaged(
    memory_disk: Path,
    runs: CrashRuns,
    killed_at: str,
    repeated: list[int],
    second: str,
    store_too: bool,
) -> None:
    scenario = Scenario(memory_disk, runs, second).killed(killed_at)
    newest = scenario.state().retained[-1].checkpoint
    scenario.damage(newest, newest - 1)
    before = published(scenario.outputs[0])
    if store_too:
        scenario.lose_the_store()
    engine = Listening()

    ran = scenario.resume(engine=engine)

    assert ran.claim.restored == {1: newest - 2}
    assert engine.batches[: len(repeated)] == repeated
    assert before < published(scenario.outputs[0])
    assert [ids_in(output) for output in scenario.outputs] == [list(range(ROWS))] * 2


@pytest.mark.parametrize("second", ["files", "chaos"])
@pytest.mark.parametrize("killed_at", [NOTHING_PENDING, ALL_HAVE_IT, ONE_LACKS_IT])
def test_an_older_checkpoint_is_asked_for_on_purpose(
    memory_disk: Path, runs: CrashRuns, killed_at: str, second: str
) -> None:
    scenario = Scenario(memory_disk, runs, second).killed(killed_at)
    state = scenario.state()
    before = published(scenario.outputs[0])
    oldest = state.retained[0].checkpoint
    engine = Listening()

    ran = scenario.resume(f"checkpoint:{oldest}", engine)

    assert ran.claim.restored == {1: oldest}
    assert engine.batches[0] == state.next_checkpoint, (
        "a batch that was taken back has an id of its own"
    )
    assert len(before & published(scenario.outputs[0])) == oldest, (
        "what is newer was not taken back"
    )
    assert [ids_in(output) for output in scenario.outputs] == [list(range(ROWS))] * 2


@pytest.mark.parametrize(
    "killed_at",
    [
        "filesink.rewind.before@1",
        "filesink.rewind.after@1",
        "filesink.rewind.middle@2",
        "ledger.begin.after@1",
    ],
)
def test_a_rollback_that_is_killed_is_continued(
    memory_disk: Path, runs: CrashRuns, killed_at: str
) -> None:
    scenario = Scenario(memory_disk, runs).killed(ALL_HAVE_IT)
    result = runs.run(
        RunRequest(
            home=str(scenario.home.root),
            file=str(scenario.file),
            failpoints=killed_at,
            restore="checkpoint:2",
        )
    )
    assert result.code == KILLED, result.error
    assert scenario.state().rewind
    scenario.resume("auto")
    assert [ids_in(output) for output in scenario.outputs] == [list(range(ROWS))] * 2


def test_a_sink_with_the_same_id_and_other_offsets_fails_the_job_and_changes_no_row(
    memory_disk: Path, runs: CrashRuns
) -> None:
    scenario = Scenario(memory_disk, runs, "chaos").killed(ALL_HAVE_IT)
    (record,) = scenario.outputs[1].glob("*00000005.json")
    changed = json.loads(record.read_text())
    (offsets,) = changed["offsets"].values()
    offsets["start"] = {"elsewhere": 1}
    record.write_text(json.dumps(changed))
    before = published(scenario.outputs[0])
    for lost in (False, True):
        if lost:
            scenario.lose_the_store()
        ran = run_in_process(str(scenario.file), scenario.home, PlainEngine(), restore="latest")
        assert ran.outcome.status is JobStatus.FAILED
        assert "checkpoint 5" in ran.outcome.failures[-1].message
        assert published(scenario.outputs[0]) == before


class Gate(PlainEngine):
    """Lets batches pass up to a number, then waits until it is opened."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.reached = threading.Event()
        self.opened = threading.Event()

    def run(self, graph: Graph, batch: Batch) -> Written:
        if batch.checkpoint > self.last:
            self.reached.set()
            assert self.opened.wait(TIMEOUT_S)
        return super().run(graph, batch)


def test_a_fork_starts_at_a_checkpoint_of_a_running_job(memory_disk: Path) -> None:
    scenario = Scenario(memory_disk)
    forked = [memory_disk / "fork", memory_disk / "fork-files"]
    (memory_disk / "fork.conf").write_text(scenario.text(forked))
    gate, ended = Gate(4), []
    first = threading.Thread(
        target=lambda: ended.append(run_in_process(str(scenario.file), scenario.home, gate))
    )
    first.start()
    try:
        assert gate.reached.wait(TIMEOUT_S)
        fork = run_in_process(
            str(memory_disk / "fork.conf"),
            scenario.home,
            PlainEngine(),
            job_id=8,
            restore="checkpoint:3",
            restore_from=7,
        )
    finally:
        gate.opened.set()
        first.join(TIMEOUT_S)
    assert fork.outcome.status is JobStatus.FINISHED, fork.outcome.failures
    assert fork.claim.restored == {1: 3}
    assert [ids_in(output) for output in forked] == [list(range(30, ROWS))] * 2, (
        "a fork writes what comes after its checkpoint"
    )
    assert ended[0].outcome.status is JobStatus.FINISHED, ended[0].outcome.failures
    assert ended[0].outcome.lineage != fork.outcome.lineage
    assert [ids_in(output) for output in scenario.outputs] == [list(range(ROWS))] * 2, (
        "the job that went on noticed nothing"
    )


def test_a_fork_into_the_same_place_adds_its_own_rows_and_touches_no_others(
    memory_disk: Path,
) -> None:
    scenario = Scenario(memory_disk)
    gate, ended = Gate(4), []
    first = threading.Thread(
        target=lambda: ended.append(run_in_process(str(scenario.file), scenario.home, gate))
    )
    first.start()
    try:
        assert gate.reached.wait(TIMEOUT_S)
        run_in_process(
            str(scenario.file),
            scenario.home,
            PlainEngine(),
            job_id=8,
            restore="checkpoint:4",
            restore_from=7,
        )
    finally:
        gate.opened.set()
        first.join(TIMEOUT_S)
    assert ended[0].outcome.status is JobStatus.FINISHED, ended[0].outcome.failures
    assert ids_in(scenario.outputs[0]) == sorted([*range(ROWS), *range(40, ROWS)])


def test_on_spark_a_lost_store_and_a_damaged_checkpoint_cost_no_row(
    memory_disk: Path, runs: CrashRuns, shared_engine: Shared
) -> None:
    scenario = Scenario(memory_disk, runs, "chaos").killed(ONE_LACKS_IT)
    scenario.damage(4)
    scenario.lose_the_store()
    ran = scenario.resume(engine=shared_engine)
    assert ran.claim.restored == {1: 3}
    assert [ids_in(output) for output in scenario.outputs] == [list(range(ROWS))] * 2
