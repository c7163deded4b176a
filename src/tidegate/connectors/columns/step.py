"""Base class of the column transforms: applies rules in order to tables and Arrow batches.

Called by the engine, in driver and tasks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from tidegate.connectors.columns.options import RULES
from tidegate.model.errors import Unsupported, UserError
from tidegate.model.problem import closest_match
from tidegate.model.types import ROW_KIND, Column, DataType, Table, TypeName
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Transform
from tidegate.plugin.option import Values

TEXTUAL = frozenset(
    {
        TypeName.STRING,
        TypeName.BOOLEAN,
        TypeName.TINYINT,
        TypeName.SMALLINT,
        TypeName.INT,
        TypeName.BIGINT,
        TypeName.DATE,
    }
)
"""Types whose text is the same in Spark, Arrow and SeaTunnel."""


class MissingField(UserError):
    """A column named in the options that the table does not have."""

    condition = "missing-field"

    def __init__(self, transform: str, field: str, table: Table) -> None:
        close = closest_match(field, table.names())
        hint = f"; did you mean {close!r}?" if close else ""
        super().__init__(
            f"{transform}: there is no field {field} in table {table.path}; its fields are"
            f" {', '.join(table.names())}{hint}"
        )
        self.transform = transform
        self.field = field
        self.table = table.path


class ColumnsTransform(Transform, ABC):
    """Base class of column transforms.

    Subclasses apply one rule to a table (`output_table`) and to a batch (`apply`).
    """

    name: ClassVar[str]

    def steps(self, table: Table) -> Iterator[tuple[Values, Table]]:
        """The rules for a table, each with its input table."""
        for values in RULES[self.name].rules(self.values, table):
            yield values, table
            table = self.output_table(values, table)

    def table(self, table: Table) -> Table:
        for values, before in self.steps(table):
            table = self.output_table(values, before)
        return table

    def arrow(self, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply all rules to one batch, in a task."""
        for values, before in self.steps(table):
            batch = self.apply(values, before, batch)
        return batch

    @abstractmethod
    def output_table(self, values: Values, table: Table) -> Table:
        """The table after one rule."""

    def apply(
        self,
        values: Values,  # noqa: ARG002  # for those that only Spark can do
        table: Table,  # noqa: ARG002  # for those that only Spark can do
        batch: pa.RecordBatch,  # noqa: ARG002  # for those that only Spark can do
    ) -> pa.RecordBatch:
        """A batch after one rule."""
        raise Unsupported(f"{self.name} with these options works only through Spark")

    def column(self, table: Table, name: str) -> Column:
        """Return a column by its name; raises MissingField."""
        for column in table.columns:
            if column.name == name:
                return column
        raise MissingField(self.name, name, table)

    def textual(self, table: Table, name: str) -> Column:
        """Return a column of a type whose values have one textual form."""
        column = self.column(table, name)
        if column.type.name not in TEXTUAL:
            raise UserError(
                f"{self.name}: field {name} is a {column.type}; convert it to text first, with Sql"
                f" and CAST({name} AS STRING)"
            )
        return column

    def string(self, table: Table, name: str) -> Column:
        """Return a column that must be of type string."""
        column = self.column(table, name)
        if column.type.name is not TypeName.STRING:
            raise UserError(f"{self.name}: field {name} is a {column.type}, not a string")
        return column


def with_columns(table: Table, new: list[Column]) -> tuple[Column, ...]:
    """Replace columns of the same name by new ones, and append the others."""
    names = {c.name: c for c in new}
    kept = [names.pop(c.name) if c.name in names else c for c in table.columns]
    return (*kept, *(c for c in new if c.name in names))


def of_type(table: Table, name: str, kind: DataType) -> Column:
    """A new column, or the existing column of this name with another type."""
    old = next((c for c in table.columns if c.name == name), None)
    return Column(
        name=name,
        type=kind,
        nullable=True if old is None else old.nullable,
        comment="" if old is None else old.comment,
    )


def rebuilt(
    table: Table, batch: pa.RecordBatch, after: Table, new: dict[str, Any]
) -> pa.RecordBatch:
    """Make a batch of the table `after` from new arrays and those of the batch."""
    names = [*table.names(), ROW_KIND]
    schema = table_schema(after)
    return pa.RecordBatch.from_arrays(
        [new[f.name] if f.name in new else batch.column(names.index(f.name)) for f in schema],
        schema=schema,
    )
