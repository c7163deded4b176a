"""Whether datasets that flow together have the same columns, as far as the job file itself says.
Called by plan.py.

Only sources whose whole table stands in their `schema` block are compared; what a transform or a
file makes of it is known to the driver, which asks again.
"""

from collections.abc import Iterator, Mapping, Sequence

from tidegate.model.problem import Problem, ProblemKind
from tidegate.model.types import Column
from tidegate.planner.blocks import ResolvedBlock
from tidegate.plugin.option import Block
from tidegate.plugin.schema import read_schema

RESHAPING = ("tables_configs", "read_columns")
"""Options with which the schema block is not the table that comes out."""


def union_problems(
    known: Mapping[str, ResolvedBlock], inputs: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    """A problem for every input whose columns differ from those of the first."""
    for reader, givers in inputs.items():
        if len(givers) < 2:
            continue
        shapes = [
            (path, shape)
            for path in givers
            if path in known and (shape := _shape(known[path])) is not None
        ]
        for path, shape in shapes[1:]:
            difference = _difference(shapes[0][1], shape)
            if reader in known and difference:
                block = known[reader].block
                names = f"{known[shapes[0][0]].label} and {known[path].label}"
                message = (
                    f"{names} cannot flow together, because their columns differ: {difference}"
                )
                yield Problem(
                    kind=ProblemKind.WIRING, message=message, at=block.at, path=block.path
                )


def _shape(source: ResolvedBlock) -> tuple[Column, ...] | None:
    schema = source.values.get("schema")
    if not isinstance(schema, Mapping) or any(source.values.get(key) for key in RESHAPING):
        return None
    table, problems = read_schema(Block.of(source.block), schema)
    return table.columns if table is not None and table.columns and not problems else None


def _difference(first: tuple[Column, ...], second: tuple[Column, ...]) -> str:
    """The first difference in words; empty where there is none."""
    for mine, other in zip(first, second, strict=False):
        if (mine.name, mine.type) != (other.name, other.type):
            return f"{mine.name} {mine.type} in one, {other.name} {other.type} in the other"
    if len(first) != len(second):
        extra = max(first, second, key=len)[min(len(first), len(second))]
        return f"{extra.name} is only in one of them"
    return ""
