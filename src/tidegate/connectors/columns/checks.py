"""Checks of transform options: regular expressions, row kinds, nested blocks.

Called through options.py; pure.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping

from tidegate.connectors.columns.rules import json_columns, validation_rules
from tidegate.model.job import Path
from tidegate.model.problem import Problem, closest_match
from tidegate.model.types import RowKind
from tidegate.plugin.javaregex import (
    JavaRegexError,
    name_pattern_error,
    parsed,
    pattern_error,
    replacement_error,
)
from tidegate.plugin.option import Block, Values, shown
from tidegate.plugin.tables import Check

METADATA = ("Database", "Table", "RowKind")
_METADATA_OF_SOURCES = (
    "EventTime",
    "Delay",
    "Partition",
    "SourceTimestamp",
    "BinlogFile",
    "BinlogPos",
    "BinlogRow",
    "Gtid",
    "FilePath",
    "FileCreateTime",
    "FileUpdateTime",
    "FileSize",
    "FileType",
)


def one_of(*keys: str) -> Check:
    def check(block: Block, values: Values) -> Iterator[Problem]:
        given = [key for key in keys if values[key] is not None]
        if len(given) != 1:
            yield block.problem(
                (given[1],) if given else (),
                (
                    f"one of {' and '.join(keys)} is needed"
                    if not given
                    else f"only one of {', '.join(keys)}"
                ),
            )

    return check


def check_copy(block: Block, values: Values) -> Iterator[Problem]:
    if values["fields"] is None:
        for key in ("src_field", "dest_field"):
            if values[key] is None:
                yield block.problem(
                    (),
                    (
                        "fields is missing: a block { new_name = old_name }"
                        if key == "src_field"
                        else f"{key} is missing"
                    ),
                )
    elif not isinstance(values["fields"], Mapping) and not (
        isinstance(values["fields"], list) and all(isinstance(f, Mapping) for f in values["fields"])
    ):
        yield block.problem(("fields",), "fields is a block { new_name = old_name }")


def check_renames(block: Block, values: Values) -> Iterator[Problem]:
    yield from _entries(block, values, "replacements_with_regex", ("replace_from", "replace_to"))
    for index, entry in enumerate(values["replacements_with_regex"] or ()):
        if isinstance(entry, Mapping) and str(entry.get("is_regex", "true")).lower() != "false":
            yield from _name_regex(
                block,
                ("replacements_with_regex", index, "replace_from"),
                str(entry.get("replace_from") or ""),
            )
    if "specific" in values:
        yield from _entries(block, values, "specific", ("field_name", "target_name"))


def _entries(block: Block, values: Values, key: str, needed: tuple[str, ...]) -> Iterator[Problem]:
    for index, entry in enumerate(values[key] or ()):
        lacking = [
            k for k in needed if not isinstance(entry, Mapping) or entry.get(k) in (None, "")
        ]
        if lacking and not (
            lacking == ["replace_to"] and isinstance(entry, Mapping) and "replace_to" in entry
        ):
            yield block.problem(
                (key, index),
                f"an entry of {key} is a block {{ {', '.join(needed)} }}: {', '.join(lacking)} is"
                " missing",
            )


def _regex(block: Block, path: Path, pattern: str) -> Iterator[Problem]:
    wrong = pattern_error(pattern)
    if wrong:
        yield block.problem(path, f"{pattern!r} is no regular expression: {wrong}")


def _name_regex(block: Block, path: Path, pattern: str) -> Iterator[Problem]:
    wrong = name_pattern_error(pattern)
    if wrong:
        yield block.problem(path, wrong)


def _one_name(block: Block, key: str) -> Iterator[Problem]:
    """Reject a list or block, which would be read as an odd name and fail only at runtime."""
    found = block.find(key)
    if found is not None and isinstance(found[1], list | Mapping):
        yield block.problem(found[0], f"{shown(found[1])} is not the name of one column")


def _names(block: Block, values: Values, key: str, *, twice: bool = False) -> Iterator[Problem]:
    """Check a list of column names: at least one, and no duplicates unless `twice`."""
    entries = values[key]
    if entries is None:
        return
    if not entries:
        yield block.problem((key,), f"{key} is empty: name at least one column")
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if isinstance(entry, list | Mapping) or entry in (None, ""):
            yield block.problem((key, index), f"{shown(entry)} is not the name of a column")
        elif str(entry) in seen and not twice:
            yield block.problem((key, index), f"{key} names the column {str(entry)!r} twice")
        seen.add(str(entry))


def check_filter(block: Block, values: Values) -> Iterator[Problem]:
    yield from one_of("include_fields", "exclude_fields")(block, values)
    yield from _names(block, values, "include_fields")
    yield from _names(block, values, "exclude_fields", twice=True)


def check_mapper(block: Block, values: Values) -> Iterator[Problem]:
    seen: set[str] = set()
    for old, new in values["field_mapper"].items():
        if isinstance(new, list | Mapping) or new in (None, ""):
            yield block.problem(("field_mapper", old), f"{shown(new)} is not the name of a column")
        elif str(new) in seen:
            yield block.problem(("field_mapper", old), f"two columns would be called {new!s}")
        seen.add(str(new))


def check_replace(block: Block, values: Values) -> Iterator[Problem]:
    yield from one_of("replace_fields", "replace_field")(block, values)
    given = values["replace_fields"] if values["replace_field"] is None else values["replace_field"]
    if isinstance(given, Mapping):
        yield block.problem(
            ("replace_field",),
            f"{shown(given)} is neither the name of a column nor a list of names",
        )
    elif isinstance(given, list):
        key = "replace_fields" if values["replace_field"] is None else "replace_field"
        yield from _names(block, values, key, twice=True)
    if not values["is_regex"]:
        return
    try:
        wrong = replacement_error(values["replacement"], parsed(values["pattern"]))
    except JavaRegexError as error:
        yield block.problem(
            ("pattern",), f"{values['pattern']!r} is no regular expression: {error}"
        )
        return
    if wrong:
        yield block.problem(("replacement",), wrong)


def check_split(block: Block, values: Values) -> Iterator[Problem]:
    yield from _one_name(block, "split_field")
    yield from _names(block, values, "output_fields")
    yield from _regex(block, ("separator",), values["separator"])


def check_extract(block: Block, values: Values) -> Iterator[Problem]:
    yield from _one_name(block, "source_field")
    yield from _names(block, values, "output_fields")
    count = len(values["output_fields"])
    if values["default_values"] and len(values["default_values"]) != count:
        yield block.problem(
            ("default_values",),
            f"{len(values['default_values'])} default values for {count} output fields",
        )
    try:
        groups = parsed(values["regex_pattern"]).groups
    except JavaRegexError as error:
        yield block.problem(
            ("regex_pattern",), f"{values['regex_pattern']!r} is no regular expression: {error}"
        )
        return
    if groups != count:
        yield block.problem(
            ("regex_pattern",),
            f"the pattern has {groups} groups, and there are {count} output fields",
        )


def check_kinds(block: Block, values: Values) -> Iterator[Problem]:
    yield from one_of("include_kinds", "exclude_kinds")(block, values)
    for key in ("include_kinds", "exclude_kinds"):
        for index, kind in enumerate(values[key] or ()):
            try:
                RowKind.parse(str(kind))
            except ValueError as error:
                yield block.problem(
                    (key, index),
                    str(error),
                    suggestion=closest_match(str(kind), [k.name for k in RowKind]),
                )


def check_metadata(block: Block, values: Values) -> Iterator[Problem]:
    columns = [str(column) for column in (values["metadata_fields"] or {}).values()]
    for column in dict.fromkeys(c for c in columns if columns.count(c) > 1):
        yield block.problem(("metadata_fields",), f"two columns would be called {column}")
    for key in values["metadata_fields"] or ():
        if key in _METADATA_OF_SOURCES:
            yield block.problem(
                ("metadata_fields", key),
                f"{key} is not available, because no source provides it; use one of"
                f" {', '.join(METADATA)}",
            )
        elif key not in METADATA:
            yield block.problem(
                ("metadata_fields", key),
                f"there is no metadata field {key}",
                suggestion=closest_match(key, [*METADATA, *_METADATA_OF_SOURCES]),
            )


def check_table_filter(block: Block, values: Values) -> Iterator[Problem]:
    for key in ("database_pattern", "schema_pattern", "table_pattern"):
        if values[key] is not None:
            yield from _name_regex(block, (key,), values[key])


def check_sink_types(block: Block, values: Values) -> Iterator[Problem]:
    yield from _entries(block, values, "columns", ("column", "type"))


def _route_problem(block: Block, values: Values) -> Iterator[Problem]:
    if values["row_error_handle_way"] == "ROUTE_TO_TABLE":
        yield block.problem(
            ("row_error_handle_way",),
            "ROUTE_TO_TABLE is not possible here: use FAIL or SKIP, or a DataValidator before this",
        )


def check_json(block: Block, values: Values) -> Iterator[Problem]:
    yield from _route_problem(block, values)
    for path, message in json_columns(values["columns"])[1]:
        yield block.problem(("columns", *path), message)


def check_validator(block: Block, values: Values) -> Iterator[Problem]:
    if (
        values["row_error_handle_way"] == "ROUTE_TO_TABLE"
        and not values["row_error_handle_way.error_table"]
    ):
        yield block.problem(
            (), "row_error_handle_way.error_table is missing: the table for rejected rows"
        )
    for path, message in validation_rules(values["field_rules"])[1]:
        yield block.problem(("field_rules", *path), message)


def check_key(block: Block, values: Values) -> Iterator[Problem]:
    """Check the key of FieldEncrypt; messages never contain it."""
    yield from _names(block, values, "fields")
    try:
        size = len(base64.b64decode(values["key"].removeprefix("base64:"), validate=True))
    except binascii.Error:
        yield block.problem(("key",), "the key is not base64")
        return
    if size not in (16, 24, 32):
        yield block.problem(("key",), f"the key has {size} bytes: 16, 24 or 32 are needed")
