"""Reads the nested blocks of JsonPath and DataValidator and reports all their errors.

Used by checks.py, values.py and spark.py; pure.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.job import Path
from tidegate.model.problem import closest_match
from tidegate.model.types import DataType, parse_type
from tidegate.plugin.javaregex import pattern_error

Errors = list[tuple[Path, str]]
"""Messages with their paths below the option."""
ERROR_MODES = ("FAIL", "SKIP", "SKIP_ROW")
_JSON_PATH = re.compile(r"\$(\.[A-Za-z_][\w-]*|\['[^']*'\]|\[\"[^\"]*\"\]|\[\d+\])*")
RULE_TYPES = ("NOT_NULL", "RANGE", "LENGTH", "REGEX", "UDF")


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonColumn:
    """A value to extract from JSON. `on_error` is None if the setting of the row applies."""

    source: str
    path: str
    name: str
    type: DataType
    on_error: str | None


def json_columns(raw: Any) -> tuple[list[JsonColumn], Errors]:
    """Read `columns` of JsonPath; path, dest_field and dest_type may be lists of equal length."""
    made: list[JsonColumn] = []
    errors: Errors = []
    for index, entry in enumerate(raw):
        lacking = [
            k
            for k in ("src_field", "path", "dest_field")
            if not isinstance(entry, Mapping) or not entry.get(k)
        ]
        if lacking:
            errors.append(
                (
                    (index,),
                    (
                        "a column of JsonPath is a block { src_field, path, dest_field }:"
                        f" {', '.join(lacking)} is missing"
                    ),
                )
            )
            continue
        _add_json(entry, index, made, errors)
    return made, errors


def _add_json(entry: Mapping[str, Any], index: int, made: list[JsonColumn], errors: Errors) -> None:
    paths, names, types = (
        _as_list(entry.get(key) or default)
        for key, default in (("path", ""), ("dest_field", ""), ("dest_type", "string"))
    )
    if len(types) == 1:
        types = types * len(paths)
    if not len(paths) == len(names) == len(types):
        errors.append(((index,), "path, dest_field and dest_type need the same number of items"))
        return
    on_error = (
        str(entry["column_error_handle_way"]).upper()
        if entry.get("column_error_handle_way")
        else None
    )
    if on_error is not None and on_error not in ERROR_MODES:
        errors.append(
            (
                (index, "column_error_handle_way"),
                f"{on_error} is not possible here: one of {', '.join(ERROR_MODES)}",
            )
        )
    for path, name, kind in zip(paths, names, types, strict=True):
        if not _JSON_PATH.fullmatch(str(path)):
            errors.append(
                (
                    (index, "path"),
                    (
                        f"the path {path!r} is not available: write $, .field, ['field'] and [0],"
                        " without wildcards and filters"
                    ),
                )
            )
        try:
            made.append(
                JsonColumn(
                    source=str(entry["src_field"]),
                    path=str(path),
                    name=str(name),
                    type=parse_type(kind),
                    on_error=on_error,
                )
            )
        except ValueError as error:
            errors.append(((index, "dest_type"), str(error)))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnTest:
    """A test of one column. `settings` are the keys of the rule, as written."""

    name: str
    type: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The message for a row that does not pass; it never contains the value."""
        return str(
            self.settings.get("custom_message")
            or f"a row does not pass the rule {self.type} of field {self.name}"
        )

    def flag(self, key: str) -> bool:
        """A boolean setting, true by default."""
        return str(self.settings.get(key, True)).lower() != "false"


def validation_rules(raw: Any) -> tuple[list[ColumnTest], Errors]:
    """Read `field_rules` of DataValidator, flat or nested."""
    made: list[ColumnTest] = []
    errors: Errors = []
    for index, entry in enumerate(raw):
        if (
            not isinstance(entry, Mapping)
            or not isinstance(entry.get("field_name"), str | int)
            or not entry["field_name"]
        ):
            errors.append(
                (
                    (index,),
                    "a field rule is a block { field_name, rule_type, ... }: field_name is missing",
                )
            )
            continue
        nested = entry.get("rules")
        for number, rule in enumerate(nested if isinstance(nested, list) else [entry]):
            _add_rule(
                str(entry["field_name"]),
                rule,
                (index, "rules", number) if isinstance(nested, list) else (index,),
                made,
                errors,
            )
    return made, errors


def _add_rule(name: str, rule: Any, path: Path, made: list[ColumnTest], errors: Errors) -> None:
    kind = str(rule.get("rule_type") or "").upper() if isinstance(rule, Mapping) else ""
    message = _rule_error(kind, rule)
    if message:
        errors.append((path, message))
    else:
        made.append(ColumnTest(name=name, type=kind, settings=rule))


def _rule_error(kind: str, rule: Any) -> str:
    if kind not in RULE_TYPES:
        close = closest_match(kind, list(RULE_TYPES))
        return f"{kind or 'no rule_type'} is no rule: one of {', '.join(RULE_TYPES)}" + (
            f"; did you mean {close!r}?" if close else ""
        )
    if kind == "REGEX":
        return _pattern_error(rule.get("pattern"))
    if kind == "UDF" and str(rule.get("function_name") or "").upper() != "EMAIL":
        return f"the function {rule.get('function_name')} is not available: only EMAIL is"
    if kind == "RANGE":
        return _bounds_error(
            rule,
            "RANGE needs min_value or max_value, as numbers",
            ("min_value", "max_value"),
            float,
        )
    if kind == "LENGTH":
        lengths = ("min_length", "max_length", "exact_length")
        return _bounds_error(
            rule,
            "LENGTH needs min_length, max_length or exact_length, as whole numbers",
            lengths,
            int,
        )
    return ""


def _pattern_error(pattern: Any) -> str:
    if not pattern:
        return "REGEX needs a pattern"
    wrong = pattern_error(str(pattern))
    return f"{str(pattern)!r} is no regular expression: {wrong}" if wrong else ""


def _bounds_error(
    rule: Mapping[str, Any], message: str, keys: tuple[str, ...], number: type[int] | type[float]
) -> str:
    """Require at least one bound, and a number for each."""
    given = [rule[key] for key in keys if rule.get(key) is not None]
    return "" if given and all(_is_number(value, number) for value in given) else message


def _is_number(value: Any, number: type[int] | type[float]) -> bool:
    """Whether a value is a whole number, or any finite number."""
    try:
        return (
            not isinstance(value, bool | float) and isinstance(int(value), int)
            if number is int
            else math.isfinite(float(value))
        )
    except (TypeError, ValueError, OverflowError):
        return False
