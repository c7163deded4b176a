"""Decisions about a change of a table: only where the job is stopped at it, kept with the job, used
by nobody else.
"""

from dataclasses import replace

import pytest
from coordinator_parts import OPERATOR, Installation
from restore_parts import checkpoints

from tidegate.coordinator.accepted_changes import ChoiceNotOffered, NotStopped, table_stops
from tidegate.coordinator.commands import JobExists, UnknownJob
from tidegate.coordinator.restore.options import RestoreOptions, parse_changes
from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, PipelinePlan
from tidegate.model.records import RUNNING_JOBS, Failure, JobRecord, JobStatus, PipelineStatus
from tidegate.model.table_changes import AcceptedChange, ChangeChoice, ChangeStop
from tidegate.pipeline.graph import build

ADOPT, REREAD, SKIP = ChangeChoice
STOP = ChangeStop(
    table="shop.orders",
    at="bin.4:120",
    statement="ALTER TABLE orders DROP v",
    choices=(ADOPT, REREAD),
)


def fails(here: Installation, *stops: ChangeStop | None) -> None:
    """The job has two checkpoints, and ends with these."""
    if not here.pipeline().retained:
        checkpoints(here, 2)
    for stop in stops:
        failure = Failure(
            at_ms=here.clock.now_ms(),
            generation=0,
            pipeline=1,
            condition="table-changed",
            message="stopped",
            change=stop,
        )
        here.put(replace(here.pipeline(), status=PipelineStatus.FAILED, error=failure))
    here.ended(JobStatus.FAILED)


def stopped(here: Installation, *stops: ChangeStop | None) -> None:
    here.submit()
    fails(here, *(stops or (STOP,)))


def accept(here: Installation, text: str = "shop.orders@bin.4:120=adopt") -> JobRecord:
    return here.commands.accept_change(7, AcceptedChange.parse(text), by="ann")


def test_an_accepted_change_resumes_the_job_from_its_last_checkpoint(here: Installation) -> None:
    stopped(here)
    assert table_stops(here.snapshot().outcome) == (STOP,)
    record = accept(here)
    assert (record.restored, record.intent.by, [str(c) for c in record.accepted_changes]) == (
        True,
        "ann",
        ["shop.orders@bin.4:120=adopt"],
    )
    assert record.restore is not None
    assert [place.checkpoint for place in record.restore.pipelines] == [2]
    assert any(
        "bin.4:120 of shop.orders is accepted (adopt): use the new definition" in note
        for note in record.restore.notes
    )


def test_a_repeated_decision_finds_the_job_resumed(here: Installation) -> None:
    stopped(here)
    assert accept(here) == accept(here)
    with pytest.raises(NotStopped, match="it is CREATED"):
        accept(here, "bin.4:120=reread")


@pytest.mark.parametrize("text", ["bin.4:121=adopt", "shop.other@bin.4:120=adopt"])
def test_a_position_that_the_job_is_not_stopped_at_is_refused_and_nothing_is_done(
    here: Installation, text: str
) -> None:
    stopped(here)
    before = here.stored()
    with pytest.raises(
        NotStopped, match=r"it is stopped at bin\.4:120 of shop\.orders\. Nothing was done"
    ):
        accept(here, text)
    assert here.stored() == before


def test_a_choice_that_the_change_does_not_have_is_refused(here: Installation) -> None:
    stopped(here)
    with pytest.raises(
        ChoiceNotOffered, match=r"skip is not possible at .*the choices are adopt, reread"
    ):
        accept(here, "bin.4:120=skip")
    with pytest.raises(ChoiceNotOffered):
        here.submit(restore="latest", accept_changes=parse_changes(["bin.4:120=skip"]))
    assert here.snapshot().record is None


def test_a_job_that_runs_or_failed_for_another_reason_or_is_not_there_has_nothing_to_decide(
    here: Installation,
) -> None:
    with pytest.raises(UnknownJob):
        accept(here)
    here.submit()
    with pytest.raises(NotStopped, match="it is CREATED"):
        accept(here)
    fails(here, None)
    with pytest.raises(NotStopped, match="it has ended as FAILED: stopped"):
        accept(here)


def test_only_the_changes_of_the_last_generation_are_stops(here: Installation) -> None:
    stopped(here)
    outcome = here.snapshot().outcome
    assert outcome is not None
    other = Failure(at_ms=1, generation=3, condition="error", message="no disk")
    assert table_stops(replace(outcome, failures=(*outcome.failures, other))) == ()
    assert table_stops(replace(outcome, status=JobStatus.CANCELED)) == ()


def test_decisions_are_kept_for_the_next_runs_of_the_same_state(here: Installation) -> None:
    stopped(here)
    accept(here)
    fails(here, replace(STOP, table="shop.lines"))
    record = accept(here, "shop.lines@bin.4:120=reread")
    assert [str(c) for c in record.accepted_changes] == [
        "shop.orders@bin.4:120=adopt",
        "shop.lines@bin.4:120=reread",
    ]
    fails(here, None)
    assert here.submit(restore="latest").accepted_changes == record.accepted_changes


def test_a_fresh_start_and_a_fork_know_of_no_decision(here: Installation) -> None:
    stopped(here)
    accept(here)
    fork = here.submit(8, "latest", source=7)
    assert (fork.fork, fork.accepted_changes) == (True, ())
    fresh = here.submit(9, "fresh", accept_changes=parse_changes(["bin.4:120=adopt"]))
    assert fresh.accepted_changes == ()


def test_a_decision_about_a_place_where_the_job_did_not_stop_is_reported(
    here: Installation,
) -> None:
    stopped(here)
    record = here.submit(restore="latest", accept_changes=parse_changes(["bin.9:4=adopt"]))
    assert record.restore is not None
    assert any("the last run did not stop at bin.9:4" in note for note in record.restore.notes)
    assert [str(c) for c in record.accepted_changes] == ["bin.9:4=adopt"]


def test_a_concurrent_manual_resume_is_not_superseded(here: Installation) -> None:
    stopped(here)
    here.submit(restore="latest")
    with pytest.raises(NotStopped):
        accept(here)
    with pytest.raises(JobExists):
        here.submit(restore="latest", accept_changes=parse_changes(["bin.4:120=adopt"]))


def test_a_decision_reaches_the_source_through_the_stored_record(here: Installation) -> None:
    stopped(here)
    accept(here)
    stored = here.snapshot().record
    assert stored is not None
    assert here.store.get(RUNNING_JOBS, "7") is not None
    options = {"row.num": 1, "schema": {"fields": {"id": "bigint"}}}
    action = Action(
        operator=OPERATOR,
        label=OPERATOR,
        kind=BlockKind.SOURCE,
        plugin="FakeSource",
        options=options,
    )
    source = build(stored.value, PipelinePlan(id=1, actions=(action,))).sources[OPERATOR]
    assert source.context.accepted_changes == (
        AcceptedChange(at="bin.4:120", table="shop.orders", choice=ADOPT),
    )


def test_two_choices_for_one_change_are_refused() -> None:
    with pytest.raises(UserError, match="choose one"):
        parse_changes(["0/1=adopt", "0/1=skip"])
    assert len(parse_changes(["0/1=adopt", "0/1=adopt", "a@0/1=skip"])) == 2
    with pytest.raises(UserError, match="at most 100"):
        parse_changes([f"0/{n}=adopt" for n in range(101)])
    assert RestoreOptions.parse("latest").accept_changes == ()
