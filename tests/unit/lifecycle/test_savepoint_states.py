"""What becomes of a job that is to end with a savepoint: done, failed, late, canceled, dead."""

import pytest

from tidegate.lifecycle.decision import NoTransition, Transition
from tidegate.lifecycle.machine import decide
from tidegate.lifecycle.observation import DriverSupervision, Placement
from tidegate.model.records import (
    DesiredState,
    DriverCommand,
    JobStatus,
    PipelineSavepoint,
    PipelineStatus,
    SavepointStatus,
)

DONE, FAILED = SavepointStatus.DONE, SavepointStatus.FAILED


def saving(make, **fields):
    return make.view(JobStatus.DOING_SAVEPOINT, **{"savepoint": make.savepoint(), **fields})


def test_only_a_running_job_begins_a_savepoint_that_ends_it(make) -> None:
    assert decide(make.view(JobStatus.RUNNING, savepoint=make.savepoint())) == Transition(
        to=JobStatus.DOING_SAVEPOINT
    )
    assert (
        decide(make.view(JobStatus.RUNNING, savepoint=make.savepoint(stop=False))) == NoTransition()
    )
    assert (
        decide(
            make.undriven(JobStatus.PENDING, savepoint=make.savepoint(), placement=Placement("w"))
        ).to
        is JobStatus.SCHEDULED
    )


def test_the_driver_is_left_alone_while_it_makes_the_savepoint(make) -> None:
    assert decide(saving(make)) == NoTransition()
    assert decide(
        saving(make, supervision=DriverSupervision.REPLACEABLE, adopter="w2")
    ) == NoTransition(worker="w2")


def test_the_job_is_done_when_the_savepoint_is_whole_and_the_driver_has_ended(make, limits) -> None:
    whole = saving(make, savepoint=make.savepoint(DONE))
    assert decide(whole) == NoTransition(command=DriverCommand.STOP)
    assert decide(make.ordered(whole, DriverCommand.STOP, limits.exit_ms)) == NoTransition(
        command=DriverCommand.INTERRUPT
    )
    assert decide(
        saving(make, savepoint=make.savepoint(DONE), driver=make.driver(end=0))
    ) == Transition(to=JobStatus.SAVEPOINT_DONE)
    undead = decide(make.ordered(whole, DriverCommand.KILL, limits.kill_ms))
    assert (undead.to, undead.failure.condition) == (JobStatus.SAVEPOINT_DONE, "driver-undead")


@pytest.mark.parametrize("code", [0, -9])
def test_a_driver_that_was_quicker_than_every_leader_has_done_its_part(make, code) -> None:
    ended = {
        "savepoint": make.savepoint(DONE),
        "driver": make.driver(end=code),
        "pipelines": (make.pipeline(PipelineStatus.CANCELED),),
    }
    assert decide(make.view(JobStatus.RUNNING, **ended)) == Transition(to=JobStatus.DOING_SAVEPOINT)
    assert decide(
        make.undriven(JobStatus.PENDING, savepoint=make.savepoint(DONE), placement=Placement("w"))
    ) == Transition(to=JobStatus.SAVEPOINT_DONE)


def test_a_failed_savepoint_lets_the_job_continue_with_the_reason(make) -> None:
    decision = decide(saving(make, savepoint=make.savepoint(FAILED, reason="no space")))
    assert (decision.to, decision.reason) == (JobStatus.RUNNING, "there is no savepoint: no space")
    assert (
        decide(make.view(JobStatus.RUNNING, savepoint=make.savepoint(FAILED, reason="no space")))
        == NoTransition()
    )


def test_an_overdue_savepoint_is_abandoned_and_names_the_pipelines(make, limits) -> None:
    copied = make.pipeline(
        number=2, savepoint=PipelineSavepoint(id="9", checkpoint=5, path="7/2/5", copied=True)
    )
    assert decide(saving(make, state_age_ms=limits.savepoint_ms - 1)) == NoTransition()
    decision = decide(
        saving(make, state_age_ms=limits.savepoint_ms, pipelines=(make.pipeline(), copied))
    )
    assert decision.to is JobStatus.RUNNING
    assert (
        decision.savepoint == "it was not complete within 600 s; pipeline 1 has made no checkpoint"
    )


def test_an_overdue_savepoint_without_stop_is_abandoned_too(make, limits) -> None:
    view = make.view(
        JobStatus.RUNNING,
        savepoint=make.savepoint(stop=False),
        savepoint_age_ms=limits.savepoint_ms,
    )
    assert "not complete within" in decide(view).savepoint
    embedded = make.view(
        JobStatus.RUNNING,
        savepoint=make.savepoint(),
        savepoint_age_ms=limits.savepoint_ms,
        state={"leader": make.process()},
        embedded_alive=True,
    )
    assert decide(embedded) == NoTransition()


def test_a_driver_that_dies_in_a_savepoint_is_started_again_and_one_that_fails_is_not(make) -> None:
    assert decide(saving(make, driver=make.driver(end=-9))).to is JobStatus.RECOVERING
    failed = (make.pipeline(PipelineStatus.FAILED, error=make.failure()),)
    assert decide(saving(make, pipelines=failed)).to is JobStatus.FAILING
    told = (make.pipeline(PipelineStatus.CANCELED),)
    assert decide(saving(make, pipelines=told)).to is JobStatus.RECOVERING


def test_a_plain_stop_takes_precedence_over_a_savepoint(make) -> None:
    decision = decide(
        make.view(JobStatus.DOING_SAVEPOINT, DesiredState.CANCEL, savepoint=make.savepoint())
    )
    assert (decision.to, decision.command) == (JobStatus.CANCELING, DriverCommand.STOP)
