"""Problems of a job file: always reported as a list, never just the first one."""

from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from tidegate.model.errors import UserError


class ProblemKind(StrEnum):
    """What a problem is about; part of `tidegate validate --json`."""

    SYNTAX = "syntax"  # the text is not HOCON, JSON or the SQL form
    WIRING = "wiring"  # blocks whose inputs and outputs do not match
    UNKNOWN_PLUGIN = "unknown-plugin"  # no connector of this name
    OPTION = "option"  # a value or a missing key
    UNKNOWN_OPTION = "unknown-option"  # a key that no connector defines
    PATH = "path"  # the files that the job reads are not on this host
    DATA = "data"  # the data that the job reads does not match the job file


class Severity(StrEnum):
    """Whether a problem stops the job."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Strictness(StrEnum):
    """How an unknown option or key is treated."""

    LENIENT = "lenient"  # a warning
    NORMAL = "normal"  # an error in a connector's block, elsewhere a warning
    STRICT = "strict"  # an error


@dataclass(frozen=True, slots=True)
class Location:
    """A line in a job file. Lines count from 1; 0 means the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One problem to fix. `path` is dotted with indexes: `source[0].schema.fields.id`."""

    kind: ProblemKind
    message: str
    at: Location
    path: str = ""
    expected: str = ""
    suggestion: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        text = f"{self.at}: {self.severity}: "
        text += f"{self.path}: {self.message}" if self.path else self.message
        if self.expected:
            text += f" (expected {self.expected})"
        if self.suggestion:
            text += f"; did you mean {self.suggestion!r}?"
        return text


class BadJob(UserError):
    """A job file with problems; the message lists all of them."""

    condition = "bad-job"

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def closest_match(word: str, candidates: list[str]) -> str:
    """Return the candidate that the user probably meant, or an empty string."""
    folded = {k.lower(): k for k in candidates}
    close = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else ""
