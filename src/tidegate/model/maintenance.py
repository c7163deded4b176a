"""What the store keeps about the state of jobs that are gone, and about the namespace in which it
lies.

| record | map | written by | fenced with |
|---|---|---|---|
| ExpiredJob | expired-jobs | whoever expires the history of a job that has left checkpoints; removed by the collector | term, version |
| CollectorReport | state-collector | the collector, after each pass | term where a leader writes it |
| Installation | installation | whoever asks first | absence of the row |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXPIRED_JOBS = "expired-jobs"
COLLECTOR = "state-collector"
INSTALLATION = "installation"
LAST_PASS = "last"  # the only key of the collector's map
THIS = "this"  # the only key of the installation's map


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpiredJob:
    """A job that the history has forgotten, and whose checkpoints are still there: from now on they
    are orphans, and this is since when.
    """

    version: int = 1
    job_id: int
    name: str
    status: str
    finished_ms: int
    expired_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallationRecord:
    """The name of this store, which a namespace keeps too: so that no other store takes its jobs
    for orphans.
    """

    version: int = 1
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectorReport:
    """The last pass of the collector: bytes and units by kind, what it did, and what it could not
    do.
    """

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
    warning: str = ""  # why a person should look
