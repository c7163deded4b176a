"""Flatten the engine's file to one level of keys such as `checkpoint.interval`.

Caller: engine. Keys may be flat or nested, below `seatunnel.engine`, `tidegate` or `engine`. Also
substitutes variables, and reports duplicate keys, blocks with a value and values that are blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidegate.config.document import Data, Document, path_text
from tidegate.config.engine.options import OPTIONS, SPARK
from tidegate.config.engine.variables import UnresolvedVariable, substitute
from tidegate.model.job import Path
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, closest_match
from tidegate.plugin.option import OptionKind

# Parents of the engine's keys. The longer one of two that match comes first.
ROOTS = ("seatunnel.engine", "tidegate.engine", "tidegate", "engine")
_CLUSTER_BLOCKS = ("hazelcast", "hazelcast-client")
_BLOCKS = {SPARK, *(option.key for option in OPTIONS.options if option.kind is OptionKind.MAP)}


@dataclass(frozen=True, slots=True)
class FlatValue:
    """A scalar value or list. `names` are the variables that were substituted in it."""

    value: Data
    at: Location
    path: str
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class FlatSettings:
    """All values by key, without the root, in file order."""

    file: str
    root: str = ""
    leaves: dict[str, FlatValue] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def locate(self, path: Path) -> Location:
        """Return the location of a key, else of the first one below it, else the file."""
        key = ".".join(map(str, path))
        found = self.leaves.get(key) or next(
            (leaf for name, leaf in self.leaves.items() if name.startswith(f"{key}.")), None
        )
        return found.at if found else Location(self.file)


def flatten(document: Document, environ: Mapping[str, str], *, strict: bool) -> FlatSettings:
    """Collect the values of the engine's blocks. Problems of the text come first."""
    flat = FlatSettings(document.name, problems=list(document.problems))
    foreign: list[Path] = []
    for path, value in _leaves(document.data):
        dotted = ".".join(map(str, path))
        root = next(
            (root for root in ROOTS if dotted == root or dotted.startswith(f"{root}.")), None
        )
        if root is None:
            foreign.append(path)
            continue
        flat.root = flat.root or root
        key = dotted[len(root) + 1 :]
        if key or value is not None:
            _add(flat, document, key, path, value, environ)
    flat.problems += _foreign_block_problems(
        document, foreign, rooted=bool(flat.root), strict=strict
    )
    return flat


def _leaves(data: Mapping[str, Data], above: Path = ()) -> Iterator[tuple[Path, Data]]:
    for key, value in data.items():
        path: Path = (*above, key)
        if isinstance(value, dict) and value:
            yield from _leaves(value, path)
        else:
            yield path, None if value == {} else value


def _add(
    flat: FlatSettings,
    document: Document,
    key: str,
    path: Path,
    value: Data,
    environ: Mapping[str, str],
) -> None:
    at, shown = document.at(path), path_text(path)
    if key in flat.leaves:
        flat.problems.append(
            _problem(at, shown, f"{key} is set twice, first on line {flat.leaves[key].at.line}")
        )
    elif _is_block(key):
        if value is not None:
            flat.problems.append(
                _problem(at, shown, f"{key or 'this'} is a block: write its keys below it")
            )
    elif value is not None:
        try:
            filled = (
                substitute(value, environ, for_spark=key.startswith(f"{SPARK}."))
                if isinstance(value, str)
                else None
            )
        except UnresolvedVariable as error:
            flat.problems.append(_problem(at, shown, str(error)))
            return
        flat.leaves[key] = (
            FlatValue(filled.text, at, shown, filled.names)
            if filled
            else FlatValue(value, at, shown)
        )


def _is_block(key: str) -> bool:
    known = OPTIONS.keys()
    return key in _BLOCKS or not key or any(name.startswith(f"{key}.") for name in known)


def _foreign_block_problems(
    document: Document, paths: list[Path], *, rooted: bool, strict: bool
) -> Iterator[Problem]:
    """Yield one problem for each block that is not the engine's.

    If there is no other block, the file is probably not an engine's file.
    """
    blocks = list(dict.fromkeys(path[:2] if path[0] == "seatunnel" else path[:1] for path in paths))
    if blocks and not rooted:
        close = closest_match(path_text(blocks[0]), ["tidegate", "seatunnel.engine"])
        text = (
            "there is no block `tidegate:` (or `seatunnel: engine:`) in this file: is it an"
            " engine's file?"
        )
        yield _problem(document.at(blocks[0]), path_text(blocks[0]), text, suggestion=close)
        return
    for block in blocks:
        shown = path_text(block)
        if shown in _CLUSTER_BLOCKS:
            yield _problem(
                document.at(block),
                shown,
                f"{shown} is ignored: `state.url` determines where the state is stored",
                severity=Severity.NOTICE,
            )
        else:
            text = (
                f"{shown} is not a block of the engine, whose keys are below `tidegate:` or"
                " `seatunnel: engine:`"
            )
            yield _problem(
                document.at(block),
                shown,
                text,
                severity=Severity.ERROR if strict else Severity.WARNING,
            )


def _problem(
    at: Location,
    path: str,
    message: str,
    *,
    suggestion: str = "",
    severity: Severity = Severity.ERROR,
) -> Problem:
    return Problem(
        kind=ProblemKind.OPTION,
        message=message,
        at=at,
        path=path,
        suggestion=suggestion,
        severity=severity,
    )
