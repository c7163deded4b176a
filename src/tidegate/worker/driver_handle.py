"""What the agent needs of a host: processes that can be started, watched and ended.

Implemented by host.py, and by simulations. No call may block for long.
"""

from dataclasses import dataclass
from typing import Protocol

from tidegate.model.engine import DriverSpec
from tidegate.model.records import ProcessRef


@dataclass(frozen=True, slots=True)
class Alive:
    """A process of the driver's session may still be there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exited:
    """No process of its session is left. `code` is known where the driver was our child."""

    code: int | None = None
    proof: str = "session empty"
    stderr_tail: str = ""


class DriverHandle(Protocol):
    """One driver in the hands of this worker."""

    @property
    def ref(self) -> ProcessRef: ...

    def poll(self) -> Alive | Exited:
        """Whether it lives; a child that has ended is waited for here.

        Dead for ever once it is dead.
        """

    def terminate(self) -> None:
        """SIGTERM to every process of its session."""

    def kill(self) -> None:
        """Begin to kill its whole session, and return. May be repeated."""


class Launcher(Protocol):
    """Starts drivers and finds those that others have started."""

    def start(self, order: DriverSpec, *, plain: bool) -> DriverHandle:
        """A driver for this order. `plain`: it needs nothing of Spark but what the engine's
        settings say, so one that waits already will do. Where none can be started, the grip is of
        one that is dead, and says why.
        """

    def adopt(self, process: ProcessRef, job_id: int) -> DriverHandle:
        """A driver of this host that somebody else has started, perhaps before the host was."""

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        """Remove the scratch files of a driver that is proven dead."""

    def tend(self) -> None:
        """One turn of what there is to do besides: drivers that wait for work, scratch files that
        nobody owns.
        """

    def close(self) -> None:
        """This worker ends in order. Drivers that have work go on."""
