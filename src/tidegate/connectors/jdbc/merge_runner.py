"""Runs merge statements: the fastest ones first, slower ones if rows collide.

Called by committer.py. A batch contains whole transactions of the source, so that after it no two
rows have the same value of a unique key; in between they may (values are swapped, freed and
reused). If rows collide, the statements are rolled back, all keys of the batch deleted and its rows
inserted. The number of written rows must be the number of staged rows: a trigger, a rule or another
unique index must not lose a row.
"""

from collections.abc import Callable, Sequence

from tidegate.connectors.jdbc.merge_sql import MergeSql, MergeStatement
from tidegate.databases.errors import StatementRefused
from tidegate.databases.session import Session
from tidegate.databases.targets.rules import TargetRules
from tidegate.databases.url import System
from tidegate.model.errors import TerminalError, UserError

# MariaDB and MySQL, PostgreSQL (unique and exclusion), SQLite.
KEY_TAKEN_CODES = (
    "1062",
    "23505",
    "23P01",
    "SQLITE_CONSTRAINT_UNIQUE",
    "SQLITE_CONSTRAINT_PRIMARYKEY",
)
_KEY_TWICE_IN_STATEMENT = "21000"


class UniqueTaken(UserError):
    """A row of a batch violates a unique index of the target.

    The row with the same value is not changed by the batch.
    """

    condition = "unique-taken"

    def __init__(self, where: str, table: str, why: str, cascades: Sequence[str] = ()) -> None:
        more = (
            "; the rows cannot be replaced together, since foreign keys would delete or change"
            f" other rows: {', '.join(cascades)}"
            if cascades
            else "; the target has rows or a unique index that the source does not have"
        )
        super().__init__(f"rows of {table} in {where} violate a unique index: {why}{more}")
        self.table = table
        self.why = why
        self.cascades = tuple(cascades)


class RowsLost(TerminalError):
    """The target stored a different number of rows than were written."""

    condition = "rows-lost"

    def __init__(self, where: str, table: str, put: int, counted: int) -> None:
        super().__init__(
            f"the table {table} in {where} stored {counted} of {put} rows, and the batch was rolled"
            " back: a trigger, a rule or a unique index of that table drops rows; remove it, or"
            " write to a table without it"
        )
        self.table = table
        self.put = put
        self.counted = counted


class KeysMerged(UserError):
    """Several rows of the source have the same key in the sink."""

    condition = "keys-merged"

    def __init__(
        self,
        path: str,
        table: str,
        key: Sequence[str],
        source_key: Sequence[str],
        found: Sequence[object],
    ) -> None:
        shown = ", ".join(f"{name} = {value!r}" for name, value in zip(key, found, strict=True))
        super().__init__(
            f"several rows of {path} have the key {shown}, and would be one row of {table}:"
            f" primary_keys are {', '.join(key)}, but the key of the source is"
            f" {', '.join(source_key)}. Name columns that are unique, or allow it with"
            " allow_merged_keys = true"
        )
        self.path = path
        self.table = table


class ValuesChanged(UserError):
    """The database would have stored a changed value."""

    condition = "value-changed"

    def __init__(self, where: str, table: str, why: str) -> None:
        super().__init__(
            f"values of {table} in {where} would be changed, and the batch was rolled back: {why}."
            " Widen the column of the target, change the values before the sink, or allow it with"
            " allow_lossy_types = true"
        )
        self.table = table
        self.why = why


class MergeRunner:
    """Merges one staging table with `rows` rows, within the session's transaction."""

    def __init__(self, session: Session, rules: TargetRules, merge: MergeSql, rows: int) -> None:
        self._session = session
        self._rules = rules
        self.merge = merge
        self._rows = rows
        self._table = merge.table_info.name.path
        self._where = str(session.address)

    def run(self) -> None:
        """Merge all rows, independent of the target's rows."""
        merge, system = self.merge, self.merge.dialect.system
        refused = self.try_statements(
            merge.statements(distinct=False), *KEY_TAKEN_CODES, _KEY_TWICE_IN_STATEMENT
        )
        if (
            refused is not None
            and refused.code == _KEY_TWICE_IN_STATEMENT
            and system is System.POSTGRES
        ):
            refused = self.try_statements(
                merge.statements(distinct=True), *KEY_TAKEN_CODES, last=True
            )
        if refused is None:
            return
        if not merge.target.key or not (merge.upsert or merge.target.kinds):
            raise refused
        if merge.relation.cascades:
            raise UniqueTaken(self._where, self._table, refused.why, merge.relation.cascades)
        if (
            again := self.try_statements(merge.replace_statements(), *KEY_TAKEN_CODES, last=True)
        ) is not None:
            raise UniqueTaken(self._where, self._table, again.why)

    def check_keys(self) -> None:
        """Raise KeysMerged if several source rows have the same primary_keys."""
        target = self.merge.target
        for query in self.merge.merged_key_queries():
            if found := self._session.query(query):
                raise KeysMerged(target.path, self._table, target.key, target.source_key, found[0])

    def delete_keys(self) -> None:
        """First half of a replacement: delete all keys of the batch."""
        self._run(
            [statement for statement in self.merge.replace_statements() if not statement.counts],
            True,
        )

    def insert_rows(self) -> None:
        """Second half of a replacement: insert the rows of the batch."""
        refused = self.try_statements(
            [statement for statement in self.merge.replace_statements() if statement.counts],
            *KEY_TAKEN_CODES,
            last=True,
        )
        if refused is not None:
            raise UniqueTaken(self._where, self._table, refused.why)

    def try_statements(
        self, statements: Sequence[MergeStatement], *codes: str, last: bool | None = None
    ) -> StatementRefused | None:
        """Run statements; returns the error if it has one of the codes, after rolling them back.

        `last`: only the last row of each key is written; by default as the merge decides.
        """
        self._session.execute("savepoint tidegate_merge")
        try:
            self._run(statements, self.merge.puts_last_of_key if last is None else last)
        except StatementRefused as error:
            if error.code not in codes:
                raise
            self._session.execute("rollback to savepoint tidegate_merge")
            return error
        self._session.execute("release savepoint tidegate_merge")
        return None

    def _run(self, statements: Sequence[MergeStatement], last: bool) -> None:
        counting = any(statement.counts for statement in statements)
        put = (
            int(self._session.scalar(self.merge.count_puts_query()))
            if counting and last
            else self._rows
        )
        counted = 0
        for statement in statements:
            changed = self._session.execute(statement.text)
            counted += changed if statement.counts else 0
            if not self.merge.lossy and (why := self._rules.altered_values(self._session)):
                raise ValuesChanged(self._where, self._table, why)
        doubled = any(statement.doubled for statement in statements)
        if counting and not put <= counted <= put * (2 if doubled else 1):
            raise RowsLost(self._where, self._table, put, counted)


def merge_parts(
    session: Session, parts: Sequence[MergeRunner], merge: Callable[[Session, MergeRunner], None]
) -> None:
    """Merge all staging tables of one target.

    If a row of one of them collides with a row that another one changes, all of them are replaced
    together.
    """
    if len(parts) < 2:
        for part in parts:
            merge(session, part)
        return
    session.execute("savepoint tidegate_target")
    try:
        for part in parts:
            merge(session, part)
    except UniqueTaken as error:
        if error.cascades:
            raise
        session.execute("rollback to savepoint tidegate_target")
        for part in parts:
            part.delete_keys()
        for part in parts:
            part.insert_rows()
    session.execute("release savepoint tidegate_target")
