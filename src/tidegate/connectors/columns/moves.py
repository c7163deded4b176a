"""Transforms that only select, order and rename columns.

Each is a list of (output column, input column), which both Arrow and Spark execute.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.connectors.columns.step import ColumnsTransform
from tidegate.model.errors import UserError
from tidegate.model.types import Table
from tidegate.plugin import javaregex
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.option import Values

Moves = list[tuple[str, str]]
"""Pairs of new name and old name, in the order of the output."""


class ColumnMove(ColumnsTransform):
    """Base class of transforms that are a list of column moves."""

    fusable = True

    @abstractmethod
    def moves(self, values: Values, table: Table) -> Moves:
        """The moves of one rule."""

    def keys(
        self,
        values: Values,  # noqa: ARG002  # for those that rename
        key: tuple[str, ...],
        names: set[str],
    ) -> tuple[str, ...]:
        """A key of the output table: it is kept if all of its columns are."""
        return key if names.issuperset(key) else ()

    def output_table(self, values: Values, table: Table) -> Table:
        """The table with its columns in their new order and with their new names."""
        columns = tuple(
            replace(self.column(table, old), name=new) for new, old in self.moves(values, table)
        )
        names = {c.name for c in columns}
        if len(names) < len(columns):
            double = next(
                c.name for i, c in enumerate(columns) if c.name in {d.name for d in columns[:i]}
            )
            raise UserError(
                f"{self.name}: two columns of table {table.path} would be called {double}"
            )
        partition = tuple(k for k in self._partition_keys(values, table) if k in names)
        return replace(
            table,
            columns=columns,
            primary_key=self.keys(values, table.primary_key, names),
            unique_key=self.keys(values, table.unique_key, names),
            partition_keys=partition,
        )

    def _partition_keys(
        self,
        values: Values,  # noqa: ARG002  # the same for every table and rule
        table: Table,
    ) -> tuple[str, ...]:
        return table.partition_keys

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reuse the arrays under their new names, without copying."""
        indexes = {name: index for index, name in enumerate(table.names())}
        arrays = [batch.column(indexes[old]) for _, old in self.moves(values, table)]
        if table.kinds:
            arrays.append(batch.column(batch.num_columns - 1))
        return pa.RecordBatch.from_arrays(
            arrays, schema=table_schema(self.output_table(values, table))
        )


class Filter(ColumnMove):
    """Keeps include_fields in their order, or all columns but exclude_fields."""

    name = "Filter"

    def moves(self, values: Values, table: Table) -> Moves:
        for field in (*(values["include_fields"] or ()), *(values["exclude_fields"] or ())):
            self.column(table, str(field))
        if values["include_fields"] is not None:
            return [(str(f), str(f)) for f in values["include_fields"]]
        dropped = set(map(str, values["exclude_fields"]))
        return [(n, n) for n in table.names() if n not in dropped]


class FieldMapper(ColumnMove):
    """Selects, orders and renames columns by { old = new }."""

    name = "FieldMapper"

    def moves(
        self,
        values: Values,
        table: Table,  # noqa: ARG002  # the same for every table and rule
    ) -> Moves:
        return [(str(new), str(old)) for old, new in values["field_mapper"].items()]


class FieldRename(ColumnMove):
    """Renames columns by rules, and the keys that consist of them."""

    name = "FieldRename"

    def moves(self, values: Values, table: Table) -> Moves:
        return [(new_name(values, old), old) for old in table.names()]

    def keys(
        self,
        values: Values,
        key: tuple[str, ...],
        names: set[str],  # noqa: ARG002  # the same for every table and rule
    ) -> tuple[str, ...]:
        return tuple(new_name(values, old) for old in key)

    def _partition_keys(self, values: Values, table: Table) -> tuple[str, ...]:
        return self.keys(values, table.partition_keys, set())


class Copy(ColumnMove):
    """{ new = old }: the copies come last, unless a column of that name is there."""

    name = "Copy"

    def moves(self, values: Values, table: Table) -> Moves:
        copies = _copies(values)
        kept = [(n, copies.pop(n, n)) for n in table.names()]
        return [*kept, *copies.items()]


def _copies(values: Values) -> dict[str, str]:
    fields = values["fields"]
    if fields is None:
        return {values["dest_field"]: values["src_field"]}
    pairs = [fields] if isinstance(fields, Mapping) else fields
    return {str(new): str(old) for pair in pairs for new, old in pair.items()}


def new_name(values: Values, name: str) -> str:
    """Apply the rules of FieldRename and TableRename to a name.

    Replacements match the name before its case changes; prefix and suffix are added last.
    """
    for rule in values.get("specific") or ():
        if str(rule["field_name"]) == name:
            return str(rule["target_name"])
    spans, new = _matches(values["replacements_with_regex"] or (), name)
    match values["convert_case"]:
        case "UPPER":
            name = name.upper()
        case "LOWER":
            name = name.lower()
    for start, end in reversed(spans):
        name = name[:start] + new + name[end:]
    return (values["prefix"] or "").strip() + name + (values["suffix"] or "").strip()


def _matches(rules: Any, name: str) -> tuple[list[tuple[int, int]], str]:
    """The matches of the last rule that matches, and its replacement."""
    spans: list[tuple[int, int]] = []
    new = ""
    for rule in rules:
        old = str(rule["replace_from"])
        plain = str(rule.get("is_regex", "true")).lower() == "false"
        if plain:
            old = rf"\A{javaregex.quoted(old)}\z"
        found = javaregex.match_spans(old, name)
        if found:
            spans, new = found, str(rule.get("replace_to") or "").strip()
    return spans, new
