"""Parse HOCON text in SeaTunnel's dialect, including the files that it includes.

Runs lexer, parser, merge and resolve. Callers: load, sql_form. Reads files only through the
function that the caller passes, and never raises for bad text: problems are in the document.
"""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.config.document import Document, SyntaxProblems
from tidegate.config.hocon.merge import Builder
from tidegate.config.hocon.parser import Parser
from tidegate.config.hocon.resolve import Lookup, Resolver
from tidegate.config.hocon.syntax import Include, ObjectNode
from tidegate.model.problem import Location, Problem, ProblemKind, Severity

Read: TypeAlias = Callable[[str], str | None]
"""Returns the text of a file by its path, or None if it does not exist.

Raises Unreadable if it is not text.
"""


class Unreadable(Exception):
    """A file that is not text, with the reason; it never leaves the package."""


def no_includes(_path: str) -> str | None:
    """Find no includes, for texts without a path on disk."""
    return None


def no_lookup(_name: str) -> str | list[str] | None:
    return None


def parse_hocon(
    text: str,
    name: str,
    *,
    lookup: Lookup = no_lookup,
    read: Read = no_includes,
    first_line: int = 1,
) -> Document:
    """Parse a HOCON file. Names that `lookup` does not know stay as `${name}`."""
    problems = SyntaxProblems()
    node = Parser(text, name, problems, first_line=first_line).root()
    return resolve_document(node, name, problems, lookup=lookup, read=read)


def resolve_document(
    node: ObjectNode,
    name: str,
    problems: SyntaxProblems,
    *,
    lookup: Lookup = no_lookup,
    read: Read = no_includes,
    dialect: bool = True,
) -> Document:
    """Merge and resolve the syntax tree of a file, with its includes and substitutions."""
    warnings: list[Problem] = []

    def warn(at: Location, message: str) -> None:
        warnings.append(
            Problem(kind=ProblemKind.WIRING, message=message, at=at, severity=Severity.WARNING)
        )

    includer = _IncludeLoader(read, problems)
    tree = Builder(includer.load, warn, dialect).root(node)
    resolver = Resolver(tree, lookup, problems)
    data, positions = resolver.data()
    found = [*problems.problems, *warnings]
    return Document(
        name=name,
        data=data,
        positions=positions,
        problems=found,
        referenced=frozenset(resolver.referenced),
    )


@dataclass(slots=True)
class _IncludeLoader:
    """Loads included files, relative to the including one; a cycle is a problem."""

    read: Read
    problems: SyntaxProblems
    _parents: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    def load(self, include: Include) -> ObjectNode | None:
        """Return the parsed file, or None if there is nothing to merge."""
        if include.scheme in ("url", "classpath") or "://" in include.name:
            self.problems.add(
                include.at,
                f"include {include.name}: only files can be included, not URLs or the class path",
            )
            return None
        found = self._find(include)
        if found is None:
            if include.required:
                self.problems.add(include.at, f"the included file {include.name} does not exist")
            return None
        path, text = found
        return self._parse(include, path, text)

    def _find(self, include: Include) -> tuple[str, str] | None:
        base = posixpath.normpath(posixpath.join(posixpath.dirname(include.at.file), include.name))
        names = (
            [base]
            if base.endswith((".conf", ".json", ".config"))
            else [base, f"{base}.conf", f"{base}.json"]
        )
        for path in names:
            try:
                text = self.read(path)
            except Unreadable as error:
                self.problems.add(Location(path), str(error))
                return path, ""
            if text is not None:
                return path, text
        return None

    def _parse(self, include: Include, path: str, text: str) -> ObjectNode | None:
        if path in self._including_files(include.at.file):
            self.problems.add(
                include.at, f"{include.name} includes itself through {include.at.file}"
            )
            return None
        self._count += 1
        if self._count > 100:
            self.problems.add(include.at, "more than 100 files are included")
            return None
        self._parents[path] = include.at.file
        return Parser(text, path, self.problems, strict_json=path.endswith(".json")).root()

    def _including_files(self, file: str) -> list[str]:
        """List a file and those that include it, the outermost last."""
        chain = [file]
        while (outer := self._parents.get(chain[-1])) is not None:
            chain.append(outer)
        return [posixpath.normpath(each) for each in chain]
