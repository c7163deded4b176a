"""Warns if updates and deletes reach a sink that appends every row. Called by plan.py.

Reads capabilities only. A sink without row kinds writes a deleted row, or a row as it was before an
update, like an inserted one, or fails the job. Users should know before the job runs.
"""

from collections.abc import Iterator, Mapping, Sequence

from tidegate.model.job import BlockKind
from tidegate.model.problem import Problem, ProblemKind, Severity
from tidegate.model.types import RowKind
from tidegate.planner.blocks import ResolvedBlock

RETRACTIONS = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
_DESCRIPTIONS = {
    RowKind.UPDATE_BEFORE: "rows as they were before an update",
    RowKind.DELETE: "deleted rows",
}


def kind_problems(
    resolved: Mapping[str, ResolvedBlock], inputs: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    """Yield a warning, with the remedy, for every sink that cannot write the kinds it receives."""
    for path, sink in resolved.items():
        if sink.block.kind is not BlockKind.SINK or sink.capabilities.row_kinds or _is_wrong(sink):
            continue
        lost = frozenset(sink.capabilities.refuses) or RETRACTIONS
        found = list(
            dict.fromkeys(
                (source, kind)
                for source, kinds in _reaching_kinds(path, resolved, inputs)
                for kind in RowKind
                if kind in kinds & lost
            )
        )
        if found:
            names = ", ".join(dict.fromkeys(resolved[source].connector.name for source, _ in found))
            kinds = [kind for kind in RowKind if any(kind is other for _, other in found)]
            message = _message(sink, names, kinds)
            yield Problem(
                kind=ProblemKind.WIRING,
                message=message,
                at=sink.block.at,
                path=sink.block.path,
                severity=Severity.WARNING,
            )


def _reaching_kinds(
    sink: str, resolved: Mapping[str, ResolvedBlock], inputs: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, frozenset[RowKind]]]:
    """Yield the sources that may emit more than inserts, with the kinds that reach the sink.

    Transforms between them may remove kinds.
    """
    pending = [(producer, frozenset(RowKind)) for producer in inputs.get(sink, ())][::-1]
    seen: set[tuple[str, frozenset[RowKind]]] = set()
    while pending:
        path, kinds = pending.pop()
        block = resolved.get(path)
        if block is None or _is_wrong(block) or (path, kinds) in seen:
            continue
        seen.add((path, kinds))
        if block.block.kind is BlockKind.SOURCE:
            yield from [(path, kinds)] if block.capabilities.row_kinds else []
            continue
        left = kinds & block.connector.kinds(block.values) if block.connector.kinds else kinds
        pending += [(producer, left) for producer in inputs.get(path, ())][::-1]


def _is_wrong(one: ResolvedBlock) -> bool:
    """Whether its options are invalid, so that its capabilities are unknown."""
    return any(problem.severity is Severity.ERROR for problem in one.problems)


def _message(sink: ResolvedBlock, sources: str, kinds: Sequence[RowKind]) -> str:
    rows, name = " and ".join(_DESCRIPTIONS[kind] for kind in reversed(kinds)), sink.connector.name
    left_out = ", ".join(f'"{kind.name}"' for kind in kinds)
    effect = (
        f"{name} cannot write {rows}: the first of them fails the job"
        if sink.capabilities.refuses
        else f"{name} writes {rows} like inserted ones"
    )
    remedy = (
        "add RowKindExtractor before it to make the kind a column, or FilterRowKind {"
        f" exclude_kinds = [{left_out}] }} to leave these rows out"
    )
    return f"changes of {sources} reach this sink, and {effect}; {remedy}"
