"""Resolves the tables that a Jdbc source reads, with columns and keys, once in each driver.

Called by source.py; the result is sent to the tasks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.connectors.jdbc.chunk_position import Nulls
from tidegate.connectors.jdbc.source_options import TABLE_OPTIONS
from tidegate.databases.catalog import SOURCE_TYPES, NativeColumn, TableInfo, TableName
from tidegate.databases.chunks import Bound, range_condition, splittable
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import TableMissing
from tidegate.databases.session import Session
from tidegate.databases.targets.rules import rules_of
from tidegate.model.errors import UserError
from tidegate.model.problem import Location, closest_match
from tidegate.model.types import Column, DataType, Table
from tidegate.plugin.javaregex import compile_for_names
from tidegate.plugin.option import Block, Values
from tidegate.plugin.schema import DEFAULT_TABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRead:
    """One table or query: what to select, and the column to split by.

    `name` is the table whose statistics have the size, if it is a table.
    """

    table: Table
    relation: str
    columns: tuple[NativeColumn, ...]
    split_column: str = ""
    name: TableName | None = None
    filter: str = ""
    options: Values = field(default_factory=dict)

    def types(self) -> list[tuple[str, DataType]]:
        """Names and types in order."""
        return [(column.name, column.type) for column in self.table.columns]

    def split_type(self) -> DataType:
        """The type of the split column."""
        return next(
            column.type for column in self.table.columns if column.name == self.split_column
        )

    def native_column(self, column: str) -> NativeColumn:
        """Find a column's database definition."""
        return next(native for native in self.columns if native.name == column)

    def select(
        self, dialect: Dialect, column: str, low: Bound, high: Bound, nulls: str = Nulls.ALSO
    ) -> str:
        """The statement that reads the rows of one range."""
        key = dialect.key_expression(self.native_column(column)) if column else ""
        chosen = (
            ""
            if not column
            else (
                f"{key} is null"
                if nulls == Nulls.ONLY
                else range_condition(dialect, key, low, high, nulls=nulls == Nulls.ALSO)
            )
        )
        where = " and ".join(part for part in (chosen, self.filter) if part)
        expressions = ", ".join(
            f"{dialect.expression(native, ours.type)} as {dialect.quote(native.name)}"
            for native, ours in zip(self.columns, self.table.columns, strict=True)
        )
        return f"select {expressions} from {self.relation}" + (f" where {where}" if where else "")


def resolve_tables(session: Session, dialect: Dialect, values: Values) -> tuple[TableRead, ...]:
    """Resolve all tables and queries of a source's options."""
    reads: list[TableRead] = []
    for entry in table_entries(values):
        reads += (
            _tables_matching(session, dialect, values, entry)
            if entry["use_regex"]
            else [_table_or_query(session, dialect, values, entry)]
        )
    taken: set[str] = set()
    for read in reads:
        if read.table.path in taken:
            raise UserError(
                f"the table {read.table.path} is listed twice: remove one of them from table_list"
            )
        taken.add(read.table.path)
    return tuple(reads)


def table_entries(values: Values) -> Iterator[Values]:
    """The options of each table: the entries of table_list, else those of the block."""
    for raw in values["table_list"] or [None]:
        if isinstance(raw, Mapping):
            yield TABLE_OPTIONS.read(Block(raw, lambda _: Location(""), ""))[0]
        else:
            yield {option.key: values[option.key] for option in TABLE_OPTIONS.options}


def _tables_matching(
    session: Session, dialect: Dialect, values: Values, entry: Values
) -> list[TableRead]:
    pattern = compile_for_names(entry["table_path"])
    schema = dialect.parse_table("any", session.address).schema if session.address.database else ""
    rules = rules_of(session.address.system)
    matching = [
        name
        for name in dialect.tables(session, session.address.database)
        if _matches(pattern, name, schema)
    ]
    found = [name for name in matching if not rules.relation_kind(session, name)]
    if not found:
        only = (
            f" (only what is no table: {', '.join(name.path for name in matching[:10])})"
            if matching
            else ""
        )
        raise TableMissing(str(session.address), entry["table_path"] + only)
    return [_table(session, dialect, values, entry, name) for name in found]


def _matches(pattern: re.Pattern[str], name: TableName, schema: str) -> bool:
    """Match the whole name; tables of the default schema also by their name alone."""
    within = f"{name.schema}.{name.table}" if name.schema else name.table
    short_names = [name.table] if name.schema in ("", schema) else []
    return any(pattern.fullmatch(text) for text in (name.path, within, *short_names))


def _table_or_query(session: Session, dialect: Dialect, values: Values, entry: Values) -> TableRead:
    name = None
    if entry["table_path"]:
        try:
            name = dialect.parse_table(entry["table_path"], session.address)
        except ValueError as error:
            if not entry["query"]:
                raise UserError(f"table_path: {error}") from None
    if not entry["query"]:
        assert name is not None, "the option check requires a table or a query"
        return _table(session, dialect, values, entry, name)
    query = entry["query"].strip().rstrip(";")
    columns = dialect.query_columns(session, query)
    info = dialect.table_info(session, name) if name is not None else None
    names = {column.name for column in columns}
    keys = info.primary_key if info and set(info.primary_key) <= names else ()
    described = TableInfo(
        name=TableName("", "", entry["table_path"] or DEFAULT_TABLE),
        columns=tuple(columns),
        primary_key=keys,
    )
    return _read(dialect, values, entry, described, f"({query}) tidegate_query", None)


def _table(
    session: Session, dialect: Dialect, values: Values, entry: Values, name: TableName
) -> TableRead:
    info = dialect.table_info(session, name)
    if info is None:
        existing = [other.path for other in dialect.tables(session, name.database)]
        raise TableMissing(str(session.address), name.path, closest_match(name.path, existing))
    if rules_of(session.address.system).relation_kind(session, name) == "sequence":
        raise UserError(f"{name} is a sequence without rows to copy: name a table or a view")
    return _read(dialect, values, entry, info, dialect.qualified(name), name)


def _read(
    dialect: Dialect,
    values: Values,
    entry: Values,
    info: TableInfo,
    relation: str,
    name: TableName | None,
) -> TableRead:
    columns = tuple(_narrowed(column, values) for column in info.columns)
    table = info.as_table({column.name: dialect.data_type(column) for column in columns})
    if name is None:
        # The name of a query is a path already.
        table = replace(table, options={SOURCE_TYPES: table.options[SOURCE_TYPES]})
    splits = _split_column(table.columns, info, entry)
    return TableRead(
        table=table,
        relation=relation,
        columns=columns,
        split_column=splits,
        name=name,
        filter=_filter(dialect, values, entry),
        options=entry,
    )


def _narrowed(column: NativeColumn, values: Values) -> NativeColumn:
    number = column.native.lower().startswith("tinyint(1)") and not values["int_type_narrowing"]
    return replace(column, native="tinyint(4)") if number else column


def _split_column(columns: Sequence[Column], info: TableInfo, entry: Values) -> str:
    wanted = entry["partition_column"]
    if wanted:
        found = info.column(wanted)
        if found is None:
            raise UserError(
                f"partition_column {wanted!r} is not a column of {info.name}: there are"
                f" {', '.join(c.name for c in info.columns)}"
            )
        return found.name
    types = {column.name: column.type for column in columns}
    for key in (info.primary_key, info.unique_key):
        if key and splittable(types[key[0]]):
            return key[0]
    return ""


def strip_where(text: str) -> str:
    """A where_condition without its `where`."""
    return re.sub(r"^\s*where\s", "", text, flags=re.IGNORECASE).strip()


def _filter(dialect: Dialect, values: Values, entry: Values) -> str:
    """SQL condition from where_condition and the bounds of the partition column."""
    parts = []
    if values["where_condition"]:
        parts.append(f"({strip_where(values['where_condition'])})")
    for key, sign in (("partition_lower_bound", ">="), ("partition_upper_bound", "<=")):
        if entry[key] is not None:
            parts.append(
                f"{dialect.quote(entry['partition_column'])} {sign}"
                f" {dialect.number_or_text(entry[key])}"
            )
    return " and ".join(parts)
