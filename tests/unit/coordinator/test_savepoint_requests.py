"""Savepoint requests: idempotent, never lost, completed in time; and their deletion."""

from dataclasses import replace

import pytest
from coordinator_parts import Installation
from test_reconciler import LeadingServer, running

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.coordinator.commands import DesiredState
from tidegate.coordinator.savepoint_requests import (
    JobEnded,
    SavepointInUse,
    UnknownJob,
    delete_savepoint,
    request_of,
    request_savepoint,
)
from tidegate.coordinator.terminal_transaction import terminal_transaction
from tidegate.model.document import to_document
from tidegate.model.records import (
    RESTORE_CLAIMS,
    SAVEPOINTS,
    JobStatus,
    RestoreClaim,
    SavepointRequest,
    SavepointStatus,
)
from tidegate.store.base import Put
from tidegate.store.errors import Conflict

LIMIT_MS = 600_000


def standing(here: Installation) -> SavepointRequest:
    found = request_of(here.snapshot())
    assert found is not None
    return found.value


def answer(here: Installation, status: SavepointStatus, reason: str = "") -> None:
    request = replace(standing(here), status=status, reason=reason, path="savepoint/7/1")
    here.store.transact([], [Put(SAVEPOINTS, "7", to_document(request))])


@pytest.fixture
def leader(here: Installation) -> LeadingServer:
    """A leader of a job that runs."""
    made = LeadingServer(here)
    running(made)
    return made


def test_a_repeated_request_joins_the_first_and_may_add_the_stop(here: Installation) -> None:
    here.submit()
    first = here.commands.savepoint(7, stop=False, by="ann")
    here.clock.ms += 1_000
    assert here.commands.savepoint(7, stop=False, by="bob") == first
    stops = here.commands.savepoint(7, stop=True)
    assert (stops.id, stops.stop, stops.by) == (first.id, True, "ann")
    assert here.commands.savepoint(7, stop=False) == stops


def test_a_new_request_gets_a_new_id_whatever_the_clock_says(here: Installation) -> None:
    here.submit()
    first = here.commands.savepoint(7, stop=False)
    answer(here, SavepointStatus.FAILED, "no space")
    here.clock.ms -= 60_000
    assert int(here.commands.savepoint(7, stop=False).id) == int(first.id) + 1


def test_a_job_ending_with_a_savepoint_accepts_no_other(here: Installation) -> None:
    here.submit()
    first = here.commands.savepoint(7, stop=True)
    answer(here, SavepointStatus.DONE)
    assert here.commands.savepoint(7, stop=False).id == first.id
    here.ended(JobStatus.SAVEPOINT_DONE)
    assert here.commands.savepoint(7, stop=True).id == first.id


def test_nothing_can_be_saved_of_a_job_that_has_ended_or_never_was(here: Installation) -> None:
    here.submit()
    here.ended(JobStatus.CANCELED)
    with pytest.raises(JobEnded, match="has ended as CANCELED"):
        here.commands.savepoint(7, stop=True)
    with pytest.raises(UnknownJob):
        request_savepoint(here.store, Savepoints(here.storage.files), here.clock, 8, stop=False)


def test_the_end_of_a_job_completes_a_pending_request(here: Installation) -> None:
    here.submit()
    here.commands.savepoint(7, stop=True)
    here.ended(JobStatus.FAILED)
    assert (standing(here).status, standing(here).reason) == (
        SavepointStatus.FAILED,
        "the job ended as FAILED before there was one",
    )


def test_a_job_does_not_end_with_a_stale_savepoint_request(here: Installation) -> None:
    here.submit()
    ending = terminal_transaction(here.snapshot(), JobStatus.FAILED, here.clock.now_ms())
    here.commands.savepoint(7, stop=False)
    with pytest.raises(Conflict):
        here.store.transact(ending.checks, ending.writes)
    here.ended(JobStatus.FAILED)
    assert standing(here).status is SavepointStatus.FAILED


def test_a_failed_savepoint_lets_the_job_continue(
    here: Installation, leader: LeadingServer
) -> None:
    here.commands.savepoint(7, stop=True)
    leader.turns(2)
    assert here.state().status is JobStatus.DOING_SAVEPOINT
    answer(here, SavepointStatus.FAILED, "no space")
    leader.turns(2)
    assert (here.state().status, here.snapshot().record is None) == (JobStatus.RUNNING, False)


@pytest.mark.parametrize("stop", [True, False])
def test_the_leader_abandons_an_overdue_savepoint(
    here: Installation, leader: LeadingServer, stop: bool
) -> None:
    here.commands.savepoint(7, stop=stop)
    leader.reconciler.limits = replace(leader.reconciler.limits, savepoint_ms=2_000)
    leader.turns(30)
    assert standing(here).status is SavepointStatus.FAILED
    assert (
        "it was not complete within 2 s; pipeline 1 has made no checkpoint" in standing(here).reason
    )
    assert here.state().status is JobStatus.RUNNING


def test_a_cancel_completes_a_pending_savepoint_request(
    here: Installation, leader: LeadingServer
) -> None:
    here.commands.savepoint(7, stop=True)
    leader.turns(2)
    here.commands.stop(7, DesiredState.CANCEL)
    leader.turns(1)
    assert here.state().status is JobStatus.CANCELING


def saved(here: Installation, id: str) -> tuple[Savepoints, Savepoint]:
    there = Savepoints(here.storage.files)
    point = there.copy(here.checkpoint().path, 7, id, 1)
    path = there.seal(
        Savepoint(id=id, path="", job_id=7, lineage="l", name="j", made_ms=1, pipelines={1: point})
    )
    return there, there.read(path)


def test_a_savepoint_is_deleted_unless_a_restore_copies_from_it(here: Installation) -> None:
    here.submit()
    there, made = saved(here, "100")
    claim = RestoreClaim(job_id=9, paths=(made.pipelines[1].path,), source_job=7)
    here.store.transact([], [Put(RESTORE_CLAIMS, "9", to_document(claim))])
    with pytest.raises(SavepointInUse, match="is being restored"):
        delete_savepoint(here.store, there, made)
    here.store.transact([], [Put(RESTORE_CLAIMS, "9", to_document(replace(claim, paths=())))])
    delete_savepoint(here.store, there, made)
    assert there.list() == ()


def test_a_savepoint_is_not_deleted_while_its_job_ends_with_it(here: Installation) -> None:
    here.submit()
    request = here.commands.savepoint(7, stop=True)
    there, made = saved(here, request.id)
    with pytest.raises(SavepointInUse, match="is ending with savepoint"):
        delete_savepoint(here.store, there, made)
    answer(here, SavepointStatus.DONE)
    here.ended(JobStatus.SAVEPOINT_DONE)
    delete_savepoint(here.store, there, made)
    assert there.list() == ()
