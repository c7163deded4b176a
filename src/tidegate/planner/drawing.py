"""Draws the graph of a pipeline as a text tree, for `tidegate explain`.

Sources are on the left; their readers are below and to the right.
"""

from collections.abc import Iterator

from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, PipelinePlan


def draw(pipeline: PipelinePlan) -> list[str]:
    """Return the lines of the drawing.

    The readers of an action are drawn once; where the action appears again, only its name is.
    """
    readers = {
        action.operator: [other for other in pipeline.actions if action.operator in other.inputs]
        for action in pipeline.actions
    }
    drawn: set[str] = set()
    lines: list[str] = []
    for source in pipeline.of_kind(BlockKind.SOURCE):
        lines.append(title(source))
        lines += _below(source, readers, "", drawn)
    return lines


def title(action: Action) -> str:
    """The label, with the operator id if the job file names one."""
    return (
        action.label if action.operator == action.label else f"{action.label} ({action.operator})"
    )


def _below(
    action: Action, readers: dict[str, list[Action]], indent: str, drawn: set[str]
) -> Iterator[str]:
    """Draw readers depth first, with an explicit stack: long chains exceed the recursion limit."""
    pending = [(reader, indent, last) for reader, last in _marked(readers[action.operator])][::-1]
    while pending:
        reader, margin, last = pending.pop()
        again = reader.operator in drawn
        repeated = again and readers[reader.operator]
        suffix = " ... as above" if repeated else ""
        yield f"{margin}{'└─' if last else '├─'}> {title(reader)}{suffix}"
        if not again:
            drawn.add(reader.operator)
            deeper = margin + ("    " if last else "│   ")
            pending += [
                (below, deeper, is_last) for below, is_last in _marked(readers[reader.operator])
            ][::-1]


def _marked(actions: list[Action]) -> list[tuple[Action, bool]]:
    return [(action, action is actions[-1]) for action in actions]
