"""The Sql transform where it runs: which query holds for a table, and what it makes of it. Called
by the driver (through the engine) and by the planner.

Only Spark can carry it out (spark.py); there is no Arrow way.
"""

from tidegate.connectors.sql.options import RULES
from tidegate.connectors.sql.problem import SqlError
from tidegate.connectors.sql.query import Translation, translated
from tidegate.model.errors import UserError
from tidegate.model.types import Table
from tidegate.plugin.contract import OperatorContext, Transform
from tidegate.plugin.option import Values


class BadQuery(UserError):
    """A query that does not fit the table that comes to it."""

    condition = "bad-query"

    def __init__(self, table: str, error: SqlError) -> None:
        hint = f"; did you mean {error.suggestion!r}?" if error.suggestion else ""
        super().__init__(f"the query does not fit the table {table}: {error.message}{hint}")
        self.table = table


class Sql(Transform):
    """SELECT on every table of the input."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self._known: list[tuple[Table, tuple[Translation, ...]]] = []

    def translations(self, table: Table) -> tuple[Translation, ...]:
        """The queries for a table, one after the other; translated once in the life of a driver."""
        for known, result in self._known:
            if known == table:
                return result
        result = _translations(self.values, table)
        self._known.append((table, result))
        return result

    def table(self, table: Table) -> Table | None:
        """What comes out, or None where a function of Spark's own decides the type of a column."""
        steps = self.translations(table)
        return steps[-1].table if steps else table


def _translations(values: Values, table: Table) -> tuple[Translation, ...]:
    result: list[Translation] = []
    current: Table | None = table
    for rule in RULES.rules(values, table):
        if current is None:
            raise UserError(
                f"a second query for {table.path} needs the types of the first: give every column"
                " of it a type with CAST(... AS ...)"
            )
        try:
            step = translated(rule["query"], current)
        except SqlError as error:
            raise BadQuery(table.path, error) from error
        result.append(step)
        current = step.table
    return tuple(result)


def needed_columns(values: Values, table: Table) -> set[str] | None:
    """The input columns that the query for a table reads; None: all of them."""
    steps = _translations(values, table)
    return set(steps[0].used) if steps and steps[0].used is not None else None
