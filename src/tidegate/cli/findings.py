"""What `tidegate doctor` finds. Called by its checks."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"  # a job runs, but slowly or with a risk
    MISSING = "missing"  # no job can run


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorFinding:
    """One thing that was looked at."""

    name: str
    level: Level
    found: str
    repair: str = ""  # what to do; empty when all is well
