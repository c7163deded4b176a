"""How a detached driver reacts to commands in the store, and to an unreachable store."""

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


class Scenario:
    """A driver of generation 3, and the calls that commands made."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[str] = []
        spec = driver_spec(
            EngineSettings(), Home(Path("/nowhere")), job_id=7, generation=3, detached=True
        )
        control = DriverControl(
            stop=lambda: self.calls.append("stop"),
            interrupt=lambda: self.calls.append("interrupt"),
            end=lambda: self.calls.append("end"),
        )
        self.watcher = CommandWatcher(store, spec, control, SystemClock())
        self.state(JobState(job_id=7, status=JobStatus.RUNNING, generation=3))

    def state(self, state: JobState) -> None:
        self.store.transact([], [Put(JOB_STATES, "7", to_document(state))])

    def command(self, command: DriverCommand, generation: int = 3) -> None:
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
                            command=command,
                        )
                    ),
                )
            ],
        )

    def poll(self) -> list[str]:
        self.calls.clear()
        self.watcher.step()
        return self.calls


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


@pytest.fixture
def scenario(store: Store) -> Scenario:
    return Scenario(store)


def test_without_a_command_the_driver_continues(scenario: Scenario) -> None:
    assert scenario.poll() == []
    scenario.command(DriverCommand.RUN)
    assert scenario.poll() == []


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (DriverCommand.STOP, "stop"),
        (DriverCommand.INTERRUPT, "interrupt"),
        (DriverCommand.TERMINATE, "interrupt"),
        (DriverCommand.KILL, "end"),
    ],
)
def test_a_command_is_applied_at_every_poll(
    scenario: Scenario, command: DriverCommand, call: str
) -> None:
    scenario.command(command)
    assert scenario.poll() == [call]
    assert scenario.poll() == [call]


def test_a_command_for_another_generation_is_ignored(scenario: Scenario) -> None:
    scenario.command(DriverCommand.KILL, generation=2)
    assert scenario.poll() == []


@pytest.mark.parametrize(
    "state",
    [
        JobState(job_id=7, status=JobStatus.RUNNING, generation=4),
        JobState(job_id=7, status=JobStatus.FAILED, generation=3),
    ],
)
def test_a_superseded_driver_ends(scenario: Scenario, state: JobState) -> None:
    scenario.state(state)
    assert scenario.poll() == ["end"]


def test_a_driver_whose_job_was_deleted_ends(scenario: Scenario) -> None:
    scenario.store.transact([], [Delete(JOB_STATES, "7")])
    assert scenario.poll() == ["end"]


def test_an_unreachable_store_does_not_end_the_driver(store: Store) -> None:
    down: list[bool] = []
    scenario = Scenario(faulty_store(store, lambda _: Fault.UNAVAILABLE if down else Fault.NONE)[0])
    scenario.command(DriverCommand.KILL)
    down.append(True)
    with pytest.raises(TransientError):  # the thread tries again
        scenario.poll()
    assert scenario.calls == []
