"""How long the sources of a job will still hold what its oldest restore point needs: measured by
the driver, told by the leader. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class RunwayLevel(StrEnum):
    """Whether a restore will find the log that it needs. The order is from good to bad."""

    OK = "OK"
    LOW = "LOW"  # not for much longer
    GONE = "GONE"  # the oldest restore point cannot be used any more


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRetentionMetric:
    """What one source said about one restore point; None where it cannot tell. `checkpoint` 0:
    where the source began.
    """

    source: str
    level: RunwayLevel = RunwayLevel.OK
    checkpoint: int = 0
    reason: str = ""
    seconds_left: float | None = None
    bytes_left: int | None = None
    at_ms: int = 0

    def words(self) -> str:
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
            if self.level is RunwayLevel.GONE
            else f"will not hold {point} for long"
        )
        return ": ".join(
            filter(None, (f"{self.source} {gone}", ", ".join(filter(None, (left, self.reason)))))
        )


@dataclass(frozen=True, slots=True)
class LogRetentionStatus:
    """The worst of a job's sources, in words where it is not good."""

    level: RunwayLevel = RunwayLevel.OK
    reason: str = ""


def outlook(figures: Iterable[LogRetentionMetric]) -> LogRetentionStatus:
    """Of all sources of a job; among equals, the one that has the least time."""
    order = list(RunwayLevel)
    worst = max(
        figures,
        key=lambda f: (
            order.index(f.level),
            -(f.seconds_left if f.seconds_left is not None else float("inf")),
        ),
        default=None,
    )
    return (
        LogRetentionStatus(worst.level, worst.words())
        if worst is not None and worst.level is not RunwayLevel.OK
        else LogRetentionStatus()
    )
