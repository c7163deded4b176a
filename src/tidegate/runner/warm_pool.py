"""Drivers that wait with a started JVM, so that a job begins at once. Owned by a worker's launcher,
one thread.

Their standard input is a pipe from us: a worker that dies takes those that wait with it. One is
started at a time, as the start of a JVM takes all that a host has. One that dies is replaced, after
a pause that grows while they keep dying.
"""

import logging
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.failpoint import failpoint
from tidegate.home import Home
from tidegate.model.engine import DriverSpec
from tidegate.model.records import ProcessRef
from tidegate.runner import driver_spec as orders
from tidegate.runner.launch import ERROR_LOG, DriverProcess, Program
from tidegate.runner.process import session_members

LOG = logging.getLogger("tidegate.runner")
REPLACE_S = 2.0  # a job's first moments are not the time to start another JVM
RETRY_S = 5.0
RETRY_S_MAX = 300.0
ERRORS_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NoneWaits:
    """No driver is ready; start one in the ordinary way."""


class WarmPool:
    """Keeps so many drivers waiting.

    `order` is one without a job: the settings that all of them start with.
    """

    def __init__(
        self, program: Program, order: DriverSpec, count: int, monotonic_s: Callable[[], float]
    ) -> None:
        self.program = program
        self.order = order
        self.count = count
        self.monotonic_s = monotonic_s
        self.home: Home = orders.home_of(order)
        self.waiting: list[DriverProcess] = []
        self._deaths = 0
        self._not_before_s = float("-inf")

    def ready(self) -> list[DriverProcess]:
        """Those that can be given work."""
        return [
            driver
            for driver in self.waiting
            if driver.poll() is None and (self._work(driver.ref) / "ready").exists()
        ]

    def tend(self) -> None:
        """One turn: bury the dead, start what is missing."""
        for driver in [driver for driver in self.waiting if driver.poll() is not None]:
            self._bury(driver)
        ready = self.ready()
        self._deaths = 0 if ready else self._deaths
        if (
            len(self.waiting) < self.count
            and len(ready) == len(self.waiting)
            and self.monotonic_s() >= self._not_before_s
        ):
            self._start()

    def take(self, order: DriverSpec) -> DriverProcess | NoneWaits:
        """Give this order to one that is ready. It needs nothing of ours from then on."""
        ready = self.ready()
        if not ready:
            return NoneWaits()
        driver = ready[0]
        self.waiting.remove(driver)
        self._not_before_s = max(self._not_before_s, self.monotonic_s() + REPLACE_S)
        assert driver.process.stdin is not None
        failpoint("driver.handover.before")
        orders.send(order, driver.process.stdin.fileno())
        failpoint("driver.handover.after")
        driver.close()
        driver.error_log = self.home.logs(order.job_id) / ERROR_LOG
        return driver

    def close(self) -> None:
        """Those that wait end, all of their sessions."""
        for driver in self.waiting:
            driver.close()
            driver.kill()
            self.clear(driver.ref)
        self.waiting = []

    def clear(self, process: ProcessRef) -> None:
        """Remove the scratch files of one that is proven dead."""
        shutil.rmtree(self._work(process), ignore_errors=True)

    def _work(self, process: ProcessRef) -> Path:
        return self.home.warm_work(process.pid, process.started)

    def _start(self) -> None:
        errors = self.home.warm_errors
        errors.parent.mkdir(parents=True, exist_ok=True)
        too_big = errors.exists() and errors.stat().st_size > ERRORS_BYTES_MAX
        with errors.open("wb" if too_big else "ab") as said:
            command = self.program.command(["--warm"])
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env=self.program.environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        orders.send(self.order, process.stdin.fileno())
        self.waiting.append(DriverProcess(process, errors))

    def _bury(self, driver: DriverProcess) -> None:
        """Its JVM may take a moment longer; until then it keeps its place."""
        if session_members(driver.ref):
            return
        self.waiting.remove(driver)
        driver.close()
        self.clear(driver.ref)
        pause_s = min(RETRY_S_MAX, RETRY_S * 2**self._deaths)
        self._deaths += 1
        self._not_before_s = self.monotonic_s() + pause_s
        LOG.warning(
            "a waiting driver died",
            extra={"why": driver.stderr_tail() or f"exit code {driver.poll()}"},
        )
