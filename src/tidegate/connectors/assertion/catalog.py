"""Checks `catalog_table_rule`: the name, keys and columns of a table.

Called by sink.py in tasks, once per table. Tidegate's tables have no catalog name, key names, sort
order or column length, and of constraint keys only unique ones; these parts of a rule are ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.connectors.assertion.errors import RuleFailed
from tidegate.connectors.assertion.fields import same_type
from tidegate.model.types import Column, Table, parse_type


def check_catalog(table: Table, rule: Mapping[str, Any]) -> None:
    """Raise RuleFailed with the first difference."""
    for difference in _differences(table, rule):
        raise RuleFailed(f"Assert: table {table.path} breaks catalog_table_rule: {difference}")


def _differences(table: Table, rule: Mapping[str, Any]) -> Iterator[str]:
    wanted = (rule.get("table_identifier_rule") or {}).get("table") or rule.get("table_path")
    if wanted is not None and str(wanted) != table.path:
        yield f"its name is not {wanted}"
    key = rule.get("primary_key_rule")
    if key is not None:
        columns = [str(c) for c in key.get("primary_key_columns") or ()]
        if not table.primary_key:
            yield "it has no primary key"
        elif columns and sorted(columns) != sorted(table.primary_key):
            yield f"its primary key is {', '.join(table.primary_key)}, not {', '.join(columns)}"
    yield from _unique(table, rule.get("constraint_key_rule") or ())
    yield from _columns(table, rule.get("column_rule") or ())


def _unique(table: Table, rules: Any) -> Iterator[str]:
    for rule in rules:
        if str(rule.get("constraint_key_type", "")).upper() != "UNIQUE_KEY":
            continue
        columns = [
            str(c.get("constraint_key_column_name"))
            for c in rule.get("constraint_key_columns") or ()
        ]
        if sorted(columns) != sorted(table.unique_key):
            yield (
                f"its unique key is {', '.join(table.unique_key) or 'none'}, not"
                f" {', '.join(columns)}"
            )


def _columns(table: Table, rules: Any) -> Iterator[str]:
    if not rules:
        return
    wanted, have = {str(r["name"]): r for r in rules}, {c.name: c for c in table.columns}
    if wanted.keys() != have.keys():
        yield f"its columns are {', '.join(have)}, not {', '.join(wanted)}"
        return
    for name, rule in wanted.items():
        yield from _column(have[name], rule)


def _column(column: Column, rule: Mapping[str, Any]) -> Iterator[str]:
    kind = parse_type(rule["type"])
    if not same_type(kind, column.type):
        yield f"column {column.name} is {column.type}, not {kind}"
    if "nullable" in rule and str(rule["nullable"]).lower() != str(column.nullable).lower():
        yield f"column {column.name} is {'nullable' if column.nullable else 'not nullable'}"
    if rule.get("default_value") is not None and str(rule["default_value"]) != str(column.default):
        yield (
            f"the default of column {column.name} is {column.default}, not {rule['default_value']}"
        )
    if rule.get("comment") is not None and str(rule["comment"]) != column.comment:
        yield f"the comment of column {column.name} is {column.comment!r}, not {rule['comment']!r}"
