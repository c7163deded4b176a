"""Transforms of whole tables: their names, which of them go on, the types that a sink gives their
columns. Rows are not touched.
"""

from dataclasses import replace

import pyarrow as pa

from tidegate.connectors.columns.moves import Move, Moves, new_name
from tidegate.connectors.columns.step import ColumnsTransform
from tidegate.model.types import Table
from tidegate.plugin.javaregex import for_names
from tidegate.plugin.option import Values

SINK_TYPES = "sink_types"
"""The key in Table.options under which DefineSinkType leaves { column: type of the target }."""


def parts(path: str) -> tuple[str | None, str | None, str]:
    """Database, schema and name of a table's path."""
    pieces = path.split(".")
    return (
        (pieces[0] if len(pieces) > 1 else None),
        (pieces[1] if len(pieces) > 2 else None),
        ".".join(pieces[2:]) if len(pieces) > 2 else pieces[-1],
    )


def joined(database: str | None, schema: str | None, table: str) -> str:
    return ".".join(piece for piece in (database, schema, table) if piece)


class Named(Move):
    def moves(self, values: Values, table: Table) -> Moves:  # noqa: ARG002  # the same for every table and rule
        return [(n, n) for n in table.names()]

    def after(self, values: Values, table: Table) -> Table:
        """The table under another name."""
        return replace(table, path=self.path(values, table))

    def path(self, values: Values, table: Table) -> str:  # noqa: ARG002  # for those that rename
        """The new path: the old one, unless a transform says otherwise."""
        return table.path


class TableRename(Named):
    """Another name by rules; database and schema only change their case."""

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


class TableMerge(Named):
    """One name for all tables."""

    name = "TableMerge"

    def path(self, values: Values, table: Table) -> str:  # noqa: ARG002  # the same for every table and rule
        return joined(values["database"], values["schema"], values["table"])


class DefineSinkType(Named):
    """Notes the types of the target; a sink that makes tables reads them from Table.options."""

    name = "DefineSinkType"

    def after(self, values: Values, table: Table) -> Table:
        """The table with the types."""
        types = {
            self.column(table, str(c["column"])).name: str(c["type"]) for c in values["columns"]
        }
        return replace(
            table,
            options={**table.options, SINK_TYPES: {**table.options.get(SINK_TYPES, {}), **types}},
        )


class TableFilter(ColumnsTransform):
    """Lets whole tables through, or no row of them."""

    name = "TableFilter"
    fusable = True

    def passes(self, values: Values, table: Table) -> bool:
        """Whether the rows of a table go on."""
        pairs = zip(
            ("database_pattern", "schema_pattern", "table_pattern"), parts(table.path), strict=True
        )
        matches = all(
            values[key] is None or for_names(values[key]).fullmatch(part or "")
            for key, part in pairs
        )
        return bool(matches == (values["pattern_mode"] == "INCLUDE"))

    def after(self, values: Values, table: Table) -> Table:  # noqa: ARG002  # the same for every table and rule
        """Nothing changes but the number of rows."""
        return table

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.passes(values, table) else batch.slice(0, 0)
