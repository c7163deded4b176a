"""One job on Spark that dies at a sequence of failpoints (one of every step; in the soak all of
them), and still ends with exactly its rows.

Each run of the chain is the real `tidegate run` with a JVM, killed -9 with its whole session; the
next one resumes and is killed somewhere else, so that every kill is also a kill during recovery.
The plain engine goes through all combinations (test_crash_matrix.py).
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.connectors.chaos.sink import committed_ids
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.records import PENDING_CLEANUPS, JobStatus
from tidegate.runner.process import session_members
from tidegate.store.open import open_store
from tidegate.testing.failpoints import failpoint_names

JOB_ID = 7
TIMEOUT_S = 240
JOB = """env {{ job.mode = "BATCH", job.name = "chain", checkpoint.interval = 10
  batch.max-rows = 10, checkpoint.max-retained = 3 }}
source {{ {first}, {second} }}
sink {{
  LocalFile {{ plugin_input = ["a", "b"], path = "{root}/out", file_format_type = "parquet"
    data_save_mode = "DROP_DATA" }}
  LocalFile {{ plugin_input = ["a", "b"], path = "{root}/loose", file_format_type = "json"
    is_enable_transaction = false }}
  Chaos {{ plugin_input = ["a", "b"], path = "{root}/chaos" }}
}}"""
FAKE = (
    'FakeSource {{ row.num = {rows}, plugin_output = "{name}", seed = 5, bigint.fake.mode ='
    ' "SEQUENCE", bigint.min = {low}, schema {{ fields {{ id = bigint, name = string }} }} }}'
)
# Reached once in the life of a job: at its start, in this order, and at its end.
START = [
    "store.create.before",
    "store.create.middle",
    "store.create.after",
    "claim.fence.before",
    "cleanup.delete.before",
    "checkpoint.delete_job.before",
    "checkpoint.delete_job.after",
    "cleanup.delete.after",
    "cleanup.keys.before",
    "cleanup.keys.after",
    "driver.launch.before",
    "driver.installation.before",
    "driver.installation.after",
]
STARTING_OVER = ["filesink.lineages.before", "filesink.lineages.middle", "filesink.lineages.after"]
PREPARE = ["filesink.prepare.before", "filesink.prepare.middle", "filesink.prepare.after"]
END = [
    "batch.finish.before",
    "batch.finish.after",
    "filesink.finish.before",
    "filesink.finish.middle",
    "filesink.finish.after",
    "ledger.end.before",
    "job.end.before",
    "job.end.after",
]
GOING_BACK = ("filesink.rewind.", "filesink.takeback.", "chaos.undo.")
LAST_WRITE = "ledger.end.after"  # the driver dies after its last write: its leader ends the job
# The matrix does what only an explicit compaction, the deletion of older checkpoints, damage or a
# savepoint passes; other tests do what belongs to servers, to databases, to the collector, to other
# storages, to the state of other jobs, to tokens, to batches that are given up, and to damaged
# documents.
ELSEWHERE = (
    "ledger.repeat.",
    "ledger.save.",
    "savepoint.",
    "collector.",
    "resource.",
    "checkpoint.manifest.",
    "claim.source.",
    "store.compact.",
    "checkpoint.delete_job.middle",
    "driver.handover.",
    "server.",
    "worker.",
    "lease.",
    "command.",
    "transition.",
    "history.",
    "zombie.",
    "jdbcsink.",
    "postgrescdc.",
    "capture.",
    "token.",
    "foreignsink.",
    "filesink.dropped.",
    "ledger.give_up.",
    "job.forget.",
    "document.forget.",
)


class Chain:
    """The installation of one chain."""

    def __init__(self, root: Path, rows: int) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.rows = rows
        self.file = root / "job.conf"
        self.store_is_made = False
        first, second = (
            FAKE.format(rows=rows // 2, name="a", low=0),
            FAKE.format(rows=rows // 2, name="b", low=rows // 2),
        )
        self.file.write_text(JOB.format(root=root, first=first, second=second))

    def run(self, failpoint: str, restore: str = "auto") -> int:
        environ = {
            **os.environ,
            "TIDEGATE_HOME": str(self.home.root),
            "TIDEGATE_FAILPOINT": failpoint,
        }
        command = [
            sys.executable,
            "-c",
            "from tidegate.cli import main; main()",
            "run",
            str(self.file),
            "--job-id",
            str(JOB_ID),
            "--restore",
            restore,
            "--allow-duplicates",
        ]
        with (self.root / "run.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,
            )
            return self._watch(process, failpoint)

    def _watch(self, process: "subprocess.Popen[bytes]", failpoint: str) -> int:
        """Wait until the run ends, or its driver has died at the failpoint; then kill what is left
        of it.
        """
        end = time.monotonic() + TIMEOUT_S
        while process.poll() is None:
            if failpoint and self.driver_died_under(process.pid):
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return int(-signal.SIGKILL)
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)  # poll interval for another process
        return process.returncode

    def driver_died_under(self, leader: int) -> bool:
        """Whether this leader is about to start another driver."""
        known = self.known()
        state = known.state.value if known and known.state else None
        return (
            state is not None
            and state.leader is not None
            and state.leader.pid == leader
            and state.restarts > 0
        )

    def known(self) -> JobSnapshot | None:
        """What the store holds; reading must not create one."""
        if not self.store_is_made:
            return None
        store = open_store(self.home.store_url)
        try:
            return read_job(store, JOB_ID)
        finally:
            store.close()

    def log(self) -> str:
        return (self.root / "run.log").read_text()[-3000:]

    def oldest(self) -> int:
        known = self.known()
        assert known is not None
        return known.pipelines[0].value.retained[0].checkpoint

    def finished(self) -> bool:
        known = self.known()
        return (
            known is not None
            and known.state is not None
            and known.state.value.status is JobStatus.FINISHED
        )

    def no_process_is_left(self) -> None:
        known = self.known()
        driver = known.driver.value.process if known and known.driver else None
        end = time.monotonic() + 30
        while driver is not None and session_members(driver):
            assert time.monotonic() < end, "the driver outlives its leader"
            time.sleep(0.1)  # poll interval for other processes

    def cleanup_is_due(self) -> bool:
        """Whether a finished job was killed before its recorded checkpoint cleanup."""
        store = open_store(self.home.store_url)
        try:
            return bool(store.list(PENDING_CLEANUPS))
        finally:
            store.close()

    def check(self) -> None:
        expected = list(range(self.rows))
        assert (
            sorted(
                pyarrow.dataset.dataset(str(self.root / "out"), format="parquet")
                .to_table()["id"]
                .to_pylist()
            )
            == expected
        )
        assert sorted(committed_ids(str(self.root / "chaos"))) == expected
        loose = (
            pyarrow.dataset.dataset(str(self.root / "loose"), format="json")
            .to_table()["id"]
            .to_pylist()
        )
        assert sorted(set(loose)) == expected
        assert not (self.root / "out" / ".tidegate").exists()
        assert not list(self.home.checkpoints.glob("*/*/*")) or self.cleanup_is_due(), (
            "checkpoints are left without an owner"
        )
        assert not list((self.home.root / "work").glob("*/*"))


def middle_of_the_job(names: Sequence[str], rng: random.Random) -> list[str]:
    """Everything that a running job passes again and again, in a seeded order; going back needs a
    few checkpoints to go back from.
    """
    chosen = [
        n
        for n in names
        if n not in {*START, *STARTING_OVER, *PREPARE, *END}
        and not n.startswith((LAST_WRITE, *ELSEWHERE))
    ]
    back = [n for n in chosen if n.startswith(GOING_BACK)]
    rest = [n for n in chosen if not n.startswith(GOING_BACK)]
    rng.shuffle(rest)
    return [*rest, *back]


def one_of_each_step(places: Sequence[str], rng: random.Random) -> list[str]:
    """Before, in the middle or after it: one of them for every step, in the order of the steps."""
    steps: dict[str, list[str]] = {}
    for place in places:
        steps.setdefault(place.rpartition(".")[0], []).append(place)
    return [rng.choice(sides) for sides in steps.values()]


def places_of(names: Sequence[str], rng: random.Random, every: bool) -> list[str]:
    """The failpoints at which the runs of a chain die: all of them, or one of each step."""
    gone = {*START, *STARTING_OVER, *PREPARE, *END} - set(names)
    assert gone == set(), f"there are no failpoints {sorted(gone)} any more"
    parts = [STARTING_OVER, PREPARE, middle_of_the_job(names, rng), END]
    return [
        *START,
        *(place for part in parts for place in (part if every else one_of_each_step(part, rng))),
    ]


def kill_at_each(chain: Chain, places: Sequence[str], rng: random.Random, hits: int) -> None:
    """Run after run, each of which must die at its failpoint."""
    for name in places:
        chain.store_is_made = not name.startswith("store.create.")
        hit = rng.randint(1, hits) if name not in {*START, *STARTING_OVER, *PREPARE, *END} else 1
        restore = "auto"
        if name in STARTING_OVER:
            chain.run("filesink.fence.after")
            restore = "fresh"
        if name.startswith(GOING_BACK):
            chain.run("ledger.complete.after@3")
            hit, restore = 1, f"checkpoint:{chain.oldest()}"
        if name.startswith("filesink.takeback."):
            shutil.rmtree(chain.root / "out" / ".tidegate", ignore_errors=True)
        assert chain.run(f"{name}@{hit}", restore) == -signal.SIGKILL, (
            f"{name}@{hit} was not reached:\n{chain.log()}"
        )
        chain.no_process_is_left()


def run_chain(root: Path, seed: int, hits: int, every: bool) -> None:
    rng = random.Random(seed)
    places = places_of(failpoint_names(), rng, every)
    chain = Chain(root, rows=40 * hits * len(places))
    try:
        kill_at_each(chain, places, rng, hits)
        if not chain.finished():
            assert chain.run("") == 0, chain.log()
        chain.check()
        (root / "short").mkdir()
        short = Chain(root / "short", rows=20)
        assert short.run(f"{LAST_WRITE}@1") == 0, short.log()
        short.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.timeout(900)
def test_a_job_that_dies_in_every_step_ends_with_exactly_its_rows(tmp_path: Path) -> None:
    run_chain(
        tmp_path, 7, hits=1, every=False
    )  # always the same kills here; the soak draws its own


@pytest.mark.soak
@pytest.mark.parametrize("more", range(4))
def test_many_jobs_that_die_at_every_failpoint_end_with_exactly_their_rows(
    tmp_path: Path, seed: int, more: int
) -> None:
    run_chain(tmp_path, seed + more, hits=3, every=True)
