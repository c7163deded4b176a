"""Checks that the inputs of a union have the same columns, as far as the job file declares them.

Called by plan.py. Only sources whose `schema` block is their whole table are compared. Columns that
come from a transform or a file are known only to the driver, which checks again.
"""

from collections.abc import Iterator, Mapping, Sequence

from tidegate.model.problem import Problem, ProblemKind
from tidegate.model.types import Column
from tidegate.planner.blocks import ResolvedBlock
from tidegate.plugin.option import Block
from tidegate.plugin.schema import read_schema

RESHAPING = ("tables_configs", "read_columns")
"""Options that make the output table differ from the schema block."""


def union_problems(
    resolved: Mapping[str, ResolvedBlock], inputs: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    """Yield a problem for every input whose columns differ from those of the first input."""
    for reader, producers in inputs.items():
        if len(producers) < 2:
            continue
        column_sets = [
            (path, columns)
            for path in producers
            if path in resolved and (columns := _schema_columns(resolved[path])) is not None
        ]
        for path, columns in column_sets[1:]:
            difference = _difference(column_sets[0][1], columns)
            if reader in resolved and difference:
                block = resolved[reader].block
                names = f"{resolved[column_sets[0][0]].label} and {resolved[path].label}"
                message = f"{names} cannot be combined, because their columns differ: {difference}"
                yield Problem(
                    kind=ProblemKind.WIRING, message=message, at=block.at, path=block.path
                )


def _schema_columns(source: ResolvedBlock) -> tuple[Column, ...] | None:
    schema = source.values.get("schema")
    if not isinstance(schema, Mapping) or any(source.values.get(key) for key in RESHAPING):
        return None
    table, problems = read_schema(Block.of(source.block), schema)
    return table.columns if table is not None and table.columns and not problems else None


def _difference(first: tuple[Column, ...], second: tuple[Column, ...]) -> str:
    """Describe the first difference; empty if there is none."""
    for mine, other in zip(first, second, strict=False):
        if (mine.name, mine.type) != (other.name, other.type):
            return f"{mine.name} {mine.type} in one, {other.name} {other.type} in the other"
    if len(first) != len(second):
        extra = max(first, second, key=len)[min(len(first), len(second))]
        return f"{extra.name} is only in one of them"
    return ""
