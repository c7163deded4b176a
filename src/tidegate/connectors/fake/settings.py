"""The settings of a generated table, read from a block or from one of `tables_configs`.

Called by source.py, in drivers and tasks; imports no Arrow. options.py has checked the options, so
an error here is a bug.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.connectors.fake.options import TABLE_OPTIONS
from tidegate.model.errors import UserError
from tidegate.model.problem import Location
from tidegate.model.types import RowKind, Table, TypeName
from tidegate.plugin.option import Block, Values
from tidegate.plugin.schema import DEFAULT_TABLE, read_schema

_WHOLE = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSettings:
    """The settings of one table.

    `lengths` and `scales` are columnLength and columnScale of the schema; `counted` are the columns
    of auto.increment with their first values.
    """

    table: Table
    values: Values
    rows: tuple[Mapping[str, Any], ...] | None
    lengths: Mapping[str, int] = field(default_factory=dict)
    scales: Mapping[str, int] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)

    def rows_each(self) -> int:
        return len(self.rows) if self.rows is not None else int(self.values["row.num"])

    def rows_per_split(self) -> int:
        """Rows that one reader generates between two pauses."""
        return max(1, -(-self.rows_each() // int(self.values["split.num"])))


def read_settings(values: Values) -> tuple[TableSettings, ...]:
    """Read the tables of a source, in the order of the job file."""
    configs = values["tables_configs"]
    if configs is None:
        return (_one(values),)
    return tuple(_one(_filled(config)) for config in configs)


def _filled(config: Mapping[str, Any]) -> Values:
    values, _ = TABLE_OPTIONS.read(_block(config))
    return values


def _block(data: Mapping[str, Any]) -> Block:
    return Block(data, lambda _: Location(""), "")


def _one(values: Values) -> TableSettings:
    table, problems = read_schema(
        _block(values), values["schema"], default_table=values["plugin_output"] or DEFAULT_TABLE
    )
    if table is None or problems:
        raise UserError(f"the schema of FakeSource cannot be read: {'; '.join(map(str, problems))}")
    rows = values["rows"]
    kinds = rows is not None and any(row_kind(row) is not RowKind.INSERT for row in rows)
    return TableSettings(
        table=replace(table, kinds=kinds),
        values=values,
        rows=None if rows is None else tuple(rows),
        lengths=_column_numbers(values["schema"], "columnLength"),
        scales=_column_numbers(values["schema"], "columnScale"),
        counted=_counted(values, table),
    )


def row_kind(row: Mapping[str, Any]) -> RowKind:
    """The kind of a fixed row; INSERT by default."""
    return RowKind.parse(str(row.get("kind") or RowKind.INSERT.name))


def _column_numbers(schema: Mapping[str, Any], key: str) -> dict[str, int]:
    columns = schema.get("columns") or ()
    return {
        str(c["name"]): int(c[key])
        for c in columns
        if isinstance(c, Mapping) and c.get(key) is not None
    }


def _counted(values: Values, table: Table) -> dict[str, int]:
    """The columns of auto.increment.

    These are the integer columns of the primary key, else `id`, else the first integer column.
    """
    if not values["auto.increment.enabled"]:
        return {}
    whole = [c.name for c in table.columns if c.type.name in _WHOLE]
    chosen = (
        [n for n in whole if n in table.primary_key]
        or [n for n in whole if n.lower() == "id"]
        or whole[:1]
    )
    return dict.fromkeys(chosen, int(values["auto.increment.start"]))
