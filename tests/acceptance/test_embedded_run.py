"""`tidegate run` as processes: alive, killed, stopped, refused.

The plain engine drives; signals and kills are real.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_kit import Installation, finish

from tidegate.model.records import JobStatus
from tidegate.runner.process import session_members


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    it = Installation(tmp_path)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_bounded_job_runs_to_its_end_and_reports_it(installation: Installation) -> None:
    code, output = finish(installation.start(installation.job(rows=20, rate=1000)))
    assert code == 0, output
    assert "FINISHED" in output
    assert "read 20 rows, committed 20" in output
    assert installation.ids() == list(range(20))


def test_a_finished_job_leaves_nothing_to_resume_and_the_next_run_is_new(
    installation: Installation,
) -> None:
    file = installation.job(rows=10, rate=1000)
    code, output = finish(installation.start(file))
    assert code == 0, output
    code, output = finish(installation.start(file, "--restore", "latest"))
    assert (code, "nothing left to restore" in output) == (2, True)
    assert finish(installation.start(file, "--restore", "auto"))[0] == 0
    assert installation.ids() == sorted([*range(10), *range(10)])
    assert not list((installation.home / "checkpoints").iterdir())


def test_killing_everything_and_running_again_loses_and_doubles_nothing(
    installation: Installation,
) -> None:
    file = installation.job(rows=60)
    for kill in range(3):
        process = installation.start(file, "--restore", "auto")
        least = 2 * kill + 1
        installation.until(lambda least=least: installation.checkpoints() > least)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    code, output = finish(installation.start(file, "--restore", "auto"))
    assert code == 0, output
    assert "resumes: pipeline 1 after checkpoint" in output
    assert installation.ids() == list(range(60))


def test_after_a_kill_a_run_without_a_choice_is_refused_and_changes_nothing(
    installation: Installation,
) -> None:
    file = installation.job()
    installation.run_and_kill(file, 2)
    before = installation.known()
    code, output = finish(installation.start(file))
    assert code == 3
    assert "--restore latest" in output
    assert "Traceback" not in output
    after = installation.known()
    assert before is not None
    assert after is not None
    assert before.state == after.state


def test_a_second_run_of_a_living_job_is_refused_by_name(installation: Installation) -> None:
    file = installation.job(mode="STREAMING", rows=100_000)
    first = installation.start(file)
    installation.until(lambda: installation.checkpoints() >= 1)
    code, output = finish(installation.start(file, "--restore", "auto"))
    assert code == 3
    assert str(first.pid) in output
    assert "'orders'" in output
    first.send_signal(signal.SIGINT)
    assert finish(first)[0] == 130


def test_ctrl_c_stops_at_a_checkpoint_and_the_job_can_go_on(installation: Installation) -> None:
    file = installation.job(mode="STREAMING", rows=100_000)
    process = installation.start(file)
    installation.until(lambda: installation.checkpoints() >= 2)
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130
    assert "CANCELED" in output
    known = installation.known()
    assert known is not None
    state = known.pipelines[0].value
    assert state.pending is None
    assert installation.ids() == list(range(state.rows_written))
    assert finish(installation.start(file))[0] == 3


def test_sigterm_is_as_ctrl_c_and_a_second_signal_ends_it_at_once(
    installation: Installation,
) -> None:
    file = installation.job(mode="STREAMING", rows=100_000)
    process = installation.start(file, failpoint="batch.write.before@3=stop")
    installation.until(lambda: installation.checkpoints() >= 2)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    while "repeat to stop at once" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 130
    assert installation.status() is JobStatus.CANCELED


def test_a_driver_that_dies_is_replaced_by_the_next_generation(installation: Installation) -> None:
    process = installation.start(installation.job(rows=60))
    installation.until(lambda: installation.checkpoints() >= 2)
    known = installation.known()
    assert known is not None
    assert known.state is not None
    assert known.driver is not None
    os.kill(known.driver.value.process.pid, signal.SIGKILL)
    code, output = finish(process)
    assert code == 0, output
    assert installation.ids() == list(range(60))


def test_a_driver_that_dies_again_and_again_fails_the_job_within_its_budget(
    installation: Installation,
) -> None:
    code, output = finish(
        installation.start(installation.job(retries=2), failpoint="batch.write.before@1")
    )
    assert code == 1, output
    assert "the driver died (signal 9)" in output
    assert installation.status() is JobStatus.FAILED
    known = installation.known()
    assert known is not None
    assert known.state is not None
    assert known.state.value.generation == 4  # three drivers; the end has a generation of its own


def test_a_driver_that_hangs_is_killed_and_replaced(installation: Installation) -> None:
    file = installation.job(rows=60)
    file.write_text(
        file.read_text().replace(
            "checkpoint.interval = 50", "checkpoint.interval = 50, checkpoint.timeout = 1000"
        )
    )
    process = installation.start(file)
    installation.until(lambda: installation.checkpoints() >= 2)
    known = installation.known()
    assert known is not None
    assert known.driver is not None
    os.kill(known.driver.value.process.pid, signal.SIGSTOP)
    code, output = finish(process)
    assert code == 0, output
    assert installation.ids() == list(range(60))
    assert '"job_stalled"' in next((installation.home / "logs").glob("*/run.log")).read_text()


def test_settings_of_the_engine_reach_the_driver_and_the_job_wins(
    installation: Installation,
) -> None:
    engine = installation.root / "engine.yaml"
    engine.write_text(
        "tidegate:\n  checkpoint:\n    storage:\n      max-retained: 2\n      plugin-config:\n    "
        f"    namespace: {installation.root / 'elsewhere'}\n"
    )
    file = installation.job(mode="STREAMING", rows=100_000)
    process = installation.start(file, "--config", str(engine))
    installation.until(lambda: installation.checkpoints() >= 5)
    known = installation.known()
    assert known is not None
    assert len(known.pipelines[0].value.retained) == 2
    assert list((installation.root / "elsewhere").iterdir())
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    file.write_text(
        file.read_text().replace(
            "checkpoint.interval = 50", "checkpoint.interval = 50, checkpoint.max-retained = 4"
        )
    )
    process = installation.start(file, "--config", str(engine), "--restore", "latest")
    installation.until(
        lambda: len((installation.known() or known).pipelines[0].value.retained) == 4
    )
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130


def test_an_error_in_the_engine_file_is_named_and_nothing_is_started(
    installation: Installation,
) -> None:
    engine = installation.root / "engine.yaml"
    engine.write_text("tidegate:\n  checkpoint:\n    interval: soon\n")
    code, output = finish(installation.start(installation.job(), "--config", str(engine)))
    assert code == 2
    assert "engine.yaml:3" in output
    assert "nothing was started" in output


@pytest.mark.parametrize("place", ["driver.launch.before", "driver.launch.after"])
def test_a_leader_killed_while_it_starts_its_driver_leaves_no_driver_behind(
    installation: Installation, place: str
) -> None:
    file = installation.job(rows=20, rate=1000)
    assert finish(installation.start(file, failpoint=place))[0] == -9
    code, output = finish(installation.start(file, "--restore", "auto"))
    assert code == 0, output
    assert installation.ids() == list(range(20))


def test_the_driver_ends_with_its_leader(installation: Installation) -> None:
    process = installation.start(installation.job(mode="STREAMING", rows=100_000))
    installation.until(lambda: installation.checkpoints() >= 1)
    known = installation.known()
    assert known is not None
    assert known.state is not None
    driver = known.driver.value.process
    assert driver is not None
    assert session_members(driver)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    installation.until(lambda: not session_members(driver))


def test_machines_get_one_json_object_a_line(installation: Installation) -> None:
    code, output = finish(installation.start(installation.job(rows=20, rate=1000), "--json"))
    events = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert events[-1]["event"] == "end"
    assert (events[-1]["status"], events[-1]["rows_read"], events[-1]["rows_written"]) == (
        "FINISHED",
        20,
        20,
    )
    assert {"note", "end"} <= {e["event"] for e in events}


def test_an_older_checkpoint_can_be_wanted_and_the_files_after_it_go(
    installation: Installation,
) -> None:
    file = installation.job(rows=60)
    installation.run_and_kill(file, 5)
    known = installation.known()
    assert known is not None
    oldest = known.pipelines[0].value.retained[0].checkpoint
    code, output = finish(installation.start(file, "--restore", f"checkpoint:{oldest}"))
    assert code == 0, output
    assert f"goes back to checkpoint {oldest}" in output
    assert "read 60 rows, committed 60" in output
    assert installation.ids() == list(range(60))


def test_a_checkpoint_that_is_not_retained_is_refused_with_those_that_are(
    installation: Installation,
) -> None:
    file = installation.job(rows=60)
    installation.run_and_kill(file, 2)
    code, output = finish(installation.start(file, "--restore", "checkpoint:4711"))
    assert code == 2
    assert "4711" in output
    assert "retained checkpoints:" in output


def test_a_damaged_newest_checkpoint_is_named_and_the_next_older_one_is_used(
    installation: Installation,
) -> None:
    file = installation.job(rows=60)
    installation.run_and_kill(file, 4)
    known = installation.known()
    assert known is not None
    latest = known.pipelines[0].value.retained[-1]
    victim = next((installation.home / "checkpoints" / latest.path).rglob("state-data"))
    victim.write_bytes(victim.read_bytes()[:-2])
    code, output = finish(installation.start(file, "--restore", "latest"))
    assert code == 0, output
    assert "is damaged" in output
    assert victim.parent.name in output
    assert installation.ids() == list(range(60))


def test_a_removed_source_is_incompatible_with_the_checkpoint(installation: Installation) -> None:
    file = installation.job(rows=60)
    installation.run_and_kill(file, 2)
    file.write_text(file.read_text().replace("FakeSource {", 'FakeSource { name = "other", '))
    code, output = finish(installation.start(file, "--restore", "latest"))
    assert code == 2
    assert "Source[0]-FakeSource" in output
