"""Merge the fields of a syntax tree; substitutions are resolved later.

Caller: hocon. Implements the two differences of SeaTunnel's dialect from HOCON: a dot in a key does
not nest (`->` does), and an object under `source`, `transform` or `sink` is a list of its children,
in file order, each with its key as `plugin_name`. Two differences from SeaTunnel, which loses parts
of the file there: a nested key of such a name becomes a list only if all its children are blocks,
and an include inside of such a block adds its plugins.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.config.hocon.syntax import (
    Assignment,
    Concat,
    Include,
    Leaf,
    ListNode,
    ObjectNode,
    Reference,
    SyntaxNode,
)
from tidegate.model.job import Path
from tidegate.model.problem import Location

PLUGIN_KEYS = ("source", "transform", "sink")
PLUGIN_NAME = "plugin_name"


@dataclass(slots=True)
class Branch:
    """An object: values and the location of each key, in file order."""

    at: Location
    entries: "dict[str, Value]" = field(default_factory=dict)
    locations: dict[str, Location] = field(default_factory=dict)

    def put(self, key: str, value: "Value", at: Location) -> None:
        """Set a key; it keeps its first position in the order and gets the new line."""
        self.entries[key] = value
        self.locations[key] = at


@dataclass(slots=True)
class Sequence:
    at: Location
    items: "list[Value]"


@dataclass(slots=True)
class Joined:
    """Values on one line, of which at least one may be a substitution."""

    at: Location
    parts: "list[Value]"


@dataclass(slots=True)
class Stack:
    """Values of one key, earliest first, that can only be merged after substitution."""

    at: Location
    layers: "list[Value]"


@dataclass(slots=True)
class Append:
    """The right side of `+=`."""

    at: Location
    value: "Value"


Value: TypeAlias = Leaf | Reference | Branch | Sequence | Joined | Stack | Append
Loader: TypeAlias = Callable[[Include], ObjectNode | None]
Warn: TypeAlias = Callable[[Location, str], None]


@dataclass(slots=True)
class Builder:
    """Builds the tree of one file and its includes. `dialect` is off for JSON."""

    load: Loader
    warn: Warn
    dialect: bool = True
    _prefix: Path = ()  # where the current file was included

    def root(self, node: ObjectNode) -> Branch:
        """Build the tree of a complete file."""
        return self._branch(node, ())

    def value(self, node: SyntaxNode, path: Path) -> Value:
        """Build any value; `path` is its position in the tree."""
        match node:
            case Leaf():
                return node
            case Reference():
                return Reference(
                    node.at, node.path, node.optional, node.default, node.raw, self._prefix
                )
            case Concat():
                return _joined(node.at, [self.value(part, path) for part in node.parts])
            case ListNode():
                return Sequence(
                    node.at, [self._element(item, (*path, i)) for i, item in enumerate(node.items)]
                )
            case ObjectNode():
                return (
                    self._plugins(node, path)
                    if self._is_plugin_list(node, path)
                    else self._branch(node, path)
                )

    def _element(self, node: SyntaxNode, path: Path) -> Value:
        # The elements of `source = [ { plugin_name = X } ]` are plugins already: the last key on
        # the path is an index here.
        return self._branch(node, path) if isinstance(node, ObjectNode) else self.value(node, path)

    def _is_plugin_list(self, node: ObjectNode, path: Path) -> bool:
        if not self.dialect or not path or path[-1] not in PLUGIN_KEYS:
            return False
        fields = [each for each in node.fields if isinstance(each, Assignment)]
        return len(path) == 1 or all(isinstance(each.value, ObjectNode) for each in fields)

    def _branch(self, node: ObjectNode, path: Path) -> Branch:
        branch = Branch(node.at)
        for each in node.fields:
            if isinstance(each, Include):
                self._included(each, path, branch)
            else:
                self._add(branch, each, path)
        return branch

    def _add(self, branch: Branch, each: Assignment, path: Path) -> None:
        built = self._nested(each, path)
        key = each.path[0]
        existing = branch.entries.get(key)
        if (
            not path
            and key in PLUGIN_KEYS
            and isinstance(existing, Sequence)
            and isinstance(built, Sequence)
        ):
            self.warn(
                each.at,
                f"`{key}` was already set on line {branch.locations[key].line}: this one replaces"
                " it",
            )
        branch.put(key, merged(existing, built, in_place=True), each.at)

    def _nested(self, each: Assignment, path: Path) -> Value:
        """Build the value under its first name: `a->b = 1` is an object with b."""
        # As in SeaTunnel, only the first name of a key decides whether it holds plugins.
        first = (*path, each.path[0])
        value = self.value(
            each.value, first if each.path[0] in PLUGIN_KEYS else (*path, *each.path)
        )
        if each.append:
            value = Append(each.at, value)
        for name in reversed(each.path[1:]):
            outer = Branch(each.at)
            outer.put(name, value, each.at)
            value = outer
        return value

    def _included(self, include: Include, path: Path, branch: Branch) -> None:
        node = self.load(include)
        if node is None:
            return
        outer, self._prefix = self._prefix, path
        inner = self._branch(node, path)
        self._prefix = outer
        for key, value in inner.entries.items():
            existing = branch.entries.get(key)
            branch.put(key, merged(existing, value, in_place=True), inner.locations[key])

    def _plugins(self, node: ObjectNode, path: Path) -> Sequence:
        items: list[Value] = []
        for each in node.fields:
            if isinstance(each, Include):
                included = self.load(each)
                if included is not None:
                    items += self._plugins(included, path).items
                continue
            value = self._nested(each, (*path, len(items)))
            items.append(_named(value, each))
        return Sequence(node.at, items)


def _joined(at: Location, parts: list[Value]) -> Value:
    """Join values on one line; plain text is concatenated immediately."""
    texts = [part.text for part in parts if isinstance(part, Leaf)]
    if len(texts) < len(parts):
        return Joined(at, parts)
    return Leaf(at, "".join(texts), "".join(texts))


def _named(value: Value, each: Assignment) -> Value:
    """Give a plugin its key as name, unless it sets another one itself."""
    name = Leaf(each.at, each.path[0], each.path[0])
    if isinstance(value, Branch):
        if PLUGIN_NAME not in value.entries:
            value.put(PLUGIN_NAME, name, each.at)
        return value
    if isinstance(value, Leaf | Sequence):
        return value
    below = Branch(each.at)
    below.put(PLUGIN_NAME, name, each.at)
    return Stack(each.at, [below, value])


def merged(existing: Value | None, new: Value, *, in_place: bool = False) -> Value:
    """Put a later value over an earlier one: objects merge, other values replace.

    Unresolved values wait in a Stack. `in_place` changes `existing` instead of copying it, for a
    caller that owns it: the builder, whose cost must not grow with the square of how often a key
    occurs.
    """
    if existing is None and not isinstance(new, Append):
        return new
    if isinstance(new, Leaf | Sequence):
        return new
    if existing is None:
        return Stack(new.at, [new])
    if isinstance(new, Branch) and isinstance(existing, Branch):
        return merge_branches(existing, new, in_place=in_place)
    if isinstance(new, Branch) and isinstance(existing, Leaf | Sequence):
        return new
    return _stacked(existing, new, in_place=in_place)


def _stacked(existing: Value, new: Value, *, in_place: bool) -> Stack:
    layers = new.layers if isinstance(new, Stack) else [new]
    if not isinstance(existing, Stack):
        return Stack(new.at, [existing, *layers])
    if not in_place:
        return Stack(new.at, [*existing.layers, *layers])
    existing.layers.extend(layers)
    existing.at = new.at
    return existing


def merge_branches(below: Branch, above: Branch, *, in_place: bool = False) -> Branch:
    """Return an object with the keys of both; those of `above` win."""
    result = below if in_place else Branch(below.at, dict(below.entries), dict(below.locations))
    for key, value in above.entries.items():
        existing = result.entries.get(key)
        result.put(key, merged(existing, value, in_place=in_place), above.locations[key])
    return result
