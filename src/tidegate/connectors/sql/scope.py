"""Resolves the names in a query, such as `a.b.c`, to columns and fields.

Called by the translation. Without a table (the check before a job runs) every name is accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.types import Typed, name, spark_type, text
from tidegate.model.problem import closest_match
from tidegate.model.types import DataType, Table, TypeName


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The names that are visible in one part of a query.

    `columns` is None if the table is unknown. `bound` are variables of `x -> ...`. `used` collects
    the columns that were resolved, for column pruning.
    """

    columns: Mapping[str, DataType] | None
    tables: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)

    @staticmethod
    def of(table: Table | None, tables: frozenset[str]) -> "Scope":
        """The scope of a query on a table; `tables` are its names within the query."""
        return Scope(
            columns=None if table is None else {c.name: c.type for c in table.columns},
            tables=tables,
        )

    def binding(self, names: list[str]) -> "Scope":
        return replace(self, bound=self.bound | set(names))

    def resolve(self, parts: list[str]) -> Typed:
        """Resolve a dotted name: a column, a column of the table, or a field of a row or map."""
        if parts[0] in self.bound:
            return Typed(".".join(map(name, parts)), None)
        if self.columns is None:
            return Typed(".".join(map(name, parts)), None)
        if len(parts) > 1 and parts[0].lower() in self.tables and not self._has_fields(parts[0]):
            parts = parts[1:]
        whole = ".".join(parts)
        if whole in self.columns:  # the column name itself contains dots
            return self._column(whole)
        first = self._find(parts[0], list(self.columns))
        if first is None and len(parts) > 1:  # qualified by a table name that is not in FROM
            first, parts = self._find(parts[-1], list(self.columns)), parts[-1:]
        if first is None:
            raise SqlError(
                f"there is no column {whole}: there are {', '.join(self.columns)}",
                suggestion=closest_match(parts[0], list(self.columns)),
            )
        value = self._column(first)
        for part in parts[1:]:
            value = _inside(value, part, whole)
        return value

    def _has_fields(self, column: str) -> bool:
        kind = (self.columns or {}).get(column)
        return kind is not None and kind.name in (TypeName.ROW, TypeName.MAP)

    def _column(self, column: str) -> Typed:
        assert self.columns is not None
        self.used.add(column)
        return Typed(name(column), self.columns[column])

    @staticmethod
    def _find(word: str, known: list[str]) -> str | None:
        if word in known:
            return word
        close = [k for k in known if k.lower() == word.lower()]
        return close[0] if len(close) == 1 else None


def _inside(value: Typed, part: str, whole: str) -> Typed:
    kind = value.type
    if kind is not None and kind.name is TypeName.ROW:
        for column in kind.columns:
            if column.name == part:
                return Typed(f"{value.sql}.{name(part)}", column.type)
        raise SqlError(
            f"there is no field {part} in {whole}: there are"
            f" {', '.join(c.name for c in kind.columns)}"
        )
    if kind is not None and kind.name is TypeName.MAP:
        key, item = kind.children
        return Typed(f"try_element_at({value.sql}, CAST({text(part)} AS {spark_type(key)}))", item)
    raise SqlError(f"{whole}: there is no field {part}, because a {kind} has no fields")
