"""Declares the transforms of columns, values, tables and row kinds: options, checks, capabilities.

Decides which of them run without Spark. Must import neither pyspark nor pyarrow.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate.connectors.columns import checks
from tidegate.connectors.columns.regex import literal, portable, replacement
from tidegate.model.job import BlockKind
from tidegate.model.types import RowKind
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Option, OptionKind, OptionSet, Values
from tidegate.plugin.tables import MULTI_TABLE, Check, RuleSet

UNSUPPORTED = {
    "Calcite": "not available: use Sql, which runs on Spark SQL",
    "DynamicCompile": (
        "not available: Java and Groovy source is not compiled here; use Sql, or a Spark function"
        " in it"
    ),
    "Embedding": "not available: models are not called from a transform",
    "LLM": "not available: models are not called from a transform",
    "Python": "not available yet: use Sql",
    "TextChunk": "not available yet: use Sql with LATERAL VIEW EXPLODE(...)",
}
"""Transforms of SeaTunnel that are not available, with a replacement; for the planner's message."""

CASES = ("UPPER", "LOWER")


def _text(key: str, description: str, **more: Any) -> Option:
    return Option(key, OptionKind.TEXT, description, **more)


def _list(key: str, description: str, **more: Any) -> Option:
    return Option(key, OptionKind.LIST, description, **more)


_RENAMES = (
    Option("convert_case", OptionKind.ENUM, "Convert names to upper or lower case.", choices=CASES),
    _text("prefix", "Prefix of every name."),
    _text("suffix", "Suffix of every name."),
    _list(
        "replacements_with_regex",
        "Blocks { replace_from, replace_to, is_regex = true }; the last one that matches a name"
        " is applied.",
    ),
)
_ON_ROW_ERROR = Option(
    "row_error_handle_way",
    OptionKind.ENUM,
    "What to do with a row whose value is missing or has the wrong type.",
    default="FAIL",
    choices=("FAIL", "SKIP", "ROUTE_TO_TABLE"),
)


FIELDS = Option(
    "fields",
    OptionKind.ANY,
    "The columns to copy: a block { new_name = old_name }.",
)
_DECLARED: dict[str, tuple[str, tuple[Option, ...], tuple[str, ...], Check | None]] = {
    "Filter": (
        "Keeps or drops columns.",
        (
            _list("include_fields", "Columns to keep, in this order.", fallbacks=("fields",)),
            _list("exclude_fields", "Columns to drop."),
        ),
        (),
        checks.check_filter,
    ),
    "FieldMapper": (
        "Selects, orders and renames columns.",
        (
            Option(
                "field_mapper",
                OptionKind.MAP,
                "The output columns, in this order: a block { old_name = new_name }.",
            ),
        ),
        ("field_mapper",),
        checks.check_mapper,
    ),
    "FieldRename": (
        "Renames columns by rules.",
        (
            *_RENAMES,
            _list(
                "specific",
                "Blocks { field_name, target_name }: new names of single columns; no other rule"
                " applies to them.",
            ),
        ),
        (),
        checks.check_renames,
    ),
    "Copy": (
        "Copies columns to new ones.",
        (
            FIELDS,
            _text("src_field", "One column to copy (older form)."),
            _text("dest_field", "The name of the copy (older form)."),
        ),
        (),
        checks.check_copy,
    ),
    "Replace": (
        "Replaces text within a column.",
        (
            _list("replace_fields", "The columns, of type string."),
            Option(
                "replace_field",
                OptionKind.ANY,
                "One column (older form), or a list of columns.",
            ),
            _text("pattern", "The text to replace."),
            _text("replacement", "The new text; with is_regex, $1 is the first group."),
            Option(
                "is_regex",
                OptionKind.BOOL,
                "Whether pattern is a regular expression in Java's syntax.",
                default=False,
            ),
            Option(
                "replace_first",
                OptionKind.BOOL,
                "With is_regex: replace only the first match.",
                default=False,
            ),
        ),
        ("pattern", "replacement"),
        checks.check_replace,
    ),
    "Split": (
        "Splits a column into several.",
        (
            _text("separator", "The separator: a regular expression in Java's syntax."),
            _text("split_field", "The column to split."),
            _list("output_fields", "The new columns; the last one gets the rest of the text."),
        ),
        ("separator", "split_field", "output_fields"),
        checks.check_split,
    ),
    "RegexExtract": (
        "Extracts the groups of a regular expression into columns.",
        (
            _text("source_field", "The column to search."),
            _text(
                "regex_pattern",
                "A regular expression in Java's syntax, with one group for each new column.",
            ),
            _list("output_fields", "The new columns."),
            _list("default_values", "Values of the new columns if the expression does not match."),
        ),
        ("source_field", "regex_pattern", "output_fields"),
        checks.check_extract,
    ),
    "FilterRowKind": (
        "Keeps or drops rows by their kind.",
        (
            _list("include_kinds", "Kinds to keep: INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE."),
            _list("exclude_kinds", "Kinds to drop."),
        ),
        (),
        checks.check_kinds,
    ),
    "RowKindExtractor": (
        "Turns changes into plain rows with their kind as a column.",
        (
            _text("custom_field_name", "The new column.", default="row_kind"),
            Option(
                "transform_type",
                OptionKind.ENUM,
                "SHORT writes +I, FULL writes INSERT.",
                default="SHORT",
                choices=("SHORT", "FULL"),
            ),
        ),
        (),
        None,
    ),
    "TableRename": ("Renames tables by rules.", _RENAMES, (), checks.check_renames),
    "TableMerge": (
        "Merges several tables into one.",
        (
            _text("database", "The database of the new table."),
            _text("schema", "The schema of the new table."),
            _text("table", "The name of the new table."),
        ),
        ("table",),
        None,
    ),
    "TableFilter": (
        "Keeps or drops whole tables.",
        (
            _text("database_pattern", "A regular expression for the whole name of the database."),
            _text("schema_pattern", "A regular expression for the whole name of the schema."),
            _text("table_pattern", "A regular expression for the whole name of the table."),
            Option(
                "pattern_mode",
                OptionKind.ENUM,
                "Whether to keep or drop matching tables.",
                default="INCLUDE",
                choices=("INCLUDE", "EXCLUDE"),
            ),
        ),
        (),
        checks.check_table_filter,
    ),
    "DefineSinkType": (
        "Sets the column types of tables that a sink creates.",
        (_list("columns", "Blocks { column, type }; the type is one of the target database."),),
        ("columns",),
        checks.check_sink_types,
    ),
    "Metadata": (
        "Adds the metadata of a row as columns.",
        (
            Option(
                "metadata_fields",
                OptionKind.MAP,
                "A block { Database = column, Table = column, RowKind = column }.",
                default={},
            ),
        ),
        (),
        checks.check_metadata,
    ),
    "JsonPath": (
        "Extracts values from JSON.",
        (
            _list(
                "columns",
                "Blocks { src_field, path, dest_field, dest_type = string,"
                " column_error_handle_way }.",
            ),
            _ON_ROW_ERROR,
        ),
        ("columns",),
        checks.check_json,
    ),
    "DataValidator": (
        "Validates values, and fails, drops or routes the rows that do not pass.",
        (
            _list(
                "field_rules",
                "Blocks { field_name, rule_type = NOT_NULL | RANGE | LENGTH | REGEX | UDF, ... },"
                " or { field_name, rules = [...] }.",
            ),
            replace(
                _ON_ROW_ERROR,
                description=(
                    "What to do with a row that does not pass: FAIL ends the job, SKIP drops the"
                    " row, ROUTE_TO_TABLE writes it to error_table."
                ),
                fallbacks=("error_handle_way",),
            ),
            _text(
                "row_error_handle_way.error_table",
                "With ROUTE_TO_TABLE: the table for rejected rows, in the database of their"
                " own table. Its columns are source_table_id, source_table_path,"
                " original_data, validation_errors (both JSON) and create_time.",
                fallbacks=("error_table",),
            ),
        ),
        ("field_rules",),
        checks.check_validator,
    ),
    "FieldEncrypt": (
        "Encrypts or decrypts columns.",
        (
            _list("fields", "The columns, of type string."),
            _text("key", "The key: base64 of 16, 24 or 32 bytes.", secret=True),
            Option(
                "algorithm",
                OptionKind.ENUM,
                "The cipher and its mode.",
                default="AES_CBC",
                choices=("AES_CBC",),
            ),
            Option(
                "mode",
                OptionKind.ENUM,
                "Whether to encrypt or to decrypt.",
                default="ENCRYPT",
                choices=("ENCRYPT", "DECRYPT"),
            ),
        ),
        ("fields", "key"),
        checks.check_key,
    ),
}

_ANY_OF = {
    "Filter": ("include_fields", "exclude_fields"),
    "Copy": ("fields", "src_field", "dest_field"),
    "FilterRowKind": ("include_kinds", "exclude_kinds"),
    "Replace": ("replace_fields", "replace_field"),
}
RULES = {
    name: RuleSet(
        options=OptionSet((*options, *MULTI_TABLE)),
        required=required,
        any_of=_ANY_OF.get(name, ()),
        check=check,
    )
    for name, (_, options, required, check) in _DECLARED.items()
}
"""The options of every transform, as rules for tables."""

_CLASSES = {
    "Filter": "moves:Filter",
    "FieldMapper": "moves:FieldMapper",
    "FieldRename": "moves:FieldRename",
    "Copy": "moves:Copy",
    "Replace": "texts:Replace",
    "Split": "texts:SplitText",
    "RegexExtract": "texts:RegexExtract",
    "FilterRowKind": "kinds:FilterRowKind",
    "RowKindExtractor": "kinds:RowKindExtractor",
    "TableRename": "tables:TableRename",
    "TableMerge": "tables:TableMerge",
    "TableFilter": "tables:TableFilter",
    "DefineSinkType": "tables:DefineSinkType",
    "Metadata": "kinds:RowMetadata",
    "JsonPath": "values:JsonPath",
    "DataValidator": "values:DataValidator",
    "FieldEncrypt": "values:FieldEncrypt",
}
_SPARK_ONLY = ("RegexExtract", "JsonPath", "DataValidator", "FieldEncrypt")


def replace_is_portable(rule: Values) -> bool:
    """Whether a Replace can run on Arrow."""
    if not rule["is_regex"]:
        return bool(rule["pattern"])
    found = portable(rule["pattern"])
    return found is not None and replacement(rule["replacement"], found.groups) is not None


def split_is_portable(rule: Values) -> bool:
    """Whether a Split can run on Arrow."""
    found = portable(rule["separator"])
    return literal(rule["separator"]) is not None or (found is not None and not found.anchored)


def replaced_columns(rule: Values) -> list[str]:
    """The columns of a Replace. Plans of older releases have only `replace_field`."""
    given = rule.get("replace_fields")
    if given is None:
        given = rule["replace_field"]
    return list(dict.fromkeys(map(str, given if isinstance(given, list) else [given])))


_PORTABLE = {"Replace": replace_is_portable, "Split": split_is_portable}


def _refine(name: str) -> Callable[[Values, Capabilities], Capabilities]:
    def refine(values: Values, capabilities: Capabilities) -> Capabilities:
        return replace(
            capabilities, fusable=all(map(_PORTABLE[name], RULES[name].all_rules(values)))
        )

    return refine


def _filtered_kinds(values: Values) -> frozenset[RowKind]:
    """The kinds that at least one rule of a FilterRowKind keeps."""
    passing: set[RowKind] = set()
    for rule in RULES["FilterRowKind"].all_rules(values):
        included, excluded = (
            {RowKind.parse(str(kind)) for kind in rule[key] or ()}
            for key in ("include_kinds", "exclude_kinds")
        )
        passing |= included or set(RowKind) - excluded
    return frozenset(passing)


def _metadata_kinds(values: Values) -> frozenset[RowKind]:
    """The kinds of rows after Metadata: only inserts if it adds the kind as a column."""
    return frozenset(
        {RowKind.INSERT} if "RowKind" in (values["metadata_fields"] or {}) else RowKind
    )


_KINDS: dict[str, Callable[[Values], frozenset[RowKind]]] = {
    "FilterRowKind": _filtered_kinds,
    "RowKindExtractor": lambda _: frozenset({RowKind.INSERT}),
    "Metadata": _metadata_kinds,
}

CONNECTORS = tuple(
    Connector(
        name=name,
        kind=BlockKind.TRANSFORM,
        summary=summary,
        options=RULES[name].options,
        capabilities=Capabilities(
            row_kinds=True, multi_table=True, fusable=name not in _SPARK_ONLY
        ),
        implementation=f"tidegate.connectors.columns.{_CLASSES[name]}",
        spark="tidegate.connectors.columns.spark:frame",
        check=RULES[name].problems,
        refine=_refine(name) if name in _PORTABLE else None,
        kinds=_KINDS.get(name),
    )
    for name, (summary, _, _, _) in _DECLARED.items()
)
