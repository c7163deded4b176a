"""Select the tables to read, by names and patterns, and the key of each.

Called by source.py, in the driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.databases.catalog import TableInfo, TableName
from tidegate.databases.cdc.errors import NoKey, NoTables
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import TableMissing
from tidegate.databases.session import Session
from tidegate.model.problem import closest_match
from tidegate.model.types import Table
from tidegate.plugin.javaregex import compile_for_names
from tidegate.plugin.option import Values


@dataclass(frozen=True, kw_only=True, slots=True)
class CdcTable:
    """A table to read: as its database defines it, and as it flows through the pipeline.

    `split` is the column that chunks are split by, if the job file names one.
    """

    info: TableInfo
    table: Table
    split: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSelection:
    """Existing tables, by path, and an error for each missing table of the job file."""

    tables: dict[str, CdcTable]
    missing: dict[str, TableMissing]


def matches_patterns(values: Values, path: str) -> bool:
    """Return whether the patterns of the job file match a table of this path, existing or not."""
    if values.get("table-names") or not compile_for_names(str(values["table-pattern"])).fullmatch(
        path
    ):
        return False
    parts = path.split(".")
    databases, schemas = (
        [str(name) for name in values.get(key) or ()] for key in ("database-names", "schema-names")
    )
    database = (
        parts[0] in databases
        if databases
        else compile_for_names(str(values.get("database-pattern") or ".*")).fullmatch(parts[0])
    )
    return bool(database) and (not schemas or len(parts) < 3 or parts[1] in schemas)


def select(
    session: Session, dialect: Dialect, values: Values, *, generated: bool
) -> TableSelection:
    """Return the tables by path.

    `generated` says whether the log has columns that the database computes.
    """
    names = _chosen(session, dialect, values)
    configs = {
        str(c["table"]): c
        for c in values.get("table-names-config") or ()
        if isinstance(c, Mapping) and "table" in c
    }
    found, missing = {}, {}
    for name in names:
        info = dialect.table_info(session, name)
        if info is None:
            existing = [t.path for t in dialect.tables(session, name.database)]
            missing[name.path] = TableMissing(
                str(session.address), name.path, closest_match(name.path, existing)
            )
            continue
        config = configs.get(name.path, {})
        logged = (
            info
            if generated
            else replace(info, columns=tuple(c for c in info.columns if not c.generated))
        )
        found[name.path] = _cdc_table(
            logged, dialect, config, grows=bool(values["schema-changes.enabled"])
        )
    if not found and missing:
        raise next(iter(missing.values()))
    return TableSelection(tables=found, missing=missing)


def _cdc_table(
    info: TableInfo, dialect: Dialect, config: Mapping[str, Any], *, grows: bool
) -> CdcTable:
    key = (
        tuple(str(c) for c in config.get("primaryKeys") or ())
        or info.primary_key
        or info.unique_key
    )
    if not key:
        raise NoKey(info.name.path)
    types = {c.name: dialect.data_type(c) for c in info.columns}
    unknown = [c for c in key if c not in types]
    if unknown:
        raise NoTables(
            f"table-names-config names the columns {', '.join(unknown)} as primaryKeys of"
            f" {info.name.path}, which has {', '.join(types)}"
        )
    # Sinks that can add columns to their table read this option.
    table = info.as_table(types, kinds=True)
    table = replace(
        table,
        primary_key=key,
        options={**table.options, "schema-changes.enabled": True} if grows else table.options,
    )
    split = config.get("snapshotSplitColumn")
    return CdcTable(info=info, table=table, split=None if split is None else str(split))


def chosen_databases(session: Session, dialect: Dialect, values: Values) -> set[str]:
    """Return the databases that tables are read from."""
    return {name.database for name in _chosen(session, dialect, values)}


def _chosen(session: Session, dialect: Dialect, values: Values) -> list[TableName]:
    databases = [str(name) for name in values.get("database-names") or ()]
    if values.get("table-names"):
        return [_named(session, dialect, str(text)) for text in values["table-names"]]
    pattern = compile_for_names(str(values["table-pattern"]))
    database_pattern = compile_for_names(str(values.get("database-pattern") or ".*"))
    schemas = [str(name) for name in values.get("schema-names") or ()]
    found = [
        name
        for name in dialect.tables(session)
        if pattern.fullmatch(name.path)
        and (name.database in databases if databases else database_pattern.fullmatch(name.database))
        and (not schemas or name.schema in schemas)
        and _is_table(session, name)
    ]
    if not found:
        raise NoTables(
            f"no table of {session.address} matches table-pattern = "
            f"{values['table-pattern']!r}; the pattern must match the whole path, such as "
            "shop.orders"
        )
    return found


def _named(session: Session, dialect: Dialect, text: str) -> TableName:
    try:
        return dialect.parse_table(text, session.address)
    except ValueError as error:
        raise NoTables(f"table-names: {error}") from None


def _is_table(session: Session, name: TableName) -> bool:
    """Return whether it is a base table; views are not in the log."""
    kind = session.scalar(
        "select table_type from information_schema.tables where table_schema = %s and table_name"
        " = %s",
        (name.schema or name.database, name.table),
    )
    return str(kind) == "BASE TABLE"
