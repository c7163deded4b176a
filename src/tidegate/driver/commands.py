"""What a detached driver is told by the store: stop, interrupt, end, or that it has been overtaken.
One thread, started by main; reads only.

A store that is out of reach says nothing: the driver goes on. Only what the store says ends it.
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
WATCH_S = 0.5
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverControl:
    """How the driver obeys. All but `end` may be called again and again."""

    stop: Callable[[], None]
    interrupt: Callable[[], None]
    end: Callable[[], None]  # the whole session, at once


class CommandWatcher:
    """Reads the state of the job and the order for its driver, twice a second."""

    def __init__(self, store: Store, order: DriverSpec, reins: DriverControl, clock: Clock) -> None:
        self.store = store
        self.order = order
        self.reins = reins
        self.clock = clock
        self._never = threading.Event()
        self._said: DriverCommand | None = None
        self._damage = ""

    def start(self) -> None:
        """Begin to watch, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="store-watch", daemon=True).start()

    def step(self) -> None:
        """One look, and what follows from it."""
        state = self._read(JOB_STATES, JobState)
        if state is None or state.generation != self.order.generation or state.status.terminal:
            found = (
                "gone"
                if state is None
                else f"{state.status.value} with generation {state.generation}"
            )
            LOG.warning(
                "overtaken",
                extra={
                    "job_id": self.order.job_id,
                    "generation": self.order.generation,
                    "why": f"the job is {found}",
                },
            )
            self.reins.end()
            return
        assignment = self._read(ASSIGNMENTS, Assignment)
        if assignment is not None and assignment.generation == self.order.generation:
            self._apply(assignment.order)

    def _apply(self, order: DriverCommand) -> None:
        if order is not self._said and order is not DriverCommand.RUN:
            LOG.info(
                "ordered",
                extra={
                    "job_id": self.order.job_id,
                    "generation": self.order.generation,
                    "to": order.value,
                },
            )
        self._said = order
        match order:
            case DriverCommand.RUN:
                return
            case DriverCommand.STOP:
                self.reins.stop()
            case DriverCommand.INTERRUPT | DriverCommand.TERMINATE:
                self.reins.interrupt()
            case DriverCommand.KILL:
                self.reins.end()

    def _read(self, map: str, kind: type[T]) -> T | None:
        entry = self.store.get(map, str(self.order.job_id))
        return (
            from_document(kind, entry.value, f"{map} of job {self.order.job_id}") if entry else None
        )

    def _run(self) -> None:
        while not self.clock.wait(self._never, WATCH_S):
            try:
                self.step()
            except TransientError:  # the store is out of reach: patience
                continue
            # it is not used, and the driver goes on as it was told last; one line, not one for each
            # look
            except StoreDamaged as error:
                if str(error) != self._damage:
                    self._damage = str(error)
                    LOG.error(
                        "the order cannot be read",
                        extra={"job_id": self.order.job_id, "why": self._damage},
                    )
            except Exception:
                LOG.exception(
                    "the order cannot be read",
                    extra={"job_id": self.order.job_id, "generation": self.order.generation},
                )
