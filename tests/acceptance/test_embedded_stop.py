"""A job that `tidegate run` leads obeys what is asked of a server: in every phase, however the
driver, the run or the store hangs.
"""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_kit import World, finish

from tidegate.checkpoints.open import open_storage
from tidegate.clock import SystemClock
from tidegate.coordinator.commands import Commands
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.model.records import DesiredState, JobStatus
from tidegate.store.open import open_store
from tidegate.testing.store_durability import start_worker

IMPATIENT = "tidegate:\n  coordinator:\n    stop-timeout-ms: 300\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    it = World(tmp_path)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


def ask(world: World, wish: DesiredState, by: str = "ann") -> None:
    """As any server does it."""
    home, settings = Home(world.home), EngineSettings()
    store = open_store(home.store_url)
    try:
        (entry,) = store.list("running-job-state")
        Commands(store, open_storage(settings.checkpoint, home), settings, SystemClock()).stop(
            int(entry.key), wish, by=by
        )
    finally:
        store.close()


def driver_of(world: World) -> int:
    known = world.known()
    assert known is not None
    assert known.driver is not None
    return known.driver.value.process.pid


def reason_of(world: World) -> str:
    known = world.known()
    assert known is not None
    assert known.state is not None
    return known.state.value.reason


def impatient(world: World) -> tuple[str, str]:
    file = world.root / "engine.yaml"
    file.write_text(IMPATIENT)
    return "--config", str(file)


def test_a_stop_in_the_store_ends_the_run_at_a_checkpoint_and_names_who_asked(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000))
    world.until(lambda: world.checkpoints() >= 2)
    ask(world, DesiredState.CANCEL)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said
    assert reason_of(world) == "stop requested by ann"
    known = world.known()
    assert known is not None
    assert known.pipelines[0].value.pending is None
    ask(world, DesiredState.FORCE_STOP)  # after the end: nothing happens
    assert world.status() is JobStatus.CANCELED


def test_a_force_stop_in_the_store_kills_a_driver_that_is_stopped(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000))
    world.until(lambda: world.checkpoints() >= 2)
    os.kill(driver_of(world), signal.SIGSTOP)
    ask(world, DesiredState.CANCEL)
    ask(world, DesiredState.FORCE_STOP, by="bob")
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said


def test_a_stop_of_a_driver_that_hangs_gets_stronger_until_it_ends(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000), *impatient(world))
    world.until(lambda: world.checkpoints() >= 2)
    os.kill(driver_of(world), signal.SIGSTOP)
    ask(world, DesiredState.CANCEL)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said


def test_a_stop_that_comes_before_the_driver_is_up_is_obeyed(world: World) -> None:
    process = world.start(
        world.job(mode="STREAMING", rows=100_000),
        *impatient(world),
        failpoint="driver.register.before=stop",
    )
    world.until(lambda: "driver.register.before: stop" in errors_of(world))
    ask(world, DesiredState.CANCEL)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said
    assert "there is no checkpoint" in said
    assert "--restore latest" not in said


def errors_of(world: World) -> str:
    return "".join(file.read_text() for file in (world.home / "logs").glob("*/driver.err"))


def test_a_stop_in_a_restart_pause_is_obeyed_and_no_driver_starts(world: World) -> None:
    file = world.job(mode="STREAMING", rows=100_000)
    file.write_text(
        file.read_text().replace(
            "job.retry.interval.seconds = 0", "job.retry.interval.seconds = 3600"
        )
    )
    process = world.start(file)
    world.until(lambda: world.checkpoints() >= 1)
    os.kill(driver_of(world), signal.SIGKILL)
    world.until(lambda: world.status() is JobStatus.RECOVERING)
    ask(world, DesiredState.CANCEL)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said


def test_a_stop_of_a_run_that_is_stopped_itself_is_obeyed_when_it_wakes(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000))
    world.until(lambda: world.checkpoints() >= 1)
    process.send_signal(signal.SIGSTOP)
    ask(world, DesiredState.CANCEL)
    process.send_signal(signal.SIGCONT)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said


def test_a_stop_of_a_run_that_was_killed_is_not_applied_to_the_next_one(world: World) -> None:
    file = world.job(rows=60)
    world.run_and_kill(file, 2)
    ask(world, DesiredState.FORCE_STOP)
    code, said = finish(world.start(file, "--restore", "latest"))
    assert code == 0, said
    assert world.ids() == list(range(60))


def test_a_stop_that_comes_while_the_driver_dies_is_not_forgotten_by_the_restart(
    world: World,
) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000))
    world.until(lambda: world.checkpoints() >= 1)
    pid = driver_of(world)
    process.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    ask(world, DesiredState.CANCEL)
    process.send_signal(signal.SIGCONT)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said


def test_one_ctrl_c_ends_a_run_whose_driver_hangs(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000), *impatient(world))
    world.until(lambda: world.checkpoints() >= 2)
    os.kill(driver_of(world), signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    code, said = finish(process)
    assert (code, world.status()) == (130, JobStatus.CANCELED), said
    assert reason_of(world) == "stopped by SIGINT"


def test_one_ctrl_c_ends_a_run_whose_store_is_locked_by_a_stopped_process(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000), *impatient(world))
    world.until(lambda: world.checkpoints() >= 1)
    with start_worker(
        Home(world.home).store_url, "record", 0, 3, "store.transact.middle@2=stop"
    ) as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        process.send_signal(signal.SIGINT)
        code, said = finish(process)
        stopped.kill()
    assert code == 130, said
    assert "the end could not be recorded" in said
    assert "Traceback" not in said
    assert (
        finish(world.start(world.root / "job.conf"))[0] == 3
    )  # it is unfinished, as after a kill, and can be resumed


def test_a_closed_terminal_stops_the_run_as_ctrl_c_does(world: World) -> None:
    process = world.start(world.job(mode="STREAMING", rows=100_000))
    world.until(lambda: world.checkpoints() >= 1)
    process.send_signal(signal.SIGHUP)
    assert finish(process)[0] == 130
    assert (world.status(), reason_of(world)) == (JobStatus.CANCELED, "stopped by SIGHUP")


def test_the_advised_command_resumes_the_job_after_its_last_checkpoint(world: World) -> None:
    file = world.job(rows=60)
    process = world.start(file, "--job-id", "7", "-n", "my job")
    world.until(lambda: world.checkpoints() >= 2)
    process.send_signal(signal.SIGINT)
    code, said = finish(process)
    assert code == 130
    advised = shlex.split(said.partition(" with: ")[2].splitlines()[0])
    assert advised[:2] == ["tidegate", "run"]
    code, said = finish(world.start(file, *advised[3:]))
    assert code == 0, said
    assert world.ids() == list(range(60))


def test_the_advised_command_of_a_run_without_a_checkpoint_works(world: World) -> None:
    file = world.job(rows=60, retries=0)
    code, said = finish(world.start(file, failpoint="batch.write.before@1"))
    assert code == 1
    assert "--restore latest" not in said
    advised = shlex.split(said.partition(" with: ")[2].splitlines()[0])
    code, said = finish(world.start(file, *advised[3:]))
    assert code == 0, said
    assert world.ids() == list(range(60))
