"""The statements that bring staged rows into a target, from its columns and key. Pure; called by committer.py, which runs them in its one transaction.

Of each key the last row of the batch counts (`seq` is the source's order): one that inserts or is the later half of an update puts its values there, one that
deletes or is the earlier half takes the key away. So a changed key is followed: its old value goes, its new one comes.
"""

from dataclasses import dataclass

from tidegate.connectors.jdbc.stage import stage_type
from tidegate.connectors.jdbc.target import Target
from tidegate.databases.catalogue import NativeColumn, TableInfo, TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.postgres_dialect import plain
from tidegate.databases.url import System
from tidegate.model.errors import UserError
from tidegate.model.types import Column, RowKind

_PUTS = f"({RowKind.INSERT.code}, {RowKind.UPDATE_AFTER.code})"
_TAKES = f"({RowKind.UPDATE_BEFORE.code}, {RowKind.DELETE.code})"
_TEXTS = ("text", "character varying", "character", "bpchar")


class ColumnMissing(UserError):
    """The target lacks a column of the incoming table."""

    condition = "column-missing"

    def __init__(self, table: str, columns: list[str]) -> None:
        super().__init__(f"the table {table} of the sink has no column {', '.join(columns)}: add it there, or leave it out with a Filter or FieldMapper")
        self.table, self.columns = table, columns


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """One staging table into one target. `inserts` tells that none of its rows updates or deletes, though the incoming table could have such."""

    dialect: Dialect
    target: Target
    info: TableInfo
    stage: TableName
    upsert: bool
    inserts: bool = False
    shaped: bool = False
    """Whether the staging table has the target's shape (adopt.py): its names, and neither numbers nor kinds; its rows lie in their order."""

    def statements(self, *, distinct: bool) -> list[str]:
        """In this order. `distinct`: the same key may be there twice, and the database would mind (PostgreSQL does)."""
        if not self.target.key:
            return [self._insert(last=False)]
        if self.target.kinds and not (self.inserts and self._by_index):
            return [self._delete(_TAKES if self._by_index else "", last=True), self._insert(last=True)]
        if not self.upsert:
            return [self._insert(last=False)]
        return [self._insert(last=distinct)] if self._by_index else [self._delete("", last=False), self._insert(last=True)]

    def plain(self) -> list[str]:
        """The same where no key is in the target yet and none is there twice: that costs about half. Empty where rows do
        more than insert; a key that is there is an error."""
        only_inserts = self.inserts or not self.target.kinds
        return [self._insert(last=False, conflict=False)] if self.target.key and only_inserts and self._by_index else []

    @property
    def _by_index(self) -> bool:
        """Whether the database itself can tell that a key is there. Without such an index rows are deleted first: the result is the same."""
        key = {column.name for column in self._native(self.target.key)}
        return self.upsert and key in ({*self.info.primary_key}, {*self.info.unique_key})

    def _native(self, names: tuple[str, ...] | list[str]) -> list[NativeColumn]:
        found = [(name, self.info.column(name)) for name in names]
        if missing := [name for name, column in found if column is None]:
            raise ColumnMissing(self.info.name.path, missing)
        return [column for _, column in found if column is not None]

    def _insert(self, *, last: bool, conflict: bool = True) -> str:
        """Rows that put something; with what is to be done where their key is there."""
        natives = self._native(self.target.names())
        columns = self.dialect.names([native.name for native in natives])
        values = ", ".join(self._value(number, native) for number, native in enumerate(natives))
        kinds = f"s.kind in {_PUTS}" if self.target.kinds else "true"
        text = f"insert into {self.dialect.qualified(self.info.name)} ({columns}) select {values} from {self._rows(last=last)} where {kinds}"
        if self.dialect.system is not System.POSTGRES:  # which takes a key once in a statement, so that there is nothing to be in order
            text += " order by s.seq"
        return f"{text} {self._conflict()}" if conflict and self.target.key and self._by_index else text

    def _rows(self, *, last: bool) -> str:
        """The staged rows; only the last of each key where that is wanted."""
        stage = self.dialect.qualified(self.stage)
        if not last:
            return f"{stage} s"
        keys = ", ".join(self._staged(number) for number in self.target.positions(self.target.key))
        if self.shaped:
            return f"(select distinct on ({keys}) * from {stage} order by {keys}, ctid desc) s"
        return f"{stage} s join (select max(seq) as last from {stage} group by {keys}) l on s.seq = l.last"

    def _conflict(self) -> str:
        key = [native.name for native in self._native(self.target.key)]
        others = [native.name for native in self._native(self.target.names()) if native.name not in key]
        quote = self.dialect.quote
        if self.dialect.system is System.MYSQL:
            return "on duplicate key update " + ", ".join(f"{quote(name)} = values({quote(name)})" for name in others or key[:1])
        if not others:
            return f"on conflict ({self.dialect.names(key)}) do nothing"
        return f"on conflict ({self.dialect.names(key)}) do update set " + ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)

    def _delete(self, kinds: str, *, last: bool) -> str:
        """The keys of staged rows go; only of those with these kinds, where some are given."""
        table, rows = self.dialect.qualified(self.info.name), self._rows(last=last)
        natives, numbers = self._native(self.target.key), self.target.positions(self.target.key)
        chosen = f"s.kind in {kinds}" if kinds else "true"
        pairs = " and ".join(f"t.{self.dialect.quote(native.name)} = {self._value(n, native)}" for n, native in zip(numbers, natives, strict=True))
        match self.dialect.system:
            case System.MYSQL:
                return f"delete t from {table} t join ({rows}) on {pairs} where {chosen}"
            case System.POSTGRES:
                return f"delete from {table} t using {rows} where {pairs} and {chosen}"
            case System.SQLITE:
                names = self.dialect.names([native.name for native in natives])
                return f"delete from {table} where ({names}) in (select {', '.join(f'c{n}' for n in numbers)} from {rows} where {chosen})"

    def _staged(self, number: int) -> str:
        """The name of a staged column."""
        return self.dialect.quote(self.target.columns[number].name) if self.shaped else f"c{number}"

    def _value(self, number: int, native: NativeColumn) -> str:
        """A staged column as a value of a target's column."""
        column: Column = self.target.columns[number]
        name = f"s.{self._staged(number)}"
        match self.dialect.system:
            case System.POSTGRES:
                return _postgres_value(name, plain(stage_type(column.type, self.dialect)), native.native)
            case System.MYSQL if native.charset and native.collation and stage_type(column.type, self.dialect).startswith("longtext"):
                return f"convert({name} using {native.charset}) collate {native.collation}"
            case _:
                return name


def _postgres_value(name: str, staged: str, native: str) -> str:
    """A cast where PostgreSQL would not make one by itself; never one that cuts or rounds in silence."""
    base = plain(native)
    aliases = {"timestamp": "timestamp without time zone", "time": "time without time zone"}
    if aliases.get(staged, staged) == base or (staged in _TEXTS and base in _TEXTS):
        return name
    if base in _TEXTS:
        return f"{name}::text"
    return f"cast({name} as {native if staged == 'text' or base in ('bit', 'bit varying') else base})"
