"""The pool of warm drivers: filled, replaced when they die, and used with a spec.

Real processes act as drivers.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.launch import DriverProcess, Program
from tidegate.runner.process import kill_session
from tidegate.runner.warm_pool import RETRY_S, NoneReady, WarmPool

TIMEOUT_S = 30
# Ready at once; then says which job it was given, and ends.
READY = """
import json, sys
from pathlib import Path
from tidegate.runner.process import process_ref
import os
me = process_ref(os.getpid())
spec = json.loads(sys.stdin.readline())
place = Path(spec["home"]) / "work" / "warm" / f"{me.pid}.{me.started}"
place.mkdir(parents=True)
(place / "ready").touch()
line = sys.stdin.readline()
if line:
    (Path(spec["home"]) / "said").write_text(str(json.loads(line)["job_id"]))
"""
DYING = "import sys; sys.exit('no Java')"


class Pool(WarmPool):
    """A pool whose clock the test sets."""

    now_s = 100.0

    def __init__(self, home: Path, module: str, count: int) -> None:
        path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
        program = Program(environ={**os.environ, "PYTHONPATH": path}, module=module)
        super().__init__(
            program,
            driver_spec(EngineSettings(), Home(home), job_id=0, generation=0, detached=True),
            count,
            lambda: self.now_s,
        )

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)  # between two polls of another process


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    (tmp_path / "waiter.py").write_text(READY)
    it = Pool(tmp_path, "waiter", 2)
    yield it
    it.close()


def test_warm_drivers_are_started_one_after_the_other(pool: Pool) -> None:
    pool.maintain()
    pool.maintain()
    assert len(pool.waiting) == 1
    pool.until(lambda: len(pool.ready()) == 1)
    pool.maintain()
    assert len(pool.waiting) == 2
    pool.until(lambda: len(pool.ready()) == 2)
    pool.maintain()
    assert len(pool.waiting) == 2


def test_a_ready_driver_gets_the_spec_and_is_replaced_later(pool: Pool, tmp_path: Path) -> None:
    order = replace(pool.spec, job_id=7, generation=1)
    assert isinstance(pool.take(order), NoneReady)
    pool.maintain()
    pool.until(lambda: len(pool.ready()) == 1)
    driver = pool.take(order)
    assert isinstance(driver, DriverProcess)
    assert driver.process.wait(TIMEOUT_S) == 0
    assert (tmp_path / "said").read_text() == "7"
    assert driver.error_log == Home(tmp_path).logs(7) / "driver.err"
    pool.maintain()
    assert pool.waiting == []
    pool.now_s += 60
    pool.maintain()
    assert len(pool.waiting) == 1
    pool.clear(driver.ref)


def test_a_killed_warm_driver_is_replaced_and_its_scratch_removed(
    pool: Pool, tmp_path: Path
) -> None:
    pool.maintain()
    pool.until(lambda: len(pool.ready()) == 1)
    victim = pool.waiting[0]
    kill_session(victim.ref)
    pool.until(lambda: victim.poll() is not None)
    assert isinstance(pool.take(pool.spec), NoneReady)
    pool.maintain()
    assert list((tmp_path / "work" / "warm").iterdir()) == []
    pool.now_s += 60
    pool.maintain()
    assert len(pool.waiting) == 1
    assert pool.waiting[0] is not victim


def test_restarts_of_dying_drivers_back_off(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    pool = Pool(tmp_path, "dying", 1)
    for pause_s in (RETRY_S, 2 * RETRY_S, 4 * RETRY_S):
        pool.maintain()
        assert len(pool.waiting) == 1
        process = pool.waiting[0]
        pool.until(lambda process=process: process.poll() is not None)  # type: ignore[misc]  # bound default
        pool.maintain()
        assert pool.waiting == []
        pool.now_s += pause_s - 0.1
        pool.maintain()
        assert pool.waiting == []
        pool.now_s += 0.2
    assert "no Java" in Home(tmp_path).warm_error_log.read_text()


def test_close_kills_waiting_drivers(pool: Pool, tmp_path: Path) -> None:
    pool.maintain()
    pool.until(lambda: len(pool.ready()) == 1)
    waiting = pool.waiting[0]
    pool.close()
    assert waiting.poll() is not None
    assert list((tmp_path / "work" / "warm").iterdir()) == []
