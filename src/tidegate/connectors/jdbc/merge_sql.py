"""Statements that merge staged rows into a target, from its columns and key.

Pure; committer.py runs them in its one transaction. The last row of the batch decides for each key
(`seq` is the source's order): an insert or update-after writes its values, a delete or
update-before removes the key. So a changed key is applied as well: its old value is removed and its
new value inserted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.connectors.jdbc.staging import stage_type
from tidegate.connectors.jdbc.target import JdbcTarget
from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.postgres.dialect import base_type
from tidegate.databases.targets.rules import TargetTable
from tidegate.databases.url import System
from tidegate.model.errors import UserError
from tidegate.model.types import Column, RowKind

_PUTS = f"({RowKind.INSERT.code}, {RowKind.UPDATE_AFTER.code})"
_REMOVES = f"({RowKind.UPDATE_BEFORE.code}, {RowKind.DELETE.code})"
_WIDER_TYPES = {"date": "timestamp without time zone", "bit": "bit varying"}
"""PostgreSQL types to which casts truncate, and the wider type that keeps the value."""
_TEXTS = ("text", "character varying", "character", "bpchar")


class ColumnMissing(UserError):
    """The target lacks a column of the incoming table."""

    condition = "column-missing"

    def __init__(self, table: str, columns: list[str]) -> None:
        super().__init__(
            f"the table {table} of the sink has no column {', '.join(columns)}: add it to the"
            " table, or remove it with a Filter or FieldMapper"
        )
        self.table = table
        self.columns = columns


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """A statement of a merge.

    `counts`: each written row counts once in its affected rows; `doubled`: an updated row may count
    twice.
    """

    text: str
    counts: bool = False
    doubled: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeSql:
    """Statements that merge one staging table into one target.

    `only_inserts`: none of its rows updates or deletes, though the incoming table may have such
    rows.
    """

    dialect: Dialect
    target: JdbcTarget
    relation: TargetTable
    stage: TableName
    upsert: bool
    only_inserts: bool = False
    lossy: bool = False
    """Whether values may be rounded or cut: allow_lossy_types."""
    number: int = 0
    """Number of the staging table among those of its target."""
    shaped: bool = False
    """Whether the staging table has the target's columns (promotion.py).

    It has neither sequence numbers nor row kinds; its physical order is that of the rows.
    """

    @property
    def table_info(self) -> TableInfo:
        return self.relation.info

    @property
    def puts_last_of_key(self) -> bool:
        """Whether `statements(distinct=False)` writes only the last row of each key."""
        if not self.target.key:
            return False
        return (
            (self.target.kinds and not (self.only_inserts and self._by_index))
            or (self.upsert and not self._by_index)
            or self._by_update
        )

    def statements(self, *, distinct: bool) -> list[MergeStatement]:
        """The statements, in order.

        `distinct`: keys may repeat, which the database rejects in one statement (PostgreSQL).
        """
        if not self.target.key:
            return [self._put(last=False)]
        if self.target.kinds and not (self.only_inserts and self._by_index):
            return [
                MergeStatement(self._delete(_REMOVES if self._by_index else "", last=True)),
                *self._puts(),
            ]
        if not self.upsert:
            return [self._put(last=False)]
        if not self._by_index:
            return [MergeStatement(self._delete("", last=False)), self._put(last=True)]
        return self._puts() if self._by_update else [self._put(last=distinct)]

    def plain_insert(self) -> list[MergeStatement]:
        """A plain insert, at about half the cost, if no key exists and none repeats.

        Empty if rows do more than insert; an existing key is an error.
        """
        only_inserts = self.only_inserts or not self.target.kinds
        plain = self.target.key and only_inserts and self._by_index
        return (
            [MergeStatement(self._insert(last=False, conflict=False), counts=True)] if plain else []
        )

    def replace_statements(self) -> list[MergeStatement]:
        """Delete all keys of the batch, then insert its rows, so that they cannot collide.

        Columns that only the target has keep their values.
        """
        own = {column.name for column in self._native_columns(self.target.names())}
        extra = [
            column.name
            for column in self.table_info.columns
            if column.name not in own and not column.generated
        ]
        delete = MergeStatement(self._delete("", last=False))
        if not extra:
            return [delete, MergeStatement(self._insert(last=True, conflict=False), counts=True)]
        key = [column.name for column in self._native_columns(self.target.key)]
        columns = self.dialect.names([*key, *extra])
        keep = (
            f"create temporary table {self._kept_columns_table} as select {columns} from"
            f" {self._staged_rows_of_target()}"
        )
        return [
            MergeStatement(
                f"drop table if exists {self._kept_columns_table}"
                if self.dialect.system is not System.MYSQL
                else f"drop temporary table if exists {self._kept_columns_table}"
            ),
            MergeStatement(keep),
            delete,
            MergeStatement(self._insert(last=True, conflict=False, kept=()), counts=True),
            MergeStatement(self._insert(last=True, conflict=False, kept=extra), counts=True),
        ]

    def merged_key_queries(self) -> list[str]:
        """Queries for keys shared by several source rows, in the batch or with the target.

        None if the key contains the source's key, and none for changes, which may move a key from
        one row to another.
        """
        key, source = self.target.key, self.target.source_key
        if self.target.kinds or not key or not source or set(source) <= set(key):
            return []
        columns = ", ".join(
            f"s.{self._staged_name(number)}" for number in self.target.positions(key)
        )
        stage, table = (
            self.dialect.qualified(self.stage),
            self.dialect.qualified(self.table_info.name),
        )
        differs = " or ".join(
            f"t.{self.dialect.quote(native.name)} <> {self._value(n, native)}"
            for n, native in self._columns(source)
        )
        return [
            f"select {columns} from {stage} s group by {columns} having count(*) > 1 limit 1",
            (
                f"select {columns} from {stage} s join {table} t"
                f" on {self._key_matches('t', key)} where"
                f" {differs} limit 1"
            ),
        ]

    def _columns(self, names: tuple[str, ...]) -> list[tuple[int, NativeColumn]]:
        return list(zip(self.target.positions(names), self._native_columns(names), strict=True))

    @property
    def _kept_columns_table(self) -> str:
        """Temporary table for the columns that only the target has, of replaced rows."""
        return f"tidegate_kept_{self.number}"

    def count_puts_query(self) -> str:
        """Query for the number of rows to write, if only the last of each key is written."""
        return f"select count(*) from {self._staged_rows(last=True)} where {self._puts_condition()}"

    @property
    def _by_index(self) -> bool:
        """Whether a unique index lets the database detect existing keys.

        Without it rows are deleted first, with the same result.
        """
        return self.upsert and self.relation.has_unique_index(
            [column.name for column in self._native_columns(self.target.key)]
        )

    @property
    def _by_update(self) -> bool:
        """Whether existing rows must be found by the key alone.

        `on duplicate key` would also match rows by other unique indexes.
        """
        key = [column.name for column in self._native_columns(self.target.key)]
        return (
            self.dialect.system is System.MYSQL
            and self._by_index
            and bool(self.relation.other_indexes(key))
        )

    def _puts(self) -> list[MergeStatement]:
        """Write the last row of each key: update it if the key exists, else insert it."""
        if not self._by_update:
            return [self._put(last=True)]
        absent = self._key_matches("t", self.target.key)
        first = self.dialect.quote(self._native_columns(self.target.key)[0].name)
        table = self.dialect.qualified(self.table_info.name)
        insert = self._insert(
            last=True,
            conflict=False,
            more=f" left join {table} t on {absent}",
            where=f" and t.{first} is null",
        )
        others = [name for name in self.target.names() if name not in self.target.key]
        if not others:
            return [MergeStatement(insert)]
        natives = self._native_columns(others)
        sets = ", ".join(
            f"t.{self.dialect.quote(c.name)} = {self._value(n, c)}"
            for n, c in zip(self.target.positions(tuple(others)), natives, strict=True)
        )
        # After an insert, the update would match the inserted rows.
        update = (
            f"update {table} t join {self._staged_rows(last=True)} on {absent} set {sets} where"
            f" {self._puts_condition()}"
        )
        return [MergeStatement(update, counts=True), MergeStatement(insert, counts=True)]

    def _put(self, *, last: bool) -> MergeStatement:
        conflict = bool(self.target.key) and self._by_index
        nothing = conflict and len(self.target.key) == len(self.target.columns)
        return MergeStatement(
            self._insert(last=last),
            counts=not nothing,
            doubled=conflict and self.dialect.system is System.MYSQL,
        )

    def _puts_condition(self) -> str:
        return f"s.kind in {_PUTS}" if self.target.kinds else "1 = 1"

    def _key_matches(self, table: str, key: tuple[str, ...]) -> str:
        """SQL condition that a row of a table has the key of a staged row."""
        natives, numbers = self._native_columns(key), self.target.positions(key)
        return " and ".join(
            self._column_matches(table, n, native)
            for n, native in zip(numbers, natives, strict=True)
        )

    def _staged_rows_of_target(self) -> str:
        """The target's rows that have a key of the batch."""
        table, pairs = (
            self.dialect.qualified(self.table_info.name),
            self._key_matches("t", self.target.key),
        )
        return (
            f"{table} t where exists (select 1 from {self.dialect.qualified(self.stage)} s where"
            f" {pairs})"
        )

    def _native_columns(self, names: tuple[str, ...] | list[str]) -> list[NativeColumn]:
        found = [(name, self.table_info.column(name)) for name in names]
        if missing := [name for name, column in found if column is None]:
            raise ColumnMissing(self.table_info.name.path, missing)
        return [column for _, column in found if column is not None]

    def _insert(
        self,
        *,
        last: bool,
        conflict: bool = True,
        kept: Sequence[str] | None = None,
        more: str = "",
        where: str = "",
    ) -> str:
        """Insert the rows that write values, with the conflict clause for existing keys.

        `kept`: only rows that had these columns in the target; if empty, only rows that did not
        exist.
        """
        natives = self._native_columns(self.target.names())
        columns = self.dialect.names([*(native.name for native in natives), *(kept or ())])
        values = ", ".join(
            [
                *(self._value(number, native) for number, native in enumerate(natives)),
                *(f"k.{self.dialect.quote(name)}" for name in kept or ()),
            ]
        )
        if kept is not None:
            first = self.dialect.quote(self._native_columns(self.target.key)[0].name)
            more = (
                f" {'join' if kept else 'left join'} {self._kept_columns_table} k on"
                f" {self._key_matches('k', self.target.key)}"
            )
            where = "" if kept else f" and k.{first} is null"
        table = self.dialect.qualified(self.table_info.name)
        text = (
            f"insert into {table} ({columns})"
            f" select {values} from {self._staged_rows(last=last)}{more}"
            f" where {self._puts_condition()}{where}"
        )
        # PostgreSQL accepts a key only once per statement, so that the order does not matter.
        if self.dialect.system is not System.POSTGRES:
            text += " order by s.seq"
        return (
            f"{text} {self._conflict()}"
            if conflict and self.target.key and self._by_index
            else text
        )

    def _staged_rows(self, *, last: bool) -> str:
        """The staged rows; with `last` only the last row of each key."""
        stage = self.dialect.qualified(self.stage)
        if not last:
            return f"{stage} s"
        keys = ", ".join(
            self._staged_name(number) for number in self.target.positions(self.target.key)
        )
        if self.shaped:
            return f"(select distinct on ({keys}) * from {stage} order by {keys}, ctid desc) s"
        return (
            f"{stage} s join (select max(seq) as last from {stage} group by {keys}) l on s.seq ="
            " l.last"
        )

    def _conflict(self) -> str:
        key = [native.name for native in self._native_columns(self.target.key)]
        others = [
            native.name
            for native in self._native_columns(self.target.names())
            if native.name not in key
        ]
        quote = self.dialect.quote
        if self.dialect.system is System.MYSQL:
            return "on duplicate key update " + ", ".join(
                f"{quote(name)} = values({quote(name)})" for name in others or key[:1]
            )
        if not others:
            return f"on conflict ({self.dialect.names(key)}) do nothing"
        return f"on conflict ({self.dialect.names(key)}) do update set " + ", ".join(
            f"{quote(name)} = excluded.{quote(name)}" for name in others
        )

    def _delete(self, kinds: str, *, last: bool) -> str:
        """Delete the keys of staged rows, with `kinds` only of rows of these kinds."""
        table, rows = self.dialect.qualified(self.table_info.name), self._staged_rows(last=last)
        natives, numbers = (
            self._native_columns(self.target.key),
            self.target.positions(self.target.key),
        )
        chosen = f"s.kind in {kinds}" if kinds else "true"
        pairs = self._key_matches("t", self.target.key)
        match self.dialect.system:
            case System.MYSQL:
                return f"delete t from {table} t join ({rows}) on {pairs} where {chosen}"
            case System.POSTGRES:
                return f"delete from {table} t using {rows} where {pairs} and {chosen}"
            case System.SQLITE:
                names = self.dialect.names([native.name for native in natives])
                return (
                    f"delete from {table} where ({names}) in (select"
                    f" {', '.join(f'c{n}' for n in numbers)} from {rows} where {chosen})"
                )

    def _staged_name(self, number: int) -> str:
        """The name of a staged column."""
        return self.dialect.quote(self.target.columns[number].name) if self.shaped else f"c{number}"

    def _value(self, number: int, native: NativeColumn) -> str:
        """SQL expression of a staged column for a target's column."""
        column: Column = self.target.columns[number]
        name = f"s.{self._staged_name(number)}"
        match self.dialect.system:
            case System.POSTGRES:
                return _postgres_value(
                    name,
                    base_type(stage_type(column.type, self.dialect)),
                    native.native,
                    lossy=self.lossy,
                )
            # An explicit conversion would replace unsupported characters by ?; the server's
            # implicit one fails.
            case _:
                return name

    def _column_matches(self, table: str, number: int, native: NativeColumn) -> str:
        """SQL condition that a key column equals the staged value; lets an index be used."""
        mine = f"{table}.{self.dialect.quote(native.name)}"
        text = stage_type(self.target.columns[number].type, self.dialect).startswith("longtext")
        if self.dialect.system is not System.MYSQL or not (
            text and native.charset and native.collation
        ):
            return f"{mine} = {self._value(number, native)}"
        staged = f"s.{self._staged_name(number)}"
        converted = f"convert({staged} using {native.charset})"
        same = f"{mine} = {converted} collate {native.collation}"
        if native.charset == "utf8mb4":
            return same
        # Unsupported characters are converted to ?, which must not match a real ?.
        return (
            f"{same} and cast(convert({converted} using utf8mb4) as binary) = cast({staged} as"
            " binary)"
        )


def _postgres_value(name: str, staged: str, native: str, *, lossy: bool) -> str:
    """Cast where PostgreSQL has no implicit cast.

    The cast never truncates or rounds silently, unless `lossy` allows it.
    """
    base = base_type(native)
    aliases = {"timestamp": "timestamp without time zone", "time": "time without time zone"}
    if aliases.get(staged, staged) == base or (staged in _TEXTS and base in _TEXTS):
        return name
    if base in _TEXTS:
        return f"{name}::text"
    value = (
        f"cast({name} as {native if staged == 'text' or base in ('bit', 'bit varying') else base})"
    )
    wide = _WIDER_TYPES.get(
        base, base if "(" in native and staged == "text" and not native.endswith("[]") else ""
    )
    if lossy or staged != "text" or not wide:
        return value
    fails = (
        f"('a value would be changed by the type {native} of the column: ' ||"
        f" {name})::integer::text::{native}"
    )
    return (
        f"case when {name} is null or cast({name} as {wide}) = {value} then {value} else"
        f" {fails} end"
    )
