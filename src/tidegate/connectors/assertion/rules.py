"""Parses the `rules` block of Assert and reports all its problems.

Called by options.py (to check) and sink.py (to run). Must not import Arrow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tidegate.model.job import Path
from tidegate.model.problem import Problem, Severity, closest_match
from tidegate.model.types import DataType, TypeName, parse_type
from tidegate.plugin.literal import literal
from tidegate.plugin.option import Block, shown, unknown_paths


class RuleType(StrEnum):
    NOT_NULL = "NOT_NULL"
    NULL = "NULL"
    MIN = "MIN"
    MAX = "MAX"
    MIN_LENGTH = "MIN_LENGTH"
    MAX_LENGTH = "MAX_LENGTH"
    MIN_ROW = "MIN_ROW"
    MAX_ROW = "MAX_ROW"


ROW_TYPES = (RuleType.MIN_ROW, RuleType.MAX_ROW)
_WITHOUT_BOUND = (RuleType.NOT_NULL, RuleType.NULL)
_TABLE_KEYS = ("row_rules", "field_rules", "catalog_table_rule")
_CATALOG_KEYS = (
    "table_identifier_rule",
    "primary_key_rule",
    "constraint_key_rule",
    "column_rule",
    "table_path",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: a type with its bound, or a value to be equal to (None: not checked), or both."""

    type: RuleType | None
    bound: float = 0.0
    equals_to: Any = None

    def __str__(self) -> str:
        parts = []
        if self.type is not None:
            parts.append(
                self.type.value
                if self.type in _WITHOUT_BOUND
                else f"{self.type.value} {self.bound:g}"
            )
        if self.equals_to is not None:
            parts.append(f"equals_to {shown(self.equals_to)}")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class FieldAssertion:
    """The rules of one field."""

    name: str
    type: DataType | None
    rules: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRules:
    """The rules of one table. `path` None: all tables; row rules count the sum of their rows."""

    path: str | None
    rows: tuple[Rule, ...] = ()
    fields: tuple[FieldAssertion, ...] = ()
    catalog: Mapping[str, Any] | None = None

    def applies_to(self, path: str) -> bool:
        """Whether these rules apply to a table."""
        return self.path is None or self.path == path


@dataclass(frozen=True, slots=True)
class AssertRules:
    tables: tuple[TableRules, ...]
    table_names: tuple[str, ...]


def parse_rules(block: Block, raw: Mapping[str, Any]) -> tuple[AssertRules, list[Problem]]:
    """Return the rules and their problems; with problems, the rules are incomplete."""
    found = block.find("rules")
    at: Path = found[0] if found else ("rules",)
    problems: list[Problem] = []
    tables = []
    configs = raw.get("tables_configs")
    for path, config in _list(block, (*at, "tables_configs"), configs, problems):
        if "table_path" not in config:
            problems.append(
                block.problem(path, "table_path is missing: the table that the rules apply to")
            )
        tables.append(_table(block, path, config, str(config.get("table_path")), problems))
    if configs is None:
        tables.append(_table(block, at, raw, None, problems))
    names = raw.get("table-names") or ()
    names = (
        tuple(map(str, names))
        if isinstance(names, list | tuple)
        else tuple(part.strip() for part in str(names).split(","))
    )
    problems += _unknown(block, at, raw, (*_TABLE_KEYS, "table-names", "tables_configs"))
    if (
        not names
        and not any(t.rows or t.fields or t.catalog for t in tables)
        and all(p.severity is not Severity.ERROR for p in problems)
    ):
        problems.append(
            block.problem(
                at,
                "there is no rule: give row_rules, field_rules, catalog_table_rule or table-names",
            )
        )
    return AssertRules(tuple(tables), names), problems


def _unknown(
    block: Block, at: Path, data: Mapping[str, Any], known: tuple[str, ...]
) -> Iterable[Problem]:
    for path in unknown_paths(data, known):
        word = ".".join(map(str, path))
        yield replace(
            block.unknown((*at, *path), known),
            message=f"unknown option {word}",
            suggestion=closest_match(word, list(known)),
        )


def _list(
    block: Block, path: Path, raw: Any, problems: list[Problem]
) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return a list of blocks, each with its path."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        problems.append(block.problem(path, f"{shown(raw)} is not a list of blocks [{{ ... }}]"))
        return []
    problems += [
        block.problem((*path, i), f"{shown(item)} is not a block {{ ... }}")
        for i, item in enumerate(raw)
        if not isinstance(item, Mapping)
    ]
    return [((*path, i), item) for i, item in enumerate(raw) if isinstance(item, Mapping)]


def _table(
    block: Block, at: Path, raw: Mapping[str, Any], path: str | None, problems: list[Problem]
) -> TableRules:
    row_blocks = _list(block, (*at, "row_rules"), raw.get("row_rules"), problems)
    field_blocks = _list(block, (*at, "field_rules"), raw.get("field_rules"), problems)
    rows = [_rule(block, where, item, ROW_TYPES, problems) for where, item in row_blocks]
    fields = [_field(block, where, item, problems) for where, item in field_blocks]
    if path is not None:
        problems += _unknown(block, at, raw, (*_TABLE_KEYS, "table_path"))
    catalog = raw.get("catalog_table_rule")
    if catalog is not None and not isinstance(catalog, Mapping):
        problems.append(
            block.problem((*at, "catalog_table_rule"), f"{shown(catalog)} is not a block {{ ... }}")
        )
        catalog = None
    if catalog is not None:
        problems += _unknown(block, (*at, "catalog_table_rule"), catalog, _CATALOG_KEYS)
        problems += _catalog_types(block, (*at, "catalog_table_rule", "column_rule"), catalog)
    return TableRules(
        path=path,
        rows=tuple(r for r in rows if r),
        fields=tuple(f for f in fields if f),
        catalog=catalog,
    )


def _catalog_types(block: Block, at: Path, catalog: Mapping[str, Any]) -> Iterable[Problem]:
    columns = catalog.get("column_rule")
    for index, column in enumerate(columns if isinstance(columns, list) else ()):
        if not isinstance(column, Mapping) or "name" not in column or "type" not in column:
            yield block.problem((*at, index), "a column rule needs name and type")
            continue
        try:
            parse_type(column["type"])
        except ValueError as error:
            yield block.problem((*at, index, "type"), str(error))


def _field(
    block: Block, at: Path, raw: Mapping[str, Any], problems: list[Problem]
) -> FieldAssertion | None:
    name = raw.get("field_name")
    if name is None:
        problems.append(
            block.problem(at, "field_name is missing: the column that the rules apply to")
        )
        return None
    problems += _unknown(block, at, raw, ("field_name", "field_type", "field_value"))
    # `field_type = null` means that all values must be null.
    kind = DataType(TypeName.NULL) if "field_type" in raw else None
    if raw.get("field_type") is not None:
        try:
            kind = parse_type(raw["field_type"])
        except ValueError as error:
            problems.append(block.problem((*at, "field_type"), str(error)))
    types = tuple(t for t in RuleType if t not in ROW_TYPES)
    rules = []
    for path, item in _list(block, (*at, "field_value"), raw.get("field_value"), problems):
        rule = _rule(block, path, item, types, problems)
        if rule is not None:
            rules.append(rule)
            problems += _comparable(block, path, kind, rule)
    return FieldAssertion(str(name), kind, tuple(rules))


def _comparable(block: Block, at: Path, kind: DataType | None, rule: Rule) -> Iterable[Problem]:
    if kind is None or kind.name is TypeName.NULL or rule.equals_to is None:
        return
    try:
        literal(kind, rule.equals_to)
    except ValueError as error:
        yield block.problem((*at, "equals_to"), str(error))


def _rule(
    block: Block,
    at: Path,
    raw: Mapping[str, Any],
    types: tuple[RuleType, ...],
    problems: list[Problem],
) -> Rule | None:
    problems += _unknown(block, at, raw, ("rule_type", "rule_value", "equals_to"))
    word, equals_to = raw.get("rule_type"), raw.get("equals_to")
    if word is None:
        if "equals_to" in raw and equals_to is None and RuleType.NULL in types:
            return Rule(RuleType.NULL)
        if equals_to is None or types == ROW_TYPES:
            problems.append(
                block.problem(at, "rule_type is missing", expected=f"one of {', '.join(types)}")
            )
            return None
        return Rule(None, equals_to=equals_to)
    kind = next((t for t in types if t.value == str(word).strip().upper()), None)
    if kind is None:
        close = closest_match(str(word), [t.value for t in types])
        problems.append(
            block.problem(
                (*at, "rule_type"),
                f"{shown(word)} is no rule here",
                expected=f"one of {', '.join(types)}",
                suggestion=close,
            )
        )
        return None
    if kind in _WITHOUT_BOUND:
        return Rule(kind, equals_to=equals_to)
    try:
        return Rule(kind, float(raw["rule_value"]), equals_to)
    except KeyError:
        problems.append(block.problem(at, f"rule_value is missing: {kind.value} needs a number"))
    except (TypeError, ValueError):
        problems.append(
            block.problem((*at, "rule_value"), f"{shown(raw['rule_value'])} is no number")
        )
    return None
