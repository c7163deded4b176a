"""Transforms that look into values, and that only Spark carries out: JsonPath, DataValidator, FieldEncrypt. Here is what they make of tables."""

from dataclasses import replace

from tidegate.connectors.columns.rules import FieldRule, JsonColumn, json_columns, validation_rules
from tidegate.connectors.columns.step import ColumnsTransform, of_type, with_columns
from tidegate.model.errors import UserError
from tidegate.model.types import Table, TypeName
from tidegate.plugin.option import Values

_WITH_JSON = (TypeName.STRING, TypeName.BYTES, TypeName.ARRAY, TypeName.MAP, TypeName.ROW)
_WITH_LENGTH = (TypeName.STRING, TypeName.BYTES, TypeName.ARRAY, TypeName.MAP)
_NUMBERS = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT, TypeName.FLOAT, TypeName.DOUBLE, TypeName.DECIMAL)


class JsonPath(ColumnsTransform):
    """Values out of JSON text, or out of arrays, maps and rows."""

    name = "JsonPath"

    def columns(self, values: Values) -> list[JsonColumn]:
        """What is taken."""
        return json_columns(values["columns"])[0]

    def after(self, values: Values, table: Table) -> Table:
        """The values as columns of their types."""
        for column in self.columns(values):
            kind = self.column(table, column.source).type
            if kind.name not in _WITH_JSON:
                raise UserError(f"JsonPath: field {column.source} is a {kind}; there is JSON in string, bytes, array, map and row")
        return replace(table, columns=with_columns(table, [of_type(table, c.name, c.type) for c in self.columns(values)]))


class DataValidator(ColumnsTransform):
    """Rows that do not pass end the job, or are dropped. NULL passes every rule but NOT_NULL."""

    name = "DataValidator"

    def rules(self, values: Values) -> list[FieldRule]:
        """All tests."""
        return validation_rules(values["field_rules"])[0]

    def after(self, values: Values, table: Table) -> Table:
        """The same table."""
        for rule in self.rules(values):
            kind = self.column(table, rule.name).type
            needed = {"RANGE": _NUMBERS, "LENGTH": _WITH_LENGTH}.get(rule.type)
            if needed and kind.name not in needed:
                raise UserError(f"DataValidator: {rule.type} has no meaning for field {rule.name}, which is a {kind}")
        return table


class FieldEncrypt(ColumnsTransform):
    """AES in CBC mode; the text is base64 of vector and cipher."""

    name = "FieldEncrypt"

    def after(self, values: Values, table: Table) -> Table:
        """The same table."""
        for field in values["fields"]:
            self.string(table, str(field))
        return table
