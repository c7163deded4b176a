"""A staging table that becomes the target: where a table is not there yet, the rows of its first
batch need not be written twice. PostgreSQL only.

A task stages such rows in a logged table of exactly the target's shape, without numbers and kinds.
The commit renames the largest of them to the target, adds the rows of the others, and makes the key
last, all in its one transaction. `can_promote` is asked by writer.py, in tasks; `StagePromotion` by
committer.py. Where it cannot be done after all (the table has come meanwhile, a key is there
twice), the rows are merged in the usual way: their order is that in which they lie.
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
# Whoever follows the log of this database would see the rows under the name of the staging table.
_LOG_READERS = """select 1 from pg_publication_tables where schemaname = %s and tablename = %s
    union all select 1 from pg_replication_slots where slot_type = 'logical' and plugin <> 'pgoutput' and database = current_database() limit 1"""


def can_promote(target: JdbcTarget, values: Values, dialect: Dialect, address: Address) -> bool:
    """Whether a staging table can have the shape and the place of this target, and nothing else is
    wanted of the first batch than to insert.
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
    """Staging tables of one target, the largest first, as that target."""

    def __init__(
        self, dialect: Dialect, values: Values, target: JdbcTarget, places: Sequence[TableName]
    ) -> None:
        self._dialect = dialect
        self._target = target
        self._places = places
        self._keyed = bool(values["create_index"]) and bool(target.key)

    def is_allowed(self, session: Session) -> bool:
        """Whether the target is not there, and nobody follows what is written to new tables."""
        place = self._places[0]
        return self._dialect.table_info(session, self._target.name) is None and not session.query(
            _LOG_READERS, (place.schema, place.table)
        )

    def statements(self) -> list[str]:
        target, qualified = self._target, self._dialect.qualified
        into, columns = qualified(target.name), self._dialect.names(target.names())
        found = [
            f"alter table {qualified(self._places[0])} rename to"
            f" {self._dialect.quote(target.name.table)}"
        ]
        found += [
            f"insert into {into} ({columns}) select {columns} from {qualified(place)}"
            for place in self._places[1:]
        ]
        if self._keyed:
            found.append(f"alter table {into} add primary key ({self._dialect.names(target.key)})")
        return (
            found + create_table(self._dialect, target.name, target.columns, (), target.comment)[1:]
        )
