"""The cost of a reconcile cycle: proportional to changes, not to jobs.

Counted, never timed.
"""

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from coordinator_parts import Installation, plan
from test_reconciler import DRIVER, LeadingServer, running

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.housekeeping import Housekeeper
from tidegate.coordinator.job_executor import THREADS_MAX, ParallelJobExecutor, run_sequentially
from tidegate.coordinator.recheck import (
    SHARES,
    STABLE_EVERY_S_MAX,
    DueQueue,
    RecheckQueue,
    SlotUsage,
    StateTimers,
)
from tidegate.coordinator.reconciler import Reconciler
from tidegate.election import Leader
from tidegate.model.document import to_document
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.records import (
    DRIVERS,
    JOB_STATES,
    METRICS,
    CheckpointHealth,
    DesiredState,
    DriverCommand,
    DriverRecord,
    JobStatus,
    PipelineMetrics,
    PipelineStatus,
)
from tidegate.store.backend import Backend, TransactionName
from tidegate.store.base import OutcomeUnknown, Put
from tidegate.store.errors import StoreUnavailable

STREAM = JobEnv(mode=JobMode.STREAMING, checkpoint_interval_ms=10_000, checkpoint_timeout_ms=30_000)
TURN_MS = 200


class Counted:
    """A backend that counts what it is asked."""

    def __init__(self, real: Backend) -> None:
        self.real, self.asked = real, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self.real, name)


@pytest.fixture
def leader(here: Installation) -> LeadingServer:
    return LeadingServer(here)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each job was looked at."""
    counted: Counter[int] = Counter()
    real = Reconciler._reconcile

    def one(self: Reconciler, leading: Any, job_id: int, places: Any) -> bool:
        counted[job_id] += 1
        return real(self, leading, job_id, places)

    monkeypatch.setattr(Reconciler, "_reconcile", one)
    return counted


def beat(leader: LeadingServer, job_id: int = 7, *, checkpoint: bool = False) -> None:
    """A heartbeat of a driver that waits for its next batch; with a checkpoint, one of progress."""
    metrics = PipelineMetrics(
        pipeline=1,
        generation=leader.here.state(job_id).generation,
        phase="waiting",
        at_ms=leader.here.clock.now_ms(),
    )
    leader.here.store.transact([], [Put(METRICS, f"{job_id}/1", to_document(metrics))])
    if checkpoint:
        state = leader.here.pipeline(job_id)
        leader.here.put(
            replace(
                state,
                status=PipelineStatus.RUNNING,
                checkpoints=state.checkpoints + 1,
                confirmed_ms=leader.here.clock.now_ms(),
            )
        )


def settled(leader: LeadingServer, *jobs: int) -> None:
    """These jobs run, and get on by themselves."""
    for job_id in jobs:
        beat(leader, job_id, checkpoint=True)
    leader.turns(8, ms=TURN_MS)


def many_running(leader: LeadingServer, count: int) -> list[int]:
    """So many jobs run, and get on by themselves."""
    leader.worker(slots=count)
    jobs = list(range(1, count + 1))
    for job_id in jobs:
        leader.here.submit(job_id, of=plan(env=STREAM))
    leader.turns(3)
    for job_id in jobs:
        record = DriverRecord(
            job_id=job_id,
            generation=leader.here.state(job_id).generation,
            process=DRIVER,
            worker="w",
        )
        leader.here.store.transact([], [Put(DRIVERS, str(job_id), to_document(record))])
    leader.turns(2)
    settled(leader, *jobs)
    assert {leader.here.state(job_id).status for job_id in jobs} == {JobStatus.RUNNING}
    return jobs


def test_a_stable_job_is_not_checked_at_every_heartbeat(
    leader: LeadingServer, looks: Counter[int]
) -> None:
    running(leader, env=STREAM)
    settled(leader, 7)
    looks.clear()
    turns = round(4 * STABLE_EVERY_S_MAX * 1000 / TURN_MS)
    for turn in range(turns):
        beat(leader, checkpoint=turn % 10 == 0)
        leader.turns(1, ms=TURN_MS)
    assert 3 <= looks[7] <= 6, "four of its times have passed, and a hundred turns"


def test_a_job_with_a_short_interval_is_checked_every_second(
    leader: LeadingServer, looks: Counter[int]
) -> None:
    running(leader, env=replace(STREAM, checkpoint_interval_ms=1_000, checkpoint_timeout_ms=1_000))
    settled(leader, 7)
    looks.clear()
    for _ in range(50):
        beat(leader, checkpoint=True)
        leader.turns(1, ms=TURN_MS)
    assert 8 <= looks[7] <= 12, "ten seconds"


def test_a_change_of_a_stable_job_is_checked_at_once(
    leader: LeadingServer, looks: Counter[int]
) -> None:
    running(leader, env=STREAM)
    settled(leader, 7)
    leader.here.commands.stop(7, DesiredState.CANCEL)
    leader.turns(1)
    order = leader.order()
    assert order is not None
    assert order.command is DriverCommand.STOP
    looks.clear()
    for _ in range(5):
        beat(leader)
        leader.turns(1, ms=TURN_MS)
    assert looks[7] == 5, "a job that is on its way is looked at whenever anything changes"


def test_a_pipeline_that_has_failed_is_news(leader: LeadingServer) -> None:
    running(leader, env=STREAM)
    settled(leader, 7)
    leader.here.put(replace(leader.here.pipeline(), status=PipelineStatus.FAILED))
    leader.turns(1)
    assert leader.here.state().status is not JobStatus.RUNNING


def test_a_stable_job_without_progress_becomes_late_within_one_check(
    leader: LeadingServer,
) -> None:
    running(leader, env=STREAM)
    settled(leader, 7)
    beat(leader, checkpoint=True)
    began_ms = leader.here.clock.now_ms()
    late_ms = 0
    while not late_ms and leader.here.clock.now_ms() - began_ms < 60_000:
        leader.turns(1, ms=TURN_MS)
        beat(leader)
        if leader.here.state().health is CheckpointHealth.LATE:
            late_ms = leader.here.clock.now_ms() - began_ms
    assert 40_000 < late_ms <= 40_000 + STABLE_EVERY_S_MAX * 1000 + 3 * TURN_MS


def test_a_stable_job_is_checked_at_once_when_its_worker_is_lost(leader: LeadingServer) -> None:
    jobs = many_running(leader, 3)
    del leader.workers["w"]
    leader.worker("other", slots=10)
    for _ in range(40):
        for job_id in jobs:
            beat(leader, job_id)
        leader.turns(1, ms=TURN_MS)
    assert {order.worker for job_id in jobs if (order := leader.order(job_id))} == {"other"}
    assert {leader.here.state(job_id).status for job_id in jobs} == {JobStatus.RUNNING}


def test_an_idle_cycle_reads_the_same_for_many_jobs_as_for_few(
    here: Installation, looks: Counter[int]
) -> None:
    asked: list[Counter[str]] = []
    leader = LeadingServer(here)
    for count in (2, 40):
        jobs = many_running(leader, count) if count == 40 else []
        leader.turns(1)
        here.store.backend = counted = Counted(here.store.backend)
        looks.clear()
        leading = leader.elector.leadership()
        assert isinstance(leading, Leader)
        leader.reconciler.step(leading)
        here.store.backend = counted.real
        asked.append(counted.asked)
        assert sum(looks.values()) <= len(jobs) // 8, "a share of them at most"
    assert asked[0] == asked[1] == Counter({"feed": 1, "scan": 2})


def test_every_job_is_checked_after_a_failed_cycle(
    leader: LeadingServer, looks: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = many_running(leader, 5)

    def out_of_reach(*_: object) -> bool:
        raise StoreUnavailable("the cable")

    with monkeypatch.context() as broken:
        broken.setattr(Reconciler, "_reconcile", out_of_reach)
        leader.here.put(replace(leader.here.state(jobs[0]), reason="news"))
        with pytest.raises(StoreUnavailable):
            leader.turns(1)
    looks.clear()
    leader.turns(1)
    assert set(looks) == set(jobs)


def test_a_job_that_could_not_be_read_for_a_while_is_found_again(
    leader: LeadingServer, looks: Counter[int]
) -> None:
    jobs = many_running(leader, 2)
    leader.reconciler.recheck.forget(jobs[0])
    looks.clear()
    leader.turns(round(3 * STABLE_EVERY_S_MAX * 1000 / TURN_MS), ms=TURN_MS)
    assert set(looks) == set(jobs)


def test_housekeeping_with_nothing_due_reads_nothing(
    here: Installation,
) -> None:
    for job_id in range(1, 60):
        here.submit(job_id)
        here.ended(JobStatus.FINISHED, job_id)
    leader = LeadingServer(here)
    leading = leader.elector.claim()
    assert isinstance(leading, Leader)
    cache = ClusterCache(here.store, here.clock)
    cache.refresh()
    housekeeper = Housekeeper(cache, here.storage, here.settings, here.clock)
    housekeeper.step(leading)
    here.store.backend = counted = Counted(here.store.backend)
    housekeeper.step(leading)
    assert counted.asked == Counter()
    assert housekeeper.cleanups.until(
        here.clock.now_ms() + here.settings.state_cleanup_delay_ms
    ) == list(range(1, 60))


def test_a_submit_without_an_id_is_one_transaction_and_asks_nothing(here: Installation) -> None:
    here.store.backend = counted = Counted(here.store.backend)
    record = here.submit(job_id=None)
    here.store.backend = counted.real
    assert counted.asked == Counter({"apply": 1})
    assert here.state(record.job_id).status is JobStatus.CREATED


def test_an_id_that_was_made_twice_is_made_once_more(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = here.submit(7)
    ids = iter((7, 8))
    monkeypatch.setattr(here.commands, "_new_id", lambda: next(ids))
    assert here.submit(job_id=None).job_id == 8
    record = here.snapshot(7).record
    assert record is not None
    assert record.value == first


def test_a_timer_restarts_with_a_change_and_skips_unobserved_time() -> None:
    ages = StateTimers()
    ages.tick(0)
    assert ages.ms(7, "a", "figures") == 0
    ages.tick(1)
    assert (ages.ms(7, "a", "figures"), ages.ms(7, "b", "figures", 1)) == (1_000, 0)
    assert ages.ms(7, "b", "figures") == 0
    ages.tick(100)
    assert ages.ms(7, "b", "figures") == 1_000
    ages.forget(7)
    assert ages.ms(7, "b", "figures") == 0


def test_stable_jobs_are_spread_and_active_ones_share_a_cycle() -> None:
    rounds = RecheckQueue()
    for job_id in range(10 * SHARES):
        rounds.schedule(job_id, 100.0, 6.4)
    slices = [len(rounds.due(100.0 + 0.1 * share + 0.05)) for share in range(1, SHARES + 2)]
    assert (max(slices), sum(slices)) == (10, 10 * SHARES)
    for job_id in range(20):
        rounds.schedule(job_id, 200.0 + job_id / 100, None)
    assert (rounds.due(200.9), rounds.due(201.0)) == (set(), set(range(20)))
    assert rounds.active({1, 2, 30}) == {1, 2}


def test_a_job_that_is_checked_often_is_queued_about_once() -> None:
    rounds = RecheckQueue()
    for turn in range(10_000):
        rounds.schedule(turn % 3, turn / 10, None)
    assert len(rounds._queue) < 10 + SHARES
    rounds.forget(0)
    assert rounds.due(2_000.0) == {1, 2}
    assert rounds.missing([0, 1, 2, 3]) == {0, 3}


def test_a_due_queue_returns_due_jobs() -> None:
    calendar = DueQueue()
    for job_id, at_ms in ((1, 30), (2, 10), (3, 20), (4, 20)):
        calendar.put(job_id, at_ms)
    assert (calendar.until(9), calendar.until(20), calendar.until(99)) == (
        [],
        [2, 3, 4],
        [2, 3, 4, 1],
    )
    calendar.put(2, 40)
    calendar.put(3, None)
    calendar.put(5, None)
    assert calendar.until(99) == [4, 1, 2]


def test_slots_are_counted_as_assignments_come_and_go() -> None:
    taken = SlotUsage()
    for job_id, holder in ((1, "a"), (2, "a"), (3, "b"), (1, "b"), (2, None), (4, None)):
        taken.put(job_id, holder)
    assert (taken.slots["a"], taken.slots["b"], taken.slots["c"]) == (0, 2, 0)


@pytest.mark.parametrize("many", [run_sequentially, ParallelJobExecutor()])
def test_all_jobs_run_sequentially_or_in_parallel(many: Any) -> None:
    moved: list[int] = []

    def move(job_id: int) -> bool:
        moved.append(job_id)
        return job_id % 2 == 0

    assert many(move, list(range(100))) == 50
    assert sorted(moved) == list(range(100))
    assert many(move, []) == 0


def test_parallel_jobs_wait_for_the_store_at_the_same_time() -> None:
    meeting = threading.Barrier(THREADS_MAX, timeout=60)

    def move(_: int) -> bool:
        return meeting.wait() >= 0

    assert ParallelJobExecutor()(move, list(range(THREADS_MAX))) == THREADS_MAX


def test_an_unavailable_store_ends_the_cycle_after_all_threads() -> None:
    hands, begun, done = ParallelJobExecutor(), [], []

    def move(job_id: int) -> bool:
        begun.append(job_id)
        if job_id == 5:
            raise StoreUnavailable("the cable")
        done.append(job_id)
        return True

    with pytest.raises(StoreUnavailable, match="the cable"):
        hands(move, list(range(50)))
    assert sorted(begun) == sorted([*done, 5])
    assert hands(lambda _: True, list(range(50))) == 50  # the next turn


def test_threads_are_reused_in_the_next_cycle() -> None:
    hands, who = ParallelJobExecutor(), set()

    def move(_: int) -> bool:
        who.add(threading.get_ident())
        return True

    assert [hands(move, list(range(20))) for _ in range(50)] == [20] * 50
    assert len(who) <= THREADS_MAX


def test_a_write_with_unknown_outcome_is_checked_again(
    here: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader, real, lost = LeadingServer(here), here.store.transact, []
    leader.worker(slots=1)
    here.submit(1)

    def transact(checks: Any = (), writes: Any = ()) -> int:
        revision = real(checks, writes)
        if not lost and any(write.map == JOB_STATES for write in writes):
            lost.append(revision)
            raise OutcomeUnknown(TransactionName(id=b"1", since=0), "its token was pruned")
        return revision

    monkeypatch.setattr(here.store, "transact", transact)
    leader.turns(3)
    assert (len(lost), here.state(1).status) == (1, JobStatus.SCHEDULED)
    assert "job_reconcile_failed" not in caplog.text


def test_a_leader_with_several_threads_starts_all_jobs(here: Installation) -> None:
    leader = LeadingServer(here)
    leader.reconciler.run_jobs = ParallelJobExecutor()
    leader.worker(slots=30)
    for job_id in range(1, 31):
        here.submit(job_id)
    leader.turns(3)
    assert {here.state(job_id).status for job_id in range(1, 31)} == {JobStatus.SCHEDULED}
    assert all(here.store.get(JOB_STATES, str(job_id)) for job_id in range(1, 31))
