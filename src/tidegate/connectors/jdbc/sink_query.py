"""Runs a sink's `query` option for every staged row, in the committer's transaction.

The rows pass through the driver. For statements that cannot be generated.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.model.errors import UserError
from tidegate.model.types import RowKind

if TYPE_CHECKING:
    from tidegate.connectors.jdbc.target import (
        JdbcTarget,
    )  # it needs Arrow, and options are checked without it

_TOKENS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|::|:=|:([A-Za-z_]\w*)|\?|%",
    re.DOTALL,
)


def parse_parameters(query: str, mark: str = "%s") -> tuple[str, tuple[str | None, ...]]:
    """Replace ? and :name by the driver's placeholder; also returns their names (None for ?).

    Quoted texts and comments are not changed.
    """
    names: list[str | None] = []

    def token(match: re.Match[str]) -> str:
        if match[0] == "?" or match[1]:
            names.append(match[1])
            return mark
        return match[0].replace("%", "%%") if mark == "%s" else match[0]

    return _TOKENS.sub(token, query.strip().rstrip(";")), tuple(names)


def column_indexes(names: Sequence[str | None], columns: Sequence[str]) -> list[int]:
    """The column of each parameter: by its name, or in the order of the columns."""
    if any(names):
        if None in names:
            raise UserError("query has both ? and :name parameters: use only one kind")
        lower = [column.lower() for column in columns]
        for name in names:
            if str(name).lower() not in lower:
                raise UserError(
                    f"query has the parameter :{name}, but the incoming rows have no such column:"
                    f" {', '.join(columns)}"
                )
        return [lower.index(str(name).lower()) for name in names]
    if len(names) != len(columns):
        raise UserError(
            f"query needs one ? for each column: it has {len(names)}, but the incoming rows have"
            f" {len(columns)} columns: {', '.join(columns)}"
        )
    return list(range(len(columns)))


def run_query(
    session: Session,
    dialect: Dialect,
    query: str,
    stage_table: TableName,
    target: "JdbcTarget",
    rows_max: int,
) -> None:
    """Run the query for all rows of one staging table, in their order."""
    statement, names = parse_parameters(query)
    indexes = column_indexes(names, target.names())
    stage = dialect.qualified(stage_table)
    if session.query(f"select 1 from {stage} where kind = {RowKind.DELETE.code} limit 1"):
        raise UserError(
            "`query` cannot write a row that deletes: use generate_sink_sql = true, or put"
            " FilterRowKind before the sink"
        )
    columns = ", ".join(f"c{number}" for number in indexes)
    puts = f"kind in ({RowKind.INSERT.code}, {RowKind.UPDATE_AFTER.code})"
    last = -1
    while rows := session.query(
        f"select seq, {columns} from {stage} where seq > %s and {puts} order by seq limit"
        f" {rows_max}",
        (last,),
    ):
        session.execute_many(statement, [row[1:] for row in rows])
        last = rows[-1][0]
