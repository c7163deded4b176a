"""What every form of job file becomes: plain data, the line of every key and element, and what was
wrong.

Callers: hocon, jsonform, sqlform write it; variables, encryption, structure and load read it. It
knows no syntax.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.model.job import Path
from tidegate.model.problem import Location, Problem, ProblemKind

Data: TypeAlias = "dict[str, Data] | list[Data] | str | int | float | bool | None"
Positions: TypeAlias = dict[Path, Location]

# A person repairs a handful of mistakes at a time; a binary file would otherwise give thousands.
PROBLEMS_MAX = 25


@dataclass(kw_only=True, slots=True)
class Document:
    """A parsed job file. `data` is usable even where there are problems: what could be read."""

    name: str
    data: dict[str, Data]
    positions: Positions
    problems: list[Problem] = field(default_factory=list)
    referenced: frozenset[str] = frozenset()  # top-level keys that substitutions point to

    def at(self, path: Path) -> Location:
        """The place of a path, or of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if (found := self.positions.get(path[:length])) is not None:
                return found
        return Location(self.name)


@dataclass(slots=True)
class SyntaxProblems:
    """Collects mistakes of one file: each line and message once, and not without end."""

    problems: list[Problem] = field(default_factory=list)
    _seen: set[tuple[Location, str]] = field(default_factory=set)

    def add(self, at: Location, message: str) -> None:
        """Remember a mistake, unless it was already said or there are too many."""
        if len(self.problems) >= PROBLEMS_MAX or (at, message) in self._seen:
            return
        self._seen.add((at, message))
        self.problems.append(Problem(kind=ProblemKind.SYNTAX, message=message, at=at))


def path_text(path: Path) -> str:
    """A path as people write it: `source[0].schema.fields.id`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
