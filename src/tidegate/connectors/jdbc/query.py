"""A sink's own `query`, run for every staged row in the committer's transaction. Rows pass through the driver: for statements that cannot be generated."""

import re

from tidegate.connectors.jdbc.target import Target
from tidegate.databases.catalogue import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.model.errors import UserError
from tidegate.model.types import RowKind

_TOKENS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|\?|%")


def parameterised(query: str) -> tuple[str, int]:
    """A statement whose ? are %s, and how many there are; what stands in quotes is left alone, but for a % that would mean something."""
    count = 0

    def token(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] == "?":
            count += 1
            return "%s"
        return str(match[0]).replace("%", "%%")

    return _TOKENS.sub(token, query.strip().rstrip(";")), count


def run_query(session: Session, dialect: Dialect, query: str, place: TableName, target: Target, rows_max: int) -> None:
    """All rows of one staging table, in their order."""
    statement, count = parameterised(query)
    if count != len(target.columns):
        raise UserError(f"query has {count} times ?, and the incoming rows have {len(target.columns)} columns: {', '.join(target.names())}")
    stage = dialect.qualified(place)
    if session.query(f"select 1 from {stage} where kind = {RowKind.DELETE.code} limit 1"):
        raise UserError("a row that deletes cannot be written by `query`: use generate_sink_sql = true, or put FilterRowKind before the sink")
    columns = ", ".join(f"c{number}" for number in range(count))
    puts = f"kind in ({RowKind.INSERT.code}, {RowKind.UPDATE_AFTER.code})"
    last = -1
    while rows := session.query(f"select seq, {columns} from {stage} where seq > %s and {puts} order by seq limit {rows_max}", (last,)):
        session.execute_many(statement, [row[1:] for row in rows])
        last = rows[-1][0]
