"""Transforms that read or drop the row kinds, and Metadata, which writes them down beside the
table's name.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.columns.step import ColumnsTransform, rebuilt
from tidegate.connectors.columns.tables import parts
from tidegate.model.errors import UserError
from tidegate.model.types import Column, DataType, RowKind, Table, TypeName
from tidegate.plugin.option import Values

STRING = DataType(TypeName.STRING)


def labels(full: bool) -> list[str]:
    """The names of the kinds by their code."""
    return [k.name if full else k.value for k in RowKind]


def kind_labels(table: Table, batch: pa.RecordBatch, names: list[str]) -> Any:
    """The kind of every row as text."""
    if not table.kinds:
        return pa.repeat(pa.scalar(names[RowKind.INSERT.code], pa.string()), batch.num_rows)
    return pa.array(names, pa.string()).take(batch.column(batch.num_columns - 1))


class FilterRowKind(ColumnsTransform):
    """Keeps include_kinds, or all but exclude_kinds."""

    name = "FilterRowKind"
    fusable = True

    def kept(self, values: Values) -> list[int]:
        """The codes of the kinds that stay."""
        named = {
            RowKind.parse(str(k)) for k in values["include_kinds"] or values["exclude_kinds"] or ()
        }
        return [k.code for k in RowKind if (k in named) == (values["include_kinds"] is not None)]

    def after(self, values: Values, table: Table) -> Table:  # noqa: ARG002  # the same for every table and rule
        """Nothing changes but the number of rows."""
        return table

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without kinds every row is an insert."""
        if not table.kinds:
            return batch if RowKind.INSERT.code in self.kept(values) else batch.slice(0, 0)
        return batch.filter(
            pc.is_in(
                batch.column(batch.num_columns - 1),
                value_set=pa.array(self.kept(values), pa.int8()),
            )
        )


class RowKindExtractor(ColumnsTransform):
    """The kind becomes a column, and every row an insert."""

    name = "RowKindExtractor"
    fusable = True

    def after(self, values: Values, table: Table) -> Table:
        """One column more, no kinds."""
        name = values["custom_field_name"]
        if name in table.names():
            raise UserError(
                f"RowKindExtractor: table {table.path} has a field {name} already; give another"
                " custom_field_name"
            )
        new = Column(
            name=name,
            type=STRING,
            nullable=False,
            default=RowKind.INSERT.value,
            comment="Output column of RowKind",
        )
        return replace(table, columns=(*table.columns, new), kinds=False)

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The labels of the kinds, looked up."""
        names = labels(values["transform_type"] == "FULL")
        return rebuilt(
            table,
            batch,
            self.after(values, table),
            {values["custom_field_name"]: kind_labels(table, batch, names)},
        )


class RowMetadata(ColumnsTransform):
    """What is known about a row, as columns."""

    name = "Metadata"
    fusable = True

    def fields(self, values: Values) -> dict[str, str]:
        """New column -> metadata field."""
        return {str(column): key for key, column in (values["metadata_fields"] or {}).items()}

    def constant(self, key: str, table: Table) -> str | None:
        """A field that is the same for all rows of a table."""
        database, _, name = parts(table.path)
        return {"Database": database, "Table": name}[key]

    def after(self, values: Values, table: Table) -> Table:
        """The columns are added at the end."""
        for name in self.fields(values):
            if name in table.names():
                raise UserError(f"Metadata: table {table.path} has a field {name} already")
        return replace(
            table,
            columns=(*table.columns, *(Column(name=n, type=STRING) for n in self.fields(values))),
        )

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Constants, and the labels of the kinds."""
        new: dict[str, Any] = {}
        for name, key in self.fields(values).items():
            if key == "RowKind":
                new[name] = kind_labels(table, batch, labels(full=False))
            else:
                new[name] = pa.repeat(
                    pa.scalar(self.constant(key, table), pa.string()), batch.num_rows
                )
        return rebuilt(table, batch, self.after(values, table), new)
