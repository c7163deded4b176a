"""What the log keeps of a row before its change, by table. Called by source.py before it publishes a table."""

from dataclasses import dataclass
from enum import Enum, auto

from tidegate.databases.catalogue import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session

# Of a partitioned table, each partition has its own say.
_IDENTITIES = """
select n.nspname, c.relname, case c.relreplident when 'f' then 'f' when 'i' then 'k' when 'n' then 'n' else
  case when exists (select 1 from pg_index i where i.indrelid = c.oid and i.indisprimary) then 'k' else 'n' end end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass(%s) or c.oid in (select p.relid from pg_partition_tree(to_regclass(%s)) p where p.isleaf) order by c.relkind = 'p' desc, 1, 2"""


class Kept(Enum):
    """How much of a row."""

    WHOLE = auto()
    KEY = auto()
    NOTHING = auto()


_KEPT = {"f": Kept.WHOLE, "k": Kept.KEY, "n": Kept.NOTHING}


@dataclass(frozen=True, slots=True)
class Identity:
    """A table, as a statement names it, and what is kept of its rows."""

    table: str
    kind: Kept


def identities(session: Session, dialect: Dialect, name: TableName) -> list[Identity]:
    """Of a table and of all its partitions."""
    path = dialect.qualified(name)
    return [Identity(dialect.qualified(TableName("", schema, table)), _KEPT[kept]) for schema, table, kept in session.query(_IDENTITIES, (path, path))]
