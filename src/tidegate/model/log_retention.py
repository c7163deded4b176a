"""How long the sources of a job retain the log that its oldest restore point needs.

Pure. Measured by the driver, reported by the leader.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class RetentionLevel(StrEnum):
    """Whether a restore will find the log that it needs, ordered from good to bad."""

    OK = "OK"
    LOW = "LOW"  # for a limited time
    GONE = "GONE"  # no longer: the oldest restore point cannot be used


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRetentionMetric:
    """What one source reported about one restore point; None where it cannot tell.

    `checkpoint` 0 is the position where the source began.
    """

    source: str
    level: RetentionLevel = RetentionLevel.OK
    checkpoint: int = 0
    reason: str = ""
    seconds_left: float | None = None
    bytes_left: int | None = None
    at_ms: int = 0

    def describe(self) -> str:
        point = f"checkpoint {self.checkpoint}" if self.checkpoint else "its beginning"
        left = (
            f"{self.seconds_left:.0f} s left"
            if self.seconds_left is not None
            else f"{self.bytes_left} bytes left"
            if self.bytes_left is not None
            else ""
        )
        gone = (
            f"does not hold {point} any more"
            if self.level is RetentionLevel.GONE
            else f"will not hold {point} for long"
        )
        return ": ".join(
            filter(None, (f"{self.source} {gone}", ", ".join(filter(None, (left, self.reason)))))
        )


@dataclass(frozen=True, slots=True)
class LogRetentionStatus:
    """The worst level of a job's sources, with a reason unless it is OK."""

    level: RetentionLevel = RetentionLevel.OK
    reason: str = ""


def log_retention_status(metrics: Iterable[LogRetentionMetric]) -> LogRetentionStatus:
    """Return the worst level of all sources; among equals, that with the least time left."""
    order = list(RetentionLevel)
    worst = max(
        metrics,
        key=lambda f: (
            order.index(f.level),
            -(f.seconds_left if f.seconds_left is not None else float("inf")),
        ),
        default=None,
    )
    return (
        LogRetentionStatus(worst.level, worst.describe())
        if worst is not None and worst.level is not RetentionLevel.OK
        else LogRetentionStatus()
    )
