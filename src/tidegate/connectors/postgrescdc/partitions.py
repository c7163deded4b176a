"""Whether a partition that is new had rows before it was one: the log does not tell of them. Called
by check.py, in the driver.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.databases.session import Session

# The transaction and the command that attached it, and those that made the table.
_ATTACHED = """
select i.xmin::text, i.cmin::text, t.xmin::text, t.cmin::text, has_table_privilege(i.inhrelid, 'select'), c.relkind::text
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_type t on t.oid = c.reltype where i.inhrelid = %s"""
_COMMANDS_OF_CREATE = 2
"""CREATE TABLE ...

PARTITION OF attaches so few commands after it made the table; two statements take more.
"""


def rows_of_before(session: Session, part: Sequence[Any], root: str) -> frozenset[int] | None:
    """A partition as definition.py has it: None where it certainly had rows, else the transactions
    of rows that it may have had: later ones than that which attached it. The log has those that
    wrote to it as a partition, under their own number.

    A row of before was written by an earlier command of the transaction that attached the table,
    or, where the table was made by an earlier transaction, by one before it. Or by a savepoint of
    that transaction, or by another one that began later and ended sooner: these have later numbers.
    """
    found = session.query(_ATTACHED, (int(part[0]),))
    if not found or found[0][5] == "p":  # its own partitions are asked
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
