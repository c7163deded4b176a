"""The transforms on DataFrames, by expressions of Spark. Imported in drivers only.

The engine calls `frame`, and `rejected` for rejected rows.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tidegate.connectors.columns import regex
from tidegate.connectors.columns.json_sql import extraction
from tidegate.connectors.columns.kinds import FilterRowKind, RowKindExtractor, RowMetadata, labels
from tidegate.connectors.columns.moves import ColumnMove
from tidegate.connectors.columns.options import replaced_columns
from tidegate.connectors.columns.rules import ColumnTest
from tidegate.connectors.columns.step import ColumnsTransform
from tidegate.connectors.columns.tables import TableFilter
from tidegate.connectors.columns.texts import RegexExtract, Replace, SplitText
from tidegate.connectors.columns.values import DataValidator, FieldEncrypt, JsonPath
from tidegate.model.types import ROW_KIND, RowKind, Table, TypeName
from tidegate.plugin.javaregex import parsed
from tidegate.plugin.option import Values
from tidegate.plugin.spark_sql import sql_name

_EMAIL = r"[A-Za-z0-9_+&*-]+(?:\.[A-Za-z0-9_+&*-]+)*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}"


def frame(transform: ColumnsTransform, table: Table, df: DataFrame) -> DataFrame:
    """Apply the rules for a table in order."""
    for values, before in transform.steps(table):
        after = transform.output_table(values, before)
        df = next(apply for kind, apply in _FRAMES if isinstance(transform, kind))(
            transform, values, before, df
        )
        df = df.select(
            *(named(n) for n in ([*after.names(), ROW_KIND] if after.kinds else after.names()))
        )
    return df


def named(name: str) -> Column:
    """A column by its name, which may contain dots and quotes."""
    return f.col(sql_name(name))


def _moved(transform: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    columns = [named(old).alias(new) for new, old in transform.moves(values, table)]
    return df.select(*columns, named(ROW_KIND)) if table.kinds else df.select(*columns)


def _kind_label(table: Table, names: list[str]) -> Column:
    if not table.kinds:
        return f.lit(names[RowKind.INSERT.code])
    return f.get(f.array(*map(f.lit, names)), named(ROW_KIND).cast("int"))


def _filtered_kinds(transform: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    kept = transform.kept(values)
    if not table.kinds:
        return df if RowKind.INSERT.code in kept else df.where(f.lit(False))
    return df.where(named(ROW_KIND).isin(kept))


def _extracted_kinds(_: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    return df.withColumn(
        values["custom_field_name"], _kind_label(table, labels(values["transform_type"] == "FULL"))
    )


def _metadata(transform: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    for name, key in transform.fields(values).items():
        label = (
            _kind_label(table, labels(full=False))
            if key == "RowKind"
            else f.lit(transform.constant(key, table)).cast("string")
        )
        df = df.withColumn(name, label)
    return df


def _filtered_tables(transform: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    return df if transform.passes(values, table) else df.where(f.lit(False))


def _replaced(_: Any, values: Values, __: Table, df: DataFrame) -> DataFrame:
    return df.withColumns(
        {column: _replaced_text(values, named(column)) for column in replaced_columns(values)}
    )


def _replaced_text(values: Values, text: Column) -> Column:
    pattern, new = values["pattern"], values["replacement"]
    if values["is_regex"] and values["replace_first"]:
        pattern, new = regex.first_only(pattern, new)
    if values["is_regex"]:
        return f.regexp_replace(text, pattern, new)
    if pattern == "":  # between all characters, as Java has it
        return f.regexp_replace(text, "", new.replace("\\", "\\\\").replace("$", "\\$"))
    return f.replace(text, f.lit(pattern), f.lit(new))


def _split(_: Any, values: Values, __: Table, df: DataFrame) -> DataFrame:
    names = [str(n) for n in values["output_fields"]]
    parts = f.split(named(values["split_field"]).cast("string"), values["separator"], len(names))
    return df.withColumns({name: f.get(parts, f.lit(index)) for index, name in enumerate(names)})


def _extracted(_: Any, values: Values, __: Table, df: DataFrame) -> DataFrame:
    source, pattern = named(values["source_field"]).cast("string"), values["regex_pattern"]
    defaults = values["default_values"] or [None] * len(values["output_fields"])
    found = f.coalesce(source.rlike(pattern), f.lit(False))
    return df.withColumns(
        {
            str(name): (
                f.when(found, f.regexp_extract(source, pattern, index + 1)).otherwise(
                    f.lit(None if default is None else str(default)).cast("string")
                )
            )
            for index, (name, default) in enumerate(
                zip(values["output_fields"], defaults, strict=True)
            )
        }
    )


def _json(transform: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    default_mode = "SKIP_ROW" if values["row_error_handle_way"] == "SKIP" else "FAIL"
    made: dict[str, Column] = {}
    kept = f.lit(True)
    for column in transform.columns(values):
        extracted = extraction(column, table)
        value, mode = f.expr(extracted.value), column.on_error or default_mode
        if mode == "FAIL":
            message = (
                f"JsonPath: the value at {column.path} of field {column.source} is missing or does"
                f" not fit {column.type}"
            )
            value = f.when(f.expr(extracted.fault), f.raise_error(f.lit(message))).otherwise(value)
        elif mode == "SKIP_ROW":
            kept = kept & ~f.expr(extracted.fault)
        made[column.name] = value
    return df.where(kept).withColumns(made)


def _validated(transform: Any, values: Values, table: Table, df: DataFrame) -> DataFrame:
    rules = _tests(transform, values, table)
    if values["row_error_handle_way"] != "FAIL":
        return reduce(lambda kept, rule: kept.where(rule[1]), rules, df)
    for rule, passes in rules:
        df = df.where(
            f.when(passes, f.lit(True)).otherwise(
                f.raise_error(f.lit(rule.message)).cast("boolean")
            )
        )
    return df


def _tests(transform: Any, values: Values, table: Table) -> list[tuple[ColumnTest, Column]]:
    return [
        (rule, f.coalesce(_passes(rule, table), f.lit(True))) for rule in transform.rules(values)
    ]


def rejected(transform: DataValidator, table: Table, df: DataFrame) -> DataFrame:
    """The rows that do not pass, as rows of the error table.

    With several rules for a table, each receives the rows that passed the previous ones.
    """
    frames = []
    for values, before in transform.steps(table):
        if values["row_error_handle_way"] == "ROUTE_TO_TABLE":
            frames.append(_as_errors(_tests(transform, values, before), before, df))
        df = _validated(transform, values, before, df)
    return reduce(DataFrame.union, frames)


def _as_errors(tests: list[tuple[ColumnTest, Column]], table: Table, df: DataFrame) -> DataFrame:
    broken = [
        f.when(
            ~passes,
            f.struct(f.lit(r.name).alias("field_name"), f.lit(r.message).alias("error_message")),
        )
        for r, passes in tests
    ]
    row = f.struct(*(_json_value(table, name) for name in table.names()))
    keep_nulls = {"ignoreNullFields": "false"}
    passed = reduce(lambda a, b: a & b, (passes for _, passes in tests), f.lit(True))
    return df.where(~passed).select(
        f.lit(table.path).alias("source_table_id"),
        f.lit(table.path).alias("source_table_path"),
        f.to_json(row, keep_nulls).alias("original_data"),
        f.to_json(f.array_compact(f.array(*broken))).alias("validation_errors"),
        f.localtimestamp().alias("create_time"),
    )


def _json_value(table: Table, name: str) -> Column:
    """A column as JSON; a time of day becomes text, because JSON has no such type."""
    kind = next(c.type.name for c in table.columns if c.name == name)
    return named(name).cast("string").alias(name) if kind is TypeName.TIME else named(name)


def _passes(rule: ColumnTest, table: Table) -> Column:
    column, settings = named(rule.name), rule.settings
    match rule.type:
        case "NOT_NULL":
            return column.isNotNull()
        case "RANGE":
            return _between(
                column,
                settings.get("min_value"),
                settings.get("max_value"),
                rule.flag("min_inclusive"),
                rule.flag("max_inclusive"),
            )
        case "LENGTH":
            listed = next(c.type.name for c in table.columns if c.name == rule.name) in (
                TypeName.ARRAY,
                TypeName.MAP,
            )
            length = f.size(column) if listed else f.length(column)
            exact = settings.get("exact_length")
            sized = (
                _between(length, settings.get("min_length"), settings.get("max_length"), True, True)
                if exact is None
                else length == int(exact)
            )
            return f.when(column.isNotNull(), sized)
        case "REGEX":
            flags = "" if rule.flag("case_sensitive") else "(?iu)"
            return column.cast("string").rlike(
                rf"\A{flags}{parsed(str(settings['pattern'])).embedded()}\z"
            )
        case _:
            return column.cast("string").rlike(rf"\A(?:{_EMAIL})\z") & (
                f.length(column.cast("string")) <= 320
            )


def _between(value: Column, low: Any, high: Any, low_in: bool, high_in: bool) -> Column:
    conditions = [f.lit(True)]
    if low is not None:
        conditions.append(value >= float(low) if low_in else value > float(low))
    if high is not None:
        conditions.append(value <= float(high) if high_in else value < float(high))
    return reduce(lambda a, b: a & b, conditions)


def _encrypted(_: Any, values: Values, __: Table, df: DataFrame) -> DataFrame:
    key = f.unbase64(f.lit(values["key"].removeprefix("base64:")))
    cbc, pkcs = f.lit("CBC"), f.lit("PKCS")
    for name in map(str, values["fields"]):
        if values["mode"] == "ENCRYPT":
            df = df.withColumn(name, f.base64(f.aes_encrypt(named(name), key, cbc, pkcs)))
        else:
            df = df.withColumn(
                name, f.aes_decrypt(f.unbase64(named(name)), key, cbc, pkcs).cast("string")
            )
    return df


Apply = Callable[[Any, Values, Table, DataFrame], DataFrame]
_FRAMES: tuple[tuple[type[ColumnsTransform], Apply], ...] = (
    (ColumnMove, _moved),
    (FilterRowKind, _filtered_kinds),
    (RowKindExtractor, _extracted_kinds),
    (RowMetadata, _metadata),
    (TableFilter, _filtered_tables),
    (Replace, _replaced),
    (SplitText, _split),
    (RegexExtract, _extracted),
    (JsonPath, _json),
    (DataValidator, _validated),
    (FieldEncrypt, _encrypted),
)
