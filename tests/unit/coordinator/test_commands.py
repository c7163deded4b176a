"""Submit and stop: accepted durably and as a whole, or rejected without effect."""

from dataclasses import replace
from typing import Any

import pytest
from coordinator_parts import Installation, plan

from tidegate.checkpoints.files.base import FileEntry
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.commands import CleanupPending, JobExists, UnknownJob
from tidegate.coordinator.housekeeping import Housekeeper
from tidegate.coordinator.restore.options import NeedsChoice, NothingToRestore
from tidegate.election.elector import Elector, Leader
from tidegate.model.job import JobEnv
from tidegate.model.records import (
    JOB_OUTCOMES,
    PENDING_CLEANUPS,
    DesiredState,
    JobStatus,
    PipelineStatus,
)
from tidegate.store.backend import TransactionName
from tidegate.store.base import OutcomeUnknown


def tidy(here: Installation) -> None:
    """What the leader's housekeeping does in one turn."""
    elector = Elector(here.store, "coordinator", "me", "", 3_000, here.clock)
    leading = elector.claim()
    assert isinstance(leading, Leader)
    cache = ClusterCache(here.store, here.clock)
    cache.refresh()
    Housekeeper(cache, here.storage, here.settings, here.clock).step(leading)
    elector.resign()


def jobs_keys(here: Installation) -> set[str]:
    return {key for key in here.stored() if not key.startswith(("leases/", "lease-beats/"))}


def test_a_submitted_job_is_durable_before_anyone_acts_on_it(here: Installation) -> None:
    record = here.submit(job_id=7)
    assert (record.job_id, record.restored) == (7, False)
    assert here.state().status is JobStatus.CREATED
    assert here.pipeline().generation == 0


def test_ids_are_given_where_none_is_asked_for(here: Installation) -> None:
    assert here.submit(job_id=None).job_id != here.submit(job_id=None).job_id


def test_a_submit_asks_the_checkpoint_storage_only_where_something_may_be_left_of_the_id(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = LocalFiles.entries

    def listed(files: LocalFiles, path: str) -> list[FileEntry]:
        asked.append(path)
        return real(files, path)

    monkeypatch.setattr(LocalFiles, "entries", listed)
    record = here.submit(job_id=None)
    assert asked == [], "the id was made for it"
    here.submit(job_id=7)
    assert 1 <= len(asked) <= 2, "the store may have been lost"
    here.ended(JobStatus.FINISHED, record.job_id)
    here.clock.ms += here.settings.state_cleanup_delay_ms
    tidy(here)
    asked.clear()
    here.submit(job_id=record.job_id)
    assert asked == [], "the store knows the numbers of the last run"


def test_an_id_in_use_is_refused_and_nothing_changes(here: Installation) -> None:
    here.submit()
    before = here.stored(), here.store.revision()
    with pytest.raises(JobExists, match="job 7 is CREATED already"):
        here.submit(restore="fresh")
    assert (here.stored(), here.store.revision()) == before


def test_while_a_cleanup_is_due_only_a_restore_may_reuse_the_id(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    here.ended(JobStatus.CANCELED)
    here.clock.ms += 20_000
    with pytest.raises(CleanupPending, match="in 40 s"):
        here.submit(restore="fresh")
    assert here.submit(restore="latest").restored


def test_a_restore_continues_lineage_generations_and_ids(here: Installation) -> None:
    first = here.submit()
    here.checkpoint()
    here.checkpoint()
    here.ended(JobStatus.FAILED)
    again = here.submit(restore="latest")
    assert again.lineage == first.lineage
    assert again.initialization_ms > first.initialization_ms
    assert here.pipeline().next_checkpoint == 3
    assert here.state().generation == 1, "the end took a generation of its own"


def test_a_job_that_was_canceled_when_its_work_was_done_is_ended_in_its_own_lineage(
    here: Installation,
) -> None:
    first = here.submit()
    here.checkpoint(status=PipelineStatus.FINISHED)
    here.ended(JobStatus.CANCELED)
    again = here.submit(restore="latest")
    assert (again.lineage, here.pipeline().lineage) == (
        first.lineage,
        first.lineage,
    ), "what is in the sinks was written under it"
    assert here.pipeline().status is PipelineStatus.FINISHED


def test_a_job_with_an_unfinished_run_is_never_started_over_silently(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    here.ended(JobStatus.FAILED)
    with pytest.raises(NeedsChoice, match="FAILED; last completed checkpoint 1"):
        here.submit()


def test_restoring_what_never_ran_is_refused(here: Installation) -> None:
    with pytest.raises(NothingToRestore):
        here.submit(restore="latest")


def test_a_fresh_start_takes_new_ids_and_deletes_only_the_old_checkpoints(
    here: Installation,
) -> None:
    here.submit()
    old = here.checkpoint()
    here.ended(JobStatus.FAILED)
    here.clock.ms += 61_000
    tidy(here)
    assert here.storage.damage(old.path) == "", "a failed job keeps its checkpoints"
    here.submit(restore="fresh")
    new = here.checkpoint()
    assert (old.checkpoint, new.checkpoint) == (1, 2)
    tidy(here)
    assert here.storage.damage(old.path) != ""
    assert here.storage.damage(new.path) == ""
    assert here.store.get(PENDING_CLEANUPS, "7") is None
    assert here.snapshot().record is not None


def test_a_finished_job_leaves_only_its_outcome_and_in_the_end_nothing(here: Installation) -> None:
    here.submit()
    ref = here.checkpoint()
    here.ended(JobStatus.FINISHED)
    tidy(here)
    assert here.state().status is JobStatus.FINISHED, "the tombstone stays for the delay"
    here.clock.ms += 61_000
    tidy(here)
    assert jobs_keys(here) == {"finished-job-state/7", "job-names/a job"}
    assert not here.storage.files.exists(ref.path)
    here.clock.ms += 1_441 * 60_000
    tidy(here)
    assert jobs_keys(here) == set()


def test_a_cancelled_job_can_be_resumed_until_its_history_expires(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    here.ended(JobStatus.CANCELED)
    here.clock.ms += 61_000
    tidy(here)
    assert jobs_keys(here) == {
        "finished-job-state/7",
        "job-names/a job",
        "running-job-state/7",
        "running-pipeline-state/7/1",
    }
    here.clock.ms += 1_441 * 60_000
    tidy(here)
    assert jobs_keys(here) == {"expired-jobs/7"}, "since when its checkpoints belong to nobody"


def test_an_expired_history_does_not_touch_a_newer_incarnation(here: Installation) -> None:
    here.submit()
    here.checkpoint()
    here.ended(JobStatus.CANCELED)
    here.clock.ms += 61_000
    tidy(here)
    here.submit(restore="latest")
    here.clock.ms += 1_441 * 60_000
    tidy(here)
    assert here.snapshot().record is not None
    assert here.state().status is JobStatus.CREATED
    assert here.pipeline().latest is not None
    assert here.store.get(JOB_OUTCOMES, "7") is None


def test_a_job_that_never_began_leaves_nothing_to_resume(here: Installation) -> None:
    here.submit(of=plan(pipelines=3))
    here.ended(JobStatus.CANCELED)
    here.clock.ms += 61_000
    tidy(here)
    assert jobs_keys(here) == {"finished-job-state/7", "job-names/a job"}


def test_what_is_being_deleted_is_nothing_to_restore_from(here: Installation) -> None:
    here.submit(of=plan(env=JobEnv(retain_after_cancel=False)))
    here.checkpoint()
    here.ended(JobStatus.CANCELED)
    with pytest.raises(NothingToRestore, match="nothing of it is kept"):
        here.submit(restore="latest")
    with pytest.raises(CleanupPending):
        here.submit(restore="auto")
    here.clock.ms += 61_000
    tidy(here)
    assert not here.submit(restore="auto").restored


def test_an_id_that_the_history_has_forgotten_begins_above_the_checkpoints_that_it_left(
    here: Installation,
) -> None:
    here.submit()
    here.put(replace(here.pipeline(), generation=5))
    left = here.checkpoint()
    here.ended(JobStatus.FAILED)
    here.clock.ms += 61_000
    tidy(here)
    here.clock.ms += 1_441 * 60_000
    tidy(here)
    assert here.storage.damage(left.path) == "", (
        "expiry is about the history, not about checkpoints"
    )
    with pytest.raises(
        NeedsChoice, match="the store knows nothing of it; last completed checkpoint 1"
    ):
        here.submit()
    here.submit(restore="fresh")
    assert here.state().generation > 5
    assert here.pipeline().next_checkpoint == left.checkpoint + 1


def test_a_weaker_stop_never_replaces_a_stronger_one(here: Installation) -> None:
    here.submit()
    here.commands.stop(7, DesiredState.CANCEL, by="ann")
    here.commands.stop(7, DesiredState.FORCE_STOP, by="bob")
    revision = here.store.revision()
    here.commands.stop(7, DesiredState.CANCEL, by="eve")
    assert here.store.revision() == revision
    record = here.snapshot().record
    assert record is not None
    assert (record.value.intent.desired, record.value.intent.by) == (DesiredState.FORCE_STOP, "bob")


def test_stopping_an_ended_job_changes_nothing_and_an_unknown_one_is_named(
    here: Installation,
) -> None:
    here.submit()
    here.ended(JobStatus.FAILED)
    revision = here.store.revision()
    here.commands.stop(7, DesiredState.CANCEL)
    assert here.store.revision() == revision
    with pytest.raises(UnknownJob, match="there is no job 8"):
        here.commands.stop(8, DesiredState.CANCEL)


def test_a_cleanup_with_unknown_outcome_is_repeated(
    here: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.submit()
    here.ended(JobStatus.FINISHED)
    here.clock.ms += here.settings.state_cleanup_delay_ms
    real, lost = here.store.transact, []

    def transact(checks: Any = (), writes: Any = ()) -> int:
        revision = real(checks, writes)
        if not lost and any(write.map == PENDING_CLEANUPS for write in writes):
            lost.append(revision)
            raise OutcomeUnknown(TransactionName(id=b"1", since=0), "its token was pruned")
        return revision

    monkeypatch.setattr(here.store, "transact", transact)
    with pytest.raises(OutcomeUnknown):
        tidy(here)
    tidy(here)
    assert (len(lost), here.store.get(PENDING_CLEANUPS, "7")) == (1, None)
    assert "housekeeping_failed" not in caplog.text
