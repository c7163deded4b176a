"""Transforms of whole tables: rename, merge, filter, and set column types for the sink.

They do not change rows.
"""

from dataclasses import replace

import pyarrow as pa

from tidegate.connectors.columns.moves import ColumnMove, Moves, new_name
from tidegate.connectors.columns.step import ColumnsTransform
from tidegate.model.types import Table
from tidegate.plugin.javaregex import compile_for_names
from tidegate.plugin.option import Values

SINK_TYPES = "sink_types"
"""The key in Table.options for { column: type of the target }, set by DefineSinkType."""


def parts(path: str) -> tuple[str | None, str | None, str]:
    """Split the path of a table into database, schema and name."""
    pieces = path.split(".")
    return (
        (pieces[0] if len(pieces) > 1 else None),
        (pieces[1] if len(pieces) > 2 else None),
        ".".join(pieces[2:]) if len(pieces) > 2 else pieces[-1],
    )


def joined(database: str | None, schema: str | None, table: str) -> str:
    return ".".join(piece for piece in (database, schema, table) if piece)


class TableTransform(ColumnMove):
    def moves(
        self,
        values: Values,  # noqa: ARG002  # the same for every table and rule
        table: Table,
    ) -> Moves:
        return [(n, n) for n in table.names()]

    def output_table(self, values: Values, table: Table) -> Table:
        return replace(table, path=self.path(values, table))

    def path(self, values: Values, table: Table) -> str:  # noqa: ARG002  # for those that rename
        """The new path of the table; by default unchanged."""
        return table.path


class TableRename(TableTransform):
    """Renames tables by rules; database and schema change only their case."""

    name = "TableRename"

    def path(self, values: Values, table: Table) -> str:
        only_case = {
            "replacements_with_regex": None,
            "prefix": None,
            "suffix": None,
            "convert_case": values["convert_case"],
        }
        database, schema, name = parts(table.path)
        return joined(
            new_name(only_case, database or ""),
            new_name(only_case, schema or ""),
            new_name(values, name),
        )


class TableMerge(TableTransform):
    """Gives all tables the same path."""

    name = "TableMerge"

    def path(
        self,
        values: Values,
        table: Table,  # noqa: ARG002  # the same for every table and rule
    ) -> str:
        return joined(values["database"], values["schema"], values["table"])


class DefineSinkType(TableTransform):
    """Sets column types for sinks that create tables, which read them from Table.options."""

    name = "DefineSinkType"

    def output_table(self, values: Values, table: Table) -> Table:
        types = {
            self.column(table, str(c["column"])).name: str(c["type"]) for c in values["columns"]
        }
        return replace(
            table,
            options={**table.options, SINK_TYPES: {**table.options.get(SINK_TYPES, {}), **types}},
        )


class TableFilter(ColumnsTransform):
    """Keeps all rows of a table, or none."""

    name = "TableFilter"
    fusable = True

    def passes(self, values: Values, table: Table) -> bool:
        """Whether the rows of a table are kept."""
        pairs = zip(
            ("database_pattern", "schema_pattern", "table_pattern"), parts(table.path), strict=True
        )
        matches = all(
            values[key] is None or compile_for_names(values[key]).fullmatch(part or "")
            for key, part in pairs
        )
        return bool(matches == (values["pattern_mode"] == "INCLUDE"))

    def output_table(
        self,
        values: Values,  # noqa: ARG002  # the same for every table and rule
        table: Table,
    ) -> Table:
        return table

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.passes(values, table) else batch.slice(0, 0)
