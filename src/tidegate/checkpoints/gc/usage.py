"""Usage of a namespace by kind, job and age, and its quota. Pure; verdicts are added one by one.

Callers: the collector's pass, `tidegate state du`, `tidegate state gc`.
"""

from collections import Counter
from dataclasses import dataclass, field

from tidegate.checkpoints.gc.classify import UnitKind, UnitVerdict

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
AGES: tuple[tuple[str, int], ...] = (
    ("< 1 hour", HOUR_MS),
    ("< 1 day", DAY_MS),
    ("< 1 week", 7 * DAY_MS),
    ("< 30 days", 30 * DAY_MS),
)
OLDEST = "older"
ORPHAN_HOURS_MAX = 24 * 366  # older orphans count as one year old


@dataclass(slots=True)
class Sum:
    units: int = 0
    files: int = 0
    bytes: int = 0

    def add(self, verdict: UnitVerdict) -> None:
        self.units += 1
        self.files += verdict.unit.files
        self.bytes += verdict.unit.bytes


@dataclass(slots=True)
class JobUsage:
    """Bytes and files of one job, by kind."""

    by_kind: dict[UnitKind, Sum] = field(default_factory=dict)
    youngest_ms: int | None = None  # age of its youngest unit

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.by_kind.values())


@dataclass(slots=True)
class Usage:
    """Usage of a namespace; its size grows with the number of jobs, not of files."""

    total: Sum = field(default_factory=Sum)
    by_kind: dict[UnitKind, Sum] = field(default_factory=dict)
    by_age: dict[str, Sum] = field(default_factory=dict)
    by_job: dict[int, JobUsage] = field(default_factory=dict)
    due: Sum = field(default_factory=Sum)
    # bytes of orphans by age in hours, for the quota
    orphan_hours: Counter[int] = field(default_factory=Counter)

    def add(self, verdict: UnitVerdict) -> None:
        self.total.add(verdict)
        self.by_kind.setdefault(verdict.kind, Sum()).add(verdict)
        self.by_age.setdefault(age_of(verdict.age_ms), Sum()).add(verdict)
        if verdict.due:
            self.due.add(verdict)
        if verdict.kind is UnitKind.ORPHAN:
            self.orphan_hours[min(verdict.age_ms // HOUR_MS, ORPHAN_HOURS_MAX)] += (
                verdict.unit.bytes
            )
        if verdict.unit.job_id is not None:
            job = self.by_job.setdefault(verdict.unit.job_id, JobUsage())
            job.by_kind.setdefault(verdict.kind, Sum()).add(verdict)
            job.youngest_ms = (
                verdict.age_ms if job.youngest_ms is None else min(job.youngest_ms, verdict.age_ms)
            )

    def bytes_of(self, kind: UnitKind) -> int:
        return self.by_kind[kind].bytes if kind in self.by_kind else 0


def age_of(age_ms: int) -> str:
    """Return the name of the age class."""
    return next((name for name, limit_ms in AGES if age_ms < limit_ms), OLDEST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """Size limit of a namespace; 0 is unlimited. `warning_percent` of it causes a warning."""

    bytes: int = 0
    warning_percent: int = 80

    @property
    def warning_bytes(self) -> int:
        return self.bytes * self.warning_percent // 100

    def warning(self, used_bytes: int) -> str:
        """Return a warning for the user; empty if the usage is below the warning level."""
        if not self.bytes or used_bytes < self.warning_bytes:
            return ""
        share = used_bytes * 100 // self.bytes
        return (
            f"the namespace is {'over its quota' if used_bytes > self.bytes else 'near its quota'}:"
            f" {used_bytes:,} of {self.bytes:,} bytes ({share} %)"
        )


def quota_age_ms(usage: Usage, quota: Quota) -> int | None:
    """Return the age from which orphans are due because of the quota; None if it is not exceeded.

    The oldest go first, by whole hours, until the usage is below the warning level. Quarantined
    units count as deleted already, because their deletion is scheduled.
    """
    used = usage.total.bytes - usage.bytes_of(UnitKind.QUARANTINED)
    if not quota.bytes or used <= quota.bytes:
        return None
    excess, freed = used - quota.warning_bytes, 0
    for hours in sorted(usage.orphan_hours, reverse=True):
        freed += usage.orphan_hours[hours]
        if freed >= excess:
            return hours * HOUR_MS
    return 0
