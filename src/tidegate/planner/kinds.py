"""Whether changes reach a sink that takes every row for one to add. Called by plan.py; asks
capabilities only.

A row that deletes, or says what was there before an update, is no row to add. A sink that does not
understand kinds writes it like any other, or fails the job: both are better known before the job
runs.
"""

from collections.abc import Iterator, Mapping, Sequence

from tidegate.model.job import BlockKind
from tidegate.model.problem import Problem, ProblemKind, Severity
from tidegate.model.types import RowKind
from tidegate.planner.blocks import ResolvedBlock

TAKING_BACK = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
_WORDS = {
    RowKind.UPDATE_BEFORE: "rows as they were before an update",
    RowKind.DELETE: "deleted rows",
}


def kind_problems(
    known: Mapping[str, ResolvedBlock], inputs: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    """A warning for every sink that cannot tell what some of its rows mean, with the way out."""
    for path, sink in known.items():
        if sink.block.kind is not BlockKind.SINK or sink.capabilities.row_kinds or _is_wrong(sink):
            continue
        lost = frozenset(sink.capabilities.refuses) or TAKING_BACK
        found = list(
            dict.fromkeys(
                (source, kind)
                for source, kinds in _arriving(path, known, inputs)
                for kind in RowKind
                if kind in kinds & lost
            )
        )
        if found:
            names = ", ".join(dict.fromkeys(known[source].connector.name for source, _ in found))
            kinds = [kind for kind in RowKind if any(kind is other for _, other in found)]
            message = _message(sink, names, kinds)
            yield Problem(
                kind=ProblemKind.WIRING,
                message=message,
                at=sink.block.at,
                path=sink.block.path,
                severity=Severity.WARNING,
            )


def _arriving(
    sink: str, known: Mapping[str, ResolvedBlock], inputs: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, frozenset[RowKind]]]:
    """The sources that may give more than inserts, each with the kinds that no transform on the way
    to the sink takes from their rows.
    """
    pending = [(giver, frozenset(RowKind)) for giver in inputs.get(sink, ())][::-1]
    seen: set[tuple[str, frozenset[RowKind]]] = set()
    while pending:
        path, kinds = pending.pop()
        one = known.get(path)
        if one is None or _is_wrong(one) or (path, kinds) in seen:
            continue
        seen.add((path, kinds))
        if one.block.kind is BlockKind.SOURCE:
            yield from [(path, kinds)] if one.capabilities.row_kinds else []
            continue
        left = kinds & one.connector.kinds(one.values) if one.connector.kinds else kinds
        pending += [(giver, left) for giver in inputs.get(path, ())][::-1]


def _is_wrong(one: ResolvedBlock) -> bool:
    """Options that are wrong say nothing yet."""
    return any(problem.severity is Severity.ERROR for problem in one.problems)


def _message(sink: ResolvedBlock, sources: str, kinds: Sequence[RowKind]) -> str:
    rows, name = " and ".join(_WORDS[kind] for kind in reversed(kinds)), sink.connector.name
    left_out = ", ".join(f'"{kind.name}"' for kind in kinds)
    fate = (
        f"{name} cannot write {rows}: the first of them fails the job"
        if sink.capabilities.refuses
        else f"{name} writes {rows} like inserted ones"
    )
    way = (
        "RowKindExtractor before it makes the kind a column, FilterRowKind { exclude_kinds ="
        f" [{left_out}] }} leaves these rows out"
    )
    return f"changes of {sources} arrive here, and {fate}; {way}"
