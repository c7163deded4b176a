"""The figures of a driver: written when they change, at a bounded rate; as a sign of life when they
do not; by nobody but the driver on record.
"""

import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.driver.background import BackgroundEngine, EngineNotStarted
from tidegate.driver.metrics import ALIVE_S, DELAY_S_MIN, MetricsWriter
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
from tidegate.runner.process import reference
from tidegate.store import Delete, Put, Store, open_store
from tidegate.testing.plain_engine import PlainEngine


@dataclass
class Hands:
    """A clock that stands still until it is turned."""

    at_s: float = 1000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.at_s += seconds
        return event.is_set()


class World:
    """A driver of generation 3 with two pipelines."""

    def __init__(self, store: Store, write_behind_ms: int = 500) -> None:
        self.store = store
        self.clock = Hands()
        self.meters = [PipelineProgress(1, 3), PipelineProgress(2, 3)]
        order = driver_spec(
            EngineSettings(write_behind_ms=write_behind_ms),
            Home(Path("/nowhere")),
            job_id=7,
            generation=3,
        )
        self.writer = MetricsWriter(store, order, self.meters, self.clock)
        self.register(reference(os.getpid()))

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

    def turn(self, seconds: float = 0.5) -> set[str]:
        """Which pipelines' figures were written."""
        before = {e.key: e.version for e in self.store.list(METRICS)}
        self.clock.at_s += seconds
        self.writer.step()
        return {e.key for e in self.store.list(METRICS) if before.get(e.key) != e.version}

    def phases(self) -> list[str]:
        """What is on record of each pipeline."""
        return [from_document(PipelineMetrics, e.value).phase for e in self.store.list(METRICS)]


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


def test_what_has_changed_is_written_and_what_has_not_only_as_a_sign_of_life(store: Store) -> None:
    world = World(store)
    assert world.turn() == {"7/1", "7/2"}
    assert world.turn() == set()
    world.meters[1].phase("writing")
    assert world.turn() == {"7/2"}
    assert world.turn(ALIVE_S) == {"7/1", "7/2"}
    entry = store.get(METRICS, "7/1")
    assert entry is not None
    assert from_document(PipelineMetrics, entry.value).at_ms == world.clock.now_ms()


def test_a_batch_that_waits_for_the_engine_is_part_of_the_start(store: Store) -> None:
    world, up = World(store), threading.Event()
    world.writer.waits_for = lambda: "" if up.is_set() else "the cluster grants nothing"
    world.meters[0].batch(1)
    world.meters[1].phase("planning")
    world.turn()
    assert world.phases() == ["starting", "planning"]
    entry = store.get(METRICS, "7/1")
    assert entry is not None
    assert from_document(PipelineMetrics, entry.value).waits_for == "the cluster grants nothing"
    up.set()
    assert world.turn() == {"7/1"}
    assert world.phases() == ["writing", "planning"]


def test_an_engine_starts_until_it_is_there_and_again_where_its_start_has_failed() -> None:
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


def test_a_stop_does_not_wait_for_an_engine_that_does_not_come_up() -> None:
    stop, never = threading.Event(), threading.Event()

    def start() -> Engine:
        never.wait()
        return PlainEngine()

    engine = BackgroundEngine(start, stop, lambda: "the cluster grants nothing")
    engine.start()
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(
        EngineNotStarted, match="stopped before the engine was up: the cluster grants nothing"
    ):
        engine._ready()
    engine.close()
    assert engine.waits_for == "the cluster grants nothing"
    never.set()


def test_a_driver_is_never_silent_for_longer_than_it_may_be(store: Store) -> None:
    world = World(store)
    signs = [world.clock.at_s for _ in range(100) if "7/1" in world.turn(world.writer.delay_s)]
    assert max(later - earlier for earlier, later in itertools.pairwise(signs)) <= ALIVE_S + 1e-6


@pytest.mark.parametrize(
    ("write_behind_ms", "delay_s"), [(0, DELAY_S_MIN), (300, 0.3), (60_000, ALIVE_S)]
)
def test_the_rate_is_bounded_on_both_sides(
    store: Store, write_behind_ms: int, delay_s: float
) -> None:
    assert World(store, write_behind_ms).writer.delay_s == delay_s


def test_a_driver_that_is_not_on_record_writes_nothing(store: Store) -> None:
    world = World(store)
    world.register(ProcessRef(pid=1, started=1, boot="b", host="h"))
    assert world.turn() == set()


@pytest.mark.parametrize("what", ["overtaken", "ended", "cleaned-up"])
def test_a_driver_that_is_no_longer_on_record_writes_nothing_more(store: Store, what: str) -> None:
    world = World(store)
    assert world.turn() == {"7/1", "7/2"}
    if what == "overtaken":
        world.register(ProcessRef(pid=1, started=1, boot="b", host="h"), generation=4)
    elif what == "ended":
        world.register(reference(os.getpid()), end=DriverEnd(at_ms=1))
    else:
        store.transact([], [Delete(DRIVERS, "7"), Delete(METRICS, "7/1"), Delete(METRICS, "7/2")])
    world.meters[0].phase("writing")
    assert world.turn(ALIVE_S) == set()
    assert world.turn(ALIVE_S) == set()


def test_a_record_that_was_touched_but_is_still_ours_is_written_under_again(store: Store) -> None:
    world = World(store)
    world.turn()
    world.register(reference(os.getpid()))
    assert world.turn(ALIVE_S) == set()
    assert world.turn(ALIVE_S) == {"7/1", "7/2"}
