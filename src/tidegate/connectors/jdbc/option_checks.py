"""Checks of Jdbc blocks that span options: addresses, patterns, combinations.

Called by options.py; reports all problems at once, without network access.
"""

import re
from collections.abc import Iterator, Mapping

from tidegate.connectors.jdbc.jvm_sql import Brand
from tidegate.connectors.jdbc.sink_query import parse_parameters
from tidegate.connectors.jdbc.source_options import TABLE_OPTIONS
from tidegate.databases.url import has_native_dialect, parse_url, url_without_secrets
from tidegate.model.problem import Problem, Severity
from tidegate.plugin.javaregex import name_pattern_error
from tidegate.plugin.option import Block, Values
from tidegate.plugin.placeholders import has_placeholder

_JARS = 'driver = "its.class.Name" and its jar in env { jars = "/path/driver.jar" }'

_NOT_READ_BY_SPARK = {"use_regex": "name the tables in table_list"}
_WITHOUT_EXACTLY_ONCE = {
    "is_exactly_once": (
        "the guarantees of its transactions are not known, so delivery is at least once"
    ),
}


def check_source(block: Block, values: Values) -> Iterator[Problem]:
    """Yield the problems of a source block and of every entry of its table_list."""
    yield from _check_url(block, values, _NOT_READ_BY_SPARK)
    listed = values["table_list"]
    if listed is None:
        yield from _check_table(block, values)
    elif values["query"] or values["table_path"]:
        yield block.problem(
            ("table_list",), "table_list replaces query and table_path: remove them"
        )
    condition = values["where_condition"]
    if condition and not re.match(r"\s*where\s", condition, re.IGNORECASE):
        yield block.problem(
            ("where_condition",), "where_condition must begin with `where`: `where id > 100`"
        )
    seen: set[str] = set()
    for index, raw in enumerate(listed or ()):
        yield from _check_entry(block, index, raw, seen)


def _check_entry(block: Block, index: int, raw: object, seen: set[str]) -> Iterator[Problem]:
    place = ("table_list", index)
    if not isinstance(raw, Mapping):
        yield block.problem(place, "an entry of table_list must be a block { table_path = ... }")
        return
    inner = block.inside(place, raw)
    values, problems = TABLE_OPTIONS.read(inner)
    yield from problems
    yield from _check_table(inner, values)
    path = values["table_path"]
    if path in seen:
        yield inner.problem(("table_path",), f"the table {path!r} is listed twice")
    if not path:
        yield inner.problem((), "table_path is missing: each entry of table_list needs a name")
    seen |= {path} if path else set()


def _check_table(block: Block, values: Values) -> Iterator[Problem]:
    if not values["query"] and not values["table_path"]:
        yield block.problem((), "what to read is missing: query, table_path or table_list")
    if values["use_regex"]:
        if values["query"]:
            yield block.problem(("use_regex",), "use_regex cannot be combined with query")
        wrong = name_pattern_error(values["table_path"] or "")
        if wrong:
            yield block.problem(("table_path",), wrong)
    for key in ("partition_lower_bound", "partition_upper_bound", "partition_num"):
        if values[key] is not None and not values["partition_column"]:
            yield block.problem((key,), f"{key} needs partition_column too")


def check_sink(block: Block, values: Values) -> Iterator[Problem]:
    """Yield the problems of a sink block."""
    yield from _check_url(
        block,
        values,
        {} if Brand.of(values["url"] or "").has_known_transactions else _WITHOUT_EXACTLY_ONCE,
    )
    generated = values["generate_sink_sql"] or values["table"] is not None
    if values["query"] and generated:
        message = "query is run for every row: generate_sink_sql and table have no effect with it"
        yield block.problem(("query",), message, severity=Severity.WARNING)
    if not values["query"] and not generated:
        yield block.problem(
            (), "what to write is missing: generate_sink_sql = true (with table), or query"
        )
    names = parse_parameters(values["query"])[1] if values["query"] else (None,)
    if not names:
        yield block.problem(
            ("query",),
            "query has no ? and no :name for the values of a row: write for example insert into"
            " t (a, b) values (?, ?)",
        )
    elif any(names) and None in names:
        yield block.problem(("query",), "query has both ? and :name parameters: use only one kind")
    if values["data_save_mode"] == "CUSTOM_PROCESSING" and not values["custom_sql"]:
        yield block.problem(
            (), "custom_sql is missing: data_save_mode = CUSTOM_PROCESSING requires it"
        )
    if (
        values["url"]
        and has_native_dialect(values["url"])
        and generated
        and not values["query"]
        and not has_placeholder(f"{values['database']} {values['table']}")
    ):
        yield from _check_database(block, values)


def _check_database(block: Block, values: Values) -> Iterator[Problem]:
    """Check `database` of PostgreSQL: a connection sees one database only."""
    try:
        address = parse_url(values["url"])
    except ValueError:
        return  # reported elsewhere
    wanted = values["database"]
    if (
        address.system.value == "postgresql"
        and wanted
        and address.database
        and wanted != address.database
    ):
        yield block.problem(
            ("database",),
            f"the URL names the database {address.database!r}, and a connection to PostgreSQL sees"
            " only one database",
        )


def _check_url(block: Block, values: Values, not_by_spark: Mapping[str, str]) -> Iterator[Problem]:
    url = values["url"]
    if not url:
        return  # reported elsewhere
    if not has_native_dialect(url):
        yield from _check_jvm(block, values, not_by_spark)
        return
    try:
        parse_url(url)
    except ValueError as error:
        yield block.problem(("url",), str(error))


def _check_jvm(block: Block, values: Values, not_by_spark: Mapping[str, str]) -> Iterator[Problem]:
    """Check a database that is accessed through Spark's JDBC: driver, unsupported options."""
    name = url_without_secrets(values["url"]).removeprefix("jdbc:").partition(":")[0]
    if not values["url"].strip().startswith("jdbc:"):
        yield block.problem(
            ("url",),
            f"{name!r} is not a JDBC URL: write jdbc:mysql://host:3306/database, or a jdbc: URL for"
            " the driver of your database",
        )
    elif not values["driver"]:
        yield block.problem(
            (),
            f"{name} is accessed through Spark's JDBC, which needs its driver: {_JARS}; mysql,"
            " mariadb, postgresql and sqlite need none",
        )
    for key, why in not_by_spark.items():
        if values[key]:
            yield block.problem(
                (key,),
                f"{key} is not supported for {name}, which is accessed through Spark's JDBC: {why}",
            )
