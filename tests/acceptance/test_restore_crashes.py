"""A restore that is killed -9 at each of its steps and repeated: the same rows in the end, and the
source of the state is unchanged.

The plain engine runs the protocol; processes and kills are real.
"""

from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.coordinator.restore.claimed_paths import claimed_paths
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest, RunResult

ROWS = 60
STEPS = (
    "claim.fence.before",
    "claim.fence.after",
    "restore.adopt.before",
    "checkpoint.publish.before",
    "checkpoint.publish.middle",
    "checkpoint.publish.after",
    "restore.adopt.after",
    "claim.restore.before",
    "claim.restore.after",
)


class Scenario:
    """A job with 60 rows in batches of ten, and what was saved of it."""

    def __init__(self, root: Path, runs: CrashRuns) -> None:
        self.root = root
        self.runs = runs
        self.home = root / "home"
        self.out = root / "out"
        root.mkdir()
        self.file = root / "job.conf"
        self.file.write_text(
            f"""env {{ job.mode = "BATCH", job.name = "saved", checkpoint.interval = 10
  batch.max-rows = 10, checkpoint.max-retained = 2 }}
source {{ FakeSource {{ plugin_output = "t", row.num = {ROWS}, seed = 3
  bigint.fake.mode = "SEQUENCE", schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{self.out}", file_format_type = "parquet" }} }}"""
        )
        self.savepoints = Savepoints(self.home / "checkpoints")

    def run(
        self,
        failpoints: str = "",
        restore: str = "auto",
        *,
        job_id: int = 7,
        restore_from: int | None = None,
    ) -> RunResult:
        request = RunRequest(
            home=str(self.home),
            file=str(self.file),
            failpoints=failpoints,
            restore=restore,
            job_id=job_id,
            restore_from=restore_from,
            compaction_threshold=15,
        )
        return self.runs.run(request)

    def killed(self, failpoints: str) -> None:
        result = self.run(failpoints)
        assert result.code == KILLED, result

    def save(self, checkpoint: int) -> Savepoint:
        id = str(1_700_000_000_000 + checkpoint)
        point = self.savepoints.copy(f"7/1/{checkpoint}", 7, id, 1)
        lineage = self.savepoints.storage.manifest(point.path).lineage
        return self.savepoints.read(
            self.savepoints.seal(
                Savepoint(
                    id=id,
                    path="",
                    job_id=7,
                    lineage=lineage,
                    name="saved",
                    made_ms=1,
                    pipelines={1: point},
                )
            )
        )

    def ids(self) -> list[int]:
        return sorted(
            pyarrow.dataset.dataset(str(self.out), format="parquet").to_table()["id"].to_pylist()
        )

    def claims(self) -> set[str]:
        store = open_store(Home(self.home).store_url)
        try:
            return claimed_paths(store)
        finally:
            store.close()


def saved(root: Path, runs: CrashRuns) -> tuple[Scenario, Savepoint, Savepoint]:
    """A job that was killed after its fourth checkpoint, with savepoints of the second, which is
    not retained any more, and of the fourth.
    """
    scenario = Scenario(root, runs)
    scenario.killed("ledger.complete.after@2")
    older = scenario.save(2)
    scenario.killed("ledger.complete.after@2")
    return scenario, older, scenario.save(4)


@pytest.mark.parametrize("step", [*STEPS, "savepoint.overtake.before", "savepoint.overtake.after"])
def test_going_back_to_a_savepoint_is_killed_at_each_step_and_repeated(
    memory_disk: Path, runs: CrashRuns, step: str
) -> None:
    scenario, older, newer = saved(memory_disk / "scenario", runs)
    assert scenario.run(step, f"savepoint:{older.id}").code == KILLED
    result = scenario.run(restore=f"savepoint:{older.id}")
    assert (result.code, result.status) == (0, JobStatus.FINISHED.value), result
    assert result.restored == {"1": 2}
    assert scenario.ids() == list(range(ROWS))
    assert scenario.claims() == set()
    assert scenario.savepoints.read(older.path).superseded is None
    assert scenario.savepoints.read(newer.path).superseded is not None


@pytest.mark.parametrize("step", [*STEPS, "claim.source.before", "claim.source.after"])
def test_taking_another_jobs_state_is_killed_at_each_step_and_repeated(
    memory_disk: Path, runs: CrashRuns, step: str
) -> None:
    scenario = Scenario(memory_disk / "scenario", runs)
    scenario.killed("ledger.complete.after@3")
    assert scenario.run(step, job_id=8, restore_from=7).code == KILLED
    result = scenario.run(job_id=8, restore_from=7)
    assert (result.code, result.status) == (0, JobStatus.FINISHED.value), result
    assert result.restored == {"1": 3}
    assert scenario.ids() == list(range(ROWS))
    assert scenario.claims() == set()
