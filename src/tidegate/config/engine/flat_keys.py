"""The engine's file as one level of keys: `checkpoint.interval`, whether it was written flat or
nested, below `seatunnel.engine`, `tidegate` or `engine`.

Caller: engine. Fills in variables on the way, and finds keys that are given twice, blocks that have
a value and values that are blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidegate.config.document import Data, Document, path_text
from tidegate.config.engine.options import OPTIONS, SPARK
from tidegate.config.engine.variables import NotFilled, fill_in
from tidegate.model.job import Path
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, nearest
from tidegate.plugin.option import OptionKind

# What is below them is the engine's. The longer one of two that fit comes first.
ROOTS = ("seatunnel.engine", "tidegate.engine", "tidegate", "engine")
_OF_THE_CLUSTER = ("hazelcast", "hazelcast-client")
_BLOCKS = {SPARK, *(option.key for option in OPTIONS.options if option.kind is OptionKind.MAP)}


@dataclass(frozen=True, slots=True)
class FlatValue:
    """A value that is no block. `names` are the variables that it was filled in from."""

    value: Data
    at: Location
    path: str
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class Flat:
    """All values by key, without the root, in file order."""

    file: str
    root: str = ""
    leaves: dict[str, FlatValue] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def locate(self, path: Path) -> Location:
        """The place of a key, else of the first one below it, else the file."""
        key = ".".join(map(str, path))
        found = self.leaves.get(key) or next(
            (leaf for name, leaf in self.leaves.items() if name.startswith(f"{key}.")), None
        )
        return found.at if found else Location(self.file)


def flatten(document: Document, environ: Mapping[str, str], *, strict: bool) -> Flat:
    """Every value of the engine's blocks. Problems of the text come first."""
    flat = Flat(document.name, problems=list(document.problems))
    strangers: list[Path] = []
    for path, value in _leaves(document.data):
        dotted = ".".join(map(str, path))
        root = next(
            (root for root in ROOTS if dotted == root or dotted.startswith(f"{root}.")), None
        )
        if root is None:
            strangers.append(path)
            continue
        flat.root = flat.root or root
        key = dotted[len(root) + 1 :]
        if key or value is not None:
            _add(flat, document, key, path, value, environ)
    flat.problems += _strange(document, strangers, rooted=bool(flat.root), strict=strict)
    return flat


def _leaves(data: Mapping[str, Data], above: Path = ()) -> Iterator[tuple[Path, Data]]:
    for key, value in data.items():
        path: Path = (*above, key)
        if isinstance(value, dict) and value:
            yield from _leaves(value, path)
        else:
            yield path, None if value == {} else value


def _add(
    flat: Flat, document: Document, key: str, path: Path, value: Data, environ: Mapping[str, str]
) -> None:
    at, shown = document.at(path), path_text(path)
    if key in flat.leaves:
        flat.problems.append(
            _problem(at, shown, f"{key} is given twice, first on line {flat.leaves[key].at.line}")
        )
    elif key in _BLOCKS or not key or any(known.startswith(f"{key}.") for known in OPTIONS.keys()):  # noqa: SIM118  # not a mapping
        if value is not None:
            flat.problems.append(
                _problem(at, shown, f"{key or 'this'} is a block: its keys stand below it")
            )
    elif value is not None:
        try:
            filled = (
                fill_in(value, environ, for_spark=key.startswith(f"{SPARK}."))
                if isinstance(value, str)
                else None
            )
        except NotFilled as error:
            flat.problems.append(_problem(at, shown, str(error)))
            return
        flat.leaves[key] = (
            FlatValue(filled.text, at, shown, filled.names)
            if filled
            else FlatValue(value, at, shown)
        )


def _strange(
    document: Document, paths: list[Path], *, rooted: bool, strict: bool
) -> Iterator[Problem]:
    """One problem for each block that is not the engine's; where there is no other, the file is not
    what it was taken for.
    """
    blocks = list(dict.fromkeys(path[:2] if path[0] == "seatunnel" else path[:1] for path in paths))
    if blocks and not rooted:
        close = nearest(path_text(blocks[0]), ["tidegate", "seatunnel.engine"])
        text = (
            "there is no block `tidegate:` (or `seatunnel: engine:`) in this file: is it an"
            " engine's file?"
        )
        yield _problem(document.at(blocks[0]), path_text(blocks[0]), text, suggestion=close)
        return
    for block in blocks:
        shown = path_text(block)
        if shown in _OF_THE_CLUSTER:
            yield _problem(
                document.at(block),
                shown,
                f"{shown} is of no use here: the state is kept where `state.url` says",
                severity=Severity.NOTICE,
            )
        else:
            text = (
                f"{shown} is none of the engine's blocks: its keys stand below `tidegate:` or"
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
