"""The Sql transform: selects the queries for each table and derives the output table.

Called by the driver (through the engine) and by the planner. Only Spark executes it (spark.py);
there is no implementation over Arrow.
"""

from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.options import RULES
from tidegate.connectors.sql.query import Translation, translate_query
from tidegate.model.errors import UserError
from tidegate.model.types import Table
from tidegate.plugin.contract import OperatorContext, Transform
from tidegate.plugin.option import Values


class BadQuery(UserError):
    """A query that cannot be applied to its input table."""

    condition = "bad-query"

    def __init__(self, table: str, error: SqlError) -> None:
        hint = f"; did you mean {error.suggestion!r}?" if error.suggestion else ""
        super().__init__(f"the query does not fit the table {table}: {error.message}{hint}")
        self.table = table


class Sql(Transform):
    """Applies a SELECT to every table of the input."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self._cache: list[tuple[Table, tuple[Translation, ...]]] = []

    def translations(self, table: Table) -> tuple[Translation, ...]:
        """The queries for a table, in order of application; translated once per driver."""
        for known, result in self._cache:
            if known == table:
                return result
        result = _translations(self.values, table)
        self._cache.append((table, result))
        return result

    def table(self, table: Table) -> Table | None:
        """The output table, or None if only Spark knows the type of some column."""
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
            step = translate_query(rule["query"], current)
        except SqlError as error:
            raise BadQuery(table.path, error) from error
        result.append(step)
        current = step.table
    return tuple(result)


def needed_columns(values: Values, table: Table) -> set[str] | None:
    """The input columns that the query for a table reads; None: all of them."""
    steps = _translations(values, table)
    return set(steps[0].used) if steps and steps[0].used is not None else None
