"""Transforms that filter or extract row kinds, and Metadata, which adds them as columns."""

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
    """The names of the row kinds, in the order of their codes."""
    return [k.name if full else k.value for k in RowKind]


def kind_labels(table: Table, batch: pa.RecordBatch, names: list[str]) -> Any:
    """The kind of every row as text."""
    if not table.kinds:
        return pa.repeat(pa.scalar(names[RowKind.INSERT.code], pa.string()), batch.num_rows)
    return pa.array(names, pa.string()).take(batch.column(batch.num_columns - 1))


class FilterRowKind(ColumnsTransform):
    """Keeps rows of include_kinds, or of all kinds but exclude_kinds."""

    name = "FilterRowKind"
    fusable = True

    def kept(self, values: Values) -> list[int]:
        """The codes of the kinds to keep."""
        named = {
            RowKind.parse(str(k)) for k in values["include_kinds"] or values["exclude_kinds"] or ()
        }
        return [k.code for k in RowKind if (k in named) == (values["include_kinds"] is not None)]

    def output_table(
        self,
        values: Values,  # noqa: ARG002  # the same for every table and rule
        table: Table,
    ) -> Table:
        return table

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not table.kinds:  # every row is an insert
            return batch if RowKind.INSERT.code in self.kept(values) else batch.slice(0, 0)
        return batch.filter(
            pc.is_in(
                batch.column(batch.num_columns - 1),
                value_set=pa.array(self.kept(values), pa.int8()),
            )
        )


class RowKindExtractor(ColumnsTransform):
    """Adds the kind of each row as a column and turns every row into an insert."""

    name = "RowKindExtractor"
    fusable = True

    def output_table(self, values: Values, table: Table) -> Table:
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
        names = labels(values["transform_type"] == "FULL")
        return rebuilt(
            table,
            batch,
            self.output_table(values, table),
            {values["custom_field_name"]: kind_labels(table, batch, names)},
        )


class RowMetadata(ColumnsTransform):
    """Adds the database, table and kind of each row as columns."""

    name = "Metadata"
    fusable = True

    def fields(self, values: Values) -> dict[str, str]:
        """New column -> metadata field."""
        return {str(column): key for key, column in (values["metadata_fields"] or {}).items()}

    def constant(self, key: str, table: Table) -> str | None:
        """The value of a field that is the same for all rows of a table."""
        database, _, name = parts(table.path)
        return {"Database": database, "Table": name}[key]

    def output_table(self, values: Values, table: Table) -> Table:
        for name in self.fields(values):
            if name in table.names():
                raise UserError(f"Metadata: table {table.path} has a field {name} already")
        return replace(
            table,
            columns=(*table.columns, *(Column(name=n, type=STRING) for n in self.fields(values))),
        )

    def apply(self, values: Values, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        new: dict[str, Any] = {}
        for name, key in self.fields(values).items():
            if key == "RowKind":
                new[name] = kind_labels(table, batch, labels(full=False))
            else:
                new[name] = pa.repeat(
                    pa.scalar(self.constant(key, table), pa.string()), batch.num_rows
                )
        return rebuilt(table, batch, self.output_table(values, table), new)
