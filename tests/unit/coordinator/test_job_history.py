"""The history of a job id only grows, and terminal is terminal for its pipelines too."""

from dataclasses import replace

import pytest
from coordinator_parts import Installation, plan
from test_reconciler import LeadingServer, running

from tidegate.coordinator import job_history
from tidegate.coordinator.job_history import history_of
from tidegate.coordinator.savepoint_requests import abandon_savepoint
from tidegate.model.document import from_document
from tidegate.model.job import JobEnv
from tidegate.model.records import (
    JOB_OUTCOMES,
    JOB_STATES,
    RUNNING_JOBS,
    DesiredState,
    JobEvent,
    JobEventKind,
    JobOutcome,
    JobStatus,
    PendingBatch,
    PipelineStatus,
    SourceRange,
)
from tidegate.store.base import Delete

MANY = JobEnv(retry_times=20, retry_interval_s=0)


@pytest.fixture
def leader(here: Installation) -> LeadingServer:
    return LeadingServer(here)


def outcome(here: Installation, job_id: int = 7) -> JobOutcome:
    entry = here.store.get(JOB_OUTCOMES, str(job_id))
    assert entry is not None
    return from_document(JobOutcome, entry.value)


def begin_batch(here: Installation) -> None:
    """The driver has begun a batch."""
    state = here.pipeline()
    pending = PendingBatch(
        checkpoint=state.next_checkpoint,
        ranges={"s": SourceRange(0, 5)},
        generation=state.generation,
        begun_ms=1,
    )
    here.put(
        replace(
            state,
            status=PipelineStatus.RUNNING,
            initial={"s": 0},
            pending=pending,
            next_checkpoint=state.next_checkpoint + 1,
        )
    )


def restarted(leader: LeadingServer, times: int) -> None:
    """The driver dies so often, each time after a checkpoint: none of it counts against the budget
    for long.
    """
    for _ in range(times):
        leader.here.checkpoint()
        leader.dies(leader.drive())
        leader.turns(8)
        leader.drive()
        leader.turns(2)
        assert leader.here.state().status is JobStatus.RUNNING


def test_all_restarts_are_counted_and_each_has_its_reason(leader: LeadingServer) -> None:
    running(leader, env=MANY)
    restarted(leader, 3)
    state = leader.here.state()
    assert (state.restarts_total, state.restarts) == (3, 1)
    restarts = [event for event in state.events if event.kind is JobEventKind.RESTART]
    assert [event.generation for event in restarts] == [1, 2, 3]
    assert all("signal 9" in event.reason for event in restarts)
    starts = [event.reason for event in state.events if event.to == "SCHEDULED"]
    assert starts == ["on w", *(f"on w; from checkpoint {n} of pipeline 1" for n in (1, 2, 3))]


def test_a_resume_under_the_same_id_keeps_what_happened_before(leader: LeadingServer) -> None:
    running(leader, env=MANY)
    restarted(leader, 2)
    leader.here.commands.stop(7, DesiredState.CANCEL, by="ann")
    leader.here.commands.stop(7, DesiredState.FORCE_STOP, by="bob")
    leader.turns(3)
    leader.dies(leader.drive())
    leader.turns(4)
    before = outcome(leader.here).events
    assert (leader.here.state().status, outcome(leader.here).restarts_total) == (
        JobStatus.CANCELED,
        2,
    )
    commands = [
        (event.to, event.by, event.reason) for event in before if event.kind is JobEventKind.COMMAND
    ]
    assert commands == [("cancel", "ann", "accepted"), ("force-stop", "bob", "accepted")]
    assert [event.to for event in before][-1] == "CANCELED"
    leader.here.submit(restore="latest", of=plan(env=MANY))
    leader.turns(4)
    events = leader.here.state().events
    assert events[: len(before)] == before, "lines are only appended"
    assert [(event.kind.value, event.to) for event in events[len(before) :]] == [
        ("submitted", "restore"),
        ("status", "SCHEDULED"),
    ]
    assert leader.here.state().restarts_total == 0, "of this run"


def test_a_fresh_run_of_a_finished_id_keeps_its_history_too(leader: LeadingServer) -> None:
    record = running(leader)
    leader.here.checkpoint(status=PipelineStatus.FINISHED)
    leader.dies(record, code=0)
    leader.turns(2)
    before = outcome(leader.here).events
    leader.here.store.transact(
        [], [Delete(JOB_STATES, "7"), Delete("pending-job-cleanup", "7")]
    )  # as the cleanup does
    leader.here.submit(restore="fresh")
    assert leader.here.state().events[: len(before)] == before
    assert leader.here.state().events[-1].kind is JobEventKind.SUBMITTED


def test_every_savepoint_that_was_asked_for_stays_in_the_history(leader: LeadingServer) -> None:
    running(leader)
    for by in ("ann", "bob"):
        leader.here.commands.savepoint(7, stop=False, by=by)
        leader.turns(1)
        answer = abandon_savepoint(leader.here.snapshot(), "no space", leader.here.clock.now_ms())
        leader.here.store.transact(answer.checks, answer.writes)
        leader.here.clock.ms += 1000
    asked = [
        event for event in history_of(leader.here.snapshot()) if event.kind is JobEventKind.COMMAND
    ]
    assert [(event.by, event.reason) for event in asked] == [
        ("ann", "failed no space"),
        ("bob", "failed no space"),
    ]


def test_the_history_is_bounded_by_number_age_and_length_of_a_line() -> None:
    lines = [
        JobEvent(at_ms=n, kind=JobEventKind.STATUS, to="RUNNING", reason="x" * 5000)
        for n in range(500)
    ]
    kept = job_history.append_events(lines[:-1], lines[-1])
    assert (len(kept), kept[-1].at_ms, kept[0].at_ms) == (job_history.EVENTS_MAX, 499, 400)
    assert len(kept[-1].reason) <= job_history.REASON_CHARS_MAX
    late = replace(lines[0], at_ms=job_history.AGE_MS_MAX + 10_000)
    assert len(job_history.append_events(kept, late)) == job_history.EVENTS_MIN, (
        "old ones go, the newest stay however old they are"
    )


def test_commands_stand_where_their_time_is_and_never_before_their_run(
    leader: LeadingServer,
) -> None:
    running(leader)
    leader.here.clock.ms -= 3_600_000  # a clock that steps back
    leader.here.commands.stop(7, DesiredState.CANCEL, by="ann")
    kinds = [event.kind.value for event in history_of(leader.here.snapshot())]
    assert kinds.index("submitted") < kinds.index("command")


@pytest.mark.parametrize(
    ("by_force", "status", "shown"), [(True, "CANCELED", "CANCELED"), (False, "FAILED", "FAILED")]
)
def test_no_pipeline_runs_in_a_job_that_has_ended(
    leader: LeadingServer, by_force: bool, status: str, shown: str
) -> None:
    record = running(leader, env=JobEnv(retry_times=0))
    begin_batch(leader.here)
    if by_force:
        leader.here.commands.stop(7, DesiredState.FORCE_STOP)
        leader.turns(2)
    leader.dies(record)
    leader.turns(4)
    assert leader.here.state().status.value == status
    assert leader.here.pipeline().status.value == shown
    assert leader.here.pipeline().pending is not None, "who resumes it repeats this batch"
    assert not outcome(leader.here).restorable


def test_a_job_of_which_nothing_is_known_has_no_running_pipeline(leader: LeadingServer) -> None:
    running(leader)
    begin_batch(leader.here)
    generation = leader.here.pipeline().generation
    leader.here.store.transact([], [Delete(JOB_STATES, "7")])
    leader.turns(3)
    assert leader.here.state().status is JobStatus.UNKNOWABLE
    assert leader.here.pipeline().status is PipelineStatus.FAILED
    assert leader.here.pipeline().generation > generation, "its driver is refused"
    assert leader.here.store.get(RUNNING_JOBS, "7") is None


def test_a_pipeline_that_another_one_took_down_was_canceled(here: Installation) -> None:
    here.submit(of=plan(pipelines=3))
    for number, status in (
        (1, PipelineStatus.FINISHED),
        (2, PipelineStatus.FAILED),
        (3, PipelineStatus.RUNNING),
    ):
        here.put(replace(here.pipeline(pipeline=number), status=status))
    here.ended(JobStatus.FAILED)
    assert [here.pipeline(pipeline=n).status.value for n in (1, 2, 3)] == [
        "FINISHED",
        "FAILED",
        "CANCELED",
    ]


def test_a_job_that_waits_to_be_resumed_has_no_failed_pipeline(here: Installation) -> None:
    here.submit()
    here.checkpoint(status=PipelineStatus.FAILED)
    here.ended(JobStatus.FAILED)
    assert (outcome(here).restorable, outcome(here).last_checkpoint) == (True, 1)
    here.submit(restore="latest")
    assert here.pipeline().status is PipelineStatus.CREATED
