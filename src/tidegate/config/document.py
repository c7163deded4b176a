"""The common result of parsing a job file: plain data, line numbers and problems.

hocon, json_form and sql_form write it; variables, encryption, structure and load read it. It knows
no syntax.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.model.job import Path
from tidegate.model.problem import Location, Problem, ProblemKind

Data: TypeAlias = "dict[str, Data] | list[Data] | str | int | float | bool | None"
Positions: TypeAlias = dict[Path, Location]

# Users correct a few mistakes at a time; a binary file would otherwise cause thousands.
PROBLEMS_MAX = 25


@dataclass(kw_only=True, slots=True)
class Document:
    """A parsed job file. If there are problems, `data` holds what could be read."""

    name: str
    data: dict[str, Data]
    positions: Positions
    problems: list[Problem] = field(default_factory=list)
    referenced: frozenset[str] = frozenset()  # top-level keys that substitutions point to

    def at(self, path: Path) -> Location:
        """Return the location of a path, or of its nearest parent."""
        for length in range(len(path), 0, -1):
            if (found := self.positions.get(path[:length])) is not None:
                return found
        return Location(self.name)


@dataclass(slots=True)
class SyntaxProblems:
    """Collects the problems of one file: each line and message once, up to a limit."""

    problems: list[Problem] = field(default_factory=list)
    _seen: set[tuple[Location, str]] = field(default_factory=set)

    def add(self, at: Location, message: str) -> None:
        """Add a problem, unless it is a duplicate or there are too many."""
        if len(self.problems) >= PROBLEMS_MAX or (at, message) in self._seen:
            return
        self._seen.add((at, message))
        self.problems.append(Problem(kind=ProblemKind.SYNTAX, message=message, at=at))


def path_text(path: Path) -> str:
    """Format a path for users: `source[0].schema.fields.id`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
