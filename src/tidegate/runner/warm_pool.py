"""Keeps warm drivers, which wait for a job with a started JVM, so that jobs start at once.

Owned by a worker's launcher, one thread. Their standard input is a pipe from the worker, so warm
drivers exit when it dies. Only one is starting at a time, because the start of a JVM uses the whole
host. One that dies is replaced, after a pause that grows while they keep dying.
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
from tidegate.runner import driver_spec
from tidegate.runner.launch import ERROR_LOG, DriverProcess, Program
from tidegate.runner.process import session_members

LOG = logging.getLogger("tidegate.runner")
REPLACE_DELAY_S = 2.0  # do not start a JVM while a job is starting
RETRY_S = 5.0
RETRY_S_MAX = 300.0
ERRORS_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NoneReady:
    """No warm driver is ready; start a new driver instead."""


class WarmPool:
    """Keeps `count` drivers waiting.

    `spec` has no job, only the settings with which all of them start.
    """

    def __init__(
        self, program: Program, spec: DriverSpec, count: int, monotonic_s: Callable[[], float]
    ) -> None:
        self.program = program
        self.spec = spec
        self.count = count
        self.monotonic_s = monotonic_s
        self.home: Home = driver_spec.home_of(spec)
        self.waiting: list[DriverProcess] = []
        self._deaths = 0
        self._next_start_s = float("-inf")

    def ready(self) -> list[DriverProcess]:
        """Return the drivers that can take a job."""
        return [
            driver
            for driver in self.waiting
            if driver.poll() is None and (self._work_dir(driver.ref) / "ready").exists()
        ]

    def maintain(self) -> None:
        """Remove dead drivers, and start one if some are missing."""
        for driver in [driver for driver in self.waiting if driver.poll() is not None]:
            self._remove_dead(driver)
        ready = self.ready()
        self._deaths = 0 if ready else self._deaths
        if (
            len(self.waiting) < self.count
            and len(ready) == len(self.waiting)
            and self.monotonic_s() >= self._next_start_s
        ):
            self._start()

    def take(self, spec: DriverSpec) -> DriverProcess | NoneReady:
        """Send this spec to a ready driver, which does not depend on the worker from then on."""
        ready = self.ready()
        if not ready:
            return NoneReady()
        driver = ready[0]
        self.waiting.remove(driver)
        self._next_start_s = max(self._next_start_s, self.monotonic_s() + REPLACE_DELAY_S)
        assert driver.process.stdin is not None
        failpoint("driver.handover.before")
        driver_spec.send(spec, driver.process.stdin.fileno())
        failpoint("driver.handover.after")
        driver.close()
        driver.error_log = self.home.logs(spec.job_id) / ERROR_LOG
        return driver

    def close(self) -> None:
        """Kill the sessions of all waiting drivers."""
        for driver in self.waiting:
            driver.close()
            driver.kill()
            self.clear(driver.ref)
        self.waiting = []

    def clear(self, process: ProcessRef) -> None:
        """Remove the scratch files of a warm driver whose death is confirmed."""
        shutil.rmtree(self._work_dir(process), ignore_errors=True)

    def _work_dir(self, process: ProcessRef) -> Path:
        return self.home.warm_work(process.pid, process.started)

    def _start(self) -> None:
        errors = self.home.warm_error_log
        errors.parent.mkdir(parents=True, exist_ok=True)
        too_big = errors.exists() and errors.stat().st_size > ERRORS_BYTES_MAX
        with errors.open("wb" if too_big else "ab") as output:
            command = self.program.command(["--warm"])
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self.program.environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        driver_spec.send(self.spec, process.stdin.fileno())
        self.waiting.append(DriverProcess(process, errors))

    def _remove_dead(self, driver: DriverProcess) -> None:
        """Remove it once its session is empty; its JVM may take a little longer to exit."""
        if session_members(driver.ref):
            return
        self.waiting.remove(driver)
        driver.close()
        self.clear(driver.ref)
        pause_s = min(RETRY_S_MAX, RETRY_S * 2**self._deaths)
        self._deaths += 1
        self._next_start_s = self.monotonic_s() + pause_s
        LOG.warning(
            "warm_driver_died",
            extra={"why": driver.stderr_tail() or f"exit code {driver.poll()}"},
        )
