"""The processes of an installation as the store has them: leases, workers, servers.

Part of the records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessRef:
    """A process, identified so that a later one with the same pid is not mistaken for it.

    Its start time and the boot id are part of its identity. It leads its session.
    """

    pid: int
    started: int
    boot: str
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The holder of a lease.

    Written only when the holder changes: its version is the fence of everything that the holder
    writes.
    """

    version: int = 1
    holder: str
    term: int
    address: str = ""
    since_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """A heartbeat of a lease's holder.

    A candidate measures on its own clock how long it has not changed.
    """

    version: int = 1
    term: int
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """A worker and its capacity. `host` and `boot` say whose processes it can see and kill."""

    version: int = 1
    id: str
    host: str
    boot: str
    process: ProcessRef
    slots: int
    tags: Mapping[str, str] = field(default_factory=dict)
    warm: int = 0
    started_ms: int = 0
    address: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRecord:
    """A server and its address. Rewritten with the next `number` as its heartbeat."""

    version: int = 1
    id: str
    address: str = ""
    release: str = ""
    started_ms: int = 0
    number: int = 0
