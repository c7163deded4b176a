"""The nested blocks of JsonPath and DataValidator as data: read once with all that is wrong, then
used by values.py and spark.py. Pure.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.job import Path
from tidegate.model.problem import nearest
from tidegate.model.types import DataType, parse_type
from tidegate.plugin.javaregex import complaint

Wrong = list[tuple[Path, str]]
"""What is wrong, with its place below the option."""
WAYS = ("FAIL", "SKIP", "SKIP_ROW")
_JSON_PATH = re.compile(r"\$(\.[A-Za-z_][\w-]*|\['[^']*'\]|\[\"[^\"]*\"\]|\[\d+\])*")
RULE_TYPES = ("NOT_NULL", "RANGE", "LENGTH", "REGEX", "UDF")


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonColumn:
    """One value to take out of JSON. `way` is None where the row's way holds."""

    source: str
    path: str
    name: str
    type: DataType
    way: str | None


def json_columns(raw: Any) -> tuple[list[JsonColumn], Wrong]:
    """The `columns` of JsonPath; path, dest_field and dest_type may be lists of the same length."""
    made: list[JsonColumn] = []
    wrong: Wrong = []
    for index, entry in enumerate(raw):
        lacking = [
            k
            for k in ("src_field", "path", "dest_field")
            if not isinstance(entry, Mapping) or not entry.get(k)
        ]
        if lacking:
            wrong.append(
                (
                    (index,),
                    (
                        "a column of JsonPath is a block { src_field, path, dest_field }:"
                        f" {', '.join(lacking)} is missing"
                    ),
                )
            )
            continue
        _add_json(entry, index, made, wrong)
    return made, wrong


def _add_json(entry: Mapping[str, Any], index: int, made: list[JsonColumn], wrong: Wrong) -> None:
    paths, names, types = (
        _as_list(entry.get(key) or default)
        for key, default in (("path", ""), ("dest_field", ""), ("dest_type", "string"))
    )
    if len(types) == 1:
        types = types * len(paths)
    if not len(paths) == len(names) == len(types):
        wrong.append(((index,), "path, dest_field and dest_type need the same number of items"))
        return
    way = (
        str(entry["column_error_handle_way"]).upper()
        if entry.get("column_error_handle_way")
        else None
    )
    if way is not None and way not in WAYS:
        wrong.append(
            (
                (index, "column_error_handle_way"),
                f"{way} is not possible here: one of {', '.join(WAYS)}",
            )
        )
    for path, name, kind in zip(paths, names, types, strict=True):
        if not _JSON_PATH.fullmatch(str(path)):
            wrong.append(
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
                    way=way,
                )
            )
        except ValueError as error:
            wrong.append(((index, "dest_type"), str(error)))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnTest:
    """One test of one column. `settings` are the keys of the rule, as written."""

    name: str
    type: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """What is said where a row does not pass; never with the value."""
        return str(
            self.settings.get("custom_message")
            or f"a row does not pass the rule {self.type} of field {self.name}"
        )

    def flag(self, key: str) -> bool:
        """A setting that is true unless it says false."""
        return str(self.settings.get(key, True)).lower() != "false"


def validation_rules(raw: Any) -> tuple[list[ColumnTest], Wrong]:
    """The `field_rules` of DataValidator, flat or nested."""
    made: list[ColumnTest] = []
    wrong: Wrong = []
    for index, entry in enumerate(raw):
        if (
            not isinstance(entry, Mapping)
            or not isinstance(entry.get("field_name"), str | int)
            or not entry["field_name"]
        ):
            wrong.append(
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
                wrong,
            )
    return made, wrong


def _add_rule(name: str, rule: Any, path: Path, made: list[ColumnTest], wrong: Wrong) -> None:
    kind = str(rule.get("rule_type") or "").upper() if isinstance(rule, Mapping) else ""
    message = _rule_complaint(kind, rule)
    if message:
        wrong.append((path, message))
    else:
        made.append(ColumnTest(name=name, type=kind, settings=rule))


def _rule_complaint(kind: str, rule: Any) -> str:
    if kind not in RULE_TYPES:
        close = nearest(kind, list(RULE_TYPES))
        return f"{kind or 'no rule_type'} is no rule: one of {', '.join(RULE_TYPES)}" + (
            f"; did you mean {close!r}?" if close else ""
        )
    if kind == "REGEX":
        return _pattern_complaint(rule.get("pattern"))
    if kind == "UDF" and str(rule.get("function_name") or "").upper() != "EMAIL":
        return f"the function {rule.get('function_name')} is not available: only EMAIL is"
    if kind == "RANGE":
        return _bounds_complaint(
            rule,
            "RANGE needs min_value or max_value, as numbers",
            ("min_value", "max_value"),
            float,
        )
    if kind == "LENGTH":
        lengths = ("min_length", "max_length", "exact_length")
        return _bounds_complaint(
            rule,
            "LENGTH needs min_length, max_length or exact_length, as whole numbers",
            lengths,
            int,
        )
    return ""


def _pattern_complaint(pattern: Any) -> str:
    if not pattern:
        return "REGEX needs a pattern"
    wrong = complaint(str(pattern))
    return f"{str(pattern)!r} is no regular expression: {wrong}" if wrong else ""


def _bounds_complaint(
    rule: Mapping[str, Any], message: str, keys: tuple[str, ...], number: type[int] | type[float]
) -> str:
    """Every bound that is given must be a number, and one must be given."""
    given = [rule[key] for key in keys if rule.get(key) is not None]
    return "" if given and all(_is_number(value, number) for value in given) else message


def _is_number(value: Any, number: type[int] | type[float]) -> bool:
    """Whether a value is written as a whole number, or as any number."""
    try:
        return (
            not isinstance(value, bool | float) and isinstance(int(value), int)
            if number is int
            else math.isfinite(float(value))
        )
    except (TypeError, ValueError, OverflowError):
        return False
