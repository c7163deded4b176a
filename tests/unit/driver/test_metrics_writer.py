"""Metrics of a driver: written at a bounded rate when they change, as a heartbeat when they do not.

Only the registered driver writes them.
"""

import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.driver.background import BackgroundEngine, EngineNotStarted
from tidegate.driver.metrics import DELAY_S_MIN, HEARTBEAT_S, MetricsWriter
from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    DRIVERS,
    METRICS,
    DriverEnd,
    DriverRecord,
    PipelineMetrics,
    ProcessRef,
)
from tidegate.pipeline.engine import Engine
from tidegate.pipeline.progress import PipelineProgress
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.process import process_ref
from tidegate.store import Delete, Put, Store, open_store
from tidegate.testing.plain_engine import PlainEngine


@dataclass
class ManualClock:
    """A clock that advances only when the test, or a wait, advances it."""

    at_s: float = 1000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.at_s += seconds
        return event.is_set()


class Scenario:
    """A driver of generation 3 with two pipelines."""

    def __init__(self, store: Store, write_behind_ms: int = 500) -> None:
        self.store = store
        self.clock = ManualClock()
        self.progress = [PipelineProgress(1, 3), PipelineProgress(2, 3)]
        spec = driver_spec(
            EngineSettings(write_behind_ms=write_behind_ms),
            Home(Path("/nowhere")),
            job_id=7,
            generation=3,
        )
        self.writer = MetricsWriter(store, spec, self.progress, self.clock)
        self.register(process_ref(os.getpid()))

    def register(
        self, process: ProcessRef, generation: int = 3, end: DriverEnd | None = None
    ) -> None:
        self.store.transact(
            [],
            [
                Put(
                    DRIVERS,
                    "7",
                    to_document(
                        DriverRecord(job_id=7, generation=generation, process=process, end=end)
                    ),
                )
            ],
        )

    def cycle(self, seconds: float = 0.5) -> set[str]:
        """Advance the clock, run one step, and return the pipelines that were written."""
        before = {e.key: e.version for e in self.store.list(METRICS)}
        self.clock.at_s += seconds
        self.writer.step()
        return {e.key for e in self.store.list(METRICS) if before.get(e.key) != e.version}

    def phases(self) -> list[str]:
        """The phase in the store of each pipeline."""
        return [from_document(PipelineMetrics, e.value).phase for e in self.store.list(METRICS)]


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


def test_unchanged_metrics_are_written_only_as_a_heartbeat(store: Store) -> None:
    scenario = Scenario(store)
    assert scenario.cycle() == {"7/1", "7/2"}
    assert scenario.cycle() == set()
    scenario.progress[1].set_phase("writing")
    assert scenario.cycle() == {"7/2"}
    assert scenario.cycle(HEARTBEAT_S) == {"7/1", "7/2"}
    entry = store.get(METRICS, "7/1")
    assert entry is not None
    assert from_document(PipelineMetrics, entry.value).at_ms == scenario.clock.now_ms()


def test_a_batch_that_waits_for_the_engine_counts_as_starting(store: Store) -> None:
    scenario, up = Scenario(store), threading.Event()
    scenario.writer.waits_for = lambda: "" if up.is_set() else "the cluster grants nothing"
    scenario.progress[0].begin_batch(1)
    scenario.progress[1].set_phase("planning")
    scenario.cycle()
    assert scenario.phases() == ["starting", "planning"]
    entry = store.get(METRICS, "7/1")
    assert entry is not None
    assert from_document(PipelineMetrics, entry.value).waits_for == "the cluster grants nothing"
    up.set()
    assert scenario.cycle() == {"7/1"}
    assert scenario.phases() == ["writing", "planning"]


def test_a_failed_start_of_the_engine_is_repeated() -> None:
    go, starts = threading.Event(), [OSError("no Java"), PlainEngine()]

    def start() -> Engine:
        assert go.wait(60)
        made = starts.pop(0)
        if isinstance(made, OSError):
            raise made
        return made

    engine = BackgroundEngine(start, threading.Event(), lambda: "Java")
    assert not engine.starting
    engine.start()
    assert engine.starting
    go.set()
    with pytest.raises(OSError, match="no Java"):
        engine._ready()
    engine._ready()
    assert not engine.starting
    engine.close()


def test_a_stop_does_not_wait_for_an_engine_that_does_not_start() -> None:
    stop, never = threading.Event(), threading.Event()

    def start() -> Engine:
        never.wait()
        return PlainEngine()

    engine = BackgroundEngine(start, stop, lambda: "the cluster grants nothing")
    engine.start()
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(
        EngineNotStarted, match="stopped before the engine had started: the cluster grants nothing"
    ):
        engine._ready()
    engine.close()
    assert engine.waits_for == "the cluster grants nothing"
    never.set()


def test_heartbeats_are_never_late(store: Store) -> None:
    scenario = Scenario(store)
    beats = [
        scenario.clock.at_s for _ in range(100) if "7/1" in scenario.cycle(scenario.writer.delay_s)
    ]
    assert (
        max(later - earlier for earlier, later in itertools.pairwise(beats)) <= HEARTBEAT_S + 1e-6
    )


@pytest.mark.parametrize(
    ("write_behind_ms", "delay_s"), [(0, DELAY_S_MIN), (300, 0.3), (60_000, HEARTBEAT_S)]
)
def test_the_write_rate_has_a_minimum_and_a_maximum(
    store: Store, write_behind_ms: int, delay_s: float
) -> None:
    assert Scenario(store, write_behind_ms).writer.delay_s == delay_s


def test_an_unregistered_driver_writes_nothing(store: Store) -> None:
    scenario = Scenario(store)
    scenario.register(ProcessRef(pid=1, started=1, boot="b", host="h"))
    assert scenario.cycle() == set()


@pytest.mark.parametrize("what", ["superseded", "ended", "cleaned-up"])
def test_a_replaced_driver_writes_nothing_more(store: Store, what: str) -> None:
    scenario = Scenario(store)
    assert scenario.cycle() == {"7/1", "7/2"}
    if what == "superseded":
        scenario.register(ProcessRef(pid=1, started=1, boot="b", host="h"), generation=4)
    elif what == "ended":
        scenario.register(process_ref(os.getpid()), end=DriverEnd(at_ms=1))
    else:
        store.transact([], [Delete(DRIVERS, "7"), Delete(METRICS, "7/1"), Delete(METRICS, "7/2")])
    scenario.progress[0].set_phase("writing")
    assert scenario.cycle(HEARTBEAT_S) == set()
    assert scenario.cycle(HEARTBEAT_S) == set()


def test_writing_continues_after_a_change_of_our_own_record(store: Store) -> None:
    scenario = Scenario(store)
    scenario.cycle()
    scenario.register(process_ref(os.getpid()))
    assert scenario.cycle(HEARTBEAT_S) == set()
    assert scenario.cycle(HEARTBEAT_S) == {"7/1", "7/2"}
