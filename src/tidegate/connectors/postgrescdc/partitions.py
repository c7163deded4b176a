"""Whether a partition that is new had rows before it was one: the log does not tell of them. Called
by check.py, in the driver.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.databases.session import Session

# The transaction and the command that attached it, and the transaction that made the table.
_ATTACHED = """
select i.xmin::text, i.cmin::text, t.xmin::text, has_table_privilege(i.inhrelid, 'select'), c.relkind::text
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_type t on t.oid = c.reltype where i.inhrelid = %s"""


def rows_of_before(session: Session, part: Sequence[Any], root: str) -> bool:
    """A partition as definition.py has it. A row of before was written by an earlier command of the
    transaction that attached the table, or, where the table was made by an earlier transaction, by
    one before it.
    """
    found = session.query(_ATTACHED, (int(part[0]),))
    if not found or found[0][4] == "p":  # its own partitions are asked
        return False
    attached, command, made, readable, _ = found[0]
    relation = f"only {part[1]}" if readable else f"{root}"
    conditions = [f"(xmin = '{attached}'::xid and cmin::text::bigint < {int(command)})"]
    if made != attached:
        conditions.append(f"age(xmin) > age('{attached}'::xid)")
    mine = "" if readable else f"tableoid = {int(part[0])} and "
    return bool(
        session.one(
            f"select exists (select 1 from {relation} where {mine}({' or '.join(conditions)}))"
        )
    )
