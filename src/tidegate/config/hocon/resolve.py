"""Resolve substitutions: from the tree of merge to plain data with locations.

Caller: hocon. A name is searched in the file (earlier values of the same key first, for
self-references), then by the `lookup` of the caller (variables, environment). An unknown name stays
as text, as `${name}`: the variables step decides about it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.config.document import Data, Positions, SyntaxProblems
from tidegate.config.hocon.merge import (
    Append,
    Branch,
    Joined,
    Sequence,
    Stack,
    Value,
    merge_branches,
)
from tidegate.config.hocon.syntax import Leaf, Reference
from tidegate.model.job import Path
from tidegate.model.problem import Location

Lookup: TypeAlias = Callable[[str], str | list[str] | None]
Resolved: TypeAlias = Leaf | Branch | Sequence

# Substitutions can double a value repeatedly; a job file is small. Every limit is checked before a
# value is made, so that a file of a few hundred bytes cannot exhaust the memory.
VALUES_MAX = 100_000
COPIES_MAX = 10 * VALUES_MAX
"""Keys that merging may copy in one file; elements of lists cost a twentieth of that."""
ELEMENTS_PER_COPY = 20
TEXT_MAX = 1_000_000
"""Characters that substitutions may join into new texts."""
RESULT_CHARS_MAX = 20_000_000
"""Characters of all texts in the result, each counted where it is used."""
DEPTH_MAX = 150
NAME_DOTS_MAX = 50


class SubstitutionLimitExceeded(Exception):
    """Substitutions expand the file too far or nest too deeply; never leaves this module."""


@dataclass(slots=True)
class Resolver:
    """Resolves one tree. `data` is the only public method; call it once."""

    root: Branch
    lookup: Lookup
    problems: SyntaxProblems
    referenced: set[str] = field(default_factory=set)
    _active: list[Value] = field(default_factory=list)
    _folded: dict[int, Resolved | None] = field(default_factory=dict)
    _done: dict[int, tuple[Value, Resolved | None]] = field(
        default_factory=dict
    )  # holds the value, so that its id is not reused
    _steps: int = 0
    _texts: int = 0
    _copies: float = 0
    _result_values: int = 0
    _result_chars: int = 0

    def data(self) -> tuple[dict[str, Data], Positions]:
        """Return plain data, and the location of every key and element."""
        positions: Positions = {}
        try:
            resolved = self._branch(self.root)
            flat = self._flatten(resolved, (), positions)
        except SubstitutionLimitExceeded as error:
            self.problems.add(self.root.at, str(error))
            return {}, {}
        return (flat if isinstance(flat, dict) else {}), positions

    def _flatten(self, value: Value, path: Path, positions: Positions) -> Data:
        self._result_values += 1
        if self._result_values > VALUES_MAX:
            raise SubstitutionLimitExceeded(
                f"with its substitutions this file has more than {VALUES_MAX} values"
            )
        if isinstance(value, Leaf):
            self._result_chars += len(value.text)
            if self._result_chars > RESULT_CHARS_MAX:
                raise SubstitutionLimitExceeded(
                    f"with its substitutions this file has more than {RESULT_CHARS_MAX} characters"
                )
            return value.value
        if isinstance(value, Sequence):
            items: list[Data] = []
            for i, item in enumerate(value.items):
                positions[(*path, i)] = item.at
                items.append(self._flatten(item, (*path, i), positions))
            return items
        assert isinstance(value, Branch), "only resolved values are flattened"
        result: dict[str, Data] = {}
        for key, entry in value.entries.items():
            positions[(*path, key)] = value.locations[key]
            result[key] = self._flatten(entry, (*path, key), positions)
        return result

    # --- one value

    def _resolve(self, value: Value) -> Resolved | None:
        """Return the value without substitutions; None if an optional one is missing."""
        if isinstance(value, Leaf):
            return value
        if id(value) in self._done:
            return self._done[id(value)][1]
        if self._is_active(value):  # reached again through a substitution inside of it
            return self._folded.get(id(value))
        self._steps += 1
        if self._steps > VALUES_MAX or len(self._active) > DEPTH_MAX:
            raise SubstitutionLimitExceeded(
                f"this file has more than {VALUES_MAX} values, or its substitutions nest more than"
                f" {DEPTH_MAX} deep"
            )
        self._active.append(value)
        try:
            result = self._resolve_parts(value)
        finally:
            self._active.pop()
        if (
            not self._folded
        ):  # while a key is being merged, what it sees of itself is only temporary
            self._done[id(value)] = (value, result)
        return result

    def _resolve_parts(self, value: Value) -> Resolved | None:
        match value:
            case Branch():
                return self._branch(value)
            case Sequence():
                return Sequence(
                    value.at,
                    [item for each in value.items if (item := self._resolve(each)) is not None],
                )
            case Reference():
                return self._reference(value)
            case Joined():
                return self._join(
                    value.at,
                    [part for each in value.parts if (part := self._resolve(each)) is not None],
                )
            case Stack():
                return self._fold(value)
            case Append():
                inner = self._resolve(value.value)
                return Sequence(value.at, [] if inner is None else [inner])
            case Leaf():
                return value

    def _is_active(self, value: Value) -> bool:
        return any(each is value for each in self._active)

    def _branch(self, branch: Branch) -> Branch:
        result = Branch(branch.at)
        for key, entry in branch.entries.items():
            resolved = self._resolve(entry)
            if resolved is not None:
                result.put(key, resolved, branch.locations[key])
        return result

    def _fold(self, stack: Stack) -> Resolved | None:
        """Merge the values of a key, earliest first.

        While one is resolved, a reference to the key itself sees those before.
        """
        result: Resolved | None = None
        owned = False  # whether `result` is a list that nothing else refers to
        for layer in stack.layers:
            self._folded[id(stack)] = result
            new = self._resolve(layer)
            if isinstance(layer, Append) and isinstance(new, Sequence):
                plain = isinstance(layer.value, Leaf)  # any other value may refer to `result`
                if owned and plain and isinstance(result, Sequence):
                    result.items.extend(new.items)
                else:
                    result = self._appended(layer, result, new)
                owned = plain and isinstance(result, Sequence)
            elif isinstance(new, Branch) and isinstance(result, Branch):
                result = self._merged(result, new)
                owned = False
            elif new is not None:
                result = new
                owned = False
        del self._folded[id(stack)]
        return result

    def _appended(self, layer: Append, before: Resolved | None, new: Sequence) -> Resolved:
        if before is None:
            return new
        if isinstance(before, Sequence):
            return self._concatenated(before, new)
        self.problems.add(
            layer.at, "`+=` requires a list, but the previous value of this key is not one"
        )
        return before

    def _concatenated(self, first: Sequence, second: Sequence) -> Sequence:
        count = len(first.items) + len(second.items)
        self._count_copies(count, count / ELEMENTS_PER_COPY)
        return Sequence(first.at, [*first.items, *second.items])

    def _merged(self, below: Branch, above: Branch) -> Branch:
        count = len(below.entries) + len(above.entries)
        self._count_copies(count, count)
        return self._branch(merge_branches(below, above))

    def _count_copies(self, count: int, cost: float) -> None:
        """Check the limits before a copy is made."""
        self._copies += cost
        if count > VALUES_MAX or self._copies > COPIES_MAX:
            raise SubstitutionLimitExceeded(
                f"the substitutions of this file make more than {VALUES_MAX} values, or copy more"
                f" than {COPIES_MAX}"
            )

    # --- concatenation

    def _join(self, at: Location, parts: list[Resolved]) -> Resolved | None:
        containers = [part for part in parts if isinstance(part, Branch | Sequence)]
        if not containers:
            return self._join_text(at, [part for part in parts if isinstance(part, Leaf)])
        scalars = [part for part in parts if isinstance(part, Leaf) and not part.blank]
        if scalars and scalars[0].missing:
            self.problems.add(
                scalars[0].at,
                f"{scalars[0].text} is not set, so it cannot be concatenated with a list or an"
                " object",
            )
            return containers[0]
        result = containers[0]
        for part in containers[1:]:
            if isinstance(result, Branch) and isinstance(part, Branch):
                result = self._merged(result, part)
            elif isinstance(result, Sequence) and isinstance(part, Sequence):
                result = self._concatenated(result, part)
            else:
                scalars.append(Leaf(part.at, None, ""))
        if scalars:
            self.problems.add(
                at,
                "a list, an object and text cannot be concatenated: is a comma missing?",
            )
        return result

    def _join_text(self, at: Location, parts: list[Leaf]) -> Leaf | None:
        if all(part.blank for part in parts):
            return None
        if len(parts) == 1:
            return parts[0]
        self._texts += sum(len(part.text) for part in parts)
        if self._texts > TEXT_MAX:
            raise SubstitutionLimitExceeded(
                "the substitutions of this file make more than a million characters"
            )
        text = "".join(part.text for part in parts)
        return Leaf(
            at, text, text, missing=next((part.missing for part in parts if part.missing), "")
        )

    # --- references

    def _reference(self, reference: Reference) -> Resolved | None:
        found = self._target(reference)
        if found is not None:
            return found
        name = "->".join(reference.path)
        outside = self.lookup(name)
        if outside is None and reference.default is not None:
            outside = reference.default.strip()
        if isinstance(outside, list):
            return Sequence(reference.at, [Leaf(reference.at, text, text) for text in outside])
        if outside is not None:
            return Leaf(reference.at, outside, outside)
        return (
            None
            if reference.optional
            else Leaf(reference.at, reference.raw, reference.raw, missing=name)
        )

    def _target(self, reference: Reference) -> Resolved | None:
        prefixes: list[Path] = [reference.prefix, ()] if reference.prefix else [()]
        for prefix in prefixes:
            target = self._find((*prefix, *reference.path))
            if target is None:
                continue
            self._mark_referenced(reference.path[0])
            if id(target) in self._folded:
                return self._folded[id(target)]
            if self._is_active(target):
                self._check_cycle(reference, target)
                return None
            return self._resolve(target)
        return None

    def _mark_referenced(self, name: str) -> None:
        """Record that a top-level key is used as a variable of the file.

        For a name with dots, these are all of its prefixes that exist.
        """
        self.referenced.update(
            head for head in (name, *(head for head, _ in _cuts(name))) if head in self.root.entries
        )

    def _check_cycle(self, reference: Reference, target: Value) -> None:
        """Report a value that depends on itself.

        `path = ${path}` is no cycle: it refers to a variable from outside of the file.
        """
        start = next(i for i, each in enumerate(self._active) if each is target)
        between = [
            each
            for each in self._active[start:]
            if isinstance(each, Reference) and each is not reference
        ]
        if not reference.optional and (between or isinstance(target, Branch | Sequence)):
            self.problems.add(reference.at, f"{reference.raw} refers to itself")

    def _find(self, path: Path) -> Value | None:
        """Find the value at a path; `a.b` is also tried as two names, as in HOCON."""
        nodes: list[tuple[Value, Path]] = [(self.root, path)]
        tries = 0
        while nodes and (tries := tries + 1) < 100:
            node, rest = nodes.pop()
            if not rest:
                return node
            child = self._child(node, rest[0])
            if child is not None:
                nodes.append((child, rest[1:]))
            elif isinstance(rest[0], str) and "." in rest[0]:
                nodes += reversed(
                    [(node, (head, tail, *rest[1:])) for head, tail in _cuts(rest[0])]
                )
        return None

    def _child(self, node: Value, key: str | int) -> Value | None:
        match node:
            case Branch():
                return node.entries.get(key) if isinstance(key, str) else None
            case Sequence():
                return node.items[key] if isinstance(key, int) and key < len(node.items) else None
            case Stack(layers=layers) | Joined(parts=layers):
                return next(
                    (
                        found
                        for layer in reversed(layers)
                        if (found := self._child(layer, key)) is not None
                    ),
                    None,
                )
            case Reference() if not self._is_active(node):
                resolved = self._resolve(node)
                return None if resolved is None else self._child(resolved, key)
        return None


def _cuts(name: str) -> list[tuple[str, str]]:
    """Split `a.b.c` as (a, b.c) and (a.b, c); empty for names with too many dots."""
    if name.count(".") > NAME_DOTS_MAX:
        return []
    return [(name[:i], name[i + 1 :]) for i in range(1, len(name) - 1) if name[i] == "."]
