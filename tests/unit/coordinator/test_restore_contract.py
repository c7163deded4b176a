"""Restore sources of a submitted job: lost stores, other jobs' state, savepoints, paths."""

from dataclasses import replace
from pathlib import Path

import pytest
from coordinator_parts import OPERATOR, Installation, plan
from restore_parts import checkpoints, damage, save, scheduled, without_store
from test_reconciler import LeadingServer

from tidegate.checkpoints.savepoints import NoSavepoint, Savepoints
from tidegate.coordinator.cleanup import StillClaimed, carry_out_cleanup
from tidegate.coordinator.commands import JobExists, LedByRun
from tidegate.coordinator.restore.claimed_paths import claimed_paths, is_claimed
from tidegate.coordinator.restore.options import NothingToRestore
from tidegate.coordinator.restore.origin import ContinuedElsewhere, SavepointOvertaken
from tidegate.model.document import to_document
from tidegate.model.errors import UserError
from tidegate.model.records import (
    PENDING_CLEANUPS,
    RESTORE_CLAIMS,
    CleanupRecord,
    DriverCommand,
    JobStatus,
    PendingBatch,
    PipelineStatus,
    ProcessRef,
    SourceRange,
)
from tidegate.model.restore import OnMissing, Verdict
from tidegate.store.base import Put

# -- the store is lost
# ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["auto", "latest"])
def test_a_lost_store_is_rebuilt_from_the_manifests(
    here: Installation, tmp_path: Path, word: str
) -> None:
    lineage = here.submit().lineage
    refs = checkpoints(here, 3)
    lost = without_store(here, tmp_path / "other")
    record = lost.submit(restore=word)
    assert (record.restored, record.lineage) == (True, lineage)
    state = scheduled(lost)
    assert [ref.checkpoint for ref in state.retained] == [1, 2, 3]
    assert state.latest is not None
    assert state.latest.path == refs[-1].path
    assert state.next_checkpoint == 4
    assert (state.rewind, state.initial) == (False, {OPERATOR: 3})
    assert record.restore is not None
    assert "what is left of job 7" in record.restore.origin


def test_a_lost_store_and_a_damaged_newest_checkpoint_take_the_next_older_one(
    here: Installation, tmp_path: Path
) -> None:
    here.submit()
    refs = checkpoints(here, 3)
    damage(here, refs[2])
    lost = without_store(here, tmp_path / "other")
    record = lost.submit(restore="latest")
    assert record.restore is not None
    assert any("is damaged" in note for note in record.restore.notes)
    state = scheduled(lost)
    assert state.latest is not None
    assert state.latest.checkpoint == 2
    assert not state.rewind, "the sinks tell how to go forward"
    assert state.next_checkpoint == 4, "the id of the damaged one is not given to other ranges"


def test_a_lost_store_with_nothing_but_damage_is_refused_with_names(
    here: Installation, tmp_path: Path
) -> None:
    here.submit()
    for ref in checkpoints(here, 2):
        damage(here, ref)
    with pytest.raises(UserError, match=r"no checkpoint of pipeline 1 can be used"):
        without_store(here, tmp_path / "other").submit(restore="auto")


def test_where_the_lineage_changed_only_the_newest_one_is_rebuilt(
    here: Installation, tmp_path: Path
) -> None:
    here.submit()
    checkpoints(here, 2)
    here.ended(JobStatus.FAILED)
    second = here.submit(restore="latest")
    here.put(replace(here.pipeline(), lineage="another", generation=9))
    here.checkpoint()
    state = scheduled(_resubmitted(here, tmp_path))
    assert (state.lineage, [ref.checkpoint for ref in state.retained]) == ("another", [3])
    assert second.lineage != "another"


def _resubmitted(here: Installation, place: Path) -> Installation:
    lost = without_store(here, place / "other")
    lost.submit(restore="latest")
    return lost


# -- another job's state
# ----------------------------------------------------------------------------------------------------------------------------


def test_the_state_of_an_ended_job_is_continued_with_its_lineage_and_above_its_numbers(
    here: Installation,
) -> None:
    first = here.submit()
    refs = checkpoints(here, 3)
    here.ended(JobStatus.FAILED)
    record = here.submit(8, source=7)
    assert (record.lineage, record.source_job, record.fork) == (first.lineage, 7, False)
    assert claimed_paths(here.store) == {refs[-1].path}
    state = scheduled(here, 8)
    assert [ref.path for ref in state.retained] == ["8/1/3"]
    assert here.storage.read("8/1/3").manifest.job_id == 8
    assert (state.next_checkpoint, state.generation) == (4, here.state(7).generation + 1)
    assert claimed_paths(here.store) == set()


def test_a_job_continued_elsewhere_is_not_resumed_but_can_be_restored_from_there(
    here: Installation,
) -> None:
    here.submit()
    checkpoints(here, 2)
    here.ended(JobStatus.FAILED)
    lineage = here.submit(8, source=7).lineage
    scheduled(here, 8)
    here.checkpoint(8)
    with pytest.raises(ContinuedElsewhere, match="continued by job 8"):
        here.submit(7, restore="latest")
    here.ended(JobStatus.CANCELED, 8)
    with pytest.raises(ContinuedElsewhere):
        here.submit(7, restore="auto")
    back = here.submit(7, source=8)
    assert back.lineage == lineage
    assert [ref.path for ref in scheduled(here, 7).retained] == ["7/1/3"]


def test_a_repeated_restore_from_another_job_resumes_from_own_state(here: Installation) -> None:
    here.submit()
    checkpoints(here, 2)
    here.ended(JobStatus.FAILED)
    here.submit(8, source=7)
    scheduled(here, 8)
    here.checkpoint(8)
    here.ended(JobStatus.FAILED, 8)
    record = here.submit(8, source=7)
    assert record.restore is not None
    assert record.restore.origin == "the last run of job 8"
    assert [ref.path for ref in scheduled(here, 8).retained] == ["8/1/2", "8/1/3"]


def test_the_pending_batch_moves_with_the_lineage(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    pending = PendingBatch(
        checkpoint=2, ranges={OPERATOR: SourceRange(1, 2)}, generation=0, begun_ms=0
    )
    here.put(replace(here.pipeline(), pending=pending, next_checkpoint=3))
    here.ended(JobStatus.FAILED)
    here.submit(8, source=7)
    state = scheduled(here, 8)
    assert (state.pending, state.next_checkpoint) == (pending, 3)


def test_the_state_of_a_running_job_is_forked_into_a_lineage_of_its_own(here: Installation) -> None:
    first = here.submit()
    checkpoints(here, 2)
    fork = here.submit(8, source=7)
    assert fork.fork
    assert fork.lineage != first.lineage
    assert fork.restore is not None
    assert fork.restore.fork
    state = scheduled(here, 8)
    assert (state.lineage, [ref.path for ref in state.retained], state.pending) == (
        fork.lineage,
        ["8/1/2"],
        None,
    )
    assert here.storage.read("8/1/2").manifest.lineage == fork.lineage
    assert here.storage.read("7/1/2").manifest.lineage == first.lineage


def test_a_fork_that_waits_takes_a_newer_checkpoint_where_its_own_is_gone(
    here: Installation,
) -> None:
    here.submit()
    first = here.checkpoint()
    here.submit(8, source=7)
    second = here.checkpoint()
    here.put(replace(here.pipeline(), retained=(second,)))
    here.storage.delete(first.path, 99)
    assert [ref.path for ref in scheduled(here, 8).retained] == ["8/1/2"]


def test_restoring_from_a_job_that_never_ran_is_refused_unless_fresh_is_allowed(
    here: Installation,
) -> None:
    with pytest.raises(
        NothingToRestore,
        match=r"job 9 has never run here.*searched in the store and .*checkpoints/9",
    ):
        here.submit(8, source=9)
    assert not here.submit(8, source=9, on_missing=OnMissing.FRESH).restored


def test_a_fresh_start_with_the_state_of_another_job_makes_no_sense(here: Installation) -> None:
    with pytest.raises(UserError, match="cannot be combined with"):
        here.submit(8, restore="fresh", source=7)


# -- savepoints and places
# --------------------------------------------------------------------------------------------------------------------------


def test_a_savepoint_that_is_the_newest_point_is_restored_without_going_back(
    here: Installation,
) -> None:
    here.submit()
    ref = checkpoints(here, 2)[-1]
    save(here, ref)
    here.ended(JobStatus.SAVEPOINT_DONE)
    record = here.submit(restore="savepoint:1700000000000")
    assert record.restore is not None
    assert record.restore.verdict is Verdict.OK
    state = scheduled(here)
    assert (state.rewind, [r.path for r in state.retained]) == (False, ["7/1/1", "7/1/2"])


def test_an_older_savepoint_supersedes_the_newer_ones(here: Installation) -> None:
    lineage = here.submit().lineage
    refs = checkpoints(here, 4)
    save(here, refs[1], "1700000000001")
    save(here, refs[3], "1700000000002")
    here.ended(JobStatus.CANCELED)
    here.submit(restore="savepoint:1700000000001")
    state = scheduled(here)
    assert state.rewind
    assert [ref.checkpoint for ref in state.retained] == [1, 2]
    assert (state.next_checkpoint, state.lineage) == (5, lineage)
    here.ended(JobStatus.CANCELED)
    with pytest.raises(
        SavepointOvertaken, match="savepoint 1700000000002 of job 7 cannot be restored any more"
    ):
        here.submit(restore="savepoint:1700000000002")
    here.submit(restore="latest")
    assert here.submit(8, restore="savepoint:1700000000002", source=7).fork, (
        "while the lineage continues, another job may fork from it"
    )


def test_an_older_checkpoint_supersedes_savepoints_too(here: Installation) -> None:
    here.submit()
    refs = checkpoints(here, 3)
    save(here, refs[2])
    here.ended(JobStatus.CANCELED)
    here.submit(restore="checkpoint:1")
    assert scheduled(here).rewind
    assert Savepoints(here.storage.files).list(7)[0].superseded is not None


def test_a_savepoint_of_an_unknown_job_is_restored_under_any_id(
    here: Installation, tmp_path: Path
) -> None:
    first = here.submit()
    save(here, here.checkpoint())
    lost = without_store(here, tmp_path / "other")
    record = lost.submit(8, restore="path:savepoint/7/1700000000000")
    assert (record.lineage, record.fork) == (first.lineage, False)
    assert [ref.path for ref in scheduled(lost, 8).retained] == ["8/1/1"]


def test_latest_takes_the_newest_savepoint_where_nothing_else_is_left(
    here: Installation, tmp_path: Path
) -> None:
    here.submit()
    ref = here.checkpoint()
    save(here, ref)
    here.storage.delete(ref.path, 99)
    lost = without_store(here, tmp_path / "other")
    record = lost.submit(restore="latest")
    assert record.restore is not None
    assert record.restore.origin == "savepoint 1700000000000 of job 7"
    assert [r.path for r in scheduled(lost).retained] == ["7/1/1"]


def test_a_missing_savepoint_is_refused_with_those_that_are_there(here: Installation) -> None:
    here.submit()
    save(here, here.checkpoint())
    here.ended(JobStatus.CANCELED)
    with pytest.raises(NoSavepoint, match="there are: 1700000000000"):
        here.submit(restore="savepoint:1600000000000")
    carry_out_cleanup(here.store, here.storage, 7, keep_state=True)
    assert not here.submit(restore="savepoint:1600000000000", on_missing=OnMissing.FRESH).restored


def test_a_path_may_be_a_checkpoint_or_a_job(here: Installation) -> None:
    here.submit()
    refs = checkpoints(here, 3)
    here.ended(JobStatus.FAILED)
    absolute = here.storage.files.describe(refs[1].path)
    for number, word in ((8, f"path:{absolute}"), (9, "path:7/1/2")):
        record = here.submit(number, restore=word)
        state = scheduled(here, number)
        assert state.latest is not None
        assert state.latest.path == f"{number}/1/2"
        assert state.rewind, "checkpoint 3 lies after it"
        here.ended(JobStatus.FAILED, number)
        known = here.state(7)
        here.put(replace(known, continued_by=0))
        assert record.restored
    here.submit(10, restore="path:7")
    latest = scheduled(here, 10).latest
    assert latest is not None
    assert latest.checkpoint == 3


@pytest.mark.parametrize(
    "word", ["path:7/1/99", "path:/etc", "path:../elsewhere", "path:s3://other/place", "path:99"]
)
def test_a_path_without_state_is_rejected(here: Installation, word: str) -> None:
    here.submit()
    here.checkpoint()
    here.ended(JobStatus.FAILED)
    with pytest.raises(NothingToRestore):
        here.submit(8, restore=word)


# -- taking over
# ------------------------------------------------------------------------------------------------------------------------------------


def test_taking_over_fences_the_running_driver_at_once_and_continues_its_lineage(
    here: Installation,
) -> None:
    first = here.submit()
    scheduled(here)
    here.checkpoint()
    before = here.pipeline()
    with pytest.raises(JobExists):
        here.submit(restore="latest")
    record = here.submit(takeover=True)
    assert (record.lineage, record.restored) == (first.lineage, True)
    assert record.initialization_ms > first.initialization_ms
    assert here.pipeline().generation == before.generation + 1, (
        "the old driver is refused from now on"
    )
    assert here.state().status is JobStatus.CREATED


def test_servers_do_not_take_over_from_an_embedded_run(here: Installation) -> None:
    here.submit()
    here.put(
        replace(
            here.state(),
            status=JobStatus.RUNNING,
            leader=ProcessRef(pid=4711, started=1, boot="b", host="h"),
        )
    )
    with pytest.raises(LedByRun, match=r"process 4711 on h.*tidegate run --takeover"):
        here.submit(takeover=True)


# -- cleanup and claims
# -----------------------------------------------------------------------------------------------------------------------------


def test_a_cleanup_leaves_what_a_newer_generation_has_made_under_an_old_id(
    here: Installation,
) -> None:
    here.submit()
    old = here.checkpoint()
    here.put(replace(here.pipeline(), generation=6))
    repeated = here.checkpoint()
    here.store.transact(
        [],
        [
            Put(
                PENDING_CLEANUPS,
                "7",
                to_document(
                    CleanupRecord(job_id=7, initialization_ms=0, checkpoints_below=9, generation=5)
                ),
            )
        ],
    )
    carry_out_cleanup(here.store, here.storage, 7)
    assert here.storage.damage(old.path) != ""
    assert here.storage.damage(repeated.path) == ""


def test_a_cleanup_waits_for_the_restore_that_is_about_to_copy(here: Installation) -> None:
    here.submit()
    refs = checkpoints(here, 2)
    here.ended(JobStatus.FAILED)
    carry_out_cleanup(here.store, here.storage, 7, keep_state=True)
    here.submit(8, source=7)
    here.submit(restore="fresh")
    with pytest.raises(StillClaimed, match="checkpoints of job 7"):
        carry_out_cleanup(here.store, here.storage, 7)
    assert here.storage.damage(refs[-1].path) == ""
    scheduled(here, 8)
    carry_out_cleanup(here.store, here.storage, 7)
    assert here.storage.damage(refs[-1].path) != ""
    assert here.storage.damage("8/1/2") == ""


def test_a_claim_ends_with_the_job_that_made_it(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    here.ended(JobStatus.FAILED)
    here.submit(8, source=7)
    here.ended(JobStatus.CANCELED, 8)
    assert here.store.list(RESTORE_CLAIMS) == []


def test_a_claim_covers_what_is_above_and_below_it() -> None:
    claimed = {"savepoint/7/1700000000000/1", "5/1/12"}
    for path in (
        "savepoint/7/1700000000000",
        "savepoint/7/1700000000000/1/op/state-data",
        "5",
        "5/1/12",
    ):
        assert is_claimed(path, claimed), path
    for path in ("savepoint/7/1700000000001", "5/1/13", "5/11", "50"):
        assert not is_claimed(path, claimed), path


def test_finished_pipelines_of_another_job_stay_finished(here: Installation) -> None:
    here.submit(of=plan(pipelines=2))
    here.checkpoint()
    here.put(replace(here.pipeline(pipeline=2), status=PipelineStatus.FINISHED, initial={}))
    here.ended(JobStatus.FAILED)
    here.submit(8, source=7, of=plan(pipelines=2))
    scheduled(here, 8)
    assert here.pipeline(8, 2).status is PipelineStatus.FINISHED


def test_the_driver_that_is_taken_over_is_ended_before_the_next_one_starts(
    here: Installation,
) -> None:
    leader = LeadingServer(here)
    leader.worker()
    here.submit()
    leader.turns(3)
    driver = leader.drive()
    leader.turns(2)
    here.checkpoint()
    here.submit(takeover=True)
    leader.turns(3)
    order = leader.order()
    assert order is not None
    assert (here.state().status, order.command) == (JobStatus.RECOVERING, DriverCommand.KILL)
    leader.dies(driver)
    leader.turns(4)
    assert here.state().status is JobStatus.SCHEDULED
    assert here.pipeline().generation == driver.generation + 2
    assert here.pipeline().latest is not None
