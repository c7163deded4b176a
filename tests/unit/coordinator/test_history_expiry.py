"""What the expiry of history covers, row by row as the documents promise it, and what it leaves to
the collector.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from coordinator_parts import Installation

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.history_expiry import expire, expired
from tidegate.coordinator.housekeeping import Housekeeper
from tidegate.election.elector import Elector, Leader
from tidegate.model.document import to_document
from tidegate.model.maintenance import EXPIRED_JOBS
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    JOB_NAMES,
    JOB_OUTCOMES,
    JOB_STATES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    CheckpointHistory,
    JobStatus,
    PipelineMetrics,
)
from tidegate.store.base import Compacted, Delete, Put
from tidegate.store.open import open_store

NAME = "a-name-that-is-nowhere-else"
MINUTE_MS = 60_000


@pytest.fixture
def old(tmp_path: Path) -> Installation:
    """A cancelled job on a store with files, cleaned up, with checkpoints and a savepoint; its time
    in the history is over.
    """
    here = Installation(tmp_path)
    here.store.close()
    here.store = open_store(f"sqlite:///{tmp_path / 'store.db'}", compaction_threshold=40)
    here.commands.store = here.store
    here.submit(name=NAME)
    refs = [here.checkpoint(), here.checkpoint()]
    savepoints = Savepoints(here.storage.files)
    point = savepoints.copy(refs[-1].path, 7, "1700000000000", 1)
    savepoints.seal(
        Savepoint(
            id="1700000000000",
            path="",
            job_id=7,
            lineage="l",
            name=NAME,
            made_ms=1,
            pipelines={1: point},
        )
    )
    history = CheckpointHistory(entries=tuple(refs))
    here.store.transact(
        [],
        [
            Put(CHECKPOINT_HISTORY, "7/1", to_document(history)),
            Put(METRICS, "7/1", to_document(PipelineMetrics(pipeline=1, generation=1))),
        ],
    )
    here.ended(JobStatus.CANCELED)
    here.store.transact([], [Delete(PENDING_CLEANUPS, "7")])
    here.clock.ms += (here.settings.history_expire_minutes + 1) * MINUTE_MS
    yield here
    here.store.close()


def expire_it(here: Installation) -> None:
    """As the leader does it."""
    elector = Elector(here.store, "coordinator", "me", "", 3_000, here.clock)
    leading = elector.claim()
    assert isinstance(leading, Leader)
    cache = ClusterCache(here.store, here.clock)
    cache.refresh()
    Housekeeper(cache, here.storage, here.settings, here.clock).step(leading)


def on_disk(here: Installation) -> set[str]:
    return {path for path, _ in here.storage.files.walk("")}


def test_the_job_is_removed_from_the_finished_jobs(old: Installation) -> None:
    assert [
        job.job_id
        for job in expired(
            old.store, old.clock.now_ms() - old.settings.history_expire_minutes * MINUTE_MS
        )
    ] == [7]
    expire_it(old)
    assert old.store.list(JOB_OUTCOMES) == []
    assert (
        old.store.list(JOB_STATES) == old.store.list(PIPELINES) == old.store.list(JOB_NAMES) == []
    )


def test_the_figures_of_the_job_are_removed(old: Installation) -> None:
    expire_it(old)
    assert old.store.list(METRICS) == old.store.list(CHECKPOINT_HISTORY) == []


def test_the_files_of_the_store_become_smaller_by_what_is_expired(
    old: Installation, tmp_path: Path
) -> None:
    def size() -> int:
        old.store.compact()
        return sum(file.stat().st_size for file in tmp_path.glob("store.db*"))

    outcome, before = old.snapshot().outcome, size()
    assert outcome is not None
    for job_id in range(100, 200):
        old.store.transact(
            [],
            [
                Put(
                    JOB_OUTCOMES,
                    str(job_id),
                    to_document(replace(outcome, job_id=job_id, extra={"text": "x" * 5_000})),
                )
            ],
        )
    assert size() > before + 500_000
    expire_it(old)
    expire_it(old)  # a turn takes so many at most
    expire_it(old)
    assert old.store.list(JOB_OUTCOMES) == []
    assert size() < before + 50_000


def test_checkpoint_directories_stay(old: Installation) -> None:
    before = on_disk(old)
    expire_it(old)
    assert {path for path in before if path.startswith("7/")} <= on_disk(old)


def test_savepoint_directories_stay(old: Installation) -> None:
    expire_it(old)
    assert [savepoint.id for savepoint in Savepoints(old.storage.files).list(7)] == [
        "1700000000000"
    ]


def test_the_change_log_of_the_store_is_shortened_by_compaction_only(old: Installation) -> None:
    start = old.store.revision()
    expire_it(old)
    assert not isinstance(old.store.changes(JOB_OUTCOMES, start), Compacted), (
        "expiry itself does not shorten it"
    )
    for number in range(60):
        old.store.transact(
            [], [Put(METRICS, "9/1", to_document(PipelineMetrics(pipeline=1, generation=number)))]
        )
    old.store.compact()
    assert isinstance(old.store.changes(JOB_OUTCOMES, start), Compacted)


def test_what_is_left_is_recorded_for_the_collector(old: Installation) -> None:
    expire_it(old)
    (entry,) = old.store.list(EXPIRED_JOBS)
    assert (entry.key, entry.value["name"], entry.value["expired_ms"]) == (
        "7",
        NAME,
        old.clock.now_ms(),
    )


def test_a_job_without_checkpoints_leaves_nothing_at_all(old: Installation) -> None:
    old.put(replace(old.pipeline(), retained=()))
    expire_it(old)
    assert old.store.list(EXPIRED_JOBS) == []


def test_a_job_whose_time_has_not_come_or_whose_cleanup_is_due_stays(old: Installation) -> None:
    finished_ms = old.snapshot().outcome.finished_ms
    assert not expire(old.store, 7, finished_ms - 1, old.clock.now_ms())
    old.store.transact(
        [], [Put(PENDING_CLEANUPS, "7", {"version": 1, "job_id": 7, "initialization_ms": 0})]
    )
    assert not expire(old.store, 7, old.clock.now_ms(), old.clock.now_ms())
    assert list(expired(old.store, old.clock.now_ms())) == []
    assert old.snapshot().outcome is not None
