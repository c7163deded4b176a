"""Turn a staging table into the target table, if the target does not exist yet (PostgreSQL only).

The rows of the first batch need not be written twice then. A task stages them in a logged table
with exactly the target's columns, without sequence numbers and row kinds. The commit renames the
largest staging table to the target, adds the rows of the others, and creates the key last, in one
transaction. writer.py calls `can_promote`, in tasks; committer.py uses `StagePromotion`. If the
promotion fails (the table was created meanwhile, or a key occurs twice), the rows are merged as
usual, in their physical order.
"""

from collections.abc import Sequence

from tidegate.connectors.jdbc.staging import stage_type, staging_table_name
from tidegate.connectors.jdbc.target import JdbcTarget
from tidegate.databases.catalog import TableName
from tidegate.databases.ddl import create_table
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.databases.url import Address, System
from tidegate.plugin.option import Values

_CREATING_MODES = ("CREATE_SCHEMA_WHEN_NOT_EXIST", "RECREATE_SCHEMA")
# Readers of this database's log would see the rows under the name of the staging table.
_LOG_READERS = """select 1 from pg_publication_tables where schemaname = %s and tablename = %s
    union all select 1 from pg_replication_slots where slot_type = 'logical'
      and plugin <> 'pgoutput' and database = current_database() limit 1"""


def can_promote(target: JdbcTarget, values: Values, dialect: Dialect, address: Address) -> bool:
    """Whether a staging table can have the target's columns and schema.

    The first batch must only insert.
    """
    if dialect.system is not System.POSTGRES or values["query"] or target.kinds:
        return False
    if (
        values["schema_save_mode"] not in _CREATING_MODES
        or values["data_save_mode"] == "CUSTOM_PROCESSING"
    ):
        return False
    same_types = all(
        stage_type(column.type, dialect) == dialect.native_type(column.type)
        for column in target.columns
    )
    return same_types and target.name.schema == staging_table_name(address, "").schema


class StagePromotion:
    """Promotes the staging tables of one target, the largest one first."""

    def __init__(
        self, dialect: Dialect, values: Values, target: JdbcTarget, stages: Sequence[TableName]
    ) -> None:
        self._dialect = dialect
        self._target = target
        self._stages = stages
        self._keyed = bool(values["create_index"]) and bool(target.key)

    def is_allowed(self, session: Session) -> bool:
        """Whether the target does not exist and no log reader would see new tables."""
        stage = self._stages[0]
        return self._dialect.table_info(session, self._target.name) is None and not session.query(
            _LOG_READERS, (stage.schema, stage.table)
        )

    def statements(self) -> list[str]:
        target, qualified = self._target, self._dialect.qualified
        into, columns = qualified(target.name), self._dialect.names(target.names())
        found = [
            f"alter table {qualified(self._stages[0])} rename to"
            f" {self._dialect.quote(target.name.table)}"
        ]
        found += [
            f"insert into {into} ({columns}) select {columns} from {qualified(stage)}"
            for stage in self._stages[1:]
        ]
        if self._keyed:
            found.append(f"alter table {into} add primary key ({self._dialect.names(target.key)})")
        return (
            found + create_table(self._dialect, target.name, target.columns, (), target.comment)[1:]
        )
