"""Create, copy, advance and inspect slots and publications.

Called by Postgres-CDC in the driver, and by pgoutput_stream.py in tasks. The name of a slot comes
from the job file, which is stored before anything is created: after a crash between creating and
recording, the same slot is found again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.databases.errors import StatementRefused, TransientDatabaseError
from tidegate.databases.postgres import lsn
from tidegate.databases.session import Session
from tidegate.failpoint import failpoint

IN_USE = "55006"
NO_FREE_SLOT = "53400"
PLUGIN = "pgoutput"


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotState:
    """The state of a slot.

    `confirmed` is where reading begins; `safe_bytes` is how much log may still be written before it
    is lost, None for any amount.
    """

    confirmed: int
    lost: bool
    status: str
    safe_bytes: int | None
    behind_bytes: int
    plugin: str
    database: str


def slot_state(session: Session, name: str) -> SlotState | None:
    """Return the state of a slot, or None if it does not exist."""
    rows = session.query(
        "select coalesce(confirmed_flush_lsn, '0/0')::text, wal_status, safe_wal_size,"
        " coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, plugin, database"
        " from pg_replication_slots where slot_name = %s",
        (name,),
    )
    if not rows:
        return None
    confirmed, status, safe, lag, plugin, database = rows[0]
    return SlotState(
        confirmed=lsn.number(confirmed),
        lost=status == "lost",
        status=str(status),
        safe_bytes=None if safe is None else int(safe),
        behind_bytes=int(lag),
        plugin=str(plugin),
        database=str(database),
    )


def create_slot(session: Session, name: str) -> None:
    """Create a slot unless it exists."""
    failpoint("postgrescdc.slot.before")
    if slot_state(session, name) is None:
        session.execute("select pg_create_logical_replication_slot(%s, %s)", (name, PLUGIN))
    failpoint("postgrescdc.slot.after")


def drop_lost_slot(session: Session, name: str) -> None:
    """Drop an invalidated slot, which cannot be read any more, to free its name."""
    state = slot_state(session, name)
    if state is not None and state.lost:
        session.execute("select pg_drop_replication_slot(%s)", (name,))


def publish(session: Session, publication: str, tables: Mapping[str, int]) -> None:
    """Create a publication of tables (quoted, with their oids), or add missing tables to it."""
    name = '"' + publication.replace('"', '""') + '"'
    found = session.query(
        "select oid, puballtables, array(select relid::bigint from"
        " pg_get_publication_tables(pubname)) from pg_publication where pubname = %s",
        (publication,),
    )
    failpoint("postgrescdc.publication.before")
    if not found:
        session.execute(
            f"create publication {name} for table {', '.join(tables)} with"
            " (publish_via_partition_root = true)"
        )
    elif lacking := [
        table for table, oid in tables.items() if oid not in found[0][2] and not found[0][1]
    ]:
        session.execute(f"alter publication {name} add table {', '.join(lacking)}")
    failpoint("postgrescdc.publication.after")


def advance(session: Session, name: str, position: int) -> bool:
    """Let the server release the log before a position.

    Returns False if the slot is in use, so that it must be retried later.
    """
    state = slot_state(session, name)
    if state is None or state.lost or state.confirmed >= position:
        return True
    failpoint("postgrescdc.advance.before")
    try:
        session.execute(
            "select pg_replication_slot_advance(%s, %s::pg_lsn)", (name, lsn.text(position))
        )
    except TransientDatabaseError as error:
        if error.code != IN_USE:
            raise
        return False
    failpoint("postgrescdc.advance.after")
    return True


def copy_slot(session: Session, name: str, copy: str) -> bool:
    """Copy a slot until the session ends.

    Returns False if the server has no room for another slot.
    """
    try:
        session.execute("select pg_copy_logical_replication_slot(%s, %s, true)", (name, copy))
    except (TransientDatabaseError, StatementRefused) as error:
        if error.code != NO_FREE_SLOT:
            raise
        return False
    return True
