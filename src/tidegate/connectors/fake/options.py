"""Declares FakeSource: SeaTunnel's options, and Tidegate's `seed` and mode SEQUENCE.

Must stay light: `tidegate validate` imports this module.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidegate.model.job import BlockKind, Path
from tidegate.model.problem import Problem, Severity
from tidegate.model.types import RowKind, Table, TypeName
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.literal import literal, row_literal
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values, shown
from tidegate.plugin.schema import DEFAULT_TABLE, read_schema

_MODES = ("RANGE", "TEMPLATE")
_FLOAT_MAX = 3.4028234663852886e38
_DOUBLE_MAX = 1.7976931348623157e308
_WHOLE = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_FRACTION = {"float": _FLOAT_MAX, "double": _DOUBLE_MAX}
_PARTS = {
    "date.year": (1, 9999),
    "date.month": (1, 12),
    "date.day": (1, 31),
    "time.hour": (0, 23),
    "time.minute": (0, 59),
    "time.second": (0, 59),
}
_NOW = {
    TypeName.DATE: "CURRENT_DATE",
    TypeName.TIME: "CURRENT_TIME",
    TypeName.TIMESTAMP: "CURRENT_TIMESTAMP",
}


def _mode(name: str, modes: tuple[str, ...] = _MODES) -> Option:
    text = f"How {name} values are generated: RANGE at random, TEMPLATE from {name}.template"
    text += (
        f", SEQUENCE counting up from {name}.min (not in SeaTunnel)."
        if "SEQUENCE" in modes
        else "."
    )
    # SeaTunnel's documentation calls it int.fake.template, its code int.fake.mode.
    return Option(
        f"{name}.fake.mode",
        OptionKind.ENUM,
        text,
        "RANGE",
        choices=modes,
        fallbacks=(f"{name}.fake.template",),
    )


def _template(name: str) -> Option:
    return Option(
        f"{name}.template",
        OptionKind.LIST,
        f"Values to choose {name} from, instead of random ones.",
    )


def _whole(name: str, bits: int) -> tuple[Option, ...]:
    low, high = -(2**bits), 2**bits - 1
    kind = OptionKind.LONG if bits == 63 else OptionKind.INT
    return (
        _mode(name, (*_MODES, "SEQUENCE")),
        Option(f"{name}.min", kind, f"The smallest {name} value.", 0, minimum=low, maximum=high),
        Option(
            f"{name}.max", kind, f"{name} values stay below this.", high, minimum=low, maximum=high
        ),
        _template(name),
    )


def _fraction(name: str, most: float) -> tuple[Option, ...]:
    return (
        _mode(name),
        Option(
            f"{name}.min",
            OptionKind.DOUBLE,
            f"The smallest {name} value.",
            0.0,
            minimum=-most,
            maximum=most,
        ),
        Option(
            f"{name}.max",
            OptionKind.DOUBLE,
            f"{name} values stay below this.",
            most,
            minimum=-most,
            maximum=most,
        ),
        _template(name),
    )


TABLE_OPTIONS = OptionSet(
    (
        Option("schema", OptionKind.MAP, "The schema: fields or columns, keys and table name."),
        Option(
            "rows",
            OptionKind.LIST,
            "Fixed rows [{ kind = INSERT, fields = [...] }], which every parallel reader emits once"
            " instead of random ones.",
        ),
        Option("row.num", OptionKind.INT, "Rows of each parallel reader.", 5, minimum=0),
        Option("split.num", OptionKind.INT, "Number of splits of each reader.", 1, minimum=1),
        Option(
            "split.read-interval",
            OptionKind.INT,
            "Milliseconds between two splits of a reader.",
            1,
            minimum=0,
        ),
        Option("map.size", OptionKind.INT, "Entries of a map.", 5, minimum=0),
        Option("array.size", OptionKind.INT, "Elements of an array.", 5, minimum=0),
        Option("bytes.length", OptionKind.INT, "Length of bytes values.", 5, minimum=0),
        Option(
            "string.length",
            OptionKind.INT,
            "Length of a string if the column has no columnLength.",
            5,
            minimum=0,
        ),
        _mode("string"),
        _template("string"),
        *(option for name, bits in _WHOLE.items() for option in _whole(name, bits)),
        *(option for name, most in _FRACTION.items() for option in _fraction(name, most)),
        *(_template(name) for name in _PARTS),
        Option(
            "vector.dimension",
            OptionKind.INT,
            "Elements of a vector if the column has no columnScale.",
            4,
            minimum=0,
        ),
        Option(
            "binary.vector.dimension",
            OptionKind.INT,
            "Bits of a binary vector; a multiple of 8.",
            8,
            minimum=0,
        ),
        Option(
            "vector.float.min",
            OptionKind.DOUBLE,
            "The smallest element of a vector.",
            0.0,
            minimum=-_FLOAT_MAX,
            maximum=_FLOAT_MAX,
        ),
        Option(
            "vector.float.max",
            OptionKind.DOUBLE,
            "Elements of a vector stay below this.",
            _FLOAT_MAX,
            minimum=-_FLOAT_MAX,
            maximum=_FLOAT_MAX,
        ),
        Option(
            "auto.increment.enabled",
            OptionKind.BOOL,
            "Count up in the integer columns of the primary key; without a primary key in `id`,"
            " else in the first integer column.",
            False,
        ),
        Option("auto.increment.start", OptionKind.LONG, "The first value of auto.increment.", 1),
        Option(
            "plugin_output",
            OptionKind.TEXT,
            "Also the name of the table if the schema has none.",
            fallbacks=("result_table_name",),
        ),
    )
)

OPTIONS = OptionSet(
    (
        Option(
            "tables_configs",
            OptionKind.LIST,
            "Several tables: a list of blocks, each with all options of a table.",
        ),
        *TABLE_OPTIONS.options,
        Option(
            "table-names",
            OptionKind.LIST,
            "Accepted, without effect: tables have the names of their schemas.",
        ),
        Option(
            "seed",
            OptionKind.LONG,
            "The same seed generates the same rows in every run; random by default. Not in"
            " SeaTunnel.",
        ),
    ),
    exclusive=(("schema", "tables_configs"),),
)


def check(block: Block, values: Values) -> Iterable[Problem]:
    """Check schemas, fixed rows, ranges and templates."""
    configs = values["tables_configs"]
    if configs is None:
        return _check_table(block, values)[1] if values["schema"] is not None else []
    found = block.find("tables_configs")
    path: Path = found[0] if found else ("tables_configs",)
    problems: list[Problem] = []
    names: list[str] = []
    for index, config in enumerate(configs):
        if not isinstance(config, Mapping):
            problems.append(
                block.problem(
                    (*path, index), f"{shown(config)} is not a block {{ schema {{ ... }} }}"
                )
            )
            continue
        inside = block.inside((*path, index), config)
        read, wrong = TABLE_OPTIONS.read(inside)
        table, more = _check_table(inside, read)
        problems += [*wrong, *more]
        if table is not None and table.path in names:
            problems.append(
                inside.problem(
                    ("schema",),
                    f"the table {table.path} is declared twice: give each schema its own `table`",
                )
            )
        names.append(table.path if table is not None else "")
    return problems


def _check_table(block: Block, values: Values) -> tuple[Table | None, list[Problem]]:
    if values["schema"] is None:
        return None, [
            block.problem((), "schema is missing: the table's fields or columns", expected="map")
        ]
    found = block.find("schema")
    path: Path = found[0] if found else ("schema",)
    table, problems = read_schema(
        block, values["schema"], path, values["plugin_output"] or DEFAULT_TABLE
    )
    if table is not None and not problems:
        problems += _check_defaults(block, path, table)
        problems += _check_rows(block, values, table)
    return table, [*problems, *_check_ranges(block, values), *_check_templates(block, values)]


def _check_defaults(block: Block, path: Path, table: Table) -> Iterable[Problem]:
    for index, column in enumerate(table.columns):
        if (
            column.default is None
            or column.type.name is TypeName.BYTES
            or _is_now(column.type.name, column.default)
        ):
            continue
        try:
            literal(column.type, column.default)
        except ValueError as error:
            yield block.problem((*path, "columns", index, "defaultValue"), str(error))


def _is_now(name: TypeName, raw: Any) -> bool:
    return isinstance(raw, str) and raw.strip().upper() == _NOW.get(name)


def _check_rows(block: Block, values: Values, table: Table) -> Iterable[Problem]:
    for index, row in enumerate(values["rows"] or ()):
        if not isinstance(row, Mapping) or "fields" not in row:
            yield block.problem(
                ("rows", index),
                f"{shown(row)} is no row: write {{ kind = INSERT, fields = [...] }}",
            )
            continue
        try:
            RowKind.parse(str(row.get("kind") or RowKind.INSERT.name))
        except ValueError as error:
            yield block.problem(("rows", index, "kind"), str(error))
        try:
            row_literal(table.columns, without_now(table, row["fields"]))
        except ValueError as error:
            yield block.problem(("rows", index, "fields"), str(error))


def without_now(table: Table, fields: Any) -> Any:
    """Replace CURRENT_DATE and similar in a fixed row by null.

    Their values are known only when the source starts.
    """
    if isinstance(fields, list):
        kinds = [c.type.name for c in table.columns]
        return [
            None if i < len(kinds) and _is_now(kinds[i], raw) else raw
            for i, raw in enumerate(fields)
        ]
    if isinstance(fields, Mapping):
        named = {c.name: c.type.name for c in table.columns}
        return {
            k: None if k in named and _is_now(named[k], raw) else raw for k, raw in fields.items()
        }
    return fields


def _check_ranges(block: Block, values: Values) -> Iterable[Problem]:
    for name in (*_WHOLE, *_FRACTION, "vector.float"):
        low, high = values[f"{name}.min"], values[f"{name}.max"]
        if low > high:
            found = block.find(f"{name}.min") or block.find(f"{name}.max")
            yield block.problem(
                found[0] if found else (), f"{name}.min = {low:g} is above {name}.max = {high:g}"
            )
    if values["binary.vector.dimension"] % 8:
        found = block.find("binary.vector.dimension")
        yield block.problem(
            found[0] if found else (), f"{values['binary.vector.dimension']} is not a multiple of 8"
        )


def _check_templates(block: Block, values: Values) -> Iterable[Problem]:
    bounds: dict[str, tuple[float, float]] = {
        name: (-(2**bits), 2**bits - 1) for name, bits in _WHOLE.items()
    }
    bounds |= {name: (-most, most) for name, most in _FRACTION.items()} | _PARTS
    for name in ("string", *bounds):
        found = block.find(f"{name}.template")
        path: Path = found[0] if found else (f"{name}.template",)
        if values.get(f"{name}.fake.mode") == "TEMPLATE" and not values[f"{name}.template"]:
            message = f"{name}.fake.mode = TEMPLATE without {name}.template: values are random"
            mode = block.find(f"{name}.fake.mode") or block.find(f"{name}.fake.template")
            yield block.problem(mode[0] if mode else (), message, severity=Severity.WARNING)
        if name in bounds:
            yield from _check_numbers(
                block,
                path,
                values[f"{name}.template"] or (),
                *bounds[name],
                whole=name not in _FRACTION,
            )


def _check_numbers(
    block: Block, path: Path, template: Iterable[Any], low: float, high: float, *, whole: bool
) -> Iterable[Problem]:
    for index, raw in enumerate(template):
        try:
            value = int(raw) if whole else float(raw)
        except (TypeError, ValueError):
            yield block.problem(
                (*path, index), f"{shown(raw)} is no {'whole ' if whole else ''}number"
            )
            continue
        if not low <= value <= high:
            yield block.problem((*path, index), f"{shown(raw)} is not between {low:g} and {high:g}")


def refine(values: Values, capabilities: Capabilities) -> Capabilities:
    """Derive the capabilities: fixed rows may be changes, tables_configs may be several tables."""
    tables = values["tables_configs"] or [values]
    rows = [
        row for table in tables if isinstance(table, Mapping) for row in table.get("rows") or ()
    ]
    kinds = {str(row.get("kind") or "INSERT").upper() for row in rows if isinstance(row, Mapping)}
    return replace(
        capabilities, row_kinds=bool(kinds - {"INSERT", "+I"}), multi_table=len(tables) > 1
    )


CONNECTORS = (
    Connector(
        name="FakeSource",
        kind=BlockKind.SOURCE,
        summary=(
            "Generates rows of any schema, for trying out and testing. Bounded in BATCH; in"
            " STREAMING it generates its rows and then continues to run."
        ),
        options=OPTIONS,
        capabilities=Capabilities(
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="seed, time of the first start, and rows generated of each table",
        ),
        implementation="tidegate.connectors.fake.source:FakeSource",
        check=check,
        refine=refine,
        aliases=("Fake",),
    ),
)
