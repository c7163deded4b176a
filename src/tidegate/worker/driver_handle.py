"""The interface of a host to the agent: start, supervise and end driver processes.

Implemented by host.py and by simulations. No call may block for long.
"""

from dataclasses import dataclass
from typing import Protocol

from tidegate.model.engine import DriverSpec
from tidegate.model.records import ProcessRef


@dataclass(frozen=True, slots=True)
class Alive:
    """A process of the driver's session may still exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exited:
    """No process of its session is left. `code` is known if the driver was a child of this one."""

    code: int | None = None
    proof: str = "session empty"
    stderr_tail: str = ""


class DriverHandle(Protocol):
    """One driver that this worker supervises."""

    @property
    def ref(self) -> ProcessRef: ...

    def poll(self) -> Alive | Exited:
        """Return whether it is alive, and reap it if it is a child that has exited.

        Once it returns Exited, it always does.
        """

    def terminate(self) -> None:
        """SIGTERM to every process of its session."""

    def kill(self) -> None:
        """Start to kill its whole session, and return. May be repeated."""


class Launcher(Protocol):
    """Starts drivers, and adopts those that other workers have started."""

    def start(self, order: DriverSpec, *, plain: bool) -> DriverHandle:
        """Start a driver for this spec.

        `plain`: the job has no Spark settings of its own, so a warm driver can run it. If no driver
        can be started, the handle is of an exited one whose `stderr_tail` has the reason.
        """

    def adopt(self, process: ProcessRef, job_id: int) -> DriverHandle:
        """Return a handle of a driver that another process of this host has started.

        That may have been before the last boot.
        """

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        """Remove the scratch files of a driver whose death is confirmed."""

    def maintain(self) -> None:
        """Run one cycle of maintenance: warm drivers, and scratch files without an owner."""

    def close(self) -> None:
        """End the warm drivers that have no job. Drivers with a job keep running."""
