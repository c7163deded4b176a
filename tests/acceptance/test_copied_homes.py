"""Two copies of one home on one sink: whichever runs, is killed and restarts, the rows equal the
source, and one copy stops with an error that names the other.

Real processes and real kills, the plain engine. The copies have one lineage, the same generation
and the same checkpoints; only the token of a driver tells them apart.
"""

import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest, RunResult

ROWS, BATCH_ROWS, STARTS_MAX = 120, 10, 12
PLACES = (
    "batch.write.before",
    "batch.commit.before",
    "batch.commit.after",
    "checkpoint.publish.after",
    "ledger.complete.after",
    "ledger.begin.after",
)
SEEDS = (1, 2, 3, 5)


class Copies:
    """A job that was killed after some batches, and two copies of its home."""

    def __init__(self, root: Path, kind: str, runs: CrashRuns) -> None:
        self.root = root
        self.kind = kind
        self.file = root / "job.conf"
        sinks = {
            "files": f'LocalFile {{ path = "{root / "out"}", file_format_type = "parquet" }}',
            "sqlite": (
                f'Jdbc {{ url = "jdbc:sqlite:{root / "rows.db"}", driver = "org.sqlite.JDBC", table'
                ' = "t", generate_sink_sql = true }'
            ),
        }
        self.file.write_text(
            f"""env {{ job.mode = "BATCH", job.name = "copied", checkpoint.interval = 10
  batch.max-rows = {BATCH_ROWS}
  checkpoint.max-retained = 2, job.retry.times = 2, job.retry.interval.seconds = 0 }}
source {{ FakeSource {{ row.num = {ROWS}, seed = 3, bigint.fake.mode = "SEQUENCE", schema {{
  fields {{ id = bigint }} }} }} }}
sink {{ {sinks[kind]} }}"""
        )
        first = runs.run(
            RunRequest(home=str(root / "a"), file=str(self.file), failpoints="batch.commit.after@4")
        )
        assert first.code == KILLED, first.error
        shutil.copytree(root / "a", root / "b")

    def start(self, runs: CrashRuns, copy: str, kill_at: str = "") -> RunResult:
        return runs.run(
            RunRequest(
                home=str(self.root / copy),
                file=str(self.file),
                restore="latest",
                failpoints=kill_at,
            )
        )

    def ids(self) -> list[int]:
        if self.kind == "files":
            return sorted(
                pyarrow.dataset.dataset(str(self.root / "out"), format="parquet")
                .to_table()["id"]
                .to_pylist()
            )
        with sqlite3.connect(self.root / "rows.db") as db:
            return [i for (i,) in db.execute("select id from t order by id")]


class Runs:
    """Two processes that fork runs: of copy a and of copy b."""

    def __init__(self, a: CrashRuns, b: CrashRuns) -> None:
        self.of = {"a": a, "b": b}

    def together(self, copies: Copies, kill_at: dict[str, str]) -> dict[str, RunResult]:
        results: dict[str, RunResult] = {}

        def start(copy: str) -> None:
            results[copy] = copies.start(self.of[copy], copy, kill_at.get(copy, ""))

        threads = [threading.Thread(target=start, args=(copy,)) for copy in self.of]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.fixture(scope="module")
def both() -> Iterator[Runs]:
    with CrashRuns() as a, CrashRuns() as b:
        yield Runs(a, b)


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_two_copies_that_start_at_once_do_not_both_write(
    tmp_path: Path, both: Runs, kind: str
) -> None:
    copies = Copies(tmp_path, kind, both.of["a"])
    results = both.together(copies, {})
    ended = sorted(result.status for result in results.values())
    assert "FINISHED" in ended, results
    assert copies.ids() == list(range(ROWS))
    others = [result for result in results.values() if result.status != "FINISHED"]
    assert all(
        any(
            word in result.error
            for word in ("another copy", "has lost its record", "no record of them")
        )
        for result in others
    ), results


@pytest.mark.parametrize("kind", ["files", "sqlite"])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_generations_two_copies_go_through_the_rows_equal_the_source(
    tmp_path: Path, both: Runs, kind: str, seed: int
) -> None:
    rng = random.Random(seed)
    copies = Copies(tmp_path, kind, both.of["a"])
    finished = False
    for _ in range(STARTS_MAX):
        place = f"{rng.choice(PLACES)}@{rng.randint(1, 5)}"
        if rng.random() < 0.3:
            results = both.together(copies, {rng.choice("ab"): place})
            finished = any(result.status == "FINISHED" for result in results.values())
        else:
            finished = (
                copies.start(
                    both.of[copy := rng.choice("ab")], copy, place if rng.random() < 0.8 else ""
                ).status
                == "FINISHED"
            )
        found = copies.ids()
        assert len(found) == len(set(found)), "no row is there twice at any time"
        if finished:
            break
    if not finished:
        ended = [copies.start(both.of[copy], copy) for copy in ("a", "b", "a", "b")]
        assert any(result.status == "FINISHED" for result in ended), ended
    assert copies.ids() == list(range(ROWS))
    for copy in ("a", "b"):  # whoever comes after changes nothing any more
        copies.start(both.of[copy], copy)
        assert copies.ids() == list(range(ROWS))


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_the_copy_that_comes_second_ends_for_good_and_names_the_cause(
    tmp_path: Path, both: Runs, kind: str
) -> None:
    copies = Copies(tmp_path, kind, both.of["a"])
    assert copies.start(both.of["a"], "a", "batch.commit.after@1").code == KILLED
    before = copies.ids()
    loser = copies.start(both.of["b"], "b")
    assert loser.status == "FAILED"
    assert "another copy of this installation" in loser.error
    assert copies.ids() == before
    assert copies.start(both.of["a"], "a").status == "FINISHED"
    assert copies.ids() == list(range(ROWS))
