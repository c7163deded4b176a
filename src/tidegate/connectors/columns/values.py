"""Transforms that look into values, and that only Spark carries out: JsonPath, DataValidator,
FieldEncrypt. Here is what they make of tables.
"""

from dataclasses import replace

from tidegate.connectors.columns.options import RULES
from tidegate.connectors.columns.rules import ColumnTest, JsonColumn, json_columns, validation_rules
from tidegate.connectors.columns.step import ColumnsTransform, of_type, with_columns
from tidegate.connectors.columns.tables import joined, parts
from tidegate.model.errors import UserError
from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.option import Values

_WITH_JSON = (TypeName.STRING, TypeName.BYTES, TypeName.ARRAY, TypeName.MAP, TypeName.ROW)
_WITH_LENGTH = (TypeName.STRING, TypeName.BYTES, TypeName.ARRAY, TypeName.MAP)
_NUMBERS = (
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.FLOAT,
    TypeName.DOUBLE,
    TypeName.DECIMAL,
)


class JsonPath(ColumnsTransform):
    """Values out of JSON text, or out of arrays, maps and rows."""

    name = "JsonPath"

    def columns(self, values: Values) -> list[JsonColumn]:
        return json_columns(values["columns"])[0]

    def after(self, values: Values, table: Table) -> Table:
        """The values as columns of their types."""
        for column in self.columns(values):
            kind = self.column(table, column.source).type
            if kind.name not in _WITH_JSON:
                raise UserError(
                    f"JsonPath: field {column.source} is a {kind}; there is JSON in string, bytes,"
                    " array, map and row"
                )
        return replace(
            table,
            columns=with_columns(
                table, [of_type(table, c.name, c.type) for c in self.columns(values)]
            ),
        )


ERROR_COLUMNS = tuple(
    Column(name=name, type=DataType(kind), nullable=False, comment=comment)
    for name, kind, comment in (
        ("source_table_id", TypeName.STRING, "The table that the row comes from"),
        ("source_table_path", TypeName.STRING, "The path of that table"),
        ("original_data", TypeName.STRING, "The row as JSON"),
        ("validation_errors", TypeName.STRING, "The rules that it breaks, as JSON"),
        ("create_time", TypeName.TIMESTAMP, "When it was tested"),
    )
)
"""What a table of rejected rows looks like, as in SeaTunnel."""


class DataValidator(ColumnsTransform):
    """Rows that do not pass end the job, are dropped or put aside.

    NULL passes every rule but NOT_NULL.
    """

    name = "DataValidator"

    @property
    def rejects(self) -> bool:
        """Whether some rule routes rows to a table of their own."""
        return any(_routes(rule) for rule in RULES[self.name].all_rules(self.values))

    def rejected(self, table: Table) -> Table | None:
        """The error table, in the database of the table itself. Its rows are inserts."""
        names = {
            str(values["row_error_handle_way.error_table"])
            for values, _ in self.steps(table)
            if _routes(values)
        }
        if len(names) > 1:
            raise UserError(
                f"DataValidator: rejected rows of {table.path} would go to"
                f" {' and '.join(sorted(names))}: give all its rules one error_table"
            )
        for name in names:
            database, schema, _ = parts(table.path)
            return Table(
                path=name if "." in name else joined(database, schema, name), columns=ERROR_COLUMNS
            )
        return None

    def rules(self, values: Values) -> list[ColumnTest]:
        return validation_rules(values["field_rules"])[0]

    def after(self, values: Values, table: Table) -> Table:
        for rule in self.rules(values):
            kind = self.column(table, rule.name).type
            needed = {"RANGE": _NUMBERS, "LENGTH": _WITH_LENGTH}.get(rule.type)
            if needed and kind.name not in needed:
                raise UserError(
                    f"DataValidator: {rule.type} has no meaning for field {rule.name}, which is a"
                    f" {kind}"
                )
        return table


def _routes(values: Values) -> bool:
    return bool(values["row_error_handle_way"] == "ROUTE_TO_TABLE")


class FieldEncrypt(ColumnsTransform):
    """AES in CBC mode; the text is base64 of vector and cipher."""

    name = "FieldEncrypt"

    def after(self, values: Values, table: Table) -> Table:
        for field in values["fields"]:
            self.string(table, str(field))
        return table
