"""A job that `tidegate run` leads obeys commands sent to a server: in every phase, however the
driver, the run or the store hangs.
"""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_kit import Installation, finish

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
def installation(tmp_path: Path) -> Iterator[Installation]:
    it = Installation(tmp_path)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


def ask(installation: Installation, desired: DesiredState, by: str = "ann") -> None:
    """As any server does it."""
    home, settings = Home(installation.home), EngineSettings()
    store = open_store(home.store_url)
    try:
        (entry,) = store.list("running-job-state")
        Commands(store, open_storage(settings.checkpoint, home), settings, SystemClock()).stop(
            int(entry.key), desired, by=by
        )
    finally:
        store.close()


def driver_of(installation: Installation) -> int:
    known = installation.known()
    assert known is not None
    assert known.driver is not None
    return known.driver.value.process.pid


def reason_of(installation: Installation) -> str:
    known = installation.known()
    assert known is not None
    assert known.state is not None
    return known.state.value.reason


def impatient(installation: Installation) -> tuple[str, str]:
    file = installation.root / "engine.yaml"
    file.write_text(IMPATIENT)
    return "--config", str(file)


def test_a_stop_in_the_store_ends_the_run_at_a_checkpoint_and_names_who_asked(
    installation: Installation,
) -> None:
    process = installation.start(installation.job(mode="STREAMING", rows=100_000))
    installation.until(lambda: installation.checkpoints() >= 2)
    ask(installation, DesiredState.CANCEL)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output
    assert reason_of(installation) == "stop requested by ann"
    known = installation.known()
    assert known is not None
    assert known.pipelines[0].value.pending is None
    ask(installation, DesiredState.FORCE_STOP)  # after the end: nothing happens
    assert installation.status() is JobStatus.CANCELED


def test_a_force_stop_in_the_store_kills_a_driver_that_is_stopped(
    installation: Installation,
) -> None:
    process = installation.start(installation.job(mode="STREAMING", rows=100_000))
    installation.until(lambda: installation.checkpoints() >= 2)
    os.kill(driver_of(installation), signal.SIGSTOP)
    ask(installation, DesiredState.CANCEL)
    ask(installation, DesiredState.FORCE_STOP, by="bob")
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output


def test_a_stop_of_a_driver_that_hangs_gets_stronger_until_it_ends(
    installation: Installation,
) -> None:
    process = installation.start(
        installation.job(mode="STREAMING", rows=100_000), *impatient(installation)
    )
    installation.until(lambda: installation.checkpoints() >= 2)
    os.kill(driver_of(installation), signal.SIGSTOP)
    ask(installation, DesiredState.CANCEL)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output


def test_a_stop_that_comes_before_the_driver_is_up_is_obeyed(installation: Installation) -> None:
    process = installation.start(
        installation.job(mode="STREAMING", rows=100_000),
        *impatient(installation),
        failpoint="driver.register.before=stop",
    )
    installation.until(lambda: "driver.register.before: stop" in errors_of(installation))
    ask(installation, DesiredState.CANCEL)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output
    assert "there is no checkpoint" in output
    assert "--restore latest" not in output


def errors_of(installation: Installation) -> str:
    return "".join(file.read_text() for file in (installation.home / "logs").glob("*/driver.err"))


def test_a_stop_in_a_restart_pause_is_obeyed_and_no_driver_starts(
    installation: Installation,
) -> None:
    file = installation.job(mode="STREAMING", rows=100_000)
    file.write_text(
        file.read_text().replace(
            "job.retry.interval.seconds = 0", "job.retry.interval.seconds = 3600"
        )
    )
    process = installation.start(file)
    installation.until(lambda: installation.checkpoints() >= 1)
    os.kill(driver_of(installation), signal.SIGKILL)
    installation.until(lambda: installation.status() is JobStatus.RECOVERING)
    ask(installation, DesiredState.CANCEL)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output


def test_a_stop_of_a_run_that_is_stopped_itself_is_obeyed_when_it_wakes(
    installation: Installation,
) -> None:
    process = installation.start(installation.job(mode="STREAMING", rows=100_000))
    installation.until(lambda: installation.checkpoints() >= 1)
    process.send_signal(signal.SIGSTOP)
    ask(installation, DesiredState.CANCEL)
    process.send_signal(signal.SIGCONT)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output


def test_a_stop_of_a_run_that_was_killed_is_not_applied_to_the_next_one(
    installation: Installation,
) -> None:
    file = installation.job(rows=60)
    installation.run_and_kill(file, 2)
    ask(installation, DesiredState.FORCE_STOP)
    code, output = finish(installation.start(file, "--restore", "latest"))
    assert code == 0, output
    assert installation.ids() == list(range(60))


def test_a_stop_that_comes_while_the_driver_dies_is_not_forgotten_by_the_restart(
    installation: Installation,
) -> None:
    process = installation.start(installation.job(mode="STREAMING", rows=100_000))
    installation.until(lambda: installation.checkpoints() >= 1)
    pid = driver_of(installation)
    process.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    ask(installation, DesiredState.CANCEL)
    process.send_signal(signal.SIGCONT)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output


def test_one_ctrl_c_ends_a_run_whose_driver_hangs(installation: Installation) -> None:
    process = installation.start(
        installation.job(mode="STREAMING", rows=100_000), *impatient(installation)
    )
    installation.until(lambda: installation.checkpoints() >= 2)
    os.kill(driver_of(installation), signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert (code, installation.status()) == (130, JobStatus.CANCELED), output
    assert reason_of(installation) == "stopped by SIGINT"


def test_one_ctrl_c_ends_a_run_whose_store_is_locked_by_a_stopped_process(
    installation: Installation,
) -> None:
    process = installation.start(
        installation.job(mode="STREAMING", rows=100_000), *impatient(installation)
    )
    installation.until(lambda: installation.checkpoints() >= 1)
    with start_worker(
        Home(installation.home).store_url, "record", 0, 3, "store.transact.middle@2=stop"
    ) as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        process.send_signal(signal.SIGINT)
        code, output = finish(process)
        stopped.kill()
    assert code == 130, output
    assert "the end could not be recorded" in output
    assert "Traceback" not in output
    assert (
        finish(installation.start(installation.root / "job.conf"))[0] == 3
    )  # it is unfinished, as after a kill, and can be resumed


def test_a_closed_terminal_stops_the_run_as_ctrl_c_does(installation: Installation) -> None:
    process = installation.start(installation.job(mode="STREAMING", rows=100_000))
    installation.until(lambda: installation.checkpoints() >= 1)
    process.send_signal(signal.SIGHUP)
    assert finish(process)[0] == 130
    assert (installation.status(), reason_of(installation)) == (
        JobStatus.CANCELED,
        "stopped by SIGHUP",
    )


def test_the_advised_command_resumes_the_job_after_its_last_checkpoint(
    installation: Installation,
) -> None:
    file = installation.job(rows=60)
    process = installation.start(file, "--job-id", "7", "-n", "my job")
    installation.until(lambda: installation.checkpoints() >= 2)
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130
    advised = shlex.split(output.partition(" with: ")[2].splitlines()[0])
    assert advised[:2] == ["tidegate", "run"]
    code, output = finish(installation.start(file, *advised[3:]))
    assert code == 0, output
    assert installation.ids() == list(range(60))


def test_the_advised_command_of_a_run_without_a_checkpoint_works(
    installation: Installation,
) -> None:
    file = installation.job(rows=60, retries=0)
    code, output = finish(installation.start(file, failpoint="batch.write.before@1"))
    assert code == 1
    assert "--restore latest" not in output
    advised = shlex.split(output.partition(" with: ")[2].splitlines()[0])
    code, output = finish(installation.start(file, *advised[3:]))
    assert code == 0, output
    assert installation.ids() == list(range(60))
