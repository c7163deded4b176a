"""The transforms that move columns, values and row kinds, as data: options, checks, and when they
work without Spark. No pyspark, no pyarrow.
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
"""Transforms of the reference that are known and not there, and what to use instead.

Read by the planner for its error.
"""

CASES = ("UPPER", "LOWER")


def _text(key: str, description: str, **more: Any) -> Option:
    return Option(key, OptionKind.TEXT, description, **more)


def _list(key: str, description: str, **more: Any) -> Option:
    return Option(key, OptionKind.LIST, description, **more)


_RENAMES = (
    Option("convert_case", OptionKind.ENUM, "Turn names into upper or lower case.", choices=CASES),
    _text("prefix", "Put before every name."),
    _text("suffix", "Put after every name."),
    _list(
        "replacements_with_regex",
        "Blocks { replace_from, replace_to, is_regex = true }; the last one that matches a name"
        " holds.",
    ),
)
_ERROR_WAY = Option(
    "row_error_handle_way",
    OptionKind.ENUM,
    "What happens with a row that does not fit.",
    default="FAIL",
    choices=("FAIL", "SKIP", "ROUTE_TO_TABLE"),
)


FIELDS = Option(
    "fields",
    OptionKind.ANY,
    "Which column is copied to which new one: a block { new_name = old_name }.",
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
                "The columns that come out, in this order: a block { old_name = new_name }.",
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
                "Blocks { field_name, target_name }: these columns get these names, and no other"
                " rule.",
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
                "One column (older form); a list of them is taken too.",
            ),
            _text("pattern", "What is replaced."),
            _text("replacement", "What is put there; with is_regex, $1 is the first group."),
            Option(
                "is_regex",
                OptionKind.BOOL,
                "Whether pattern is a regular expression (of Java's kind).",
                default=False,
            ),
            Option(
                "replace_first",
                OptionKind.BOOL,
                "With is_regex: only the first match.",
                default=False,
            ),
        ),
        ("pattern", "replacement"),
        checks.check_replace,
    ),
    "Split": (
        "Splits a column into several.",
        (
            _text("separator", "Between the parts: a regular expression of Java's kind."),
            _text("split_field", "The column to split."),
            _list("output_fields", "The new columns; the last one takes what is left."),
        ),
        ("separator", "split_field", "output_fields"),
        checks.check_split,
    ),
    "RegexExtract": (
        "Takes the groups of a regular expression into columns.",
        (
            _text("source_field", "The column to search."),
            _text(
                "regex_pattern",
                "A regular expression of Java's kind, with one group for each new column.",
            ),
            _list("output_fields", "The new columns."),
            _list("default_values", "Values of the new columns where nothing matches."),
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
                "+I or INSERT.",
                default="SHORT",
                choices=("SHORT", "FULL"),
            ),
        ),
        (),
        None,
    ),
    "TableRename": ("Renames tables by rules.", _RENAMES, (), checks.check_renames),
    "TableMerge": (
        "Makes one table of several.",
        (
            _text("database", "The database of the new table."),
            _text("schema", "Its schema."),
            _text("table", "Its name."),
        ),
        ("table",),
        None,
    ),
    "TableFilter": (
        "Keeps or drops whole tables.",
        (
            _text("database_pattern", "A regular expression for the whole name of the database."),
            _text("schema_pattern", "... of the schema."),
            _text("table_pattern", "... of the table."),
            Option(
                "pattern_mode",
                OptionKind.ENUM,
                "Whether tables that match are kept or dropped.",
                default="INCLUDE",
                choices=("INCLUDE", "EXCLUDE"),
            ),
        ),
        (),
        checks.check_table_filter,
    ),
    "DefineSinkType": (
        "Says which types the columns get where a sink makes the table.",
        (_list("columns", "Blocks { column, type }; the type is the target's own."),),
        ("columns",),
        checks.check_sink_types,
    ),
    "Metadata": (
        "Puts what is known about a row into columns.",
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
        "Takes values out of JSON.",
        (
            _list(
                "columns",
                "Blocks { src_field, path, dest_field, dest_type = string,"
                " column_error_handle_way }.",
            ),
            _ERROR_WAY,
        ),
        ("columns",),
        checks.check_json,
    ),
    "DataValidator": (
        "Tests values, and fails, drops or puts aside the rows that do not pass.",
        (
            _list(
                "field_rules",
                "Blocks { field_name, rule_type = NOT_NULL | RANGE | LENGTH | REGEX | UDF, ... },"
                " or { field_name, rules = [...] }.",
            ),
            replace(
                _ERROR_WAY,
                description=(
                    "What happens with a row that does not pass: FAIL ends the job, SKIP drops the"
                    " row, ROUTE_TO_TABLE puts it into error_table."
                ),
                fallbacks=("error_handle_way",),
            ),
            _text(
                "row_error_handle_way.error_table",
                "With ROUTE_TO_TABLE: the table of rejected rows, in the database of the table that"
                " they come from. Its columns are source_table_id, source_table_path,"
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
                "algorithm", OptionKind.ENUM, "The cipher.", default="AES_CBC", choices=("AES_CBC",)
            ),
            Option(
                "mode",
                OptionKind.ENUM,
                "The direction.",
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
    "Filter": "moves:Filter", "FieldMapper": "moves:FieldMapper", "FieldRename": "moves:FieldRename", "Copy": "moves:Copy", "Replace": "texts:Replace",
    "Split": "texts:Split", "RegexExtract": "texts:RegexExtract", "FilterRowKind": "kinds:FilterRowKind", "RowKindExtractor": "kinds:RowKindExtractor",
    "TableRename": "tables:TableRename", "TableMerge": "tables:TableMerge", "TableFilter": "tables:TableFilter", "DefineSinkType": "tables:DefineSinkType",
    "Metadata": "kinds:Metadata", "JsonPath": "values:JsonPath", "DataValidator": "values:DataValidator", "FieldEncrypt": "values:FieldEncrypt",
}  # fmt: skip
_SPARK_ONLY = ("RegexExtract", "JsonPath", "DataValidator", "FieldEncrypt")


def replace_is_portable(rule: Values) -> bool:
    """Whether Arrow can carry out a Replace."""
    if not rule["is_regex"]:
        return bool(rule["pattern"])
    found = portable(rule["pattern"])
    return found is not None and replacement(rule["replacement"], found.groups) is not None


def split_is_portable(rule: Values) -> bool:
    """Whether Arrow can carry out a Split."""
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
    """The kinds that some rule of a FilterRowKind lets pass."""
    passing: set[RowKind] = set()
    for rule in RULES["FilterRowKind"].all_rules(values):
        included, excluded = (
            {RowKind.parse(str(kind)) for kind in rule[key] or ()}
            for key in ("include_kinds", "exclude_kinds")
        )
        passing |= included or set(RowKind) - excluded
    return frozenset(passing)


def _told_kinds(values: Values) -> frozenset[RowKind]:
    """A Metadata may write the kinds into a column."""
    return frozenset(
        {RowKind.INSERT} if "RowKind" in (values["metadata_fields"] or {}) else RowKind
    )


_KINDS: dict[str, Callable[[Values], frozenset[RowKind]]] = {
    "FilterRowKind": _filtered_kinds,
    "RowKindExtractor": lambda _: frozenset({RowKind.INSERT}),
    "Metadata": _told_kinds,
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
