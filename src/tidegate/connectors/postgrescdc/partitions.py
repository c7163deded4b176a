"""Find rows that a new partition had before it was attached: the log does not have them.

Called by check.py, in the driver.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.databases.session import Session

# The transaction and the command that attached it, and those that created the table.
_ATTACHED = """
select i.xmin::text, i.cmin::text, t.xmin::text, t.cmin::text,
  has_table_privilege(i.inhrelid, 'select'), c.relkind::text
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_type t on t.oid = c.reltype
where i.inhrelid = %s"""
_COMMANDS_OF_CREATE = 2
"""CREATE TABLE ... PARTITION OF attaches at most this many commands after it created the table; two
statements take more.
"""


def earlier_writers(session: Session, part: Sequence[Any], root: str) -> frozenset[int] | None:
    """Return transactions that may have written rows of a partition before it was attached.

    `part` is as in definition.py. None means that it certainly had rows. The result has
    transactions later than the one that attached the partition; the log has those that wrote to it
    as a partition, under their own number.

    An earlier row was written by an earlier command of the transaction that attached the table, or,
    if the table was created by an earlier transaction, by one before it. It may also come from a
    savepoint of that transaction, or from a transaction that began later and ended sooner: these
    have later numbers.
    """
    found = session.query(_ATTACHED, (int(part[0]),))
    if not found or found[0][5] == "p":  # its own partitions are checked instead
        return frozenset()
    attached, command, made, first, readable, _ = found[0]
    if made == attached and int(command) - int(first) <= _COMMANDS_OF_CREATE:
        return frozenset()
    rows = f"only {part[1]} where" if readable else f"{root} where tableoid = {int(part[0])} and"
    conditions = [f"(xmin = '{attached}'::xid and cmin::text::bigint < {int(command)})"]
    if made != attached:
        conditions.append(f"age(xmin) > age('{attached}'::xid)")
    if session.scalar(f"select exists (select 1 from {rows} ({' or '.join(conditions)}))"):
        return None
    later = f"select distinct xmin::text::bigint from {rows} age(xmin) < age('{attached}'::xid)"
    return frozenset(int(row[0]) for row in session.query(later))
