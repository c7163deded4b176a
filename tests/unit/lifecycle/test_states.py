"""Each state, view by view: what it decides."""

import pytest

from tidegate.lifecycle.decision import NoTransition, Transition
from tidegate.lifecycle.machine import decide
from tidegate.lifecycle.observation import DriverSupervision, JobHealth, Placement, Unplaceable
from tidegate.model.records import (
    TERMINAL,
    CheckpointHealth,
    DesiredState,
    DriverCommand,
    DriverEnd,
    JobStatus,
    PipelineStatus,
)

STOPS = pytest.mark.parametrize("desired", [DesiredState.CANCEL, DesiredState.FORCE_STOP])
STALLED = JobHealth(CheckpointHealth.STALLED, "batch too long")
GONE_AND_SILENT = {"supervision": DriverSupervision.GONE, "driver_silent": True}
LIVING = [
    JobStatus.SCHEDULED,
    JobStatus.RUNNING,
    JobStatus.RECOVERING,
    JobStatus.DOING_SAVEPOINT,
    JobStatus.CANCELING,
    JobStatus.FAILING,
]

WAITS_FOR = {
    JobStatus.CANCELING: JobStatus.CANCELED,
    JobStatus.FAILING: JobStatus.FAILED,
    JobStatus.RECOVERING: JobStatus.PENDING,
}


def gone(decision) -> tuple[JobStatus, DriverCommand | None]:
    assert isinstance(decision, Transition), decision
    return decision.to, decision.command


# --- before a driver


@pytest.mark.parametrize("status", [JobStatus.INITIALIZING, JobStatus.CREATED])
def test_a_job_that_was_accepted_goes_to_the_queue(make, status) -> None:
    assert decide(make.undriven(status)) == Transition(to=JobStatus.PENDING)


@STOPS
@pytest.mark.parametrize("status", [JobStatus.INITIALIZING, JobStatus.CREATED, JobStatus.PENDING])
def test_a_job_that_never_ran_is_canceled_at_once(make, status, desired) -> None:
    assert gone(decide(make.undriven(status, desired))) == (JobStatus.CANCELED, None)


@STOPS
def test_a_canceled_job_whose_older_driver_may_live_waits_for_its_end(make, desired) -> None:
    order = DriverCommand.KILL if desired is DesiredState.FORCE_STOP else DriverCommand.STOP
    decision = decide(make.undriven(JobStatus.PENDING, desired, driver=make.driver(generation=2)))
    assert gone(decision) == (JobStatus.CANCELING, order)
    assert decision.worker == "w"
    assert decide(
        make.undriven(JobStatus.CREATED, desired, driver=make.driver(generation=2))
    ) == Transition(to=JobStatus.PENDING)


def test_a_pending_job_with_a_placement_is_scheduled_there(make) -> None:
    assert decide(make.undriven(JobStatus.PENDING, placement=Placement("w9"))) == Transition(
        to=JobStatus.SCHEDULED, worker="w9"
    )


def test_a_pending_job_without_a_placement_has_a_reason(make) -> None:
    assert decide(
        make.undriven(JobStatus.PENDING, placement=Unplaceable("all 2 slots are taken"))
    ) == NoTransition(reason="all 2 slots are taken")


def test_a_pending_job_that_must_not_wait_fails(make) -> None:
    decision = decide(
        make.undriven(
            JobStatus.PENDING, placement=Unplaceable("all 2 slots are taken", rejected=True)
        )
    )
    assert gone(decision) == (JobStatus.FAILED, None)
    assert decision.failure.condition == "no-place"


def test_a_pending_job_starts_nothing_beside_an_older_driver(make) -> None:
    decision = decide(
        make.undriven(JobStatus.PENDING, placement=Placement("w9"), driver=make.driver())
    )
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.worker, decision.restart) == ("w", False)


def test_a_retry_waits_for_its_time_and_says_after_what(make) -> None:
    state = {
        "not_before_ms": make.now_ms + 1,
        "restarts": 2,
        "failures": (make.failure("no route"),),
    }
    waiting = make.undriven(JobStatus.PENDING, placement=Placement("w9"), state=state)
    assert decide(waiting) == NoTransition(
        reason="retry 2 of 3 starts 6 s after the failure: no route"
    )
    due = make.undriven(
        JobStatus.PENDING, placement=Placement("w9"), state={**state, "not_before_ms": make.now_ms}
    )
    assert decide(due) == Transition(to=JobStatus.SCHEDULED, worker="w9")


def test_a_clock_that_was_set_back_does_not_hold_a_retry(make) -> None:
    state = {"not_before_ms": make.now_ms + 10**9, "restarts": 1}
    assert isinstance(
        decide(
            make.undriven(
                JobStatus.PENDING, placement=Placement("w9"), state=state, state_age_ms=23_999
            )
        ),
        NoTransition,
    )
    assert isinstance(
        decide(
            make.undriven(
                JobStatus.PENDING, placement=Placement("w9"), state=state, state_age_ms=24_000
            )
        ),
        Transition,
    )


# --- scheduled


def scheduled(make, desired=DesiredState.RUN, **fields):
    return make.undriven(
        JobStatus.SCHEDULED,
        desired,
        **{"assignment": make.assignment(), "supervision": DriverSupervision.ALIVE, **fields},
    )


def test_a_driver_that_has_registered_makes_the_job_run(make) -> None:
    assert decide(make.view(JobStatus.SCHEDULED)) == Transition(to=JobStatus.RUNNING)


def test_an_older_driver_makes_nothing_run(make) -> None:
    assert decide(scheduled(make, driver=make.driver(end=0, generation=2))) == NoTransition()


def test_a_driver_that_was_too_quick_to_be_seen_running_is_judged_by_its_pipelines(make) -> None:
    view = make.view(
        JobStatus.SCHEDULED,
        driver=make.driver(end=0),
        pipelines=(make.pipeline(PipelineStatus.FINISHED),),
    )
    assert gone(decide(view)) == (JobStatus.FINISHED, None)


@pytest.mark.parametrize(
    "watcher", [DriverSupervision.GONE, DriverSupervision.REPLACEABLE, DriverSupervision.NONE]
)
def test_a_worker_lost_before_the_start_costs_no_retry(make, watcher) -> None:
    decision = decide(scheduled(make, supervision=watcher, adopter="w2", env={"retry_times": 0}))
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.restart, decision.failure.condition) == (False, "worker-lost")


def test_a_driver_that_does_not_start_in_time_costs_a_retry(make, limits) -> None:
    assert decide(scheduled(make, state_age_ms=limits.start_ms - 1)) == NoTransition()
    decision = decide(scheduled(make, state_age_ms=limits.start_ms))
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.restart, decision.failure.message) == (
        True,
        "the driver did not start within 120 s",
    )
    assert (
        decide(scheduled(make, state_age_ms=limits.start_ms, env={"retry_times": 0})).to
        is JobStatus.FAILING
    )


# --- running


def test_a_running_job_with_a_watched_driver_stays(make) -> None:
    assert decide(make.view(JobStatus.RUNNING)) == NoTransition()


@pytest.mark.parametrize(
    "status",
    [
        JobStatus.SCHEDULED,
        JobStatus.RUNNING,
        JobStatus.DOING_SAVEPOINT,
        JobStatus.CANCELING,
        JobStatus.RECOVERING,
        JobStatus.FAILING,
    ],
)
@pytest.mark.parametrize("desired", list(DesiredState))
def test_finished_and_dead_is_finished_whatever_was_requested(make, status, desired) -> None:
    view = make.view(
        status,
        desired,
        driver=make.driver(end=0),
        pipelines=(make.pipeline(PipelineStatus.FINISHED),),
    )
    assert gone(decide(view)) == (JobStatus.FINISHED, None)


def test_a_driver_that_does_not_exit_is_killed_and_the_job_still_finishes(make, limits) -> None:
    view = make.view(JobStatus.RUNNING, pipelines=(make.pipeline(PipelineStatus.FINISHED),))
    assert decide(view) == NoTransition(command=DriverCommand.STOP)
    assert decide(make.ordered(view, DriverCommand.STOP, limits.exit_ms)) == NoTransition(
        command=DriverCommand.INTERRUPT
    )
    assert decide(make.ordered(view, DriverCommand.TERMINATE, limits.terminate_ms)) == NoTransition(
        command=DriverCommand.KILL
    )
    decision = decide(make.ordered(view, DriverCommand.KILL, limits.kill_ms))
    assert gone(decision) == (JobStatus.FINISHED, None)
    assert "process 42 on h" in decision.failure.message


def test_a_pipeline_that_failed_fails_the_job_with_its_error_and_asks_the_driver_to_end(
    make,
) -> None:
    view = make.view(
        JobStatus.RUNNING,
        pipelines=(
            make.pipeline(),
            make.pipeline(PipelineStatus.FAILED, 2, error=make.failure("no such table")),
        ),
    )
    decision = decide(view)
    assert gone(decision) == (JobStatus.FAILING, DriverCommand.STOP)
    assert decision.failure == make.failure("no such table")
    assert decision.reason == "no such table"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (-9, "signal 9"),
        (70, "exit code 70"),
        (DriverEnd(at_ms=1, proof="session empty"), "session empty"),
    ],
)
def test_a_driver_that_died_is_started_again_at_the_cost_of_a_retry(make, end, words) -> None:
    decision = decide(make.view(JobStatus.RUNNING, driver=make.driver(end=end)))
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.restart, decision.healed) == (True, False)
    assert decision.failure.message == f"the driver died ({words})"


def test_the_stderr_tail_is_in_the_failure(make) -> None:
    end = DriverEnd(at_ms=1, code=1, proof="exit", stderr_tail="out of memory")
    assert (
        decide(make.view(JobStatus.RUNNING, driver=make.driver(end=end))).reason
        == "the driver died (exit code 1): out of memory"
    )


def test_a_driver_that_died_once_too_often_fails_the_job(make) -> None:
    view = make.view(JobStatus.RUNNING, driver=make.driver(end=-9), state={"restarts": 3})
    decision = decide(view)
    assert gone(decision) == (JobStatus.FAILING, DriverCommand.KILL)
    assert (
        decision.reason == "the driver died (signal 9); all 3 restarts were used without progress"
    )
    assert decision.failure.condition == "driver-died"


def test_progress_makes_the_budget_full_again(make) -> None:
    got_on = (make.pipeline(retained=(make.checkpoint(),)),)
    decision = decide(
        make.view(
            JobStatus.RUNNING, driver=make.driver(end=-9), pipelines=got_on, state={"restarts": 3}
        )
    )
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.restart, decision.healed) == (True, True)


def test_a_driver_stopped_from_outside_restarts_at_no_cost(make) -> None:
    view = make.view(
        JobStatus.RUNNING,
        env={"retry_times": 0},
        pipelines=(make.pipeline(PipelineStatus.CANCELED),),
    )
    for seen in (
        view,
        make.view(
            JobStatus.RUNNING,
            env={"retry_times": 0},
            pipelines=view.pipelines,
            driver=make.driver(end=0),
        ),
    ):
        decision = decide(seen)
        assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
        assert (decision.restart, decision.failure) == (False, None)


def test_another_worker_on_the_host_adopts_the_driver(make) -> None:
    assert decide(
        make.view(JobStatus.RUNNING, supervision=DriverSupervision.REPLACEABLE, adopter="w2")
    ) == NoTransition(worker="w2")


def test_a_driver_without_a_worker_continues_while_it_sends_heartbeats(make) -> None:
    decision = decide(make.view(JobStatus.RUNNING, supervision=DriverSupervision.GONE))
    assert isinstance(decision, NoTransition)
    assert decision.command is None
    assert "heartbeats" in decision.reason


def test_a_driver_that_nobody_sees_or_hears_counts_as_dead_by_its_lease(make) -> None:
    decision = decide(make.view(JobStatus.RUNNING, **GONE_AND_SILENT))
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.proof, decision.restart, decision.failure.condition) == (
        "lease expired",
        True,
        "driver-lost",
    )


def test_a_silent_driver_that_a_worker_sees_does_not_count_as_dead(make) -> None:
    assert decide(make.view(JobStatus.RUNNING, driver_silent=True)) == NoTransition()
    assert decide(
        make.view(
            JobStatus.RUNNING,
            driver_silent=True,
            supervision=DriverSupervision.REPLACEABLE,
            adopter="w2",
        )
    ) == NoTransition(worker="w2")


def test_a_running_job_that_lost_its_assignment_gets_it_back(make) -> None:
    assert decide(
        make.view(JobStatus.RUNNING, assignment=None, supervision=DriverSupervision.NONE)
    ) == NoTransition(command=DriverCommand.RUN, worker="w")


def test_a_running_job_without_a_driver_on_record_is_started_again(make) -> None:
    decision = decide(make.view(JobStatus.RUNNING, driver=None))
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert decision.failure.message == "the driver no longer has a record"


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.DOING_SAVEPOINT])
def test_a_stalled_job_is_killed_and_started_again_within_the_budget(make, status) -> None:
    saving = make.savepoint() if status is JobStatus.DOING_SAVEPOINT else None
    decision = decide(make.view(status, health=STALLED, savepoint=saving))
    assert gone(decision) == (JobStatus.RECOVERING, DriverCommand.KILL)
    assert (decision.restart, decision.failure.condition, decision.reason) == (
        True,
        "stalled",
        "stalled: batch too long",
    )
    assert gone(
        decide(make.view(status, health=STALLED, savepoint=saving, state={"restarts": 3}))
    ) == (JobStatus.FAILING, DriverCommand.KILL)


def test_a_late_job_continues(make) -> None:
    assert (
        decide(
            make.view(JobStatus.RUNNING, health=JobHealth(CheckpointHealth.LATE, "batch too long"))
        )
        == NoTransition()
    )


# --- wishes


@pytest.mark.parametrize(
    "status", [JobStatus.SCHEDULED, JobStatus.RUNNING, JobStatus.DOING_SAVEPOINT]
)
@pytest.mark.parametrize(
    ("desired", "order"),
    [(DesiredState.CANCEL, DriverCommand.STOP), (DesiredState.FORCE_STOP, DriverCommand.KILL)],
)
def test_a_requested_stop_is_applied_while_a_driver_runs(make, status, desired, order) -> None:
    assert gone(decide(make.view(status, desired))) == (JobStatus.CANCELING, order)
    assert gone(decide(make.view(status, desired, driver=make.driver(end=-9)))) == (
        JobStatus.CANCELING,
        order,
    )


@STOPS
def test_a_stop_while_recovering_keeps_killing(make, desired) -> None:
    view = make.ordered(make.view(JobStatus.RECOVERING, desired), DriverCommand.KILL)
    assert gone(decide(view)) == (JobStatus.CANCELING, DriverCommand.KILL)


# --- canceling, failing


@pytest.mark.parametrize("status", [JobStatus.CANCELING, JobStatus.FAILING])
def test_a_stop_escalates_step_by_step(make, status, limits) -> None:
    view = make.view(status, DesiredState.CANCEL)
    steps = [
        (DriverCommand.STOP, limits.stop_ms, DriverCommand.INTERRUPT),
        (DriverCommand.INTERRUPT, limits.interrupt_ms, DriverCommand.TERMINATE),
        (DriverCommand.TERMINATE, limits.terminate_ms, DriverCommand.KILL),
        (DriverCommand.KILL, limits.kill_ms - 1, DriverCommand.KILL),
    ]
    for standing, age_ms, due in steps:
        assert decide(make.ordered(view, standing, age_ms - 1)) == NoTransition(command=standing)
        assert decide(make.ordered(view, standing, age_ms)) == NoTransition(command=due)


@pytest.mark.parametrize(
    ("status", "end"),
    [(JobStatus.CANCELING, JobStatus.CANCELED), (JobStatus.FAILING, JobStatus.FAILED)],
)
def test_a_stop_ends_even_if_the_process_does_not_die_and_names_it(
    make, status, end, limits
) -> None:
    decision = decide(
        make.ordered(make.view(status, DesiredState.CANCEL), DriverCommand.KILL, limits.kill_ms)
    )
    assert gone(decision) == (end, None)
    assert decision.failure.condition == "driver-undead"
    assert "process 42 on h" in decision.failure.message
    assert decision.proof == ""  # nobody has proven anything


def test_force_kills_at_once_even_after_a_cancel_has_begun(make) -> None:
    assert decide(
        make.ordered(make.view(JobStatus.CANCELING, DesiredState.FORCE_STOP), DriverCommand.STOP)
    ) == NoTransition(command=DriverCommand.KILL)
    assert decide(
        make.ordered(make.view(JobStatus.FAILING, DesiredState.FORCE_STOP), DriverCommand.STOP)
    ) == NoTransition(command=DriverCommand.KILL)


def test_a_command_never_becomes_weaker(make) -> None:
    assert decide(
        make.ordered(make.view(JobStatus.CANCELING, DesiredState.CANCEL), DriverCommand.TERMINATE)
    ) == NoTransition(command=DriverCommand.TERMINATE)


def test_a_failing_job_without_a_command_is_killed(make) -> None:
    assert decide(make.view(JobStatus.FAILING)) == NoTransition(command=DriverCommand.KILL)


@pytest.mark.parametrize("status", WAITS_FOR)
class TestWaitingForTheEndOfADriver:
    def test_a_dead_one_is_enough(self, make, status) -> None:
        assert decide(make.view(status, driver=make.driver(end=-9))).to is WAITS_FOR[status]

    def test_none_at_all_is_enough(self, make, status) -> None:
        assert decide(make.undriven(status)).to is WAITS_FOR[status]

    def test_one_that_nobody_sees_or_hears_is_dead_by_its_lease(self, make, status) -> None:
        decision = decide(make.view(status, **GONE_AND_SILENT))
        assert (decision.to, decision.proof) == (WAITS_FOR[status], "lease expired")

    def test_one_that_is_heard_is_not(self, make, status) -> None:
        assert isinstance(
            decide(make.view(status, supervision=DriverSupervision.GONE)), NoTransition
        )

    def test_another_worker_on_the_host_continues_the_command(self, make, status) -> None:
        view = make.ordered(
            make.view(
                status, supervision=DriverSupervision.REPLACEABLE, adopter="w2", driver_silent=True
            ),
            DriverCommand.KILL,
            10**9,
        )
        assert decide(view) == NoTransition(command=DriverCommand.KILL, worker="w2")

    def test_without_an_assignment_the_starting_worker_gets_the_command(self, make, status) -> None:
        decision = decide(make.view(status, assignment=None, supervision=DriverSupervision.NONE))
        assert isinstance(decision, NoTransition)
        assert decision.worker == "w"
        assert decision.command in (DriverCommand.STOP, DriverCommand.KILL)

    def test_without_a_worker_it_still_ends(self, make, status) -> None:
        view = make.view(
            status,
            assignment=None,
            supervision=DriverSupervision.NONE,
            driver=make.driver(worker=""),
            state_age_ms=10**9,
        )
        assert isinstance(decide(view), Transition)


def test_what_failed_while_a_job_was_canceled_is_in_its_history(make) -> None:
    failed = (make.pipeline(PipelineStatus.FAILED, error=make.failure()),)
    decision = decide(
        make.view(
            JobStatus.CANCELING, DesiredState.CANCEL, driver=make.driver(end=0), pipelines=failed
        )
    )
    assert (decision.to, decision.failure) == (JobStatus.CANCELED, make.failure())


# --- recovering


def test_a_proven_death_leads_to_the_queue_after_a_pause_that_grows(make) -> None:
    for restarts, pause_ms in ((1, 3_000), (2, 6_000), (3, 12_000), (4, 24_000), (9, 24_000)):
        decision = decide(
            make.view(
                JobStatus.RECOVERING, driver=make.driver(end=-9), state={"restarts": restarts}
            )
        )
        assert decision == Transition(to=JobStatus.PENDING, not_before_ms=make.now_ms + pause_ms)


def test_a_restart_that_does_not_count_waits_for_nothing(make) -> None:
    assert decide(make.view(JobStatus.RECOVERING, driver=make.driver(end=0))) == Transition(
        to=JobStatus.PENDING
    )


def test_a_process_that_does_not_die_keeps_the_job_from_starting_again(make, limits) -> None:
    view = make.view(JobStatus.RECOVERING)
    assert decide(make.ordered(view, DriverCommand.KILL, limits.kill_ms - 1)) == NoTransition(
        command=DriverCommand.KILL
    )
    decision = decide(make.ordered(view, DriverCommand.KILL, limits.kill_ms))
    assert gone(decision) == (JobStatus.FAILING, DriverCommand.KILL)
    assert decision.failure.condition == "driver-undead"


def test_a_failure_that_was_reported_before_the_kill_holds(make) -> None:
    failed = (make.pipeline(PipelineStatus.FAILED, error=make.failure()),)
    assert (
        decide(make.view(JobStatus.RECOVERING, driver=make.driver(end=-9), pipelines=failed)).to
        is JobStatus.FAILING
    )


@pytest.mark.parametrize("left", [PipelineStatus.FAILED, PipelineStatus.FINISHED])
def test_what_an_earlier_incarnation_left_says_nothing_about_this_one(make, left) -> None:
    view = make.undriven(
        JobStatus.RECOVERING,
        driver=make.driver(end=-9, generation=2),
        pipelines=(make.pipeline(left),),
    )
    assert decide(view).to is JobStatus.PENDING


# --- led by `tidegate run`


@pytest.mark.parametrize("status", LIVING)
@pytest.mark.parametrize("alive", [True, None])
def test_a_job_led_by_a_run_is_left_alone_while_that_process_lives_or_cannot_be_seen(
    make, status, alive
) -> None:
    view = make.view(
        status,
        DesiredState.CANCEL,
        state={"leader": make.process()},
        embedded_alive=alive,
        driver=make.driver(end=-9),
        health=STALLED,
    )
    assert decide(view) == NoTransition()


@pytest.mark.parametrize(
    "status",
    [
        JobStatus.INITIALIZING,
        JobStatus.CREATED,
        JobStatus.PENDING,
        JobStatus.SCHEDULED,
        JobStatus.RUNNING,
        JobStatus.RECOVERING,
    ],
)
def test_a_job_whose_run_has_died_fails_and_says_so(make, status) -> None:
    decision = decide(make.view(status, state={"leader": make.process(99)}, embedded_alive=False))
    assert gone(decision) == (JobStatus.FAILING, DriverCommand.KILL)
    assert "process 99 on h" in decision.failure.message
    assert (
        decide(
            make.view(
                JobStatus.FAILING,
                state={"leader": make.process(99)},
                embedded_alive=False,
                driver=None,
            )
        ).to
        is JobStatus.FAILED
    )


# --- terminal


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("desired", list(DesiredState))
def test_terminal_is_terminal_whatever_is_seen(make, status, desired) -> None:
    for seen in (
        make.view(status, desired),
        make.undriven(status, desired, placement=Placement("w")),
        make.view(status, desired, driver=make.driver(end=-9), health=STALLED),
    ):
        assert decide(seen) == NoTransition()
    assert (
        decide(make.view(status, desired, state={"leader": make.process()}, embedded_alive=False))
        == NoTransition()
    )
