"""Stops the driver of an embedded run, and escalates: stop, interrupt, terminate, kill.

Called by the supervisor. The time limits are those of the servers (lifecycle/stopping). It has a
thread of its own and reads no store, so that neither a driver nor a store that hangs delays a stop.
"""

import threading

from tidegate.clock import Clock
from tidegate.lifecycle.observation import LifecycleLimits
from tidegate.lifecycle.stopping import ESCALATION, command_timeout_ms, next_command
from tidegate.model.records import DriverCommand
from tidegate.runner.launch import DriverProcess

REPEATED_EVERY_S = 0.5  # a batch may begin just after it was interrupted


class DriverStop:
    """One stop of one run.

    Any thread may call all methods; `command` never becomes weaker.
    """

    def __init__(self, limits: LifecycleLimits, clock: Clock) -> None:
        self.limits = limits
        self.clock = clock
        self.command = DriverCommand.RUN
        self.reason = ""
        self.requested = threading.Event()
        self._driver: DriverProcess | None = None
        self._since_s = 0.0
        self._lock = threading.Lock()
        self._stronger = threading.Event()

    def attach(self, driver: DriverProcess) -> None:
        """Set the driver to stop; one that starts after the request is stopped too."""
        self._driver = driver
        if self.requested.is_set():
            self._carry_out()

    def request(self, command: DriverCommand, reason: str) -> bool:
        """Begin to stop, or escalate; return whether that is new. The first reason stays."""
        with self._lock:
            if ESCALATION.index(command) <= ESCALATION.index(self.command):
                return False
            first = self.command is DriverCommand.RUN
            self._raise_to(command)
            self.reason = self.reason or reason
            self.requested.set()
        self._stronger.set()
        if first:
            threading.Thread(target=self._run, name="driver-stop", daemon=True).start()
        return True

    @property
    def overdue(self) -> bool:
        """Whether the driver was killed and should be dead by now."""
        age_ms = (self.clock.monotonic_s() - self._since_s) * 1000
        return self.command is DriverCommand.KILL and age_ms >= self.limits.kill_ms

    def _run(self) -> None:
        while self.command is not DriverCommand.KILL:
            self._stronger.clear()
            self._carry_out()
            if not self.clock.wait(self._stronger, REPEATED_EVERY_S):
                self._escalate()
        self._carry_out()

    def _escalate(self) -> None:
        with self._lock:
            age_ms = (self.clock.monotonic_s() - self._since_s) * 1000
            if age_ms >= command_timeout_ms(self.command, self.limits):
                self._raise_to(next_command(self.command))

    def _raise_to(self, command: DriverCommand) -> None:
        self.command = command
        self._since_s = self.clock.monotonic_s()

    def _carry_out(self) -> None:
        driver = self._driver
        if driver is None or driver.poll() is not None:
            return
        match self.command:
            case DriverCommand.STOP:
                driver.request_stop()
            case DriverCommand.INTERRUPT:
                driver.interrupt()
            case DriverCommand.TERMINATE:
                driver.terminate()
            case DriverCommand.KILL:
                driver.kill()
