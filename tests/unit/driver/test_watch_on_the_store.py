"""What a detached driver does about what the store says, and about a store that says nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.clock import SystemClock
from tidegate.driver.commands import CommandWatcher, DriverControl
from tidegate.home import Home
from tidegate.model.document import to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TransientError
from tidegate.model.records import (
    ASSIGNMENTS,
    JOB_STATES,
    Assignment,
    DriverCommand,
    JobState,
    JobStatus,
)
from tidegate.runner.driver_spec import driver_spec
from tidegate.store import Delete, Put, Store, open_store
from tidegate.testing.faulty_store import Fault, faulty_store


class World:
    """A driver of generation 3, and what it was told."""

    def __init__(self, store: Store) -> None:
        # type: Store, list[str]
        self.store = store
        self.told = []
        order = driver_spec(
            EngineSettings(), Home(Path("/nowhere")), job_id=7, generation=3, detached=True
        )
        reins = DriverControl(
            stop=lambda: self.told.append("stop"),
            interrupt=lambda: self.told.append("interrupt"),
            end=lambda: self.told.append("end"),
        )
        self.watch = CommandWatcher(store, order, reins, SystemClock())
        self.state(JobState(job_id=7, status=JobStatus.RUNNING, generation=3))

    def state(self, state: JobState) -> None:
        self.store.transact([], [Put(JOB_STATES, "7", to_document(state))])

    def order(self, order: DriverCommand, generation: int = 3) -> None:
        self.store.transact(
            [],
            [
                Put(
                    ASSIGNMENTS,
                    "7",
                    to_document(
                        Assignment(
                            job_id=7,
                            initialization_ms=1,
                            generation=generation,
                            worker="w",
                            order=order,
                        )
                    ),
                )
            ],
        )

    def look(self) -> list[str]:
        self.told.clear()
        self.watch.step()
        return self.told


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def test_without_an_order_a_driver_goes_on(world: World) -> None:
    assert world.look() == []
    world.order(DriverCommand.RUN)
    assert world.look() == []


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (DriverCommand.STOP, "stop"),
        (DriverCommand.INTERRUPT, "interrupt"),
        (DriverCommand.TERMINATE, "interrupt"),
        (DriverCommand.KILL, "end"),
    ],
)
def test_an_order_is_obeyed_at_every_look_while_it_stands(
    world: World, order: DriverCommand, told: str
) -> None:
    world.order(order)
    assert world.look() == [told]
    assert world.look() == [told]


def test_an_order_for_another_generation_is_none(world: World) -> None:
    world.order(DriverCommand.KILL, generation=2)
    assert world.look() == []


@pytest.mark.parametrize(
    "state",
    [
        JobState(job_id=7, status=JobStatus.RUNNING, generation=4),
        JobState(job_id=7, status=JobStatus.FAILED, generation=3),
    ],
)
def test_a_driver_that_was_overtaken_ends(world: World, state: JobState) -> None:
    world.state(state)
    assert world.look() == ["end"]


def test_a_driver_whose_job_is_gone_ends(world: World) -> None:
    world.store.transact([], [Delete(JOB_STATES, "7")])
    assert world.look() == ["end"]


def test_a_store_out_of_reach_says_nothing(store: Store) -> None:
    down: list[bool] = []
    world = World(faulty_store(store, lambda _: Fault.UNAVAILABLE if down else Fault.NONE)[0])
    world.order(DriverCommand.KILL)
    down.append(True)
    with pytest.raises(TransientError):  # the thread waits for better weather
        world.look()
    assert world.told == []
