"""Output tables of transforms that only Spark executes: JsonPath, DataValidator, FieldEncrypt."""

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
    """Extracts values from JSON text, or from arrays, maps and rows."""

    name = "JsonPath"

    def columns(self, values: Values) -> list[JsonColumn]:
        return json_columns(values["columns"])[0]

    def output_table(self, values: Values, table: Table) -> Table:
        for column in self.columns(values):
            kind = self.column(table, column.source).type
            if kind.name not in _WITH_JSON:
                raise UserError(
                    f"JsonPath: field {column.source} is a {kind}; JsonPath reads string, bytes,"
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
"""The columns of a table of rejected rows, as in SeaTunnel."""


class DataValidator(ColumnsTransform):
    """Fails the job, drops a row or routes it to an error table if a value breaks a rule.

    NULL passes every rule except NOT_NULL.
    """

    name = "DataValidator"

    @property
    def rejects(self) -> bool:
        """Whether some rule routes rows to an error table."""
        return any(_routes(rule) for rule in RULES[self.name].all_rules(self.values))

    def rejected(self, table: Table) -> Table | None:
        """The error table, in the same database. Its rows are inserts."""
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

    def output_table(self, values: Values, table: Table) -> Table:
        for rule in self.rules(values):
            kind = self.column(table, rule.name).type
            needed = {"RANGE": _NUMBERS, "LENGTH": _WITH_LENGTH}.get(rule.type)
            if needed and kind.name not in needed:
                raise UserError(
                    f"DataValidator: {rule.type} cannot be applied to field {rule.name}, which is"
                    f" a {kind}"
                )
        return table


def _routes(values: Values) -> bool:
    return bool(values["row_error_handle_way"] == "ROUTE_TO_TABLE")


class FieldEncrypt(ColumnsTransform):
    """Encrypts text by AES in CBC mode, as base64 of initialization vector and cipher text."""

    name = "FieldEncrypt"

    def output_table(self, values: Values, table: Table) -> Table:
        for field in values["fields"]:
            self.string(table, str(field))
        return table
