"""Declares the options that a connector accepts, and reads blocks of a job file by them.

Called by config (env), planner (blocks), connectors (nested blocks such as `tables_configs`), the
CLI and the generated docs. The rules are those of SeaTunnel: `a.b` is searched flat and then
nested, then by each fallback key; ints from text, booleans only true/false, enums by name in any
case, lists from comma-separated text, text from anything. All problems are collected.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tidegate.model.job import Path, PluginBlock
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, closest_match
from tidegate.plugin.deprecated import old_name

_LEAVES = frozenset({str, int, float, bool, type(None), list})

ABSENT: Any = object()
"""Marks an option without value and default."""


class OptionKind(StrEnum):
    """The type of an option's value."""

    TEXT = "string"
    INT = "int"  # 32 bits
    LONG = "long"
    DOUBLE = "double"
    DURATION = "duration"  # milliseconds; a number, or a text such as 10S, 500ms, PT1M30S
    BOOL = "boolean"
    ENUM = "enum"
    LIST = "list"  # of text, unless the connector reads it further
    MAP = "map"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Option:
    """Declares one key. The default None means that there is no default.

    `choices` are the names of an enum, upper or lower case as documented.
    """

    key: str
    kind: OptionKind
    description: str
    default: Any = None
    required: bool = False
    fallbacks: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.choices)}" if self.choices else self.kind.value


@dataclass(frozen=True, slots=True)
class When:
    """Requires keys if another key has one of these values."""

    key: str
    values: tuple[Any, ...]
    required: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The data of a block, with the location of each key in the job file.

    `prefix` is its path for messages: `source[0]`.
    """

    data: Mapping[str, Any]
    locate: Callable[[Path], Location]
    prefix: str
    _nested: bool = field(init=False, repr=False, compare=False)  # it contains maps
    _dotted: bool = field(init=False, repr=False, compare=False)  # it has keys with dots

    def __post_init__(self) -> None:
        values = self.data.values()
        nested = not _LEAVES.issuperset(map(type, values)) and any(
            isinstance(value, Mapping) for value in values
        )
        object.__setattr__(self, "_nested", nested)
        object.__setattr__(self, "_dotted", "." in "".join(self.data))

    @staticmethod
    def of(block: PluginBlock) -> "Block":
        """The whole of a plugin block."""
        return Block(block.options, block.locate, block.path)

    def problem(self, path: Path, message: str, **more: Any) -> Problem:
        """Make an option problem at a path within this block."""
        dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
        more.setdefault("kind", ProblemKind.OPTION)
        return Problem(
            message=message, at=self.locate(path), path=(self.prefix + dotted).lstrip("."), **more
        )

    def unknown(
        self, path: Path, known: Iterable[str], severity: Severity = Severity.WARNING
    ) -> Problem:
        """Make the problem of a key that is not among the known ones."""
        dotted = ".".join(map(str, path))
        return self.problem(
            path,
            f"unknown option {dotted}",
            kind=ProblemKind.UNKNOWN_OPTION,
            suggestion=closest_match(dotted, list(known)),
            severity=severity,
        )

    def inside(self, path: Path, data: Mapping[str, Any]) -> "Block":
        """A nested block, such as one of `tables_configs`."""
        dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
        return Block(data, lambda below: self.locate((*path, *below)), self.prefix + dotted)

    def find(self, key: str) -> tuple[Path, Any] | None:
        """Find a value by flat key, else in nested maps, else as the block of all keys below it.

        An example of the last one is `schema.fields { ... }`.
        """
        if key in self.data:
            return (key,), self.data[key]
        found = self._walk(key) if self._nested and "." in key else None
        # Most keys are not given, and a job may have hundreds of options.
        if found is not None or not self._dotted:
            return found
        dotted = f"{key}."
        below = {k[len(dotted) :]: v for k, v in self.data.items() if k.startswith(dotted)}
        return ((key,), below) if below else None

    def _walk(self, key: str) -> tuple[Path, Any] | None:
        node: Any = self.data
        path: list[str] = []
        rest = key
        while isinstance(node, Mapping):
            if rest in node:
                return (*path, rest), node[rest]
            step = next((k for k in node if rest.startswith(f"{k}.")), None)
            if step is None:
                return None
            node, rest = node[step], rest[len(step) + 1 :]
            path.append(step)
        return None


Values = dict[str, Any]
"""Option key -> value, of the option's type; keys without value and default are None."""


@dataclass(frozen=True, slots=True)
class OptionSet:
    """The options of a connector, and the rules between them."""

    options: tuple[Option, ...]
    exclusive: tuple[tuple[str, ...], ...] = ()  # exactly one of each group
    at_most_one: tuple[tuple[str, ...], ...] = ()
    bundled: tuple[tuple[str, ...], ...] = ()  # all of a group or none
    conditions: tuple[When, ...] = ()
    # For each option, the first parts of its keys.
    _heads: tuple[frozenset[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "_heads", tuple(frozenset(_heads((o.key, *o.fallbacks))) for o in self.options)
        )

    def keys(self) -> list[str]:
        """Every accepted key, including fallbacks."""
        return [k for o in self.options for k in (o.key, *o.fallbacks)]

    def read(
        self, block: Block, *, strict: bool = False, also: Iterable[str] = ()
    ) -> tuple[Values, list[Problem]]:
        """Return all values and all problems.

        `also` are keys that belong to the block but not to the connector.
        """
        values: Values = {}
        given: dict[str, Path] = {}
        problems: list[Problem] = []
        heads = _heads(block.data)
        # There may be a hundred options, and most are not given.
        for option, own in zip(self.options, self._heads, strict=True):
            if option.required or not own.isdisjoint(heads):
                self._read_one(option, block, values, given, problems)
            else:
                values[option.key] = option.default
        problems += self._rules(block, values, given)
        problems += self._unknown(block, [*self.keys(), *also], strict)
        return values, problems

    def _read_one(
        self,
        option: Option,
        block: Block,
        values: Values,
        given: dict[str, Path],
        problems: list[Problem],
    ) -> None:
        values[option.key] = option.default
        for key in (option.key, *option.fallbacks):
            found = block.find(key)
            if found is None or found[1] is None:
                continue
            path, raw = found
            given[option.key] = path
            try:
                values[option.key] = coerce(option, raw)
            except ValueError as error:
                close = closest_match(str(raw), list(option.choices)) if option.choices else ""
                # The text of the error contains the value, which must not be shown if secret.
                text = (
                    f"the value of {option.key} has another type" if option.secret else str(error)
                )
                problems.append(
                    block.problem(path, text, expected=option.expected, suggestion=close)
                )
            return
        if option.required:
            problems.append(
                block.problem(
                    (), f"{option.key} is missing: {option.description}", expected=option.expected
                )
            )

    def _rules(self, block: Block, values: Values, given: Mapping[str, Path]) -> Iterator[Problem]:
        for group in (*self.exclusive, *self.at_most_one):
            have = [k for k in group if k in given]
            if not have and group in self.exclusive:
                yield block.problem((), f"one of {', '.join(group)} is missing")
            elif len(have) > 1:
                yield block.problem(
                    given[have[1]],
                    f"only one of {', '.join(group)} can be given, not {' and '.join(have)}",
                )
        yield from self._bundles(block, given)
        for when in self.conditions:
            for key in when.required if values.get(when.key) in when.values else ():
                if key not in given:
                    yield block.problem(
                        (), f"{key} is missing: it is needed where {when.key} = {values[when.key]}"
                    )

    def _bundles(self, block: Block, given: Mapping[str, Path]) -> Iterator[Problem]:
        for group in self.bundled:
            have = [k for k in group if k in given]
            if have and len(have) < len(group):
                lacking = [k for k in group if k not in given]
                yield block.problem(
                    given[have[0]], f"{', '.join(have)} needs {', '.join(lacking)} too"
                )

    def _unknown(self, block: Block, known: Sequence[str], strict: bool) -> Iterator[Problem]:
        severity = Severity.ERROR if strict else Severity.WARNING
        blocks = tuple(
            f"{key}."
            for o in self.options
            if o.kind in (OptionKind.MAP, OptionKind.ANY)
            for key in (o.key, *o.fallbacks)
        )
        for path in unknown_paths(block.data, known):
            if str(path[0]).startswith(blocks):
                continue
            yield block.unknown(path, known, severity)


def _heads(keys: Iterable[str]) -> set[str]:
    """The first parts of these keys.

    A value found for a dotted key, flat or nested, is below a key with the same first part.
    """
    return {key.partition(".")[0] for key in keys}


def unknown_paths(
    data: Mapping[str, Any], known: Sequence[str], above: Path = ()
) -> Iterator[Path]:
    """Yield the shortest paths in nested data that match no known dotted key."""
    for key, value in data.items():
        path = (*above, key)
        dotted = ".".join(map(str, path))
        if dotted in known:
            continue
        if isinstance(value, Mapping) and any(k.startswith(f"{dotted}.") for k in known):
            yield from unknown_paths(value, known, path)
        else:
            yield path


def coerce(option: Option, raw: Any) -> Any:
    """Convert a value of the job file to the option's type.

    Raises ValueError with a message for the user.
    """
    if option.kind is OptionKind.ENUM:
        return _choice(option, raw)
    value = _READERS[option.kind](raw)
    return _bounded(option, value) if option.kind in _NUMBERS else value


def as_text(raw: Any) -> str:
    """Convert any JSON value to text, as SeaTunnel does: objects and lists become JSON text."""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, Mapping | list):
        return json.dumps(raw)
    return json.dumps(raw) if isinstance(raw, bool) else str(raw)


def _block(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{shown(raw)} is not a block {{ ... }}")
    return dict(raw)


def _items(raw: Any) -> list[Any]:
    if isinstance(raw, list):
        return raw
    if isinstance(raw, str):
        return [part.strip() for part in raw.split(",")]
    raise ValueError(f"{shown(raw)} is not a list")


def _whole(raw: Any, bits: int) -> int:
    if isinstance(raw, bool):
        raise ValueError(f"{shown(raw)} is not a whole number")
    try:
        value = int(raw) if isinstance(raw, int | str) else int(float(raw))
        exact = isinstance(raw, int | str) or value == float(raw)
    except (TypeError, ValueError, OverflowError):
        exact = False
        value = 0
    if not exact:
        raise ValueError(f"{shown(raw)} is not a whole number")
    if not -(2**bits) <= value < 2**bits:
        text = value if abs(value) < 2**128 else "the number"
        raise ValueError(f"{text} does not fit into {bits + 1} bits")
    return value


UNITS_MS = {
    "ms": 1,
    "milli": 1,
    "millis": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}


def milliseconds(raw: Any) -> int:
    """Parse a time span into milliseconds.

    Accepts a number of milliseconds, numbers with units (`10S`, `500 ms`, `1m30s`), and ISO 8601
    (`PT10S`).
    """
    if not isinstance(raw, str) or raw.strip().lstrip("+-").isdigit():
        return _whole(raw, 63)
    text = re.sub(r"^p(?:(\d+d))?t?", r"\1", raw.strip().lower())
    parts = re.findall(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", text)
    units = [UNITS_MS.get(unit) or UNITS_MS.get(unit.removesuffix("s")) for _, unit in parts]
    if not parts or None in units or re.sub(r"\s*\d+(?:\.\d+)?\s*[a-z]+\s*", "", text):
        raise ValueError(f"{shown(raw)} is not a span of time")
    total = sum(float(number) * (unit or 0) for (number, _), unit in zip(parts, units, strict=True))
    if not total < 2**63:
        raise ValueError(f"{shown(raw)} is longer than any span of time")
    return round(total)


def _number(raw: Any) -> float:
    try:
        if isinstance(raw, bool):
            raise ValueError
        return float(raw)
    except (TypeError, ValueError):
        raise ValueError(f"{shown(raw)} is not a number") from None


def _bounded(option: Option, value: Any) -> Any:
    if option.minimum is not None and value < option.minimum:
        raise ValueError(f"{value} is too small: at least {option.minimum:g}")
    if option.maximum is not None and value > option.maximum:
        raise ValueError(f"{value} is too large: at most {option.maximum:g}")
    return value


def _boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.strip().lower() in ("true", "false"):
        return raw.strip().lower() == "true"
    raise ValueError(f"{shown(raw)} is neither true nor false")


def _choice(option: Option, raw: Any) -> str:
    for choice in option.choices:
        if isinstance(raw, str) and raw.strip().lower() == choice.lower():
            return choice
    raise ValueError(f"{shown(raw)} is not possible here")


def shown(raw: Any) -> str:
    """Format a value for a message, cut to a readable length."""
    text = json.dumps(raw, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


_NUMBERS = (OptionKind.INT, OptionKind.LONG, OptionKind.DOUBLE, OptionKind.DURATION)
_READERS: dict[OptionKind, Callable[[Any], Any]] = {
    OptionKind.INT: lambda raw: _whole(raw, 31),
    OptionKind.LONG: lambda raw: _whole(raw, 63),
    OptionKind.DOUBLE: _number,
    OptionKind.DURATION: milliseconds,
    OptionKind.BOOL: _boolean,
    OptionKind.LIST: _items,
    OptionKind.MAP: _block,
    OptionKind.TEXT: as_text,
    OptionKind.ANY: lambda raw: raw,
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return old_name(__name__, name)
