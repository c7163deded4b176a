"""Which columns a query can name, and what `a.b.c` means.

Called by the translation. Without a table (the check before a job runs) every name is believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.connectors.sql.problem import SqlError
from tidegate.connectors.sql.types import Typed, name, spark_type, text
from tidegate.model.problem import nearest
from tidegate.model.types import DataType, Table, TypeName


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The names that hold at one place of a query. `columns` is None where the table is not known;
    `bound` are variables of `x -> ...`; `used` collects the columns that were looked up, for the
    pruning of columns.
    """

    columns: Mapping[str, DataType] | None
    tables: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)

    @staticmethod
    def of(table: Table | None, tables: frozenset[str]) -> "Scope":
        """The scope of a query on a table; `tables` are the names by which the query may call it."""
        return Scope(
            columns=None if table is None else {c.name: c.type for c in table.columns},
            tables=tables,
        )

    def binding(self, names: list[str]) -> "Scope":
        return replace(self, bound=self.bound | set(names))

    def resolve(self, parts: list[str]) -> Typed:
        """A name with dots: a column, a column of the table, or a field in a row or map."""
        if parts[0] in self.bound:
            return Typed(".".join(map(name, parts)), None)
        if self.columns is None:
            return Typed(".".join(map(name, parts)), None)
        if len(parts) > 1 and parts[0].lower() in self.tables and not self._has_fields(parts[0]):
            parts = parts[1:]
        whole = ".".join(parts)
        if whole in self.columns:  # a name that has dots in itself
            return self._column(whole)
        first = self._find(parts[0], list(self.columns))
        if first is None and len(parts) > 1:  # the table under a name that is not the query's
            first, parts = self._find(parts[-1], list(self.columns)), parts[-1:]
        if first is None:
            raise SqlError(
                f"there is no column {whole}: there are {', '.join(self.columns)}",
                suggestion=nearest(parts[0], list(self.columns)),
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
    raise SqlError(f"{whole}: {part} is looked for in a {kind}, which has no fields")
