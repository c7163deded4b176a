"""Check that a publication has all changes of the tables.

Called by check.py and source.py, in the driver.
"""

from collections.abc import Mapping

from tidegate.databases.session import Session

_OPERATIONS = ("insert", "update", "delete", "truncate")
_FACTS = """
select oid::bigint, puballtables, pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate,
  array(select relid::bigint from pg_get_publication_tables(pubname)) from pg_publication
    where pubname = %s"""
_NARROWED = """
select prrelid::bigint, pg_get_expr(prqual, prrelid), array(select a.attname::text
  from pg_attribute a where a.attrelid = prrelid and a.attnum = any(prattrs))
from pg_publication_rel where prpubid = %s and (prqual is not null or prattrs is not null)"""
ROW_FILTERS_SINCE = 150_000


def quoted(name: str) -> str:
    """Return the name of a publication in SQL."""
    return '"' + name.replace('"', '""') + '"'


def problems(
    session: Session, publication: str, tables: Mapping[str, int], version: int, *, members: bool
) -> dict[str, str]:
    """Return by quoted table why changes of it are missing, and the statement to run.

    `tables` have their oids. `members` also reports tables that the publication lacks. Empty if the
    publication does not exist.
    """
    found = session.query(_FACTS, (publication,))
    if not found:
        return {}
    number, all_tables, via_root, *published, listed = found[0]
    name = quoted(publication)
    lacking = [
        operation
        for operation, members_now in zip(_OPERATIONS, published, strict=True)
        if not members_now
    ]
    if lacking:
        sentence = (
            f"the publication {name} does not publish {', '.join(lacking)}, so that these "
            f"changes are missing; run: ALTER PUBLICATION {name} SET (publish = "
            f"'{', '.join(_OPERATIONS)}')"
        )
        return dict.fromkeys(tables, sentence)
    narrowed = (
        {row[0]: row[1:] for row in session.query(_NARROWED, (number,))}
        if version >= ROW_FILTERS_SINCE
        else {}
    )
    partitioned = {
        row[0]
        for row in session.query(
            "select oid::bigint from pg_class where relkind = 'p' and oid = any(%s::oid[])",
            (list(tables.values()),),
        )
    }
    found_problems = {}
    for table, oid in tables.items():
        if oid in narrowed:
            condition, columns = narrowed[oid]
            what = (
                f"rows of {table} where {condition}"
                if condition
                else f"the columns {', '.join(columns)} of {table}"
            )
            found_problems[table] = (
                f"the publication {name} publishes only {what}; run: ALTER PUBLICATION {name} DROP"
                f" TABLE {table}; ALTER PUBLICATION {name} ADD TABLE {table}"
            )
        elif oid in partitioned and not via_root:
            found_problems[table] = (
                f"the publication {name} publishes changes of the partitioned table {table} under"
                f" the names of its partitions; run: ALTER PUBLICATION {name} SET"
                " (publish_via_partition_root = true)"
            )
        elif members and oid not in listed:
            why = (
                "as it is unlogged, temporary or foreign"
                if all_tables
                else f"run: ALTER PUBLICATION {name} ADD TABLE {table}"
            )
            found_problems[table] = f"the publication {name} does not have the table {table}; {why}"
    return found_problems
