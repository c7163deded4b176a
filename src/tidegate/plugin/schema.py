"""Reads the `schema { ... }` block of a job file into a Table and reports all its problems.

Called by connectors with a schema option.
"""

from collections.abc import Mapping
from typing import Any

from tidegate.model.job import Path
from tidegate.model.problem import Problem
from tidegate.model.types import Column, Table, parse_type
from tidegate.plugin.option import Block

DEFAULT_TABLE = "default.default.default"


def read_schema(
    block: Block, raw: Any, path: Path = ("schema",), default_table: str = DEFAULT_TABLE
) -> tuple[Table | None, list[Problem]]:
    """Return the table of a schema block and its problems.

    With problems, the table contains only what could be read.
    """
    if not isinstance(raw, Mapping):
        return None, [block.problem(path, "a schema is a block { fields { name = type } }")]
    problems: list[Problem] = []
    columns = _columns(block, raw, path, problems)
    if not columns and not problems:
        problems.append(block.problem(path, "the schema has neither fields nor columns"))
    key = raw.get("primaryKey")
    primary = _names(key.get("columnNames")) if isinstance(key, Mapping) else ()
    names = {c.name for c in columns}
    problems += [
        block.problem((*path, "primaryKey"), f"the key column {k!r} is not in the schema")
        for k in primary
        if names and k not in names
    ]
    table = raw.get("table")
    return (
        Table(
            path=str(table) if table else default_table,
            columns=tuple(columns),
            primary_key=primary,
            unique_key=_unique_key(raw),
            partition_keys=_names(raw.get("partition_keys")),
            comment=str(raw.get("comment") or ""),
        ),
        problems,
    )


def _columns(
    block: Block, raw: Mapping[str, Any], path: Path, problems: list[Problem]
) -> list[Column]:
    columns: list[Column] = []
    fields = raw.get("fields")
    if isinstance(fields, Mapping):
        for name, kind in fields.items():
            _add(block, (*path, "fields", name), {"name": name, "type": kind}, columns, problems)
    listed = raw.get("columns") or []
    if not isinstance(listed, list):
        problems.append(block.problem((*path, "columns"), "columns is a list of { name, type }"))
        listed = []
    for index, column in enumerate(listed):
        if isinstance(column, Mapping) and "name" in column and "type" in column:
            _add(block, (*path, "columns", index), column, columns, problems)
        else:
            problems.append(
                block.problem((*path, "columns", index), "a column needs name and type")
            )
    return columns


def _add(
    block: Block, path: Path, raw: Mapping[str, Any], columns: list[Column], problems: list[Problem]
) -> None:
    try:
        kind = parse_type(raw["type"])
    except ValueError as error:
        problems.append(block.problem(path, str(error)))
        return
    columns.append(
        Column(
            name=str(raw["name"]),
            type=kind,
            nullable=bool(raw.get("nullable", True)),
            default=raw.get("defaultValue"),
            comment=str(raw.get("comment") or ""),
        )
    )


def _unique_key(raw: Mapping[str, Any]) -> tuple[str, ...]:
    keys = raw.get("constraintKeys")
    for key in keys if isinstance(keys, list) else ():
        if isinstance(key, Mapping) and str(key.get("constraintType", "")).upper() == "UNIQUE_KEY":
            return tuple(
                str(c.get("columnName"))
                for c in key.get("constraintColumns") or ()
                if isinstance(c, Mapping)
            )
    return ()


def _names(raw: Any) -> tuple[str, ...]:
    """Read a list of names, which may also be one name or a text with commas."""
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    return tuple(map(str, raw)) if isinstance(raw, list) else ()
