"""The target of an incoming table: name, columns and key, derived from the options.

Pure; called by writer and committer, which must agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.targets.rules import SourceColumns, source_columns
from tidegate.databases.url import Address, System
from tidegate.model.errors import UserError
from tidegate.model.types import Column, DataType, Table, TypeName, parse_type
from tidegate.plugin.option import Values
from tidegate.plugin.placeholders import for_table, list_for_table, placeholder_values

_DOT = "\0"
"""Replaces a dot within a name while a path is split; names never contain it."""


class KeyMissing(UserError):
    """Rows update or delete without a key, or columns of the key do not exist."""

    condition = "key-missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class JdbcTarget:
    """One table of the target.

    `columns` have the target's names, in the order of the incoming ones; so has `key`.
    """

    path: str
    """The incoming table."""
    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    kinds: bool
    comment: str
    adds_columns: bool
    """Whether columns that were added at the source are added to the target."""
    source_key: tuple[str, ...] = ()
    """The source's key, with the target's column names."""
    origins: SourceColumns = field(default_factory=dict)
    """The source's native column types, by the target's column names."""

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def positions(self, names: tuple[str, ...]) -> list[int]:
        own = self.names()
        return [own.index(name) for name in names]


def with_name_case(text: str, values: Values) -> str:
    """Apply the option field_ide to a name."""
    match values.get("field_ide"):
        case "UPPERCASE":
            return text.upper()
        case "LOWERCASE":
            return text.lower()
        case _:
            return text


def target_of(table: Table, values: Values, dialect: Dialect, address: Address) -> JdbcTarget:
    """Derive the target of an incoming table; UserError if the options do not fit it."""
    words = placeholder_values(table)
    # Values of columns that were added later, for the rows that existed before.
    defaults = table.options.get("defaults", {})
    columns = tuple(
        Column(
            name=with_name_case(c.name, values),
            type=c.type,
            nullable=c.nullable,
            comment=c.comment,
            default=defaults.get(c.name),
        )
        for c in table.columns
    )
    return JdbcTarget(
        path=table.path,
        name=_target_name(values, placeholder_values(table, _DOT), dialect, address),
        columns=columns,
        key=_target_key(table, values, words),
        kinds=table.kinds,
        comment=table.comment,
        adds_columns=bool(table.options.get("schema-changes.enabled")),
        source_key=tuple(
            with_name_case(name, values) for name in table.primary_key or table.unique_key
        ),
        origins={
            with_name_case(name, values): origin
            for name, origin in source_columns(table.options).items()
        },
    )


def single_target_name(values: Values, dialect: Dialect, address: Address) -> TableName:
    """The target of all incoming tables, if the options have no placeholder."""
    return _target_name(values, {}, dialect, address)


def _target_name(
    values: Values, words: dict[str, str], dialect: Dialect, address: Address
) -> TableName:
    if values["query"]:
        return TableName("", "", "query")
    text = for_table(values["table"] or "${table_name}", words)
    database = for_table(values["database"] or "", words)
    if "${" in text or "${" in database:
        raise UserError(
            f"the sink's table {text!r} has a placeholder that the incoming table"
            f" {words.get('table_full_name')!r} has no value for"
        )
    try:
        if database and dialect.system is System.MYSQL and "." not in text:
            text = f"{database}.{text}"
        if database and dialect.system is System.POSTGRES and text.count(".") == 1:
            text = f"{database}.{text}"
        name = dialect.parse_table(text, address)
    except ValueError as error:
        raise UserError(f"table: {str(error).replace(repr(_DOT)[1:-1], '.')}") from None
    database, schema, own = (
        part.replace(_DOT, ".") for part in (name.database, name.schema, name.table)
    )
    return TableName(
        database, schema, with_name_case(own, values)
    )  # field_ide does not apply to database and schema


def _target_key(table: Table, values: Values, words: dict[str, str]) -> tuple[str, ...]:
    """primary_keys, else the primary key of the incoming table, else its unique key, else none."""
    names = {name.lower(): name for name in table.names()}
    wanted = (
        list_for_table(values["primary_keys"], words)
        or list(table.primary_key)
        or list(table.unique_key)
    )
    for name in wanted:
        if name.lower() not in names:
            raise KeyMissing(
                f"primary_keys names {name!r}, which is not a column of {table.path}: there are"
                f" {', '.join(table.names())}"
            )
    return tuple(with_name_case(names[name.lower()], values) for name in wanted)


def table_to_message(table: Table) -> dict[str, Any]:
    """Encode a table as JSON for the committer.

    Maps and rows are staged as texts, so that their inner types are omitted.
    """
    return {
        "path": table.path,
        "columns": [[column.name, _type_text(column.type)] for column in table.columns],
        "primary_key": list(table.primary_key),
        "unique_key": list(table.unique_key),
        "comment": table.comment,
        "kinds": table.kinds,
        "options": dict(table.options),
    }


def _type_text(kind: DataType) -> str:
    if kind.name is TypeName.ARRAY:
        return f"array<{_type_text(kind.children[0])}>"
    return "map<string,string>" if kind.name in (TypeName.ROW, TypeName.MAP) else str(kind)


def table_from_message(raw: Mapping[str, Any]) -> Table:
    """Decode a table that was encoded by `table_to_message`."""
    return Table(
        path=raw["path"],
        columns=tuple(Column(name=name, type=parse_type(kind)) for name, kind in raw["columns"]),
        primary_key=tuple(raw["primary_key"]),
        unique_key=tuple(raw["unique_key"]),
        comment=raw["comment"],
        kinds=raw["kinds"],
        options=raw["options"],
    )
