"""The findings of `tidegate doctor`. Made by its checks."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"  # a job runs, but slowly or with a risk
    MISSING = "missing"  # no job can run


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    name: str
    level: Level
    found: str
    repair: str = ""  # what to do; empty if there is nothing to repair
