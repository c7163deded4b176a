"""The table of states: complete, closed, bounded in time, and drawn as it is."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lifecycle import machine
from tidegate.lifecycle.deadline import escalation_ms
from tidegate.lifecycle.decision import NoTransition, Transition
from tidegate.lifecycle.observation import (
    DriverSupervision,
    JobHealth,
    JobObservation,
    LifecycleLimits,
    Placement,
    Unplaceable,
)
from tidegate.model.errors import TerminalError
from tidegate.model.job import JobEnv
from tidegate.model.plan import Plan
from tidegate.model.records import (
    Assignment,
    CheckpointHealth,
    CheckpointKind,
    CheckpointRef,
    DesiredState,
    DriverCommand,
    DriverEnd,
    DriverRecord,
    Failure,
    JobIntent,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
    ProcessRef,
    SavepointRequest,
    SavepointStatus,
)

FOR_EVER = {JobStatus.PENDING, JobStatus.RUNNING}
AGES = st.sampled_from([0, 4_999, 5_000, 30_000, 60_000, 120_000, 10**7])
PROCESS = ProcessRef(pid=1, started=1, boot="b", host="h")
ENDS = st.none() | st.builds(
    DriverEnd, at_ms=st.just(1), code=st.none() | st.integers(-15, 80), proof=st.just("exit")
)
CHECKPOINTS = st.builds(
    CheckpointRef,
    checkpoint=st.just(1),
    path=st.just("p"),
    kind=st.sampled_from(CheckpointKind),
    generation=st.integers(2, 3),
    begun_ms=st.just(1),
    completed_ms=st.just(1),
)
PIPELINES = st.builds(
    PipelineState,
    job_id=st.just(1),
    pipeline=st.integers(1, 3),
    lineage=st.just("l"),
    generation=st.just(3),
    status=st.sampled_from(PipelineStatus),
    retained=st.tuples() | st.tuples(CHECKPOINTS),
    error=st.none() | st.just(Failure(at_ms=1, generation=3, message="boom")),
    confirmed_ms=st.sampled_from([0, 5, 15]),
)
RECORDS = st.builds(
    lambda desired, times: JobRecord(
        job_id=1,
        name="j",
        initialization_ms=1,
        lineage="l",
        plan=Plan(job_name="j", env=JobEnv(retry_times=times), pipelines=()),
        intent=JobIntent(desired=desired),
    ),
    st.sampled_from(DesiredState),
    st.integers(0, 3),
)
STATES = st.builds(
    JobState,
    job_id=st.just(1),
    status=st.sampled_from(JobStatus),
    generation=st.integers(2, 3),
    leader=st.none() | st.just(PROCESS),
    restarts=st.integers(0, 4),
    not_before_ms=st.sampled_from([0, 100, 10**9]),
)
VIEWS = st.builds(
    JobObservation,
    now_ms=st.just(100),
    record=RECORDS,
    state=STATES,
    pipelines=st.lists(PIPELINES, max_size=3).map(tuple),
    driver=st.none()
    | st.builds(
        DriverRecord,
        job_id=st.just(1),
        generation=st.integers(2, 3),
        process=st.just(PROCESS),
        worker=st.sampled_from(["", "w"]),
        started_ms=st.just(10),
        end=ENDS,
    ),
    assignment=st.none()
    | st.builds(
        Assignment,
        job_id=st.just(1),
        initialization_ms=st.just(1),
        generation=st.just(3),
        worker=st.just("w"),
        command=st.sampled_from(DriverCommand),
    ),
    supervision=st.sampled_from(DriverSupervision),
    adopter=st.just("w2"),
    driver_silent=st.booleans(),
    state_age_ms=AGES,
    command_age_ms=AGES,
    savepoint=st.none()
    | st.builds(
        SavepointRequest,
        job_id=st.just(1),
        initialization_ms=st.just(1),
        id=st.just("9"),
        stop=st.booleans(),
        asked_ms=st.just(1),
        status=st.sampled_from(SavepointStatus),
        reason=st.just("why"),
    ),
    savepoint_age_ms=AGES,
    health=st.builds(JobHealth, st.sampled_from(CheckpointHealth), st.just("why")),
    placement=st.builds(Placement, st.just("w"))
    | st.builds(Unplaceable, st.just("full"), st.booleans()),
    embedded_alive=st.sampled_from([None, True, False]),
)


@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_every_observation_leads_to_a_listed_and_complete_transition(
    view: JobObservation,
) -> None:
    decision = machine.decide(view)
    assert decision == machine.decide(view)
    if isinstance(decision, NoTransition):
        return
    assert decision.to in machine.STATES[view.state.status].GOES_TO
    assert (decision.worker is not None) or decision.to is not JobStatus.SCHEDULED
    assert (decision.command is None) == (
        decision.to not in (JobStatus.RECOVERING, JobStatus.FAILING, JobStatus.CANCELING)
    )
    assert not decision.proof or (view.driver_may_live and view.driver_silent)
    if decision.restart:
        assert (
            0 if decision.healed else view.state.restarts
        ) + 1 <= view.record.plan.env.retry_times


@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_no_schedule_or_end_while_a_driver_may_live_unless_the_kill_failed(
    view: JobObservation,
) -> None:
    decision = machine.decide(view)
    settled = not view.driver_may_live or (
        isinstance(decision, Transition) and bool(decision.proof)
    )
    if isinstance(decision, Transition) and not settled:
        assert decision.to is not JobStatus.SCHEDULED
        if decision.to.terminal:
            assert decision.failure is not None
            assert decision.failure.condition == "driver-undead"


@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_a_state_with_a_deadline_ends_in_time_if_nothing_else_happens(view: JobObservation) -> None:
    """Turn by turn, carrying out what is decided about the order, and nothing else: no fact ever
    comes.
    """
    state = machine.STATES[view.state.status]
    if state.DEADLINE is None or (
        view.state.leader is not None and view.embedded_alive is not False
    ):
        return
    age_ms, since_ms, step_ms = 0, 0, 5_000
    view = replace(
        view, supervision=DriverSupervision.ALIVE if view.assignment else DriverSupervision.NONE
    )
    while isinstance(
        decision := machine.decide(
            replace(view, state_age_ms=age_ms, command_age_ms=age_ms - since_ms)
        ),
        NoTransition,
    ):
        assert age_ms < state.DEADLINE.ms(view.limits) + escalation_ms(view.limits), (
            "it waits for ever"
        )
        if view.assignment is not None and decision.command not in (None, view.current_command):
            view, since_ms = (
                replace(view, assignment=replace(view.assignment, command=decision.command)),
                age_ms,
            )
        age_ms += step_ms


def test_every_status_has_a_state_in_the_module_of_its_name() -> None:
    assert set(machine.STATES) == set(JobStatus)
    assert [
        status
        for status, state in machine.STATES.items()
        if not status.terminal
        and vars(state)["__name__"].rpartition(".")[2] != status.value.lower()
    ] == []


def test_only_waiting_and_running_have_no_deadline() -> None:
    assert {
        status
        for status, state in machine.STATES.items()
        if state.DEADLINE is None and not status.terminal
    } == FOR_EVER


def test_a_deadline_leads_only_where_the_state_may_go() -> None:
    for state in machine.STATES.values():
        if state.DEADLINE is not None:
            assert state.DEADLINE.then <= state.GOES_TO
            assert state.DEADLINE.ms(LifecycleLimits()) > 0


def test_terminal_states_have_no_exit_and_all_others_lead_to_one() -> None:
    assert {status for status, state in machine.STATES.items() if not state.GOES_TO} == {
        status for status in JobStatus if status.terminal
    }
    ending = {status for status in JobStatus if status.terminal}
    for _ in JobStatus:
        ending |= {before for before, after in machine.edges() if after in ending}
    assert ending == set(JobStatus)


def test_an_exit_that_is_not_listed_is_refused(make, monkeypatch: pytest.MonkeyPatch) -> None:
    rogue = SimpleNamespace(
        NAME=JobStatus.FINISHED,
        GOES_TO=frozenset(),
        DEADLINE=None,
        decide=lambda _: Transition(to=JobStatus.RUNNING),
    )
    monkeypatch.setitem(machine.STATES, JobStatus.FINISHED, rogue)
    with pytest.raises(
        machine.IllegalTransition, match="job 7 may not go from FINISHED to RUNNING"
    ) as caught:
        machine.decide(make.view(JobStatus.FINISHED))
    assert isinstance(caught.value, TerminalError)
    assert caught.value.condition == "illegal-transition"


def test_the_diagram_shows_every_exit_once() -> None:
    lines = machine.diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    drawn = [tuple(line.split(" --> ")) for line in map(str.strip, lines[1:])]
    assert [(before, after) for before, after in drawn if "[*]" not in (before, after)] == [
        (b.value, a.value) for b, a in machine.edges()
    ]
    assert len(set(drawn)) == len(drawn)
    assert ("[*]", "CREATED") in drawn
    assert ("UNKNOWABLE", "[*]") not in drawn


@pytest.mark.parametrize("desired", [DesiredState.CANCEL, DesiredState.FORCE_STOP])
def test_servers_end_a_run_that_ignores_a_stop(
    make: Any, limits: LifecycleLimits, desired: DesiredState
) -> None:
    led = {"leader": make.process(1)}
    alone = {
        "assignment": None,
        "supervision": DriverSupervision.NONE,
        "embedded_alive": True,
        "adopter": "w2",
        "driver": make.driver(worker=""),
    }
    patient = make.view(
        JobStatus.RUNNING,
        desired,
        state=led,
        **alone,
        desired_age_ms=machine.FORCE_STOP_TIMEOUT_MS - 1,
    )
    assert machine.decide(patient) == NoTransition()
    overdue = make.view(
        JobStatus.RUNNING, desired, state=led, **alone, desired_age_ms=escalation_ms(limits)
    )
    decision = machine.decide(overdue)
    assert isinstance(decision, Transition)
    assert (decision.to, decision.command, decision.worker) == (
        JobStatus.CANCELING,
        DriverCommand.KILL,
        "w2",
    )
    assert "does not respond" in decision.reason
    killed = {
        **alone,
        "assignment": make.assignment(DriverCommand.KILL, "w2"),
        "supervision": DriverSupervision.ALIVE,
    }
    waits = machine.decide(
        make.view(
            JobStatus.CANCELING, desired, state=led, **killed, desired_age_ms=escalation_ms(limits)
        )
    )
    assert isinstance(waits, NoTransition)
    assert waits.command is DriverCommand.KILL
    killed["driver"] = make.driver(end=-9, worker="")
    ended = machine.decide(
        make.view(
            JobStatus.CANCELING, desired, state=led, **killed, desired_age_ms=escalation_ms(limits)
        )
    )
    assert isinstance(ended, Transition)
    assert ended.to is JobStatus.CANCELED
