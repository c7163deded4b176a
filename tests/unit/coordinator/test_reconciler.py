"""The reconciler with one leader, one worker lease, and records written as a driver would."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from coordinator_parts import Installation, plan

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.events import EventKind, JobChange
from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.coordinator.reconciler import Reconciler
from tidegate.coordinator.transitions import TransitionWriter
from tidegate.election import Elector, Leader, worker_lease
from tidegate.lifecycle.decision import Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.document import to_document
from tidegate.model.engine import EngineSettings, WorkerSettings
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.log_retention import LogRetentionMetric, RetentionLevel
from tidegate.model.records import (
    ASSIGNMENTS,
    DRIVERS,
    HEARTBEATS,
    JOB_OUTCOMES,
    JOB_STATES,
    LEASES,
    METRICS,
    PENDING_CLEANUPS,
    RUNNING_JOBS,
    WORKERS,
    Assignment,
    DesiredState,
    DriverCommand,
    DriverEnd,
    DriverRecord,
    JobStatus,
    PipelineMetrics,
    PipelineStatus,
    ProcessRef,
    WorkerRecord,
)
from tidegate.runner.process import process_ref
from tidegate.store.base import Check, Delete, Put

DRIVER = ProcessRef(pid=4711, started=1, boot="b", host="h")


class Heard:
    """Remembers what people would be told."""

    def __init__(self) -> None:
        self.events: list[JobChange] = []

    def record(self, event: JobChange) -> None:
        self.events.append(event)


class LeadingServer:
    """A server that leads, with its parts in reach."""

    def __init__(self, here: Installation, name: str = "server") -> None:
        self.here = here
        self.heard = Heard()
        self.elector = Elector(
            here.store, "coordinator", name, "", here.settings.coordinator.lease_ms, here.clock
        )
        cache = ClusterCache(here.store, here.clock)
        recorder = TransitionWriter(here.store, here.storage, here.settings, here.clock, self.heard)
        self.reconciler = Reconciler(
            cache, recorder, here.settings, here.clock, alive=lambda _: False
        )
        self.workers: dict[str, Elector] = {}

    def worker(
        self, name: str = "w", *, slots: int = 2, tags: dict[str, str] | None = None
    ) -> None:
        """A worker that holds its lease for as long as this leader takes turns."""
        self.workers[name] = Elector(
            self.here.store,
            worker_lease(name),
            name,
            "",
            self.here.settings.worker.lease_ms,
            self.here.clock,
        )
        self.workers[name].claim()
        record = WorkerRecord(
            id=name, host="h", boot="b", process=DRIVER, slots=slots, tags=tags or {}
        )
        self.here.store.transact([], [Put(WORKERS, name, to_document(record))])

    def turns(self, count: int = 1, *, ms: int = 200) -> None:
        """So many turns, with time between them."""
        for _ in range(count):
            for worker in self.workers.values():
                worker.claim()
            leading = self.elector.claim()
            assert isinstance(leading, Leader)
            self.reconciler.step(leading)
            self.here.clock.ms += ms

    def drive(self, job_id: int = 7) -> DriverRecord:
        """The driver of the current generation registers."""
        state = self.here.state(job_id)
        record = DriverRecord(
            job_id=job_id,
            generation=state.generation,
            process=DRIVER,
            worker="w",
            started_ms=self.here.clock.now_ms(),
        )
        self.here.store.transact([], [Put(DRIVERS, str(job_id), to_document(record))])
        return record

    def dies(self, record: DriverRecord, code: int = -9) -> None:
        """The worker reports its end."""
        ended = replace(
            record, end=DriverEnd(at_ms=self.here.clock.now_ms(), code=code, proof="exit")
        )
        self.here.store.transact([], [Put(DRIVERS, str(record.job_id), to_document(ended))])

    def order(self, job_id: int = 7) -> Assignment | None:
        known = self.here.snapshot(job_id)
        return known.assignment.value if known.assignment else None


@pytest.fixture
def leader(here: Installation) -> LeadingServer:
    return LeadingServer(here)


def running(leader: LeadingServer, **options: JobEnv) -> DriverRecord:
    """Job 7 runs on a worker."""
    leader.worker()
    leader.here.submit(of=plan(**options))
    leader.turns(3)
    record = leader.drive()
    leader.turns(2)
    assert leader.here.state().status is JobStatus.RUNNING
    return record


def test_a_job_goes_from_created_to_running_and_every_step_is_reported(
    leader: LeadingServer,
) -> None:
    running(leader)
    assert [e.to for e in leader.heard.events] == ["SCHEDULED", "RUNNING"]
    assert leader.here.state().entered.keys() == {"CREATED", "SCHEDULED", "RUNNING"}
    order = leader.order()
    assert order is not None
    assert (order.generation, order.worker, order.command) == (1, "w", DriverCommand.RUN)
    assert leader.here.pipeline().generation == 1


def test_a_job_without_a_worker_waits_and_says_why(leader: LeadingServer) -> None:
    leader.here.submit()
    leader.turns(3)
    assert (leader.here.state().status, leader.here.state().reason) == (
        JobStatus.PENDING,
        "no worker is running",
    )


def test_a_job_that_cannot_run_yet_never_blocks_one_that_can(leader: LeadingServer) -> None:
    leader.worker(slots=1)
    leader.here.submit(job_id=1, of=plan(env=JobEnv(tags={"zone": "x"})))
    leader.here.submit(job_id=2)
    leader.here.submit(job_id=3)
    leader.turns(8)
    assert leader.here.state(2).status is JobStatus.SCHEDULED
    assert "zone=x" in leader.here.state(1).reason
    assert leader.here.state(3).reason == "all 1 slots are taken"


def test_a_worker_that_is_about_to_adopt_a_driver_gets_no_job_for_the_same_slot(
    leader: LeadingServer,
) -> None:
    running(leader)
    leader.here.submit(job_id=8)
    leader.turns(3)
    leader.here.submit(job_id=9)
    leader.turns(3)
    assert leader.here.state(9).reason == "all 2 slots are taken"
    del leader.workers["w"]
    leader.here.store.transact(
        [],
        [
            Delete(WORKERS, "w"),
            Delete(LEASES, worker_lease("w")),
            Delete(HEARTBEATS, worker_lease("w")),
        ],
    )
    leader.worker("other", slots=1)
    leader.turns(8)
    adopted = leader.order()
    assert adopted is not None
    assert (adopted.worker, leader.order(9)) == ("other", None)
    assert leader.here.state(9).status is JobStatus.PENDING


def test_a_finished_job_ends_in_one_transaction_with_its_cleanup(leader: LeadingServer) -> None:
    record = running(leader)
    leader.here.checkpoint(status=PipelineStatus.FINISHED)
    leader.dies(record, code=0)
    leader.turns(2)
    assert leader.here.state().status is JobStatus.FINISHED
    assert leader.here.store.get(RUNNING_JOBS, "7") is None
    assert leader.here.store.get(ASSIGNMENTS, "7") is None
    assert leader.here.store.get(JOB_OUTCOMES, "7") is not None
    assert leader.here.store.get(PENDING_CLEANUPS, "7") is not None


def test_a_driver_that_dies_is_followed_by_the_next_generation_from_its_checkpoint(
    leader: LeadingServer,
) -> None:
    record = running(leader)
    leader.here.checkpoint()
    leader.dies(record)
    leader.turns(30)
    assert leader.here.state().status is JobStatus.SCHEDULED
    assert leader.here.state().generation == 2
    assert leader.here.pipeline().generation == 2
    assert leader.here.pipeline().latest is not None
    assert leader.here.state().failures[-1].message == "the driver died (signal 9)"


def test_nothing_starts_before_the_old_driver_is_proven_dead(leader: LeadingServer) -> None:
    running(
        leader,
        env=JobEnv(mode=JobMode.STREAMING, checkpoint_interval_ms=1000, checkpoint_timeout_ms=1000),
    )
    leader.turns(3, ms=200)
    leader.turns(150, ms=1000)
    order = leader.order()
    assert order is not None
    assert order.command is DriverCommand.KILL
    assert leader.here.state().generation == 1
    assert leader.here.state().status in (JobStatus.RECOVERING, JobStatus.FAILING)


def test_a_requested_stop_becomes_a_command_and_ends_the_job(leader: LeadingServer) -> None:
    record = running(leader)
    leader.here.checkpoint()
    leader.here.commands.stop(7, DesiredState.CANCEL)
    leader.turns(2)
    order = leader.order()
    assert order is not None
    assert order.command is DriverCommand.STOP
    leader.dies(record, code=0)
    leader.turns(2)
    assert leader.here.state().status is JobStatus.CANCELED
    assert leader.here.pipeline().latest is not None, "what was done can be resumed"
    assert leader.here.pipeline().generation > record.generation, (
        "nobody who is left over can write there"
    )


def test_a_silent_worker_loses_its_lease_and_its_driver_is_adopted_and_not_restarted(
    leader: LeadingServer,
) -> None:
    running(leader)
    del leader.workers["w"]
    leader.worker("v")
    leader.turns(60)
    order = leader.order()
    assert order is not None
    assert (order.worker, order.generation, order.command) == ("v", 1, DriverCommand.RUN)
    assert leader.here.state().status is JobStatus.RUNNING
    assert leader.here.store.get(WORKERS, "w") is None


def test_a_heartbeat_during_a_pause_of_the_leader_prevents_the_death_record(
    leader: LeadingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(leader)
    del leader.workers["w"]
    held_up, heard = TransitionWriter.write_transition, []

    def go(
        recorder: TransitionWriter,
        lease: Check,
        snapshot: JobSnapshot,
        view: JobObservation,
        decision: Transition,
    ) -> None:
        """Between the leader's look, which found nothing but silence, and its word the driver gives
        a heartbeat.
        """
        if decision.proof and not heard:
            figures = PipelineMetrics(pipeline=1, generation=1, at_ms=leader.here.clock.now_ms())
            heard.append(
                leader.here.store.transact([], [Put(METRICS, "7/1", to_document(figures))])
            )
        held_up(recorder, lease, snapshot, view, decision)

    monkeypatch.setattr(TransitionWriter, "write_transition", go)
    for _ in range(300):
        leader.turns()
        if heard:
            break
    assert heard, "silence was never taken for death"
    driver = leader.here.snapshot(7).driver
    assert driver is not None
    assert driver.value.end is None
    assert leader.here.state().status is JobStatus.RUNNING
    leader.turns(300)
    assert leader.here.state().status is not JobStatus.RUNNING, "silent again, and for long enough"


def test_a_stale_running_entry_is_removed_and_never_started(leader: LeadingServer) -> None:
    leader.worker()
    leader.here.submit()
    leader.here.put(replace(leader.here.state(), status=JobStatus.FAILED))
    leader.turns(3)
    assert leader.here.store.get(RUNNING_JOBS, "7") is None
    assert leader.here.state().status is JobStatus.FAILED
    assert leader.here.store.get(PENDING_CLEANUPS, "7") is not None
    assert leader.order() is None


def test_a_job_whose_state_is_missing_is_unknowable_and_not_guessed(leader: LeadingServer) -> None:
    leader.worker()
    record = leader.here.submit()
    leader.here.store.transact([], [Delete(JOB_STATES, "7")])
    leader.turns(3)
    assert leader.here.store.get(RUNNING_JOBS, "7") is None
    assert leader.here.state().status is JobStatus.UNKNOWABLE
    assert leader.here.state().initialization_ms == record.initialization_ms


def test_a_leader_whose_lease_was_taken_writes_nothing(here: Installation) -> None:
    old, new = LeadingServer(here, "old"), LeadingServer(here, "new")
    old.worker()
    here.submit()
    leading = old.elector.claim()
    assert isinstance(leading, Leader)
    new.elector.claim()
    revision = here.store.revision()
    old.reconciler.step(leading)
    assert here.store.revision() == revision
    assert here.state().status is JobStatus.CREATED


def test_a_job_whose_checkpoints_are_all_damaged_fails_and_says_which(
    leader: LeadingServer,
) -> None:
    record = running(leader)
    ref = leader.here.checkpoint()
    leader.here.storage.files.write(f"{ref.path}/_manifest.json", b"{")
    leader.dies(record)
    leader.turns(30)
    assert leader.here.state().status is JobStatus.FAILED
    assert ref.path in leader.here.state().failures[-1].message


def test_a_job_whose_embedded_leader_died_fails_and_can_be_resumed(leader: LeadingServer) -> None:
    leader.here.submit()
    leader.here.put(
        replace(
            leader.here.state(),
            status=JobStatus.RUNNING,
            generation=1,
            leader=process_ref(os.getpid()),
        )
    )
    leader.here.put(replace(leader.here.pipeline(), generation=1))
    leader.here.checkpoint()
    leader.turns(5)
    assert leader.here.state().status is JobStatus.FAILED
    assert leader.here.submit(restore="latest").restored


def test_the_retry_budget_is_durable_across_leaders(tmp_path: Path) -> None:
    here = Installation(tmp_path, EngineSettings(worker=WorkerSettings(slots=1)))
    env = JobEnv(retry_times=2, retry_interval_s=1)
    generations = []
    for attempt in range(3):
        leader = LeadingServer(here, f"server-{attempt}")
        if attempt == 0:
            here.submit(of=plan(env=env))
        leader.worker()
        leader.turns(40)
        generations.append(here.state().generation)
        leader.dies(leader.drive())
    leader.turns(20)
    assert generations == [1, 2, 3]
    assert here.state().status is JobStatus.FAILED
    assert [f.generation for f in here.state().failures] == [1, 2, 3]


def test_low_log_retention_is_reported_once_and_stays_with_the_job(
    leader: LeadingServer,
) -> None:
    running(leader)
    told = len(leader.heard.events)
    for seconds in (50.0, 40.0, 30.0):
        figure = LogRetentionMetric(
            source="orders", level=RetentionLevel.LOW, checkpoint=3, seconds_left=seconds
        )
        metrics = PipelineMetrics(
            pipeline=1, generation=leader.here.state().generation, log_retention=(figure,)
        )
        leader.here.store.transact([], [Put(METRICS, "7/1", to_document(metrics))])
        leader.turns(2)
    state = leader.here.state()
    assert (state.log_retention, state.log_retention_reason) == (
        RetentionLevel.LOW,
        "orders will not hold checkpoint 3 for long: 50 s left",
    )
    assert [(event.kind, event.from_value, event.to) for event in leader.heard.events[told:]] == [
        (EventKind.RUNWAY, "OK", "LOW")
    ]
