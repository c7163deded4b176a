"""Records of jobs that are gone, of the garbage collector, and of the installation itself.

| record | map | written by | fenced with |
|---|---|---|---|
| ExpiredJob | expired-jobs | expiry of history; removed by the collector | term, version |
| CollectorReport | state-collector | the collector, after each pass | term if a leader writes it |
| Installation | installation | the first process that needs it | absence of the row |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXPIRED_JOBS = "expired-jobs"
COLLECTOR = "state-collector"
INSTALLATION = "installation"
LAST_PASS_KEY = "last"  # the only key of the collector's map
INSTALLATION_KEY = "this"  # the only key of the installation's map


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpiredJob:
    """A job whose history has expired and whose checkpoints still exist.

    They are orphans since `expired_ms`.
    """

    version: int = 1
    job_id: int
    name: str
    status: str
    finished_ms: int
    expired_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallationRecord:
    """The id of this store.

    A namespace records it too, so that no other store takes its jobs for orphans.
    """

    version: int = 1
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectorReport:
    """The last pass of the collector: bytes and units by kind, its actions and its failures."""

    version: int = 1
    at_ms: int
    took_ms: int = 0
    whole: bool = False
    bytes: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    due: int = 0
    moved: int = 0
    moved_bytes: int = 0
    put_back: int = 0
    deleted: int = 0
    failures: int = 0
    failed: tuple[str, ...] = ()
    quota_bytes: int = 0
    warning: str = ""  # why an operator should check it
