"""Text transforms: Replace, Split, RegexExtract.

Regular expressions have Java's syntax. If they mean the same in Arrow (regex.py), the transforms
run without Spark.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.columns import regex
from tidegate.connectors.columns.options import (
    replace_is_portable,
    replaced_columns,
    split_is_portable,
)
from tidegate.connectors.columns.step import ColumnsTransform, of_type, rebuilt, with_columns
from tidegate.model.types import DataType, Table, TypeName
from tidegate.plugin.option import Values

STRING = DataType(TypeName.STRING)


class Replace(ColumnsTransform):
    """Replaces a text, or the matches of a regular expression."""

    name = "Replace"
    fusable = True

    def output_table(self, values: Values, table: Table) -> Table:
        for column in replaced_columns(values):
            self.string(table, column)
        return table

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Use Arrow if its regular expressions mean the same."""
        if not replace_is_portable(values):
            return super().apply(values, table, batch)
        made = {}
        for column in replaced_columns(values):
            source = batch.column(table.names().index(self.string(table, column).name))
            made[column] = _replaced(values, source)
        return rebuilt(table, batch, table, made)


def _replaced(values: Values, source: Any) -> Any:
    if not values["is_regex"]:
        return pc.replace_substring(source, values["pattern"], values["replacement"])
    found = regex.portable(values["pattern"])
    assert found is not None
    new = regex.replacement(values["replacement"], found.groups)
    assert new is not None
    return pc.replace_substring_regex(
        source, found.pattern, new, max_replacements=1 if values["replace_first"] else None
    )


class SplitText(ColumnsTransform):
    """Splits a text into at most as many parts as there are new columns; missing parts are NULL."""

    name = "Split"
    fusable = True

    def output_table(self, values: Values, table: Table) -> Table:
        self.textual(table, values["split_field"])
        return replace(
            table,
            columns=with_columns(
                table, [of_type(table, str(n), STRING) for n in values["output_fields"]]
            ),
        )

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Use Arrow if its regular expressions mean the same."""
        if not split_is_portable(values):
            return super().apply(values, table, batch)
        names = [str(n) for n in values["output_fields"]]
        source = pc.cast(batch.column(table.names().index(values["split_field"])), pa.string())
        return rebuilt(
            table,
            batch,
            self.output_table(values, table),
            dict(zip(names, _parts(source, values["separator"], len(names)), strict=True)),
        )


def _parts(source: Any, separator: str, count: int) -> list[Any]:
    if count == 1:
        return [source]
    plain, found = regex.literal(separator), regex.portable(separator)
    if plain is not None:
        lists: Any = pc.split_pattern(source, plain, max_splits=count - 1)
    else:
        assert found is not None
        lists = pc.split_pattern_regex(source, found.pattern, max_splits=count - 1)
    lengths, starts = pc.list_value_length(lists), lists.offsets.slice(0, len(lists))
    return [
        lists.values.take(_positions(lengths, starts, pa.scalar(index, pa.int32())))
        for index in range(count)
    ]


def _positions(lengths: Any, starts: Any, index: Any) -> Any:
    """The position of the index-th element of every list; NULL if the list is shorter or NULL."""
    return pc.if_else(
        pc.greater(lengths, index), pc.add(starts, index), pa.scalar(None, pa.int32())
    )


class RegexExtract(ColumnsTransform):
    """Extracts the groups of the first match into columns.

    A group that did not participate in the match is an empty text.
    """

    name = "RegexExtract"

    def output_table(self, values: Values, table: Table) -> Table:
        self.textual(table, values["source_field"])
        return replace(
            table,
            columns=with_columns(
                table, [of_type(table, str(n), STRING) for n in values["output_fields"]]
            ),
        )
