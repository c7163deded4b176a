"""Writes JsonPath as Spark SQL: the value at a path, and whether the row is invalid.

Makes text only; spark.py applies it to a DataFrame. A missing path, text that is no JSON and a
value that does not fit its type are errors. JSON null becomes NULL, and NULL stays NULL. As in
SeaTunnel, names and strings may be unquoted or in single quotes.
"""

import re
from dataclasses import dataclass

from tidegate.connectors.columns.rules import JsonColumn
from tidegate.model.errors import UserError
from tidegate.model.types import DataType, Table, TypeName
from tidegate.plugin.spark_sql import sql_name, sql_text, sql_type

_DOUBLE = r'"(?:[^"\\]|\\.)*+"'
_LITERAL = r"(?:true|false|null|-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?)(?=\s*+[,}\]])"
_SINGLE = r"'((?:[^'\\\"]|\\.)*+)'"
_UNQUOTED = r"""([^\s{}\[\],:"'](?:[^{}\[\],:"']*[^\s{}\[\],:"'])?)"""
_TOKENS = f"({_DOUBLE}|{_LITERAL})|{_SINGLE}|{_UNQUOTED}"
"""The tokens between the brackets, commas and colons of JSON.

Group 1 is valid JSON; groups 2 and 3 need double quotes.
"""
_OPEN, _CLOSE = "\x01", "\x02"
"""Placeholders for quotes: valid JSON gets an empty pair, which is removed again."""
_STRINGS = (TypeName.STRING, TypeName.TIME, TypeName.BYTES)  # read as text, then converted


@dataclass(frozen=True, slots=True)
class ExtractedValue:
    """The expression of a value, and the condition under which the row is invalid."""

    value: str
    fault: str


def extraction(column: JsonColumn, table: Table) -> ExtractedValue:
    """The extraction of a column of JsonPath from a table."""
    source = next(c.type for c in table.columns if c.name == column.source)
    text, path = _json_text(column, source)
    json = f"coalesce(try_parse_json({text}), try_parse_json({_quoted(text)}))"
    found = f"try_variant_get({json}, {sql_text(path)}, 'variant')"
    value = _converted(json, path, column.type)
    misfit = f"({value} IS NULL AND NOT is_variant_null({found}))"
    return ExtractedValue(
        value, f"({text} IS NOT NULL AND ({json} IS NULL OR {found} IS NULL OR {misfit}))"
    )


def _quoted(text: str) -> str:
    """Put double quotes around all tokens that are not JSON.

    Evaluated only for text that is not already valid JSON.
    """
    marked = f"regexp_replace({text}, {sql_text(_TOKENS)}, {sql_text(f'$1{_OPEN}$2$3{_CLOSE}')})"
    return (
        f"translate(replace({marked}, {sql_text(_OPEN + _CLOSE)}, ''), {sql_text(_OPEN + _CLOSE)},"
        f" {sql_text(chr(34) * 2)})"
    )


def _converted(json: str, path: str, kind: DataType) -> str:
    if kind.name not in _STRINGS:
        return f"try_variant_get({json}, {sql_text(path)}, {sql_text(sql_type(kind))})"
    value = f"try_variant_get({json}, {sql_text(path)}, 'string')"
    match kind.name:
        case TypeName.TIME:
            return f"try_to_time({value})"
        case TypeName.BYTES:
            return f"try_to_binary({value}, 'base64')"
        case _:
            return value


def _json_text(column: JsonColumn, source: DataType) -> tuple[str, str]:
    """The JSON of a column as text, and the path within it.

    A row is an array of its fields: `$[1]` is its second field.
    """
    name = sql_name(column.source)
    match source.name:
        case TypeName.STRING:
            return name, column.path
        case TypeName.BYTES:
            return f"CAST({name} AS STRING)", column.path
        case TypeName.ROW:
            return _row_field(column, source)
        case _:
            return f"to_json({name})", column.path


def _row_field(column: JsonColumn, source: DataType) -> tuple[str, str]:
    index = re.match(r"\$\[(\d+)\]", column.path)
    if index is None or int(index[1]) >= len(source.columns):
        raise UserError(
            f"JsonPath: a row is an array of its fields: the path into {column.source} begins with"
            f" $[0] to $[{len(source.columns) - 1}]"
        )
    field = source.columns[int(index[1])]
    field_path = f"{sql_name(column.source)}.{sql_name(field.name)}"
    return (
        f"to_json(to_variant_object(named_struct('v', {field_path})))",
        "$.v" + column.path[index.end() :],
    )
