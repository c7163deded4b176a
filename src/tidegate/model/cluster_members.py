"""The processes of an installation as the store has them: who leads, who works, who answers. Part
of the records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessRef:
    """A process that cannot be mistaken for a later one with the same pid: its start time and boot
    are part of its name. It leads its session.
    """

    pid: int
    started: int
    boot: str
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Who holds an office.

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
    """A sign of life of a lease's holder; a candidate counts how long it has not changed, on its
    own clock.
    """

    version: int = 1
    term: int
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """A worker and what it offers. `host` and `boot` say whose processes it can see and kill."""

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
    """A server and where it answers. Rewritten with the next `number` as its sign of life."""

    version: int = 1
    id: str
    address: str = ""
    release: str = ""
    started_ms: int = 0
    number: int = 0
