"""Tables that were altered or emptied: what the catalogue tells, and the first transaction of the slot that shows it. Called by source.py, in the driver.

A table that is emptied gets new files, and so does one that is rewritten: as long as the files of a table are the same, nothing emptied it. Only when they are
not, or when somebody holds the lock that such a statement takes, the messages of a range are looked through before a batch is made of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.databases.pgoutput import messages
from tidegate.databases.session import Session

_FILES = """
with held as (select relation from pg_locks where mode = 'AccessExclusiveLock' and relation is not null
  and database = (select oid from pg_database where datname = current_database()) and pid is distinct from pg_backend_pid())
select name, md5(string_agg(coalesce(pg_relation_filenode(part), 0)::text, ',' order by part)), bool_or(part in (select relation from held))
from unnest(%s::text[]) name, lateral (select to_regclass(name)::oid as part union select relid::oid from pg_partition_tree(to_regclass(name))) parts
group by name"""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of tables, by path, and the tables that somebody may be altering or emptying right now."""

    names: Mapping[str, str]
    locked: frozenset[str]


def files_of(session: Session, tables: Mapping[str, str]) -> Files:
    """Of tables by path, with their quoted names."""
    paths = {quoted: path for path, quoted in tables.items()}
    rows = session.query(_FILES, (list(paths),))
    return Files({paths[name]: str(files) for name, files, _ in rows}, frozenset(paths[name] for name, _, locked in rows if locked))


@dataclass(frozen=True, slots=True)
class FirstChange:
    """The commit of the first transaction that shows another layout than the known one, and the columns that it shows; None where it empties the table."""

    commit: int
    path: str
    columns: tuple[str, ...] | None


def first_change(found: Iterable[bytes], database: str, known: Mapping[str, Iterable[str]], begin: int) -> FirstChange | None:
    """From the messages of a range; None where all tables are as they are known."""
    at = begin
    paths: dict[int, str] = {}
    for data in found:
        match data[:1]:
            case b"B":
                at = messages.begin(data)[0]
            case b"R":
                table = messages.relation(data)
                paths[table.id] = path = ".".join((database, table.schema, table.table))
                columns = tuple(name for name, _, _ in table.columns)
                if at >= begin and path in known and set(columns) != set(known[path]):
                    return FirstChange(at, path, columns)
            case b"T" if at >= begin:
                for number in messages.truncated(data):
                    if paths.get(number) in known:
                        return FirstChange(at, paths[number], None)
    return None
