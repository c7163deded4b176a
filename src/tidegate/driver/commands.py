"""Polls the store for commands to a detached driver, and for a newer generation of its job.

One thread, started by main; it only reads. While the store is unreachable the driver continues:
only an answer of the store can end it.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidegate.clock import Clock
from tidegate.model.document import from_document
from tidegate.model.engine import DriverSpec
from tidegate.model.errors import TransientError
from tidegate.model.records import ASSIGNMENTS, JOB_STATES, Assignment, DriverCommand, JobState
from tidegate.store.base import Store
from tidegate.store.errors import StoreDamaged

LOG = logging.getLogger("tidegate.driver")
POLL_S = 0.5
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverControl:
    """What a command can do to the driver. `stop` and `interrupt` may be called repeatedly."""

    stop: Callable[[], None]
    interrupt: Callable[[], None]
    end: Callable[[], None]  # the whole session, at once


class CommandWatcher:
    """Reads the job's state and the command to its driver, twice a second."""

    def __init__(
        self, store: Store, spec: DriverSpec, control: DriverControl, clock: Clock
    ) -> None:
        self.store = store
        self.spec = spec
        self.control = control
        self.clock = clock
        self._never = threading.Event()
        self._last_command: DriverCommand | None = None
        self._damage_reported = ""

    def start(self) -> None:
        """Start to poll, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="store-watch", daemon=True).start()

    def step(self) -> None:
        """Poll once, and apply what was found."""
        state = self._read(JOB_STATES, JobState)
        if state is None or state.generation != self.spec.generation or state.status.terminal:
            found = (
                "gone"
                if state is None
                else f"{state.status.value} with generation {state.generation}"
            )
            LOG.warning(
                "driver_superseded",
                extra={
                    "job_id": self.spec.job_id,
                    "generation": self.spec.generation,
                    "why": f"the job is {found}",
                },
            )
            self.control.end()
            return
        assignment = self._read(ASSIGNMENTS, Assignment)
        if assignment is not None and assignment.generation == self.spec.generation:
            self._apply(assignment.command)

    def _apply(self, command: DriverCommand) -> None:
        if command is not self._last_command and command is not DriverCommand.RUN:
            LOG.info(
                "command_received",
                extra={
                    "job_id": self.spec.job_id,
                    "generation": self.spec.generation,
                    "to": command.value,
                },
            )
        self._last_command = command
        match command:
            case DriverCommand.RUN:
                return
            case DriverCommand.STOP:
                self.control.stop()
            case DriverCommand.INTERRUPT | DriverCommand.TERMINATE:
                self.control.interrupt()
            case DriverCommand.KILL:
                self.control.end()

    def _read(self, map: str, kind: type[T]) -> T | None:
        entry = self.store.get(map, str(self.spec.job_id))
        return (
            from_document(kind, entry.value, f"{map} of job {self.spec.job_id}") if entry else None
        )

    def _run(self) -> None:
        while not self.clock.wait(self._never, POLL_S):
            try:
                self.step()
            except TransientError:  # the store is unreachable: try again
                continue
            # The driver ignores the damaged command and follows the last one. One log line is
            # written for each damage, not for each poll.
            except StoreDamaged as error:
                if str(error) != self._damage_reported:
                    self._damage_reported = str(error)
                    LOG.error(
                        "command_unreadable",
                        extra={"job_id": self.spec.job_id, "why": self._damage_reported},
                    )
            except Exception:
                LOG.exception(
                    "command_unreadable",
                    extra={"job_id": self.spec.job_id, "generation": self.spec.generation},
                )
