"""Slots and publications: made, copied, moved on, asked how they are. Called by Postgres-CDC in the
driver, and by reader.py in tasks.

A slot's name comes from the job file, which is in the store before anything is made: a crash
between making and recording finds the same slot again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.databases.errors import DatabaseTrouble, StatementRefused
from tidegate.databases.postgres import lsn
from tidegate.databases.session import Session
from tidegate.failpoint import failpoint

IN_USE = "55006"
NO_FREE_SLOT = "53400"
PLUGIN = "pgoutput"


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotState:
    """How a slot is.

    `confirmed` is where its reading begins; `safe_bytes` is how much log may still be written
    before it is lost, None: any.
    """

    confirmed: int
    lost: bool
    status: str
    safe_bytes: int | None
    behind_bytes: int
    plugin: str
    database: str


def slot_state(session: Session, name: str) -> SlotState | None:
    """The state of a slot, or None where there is none."""
    rows = session.query(
        "select coalesce(confirmed_flush_lsn, '0/0')::text, wal_status, safe_wal_size,"
        " coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, plugin, database"
        " from pg_replication_slots where slot_name = %s",
        (name,),
    )
    if not rows:
        return None
    confirmed, status, safe, behind, plugin, database = rows[0]
    return SlotState(
        confirmed=lsn.number(confirmed),
        lost=status == "lost",
        status=str(status),
        safe_bytes=None if safe is None else int(safe),
        behind_bytes=int(behind),
        plugin=str(plugin),
        database=str(database),
    )


def make_slot(session: Session, name: str) -> None:
    """Make a slot unless it is there."""
    failpoint("postgrescdc.slot.before")
    if slot_state(session, name) is None:
        session.execute("select pg_create_logical_replication_slot(%s, %s)", (name, PLUGIN))
    failpoint("postgrescdc.slot.after")


def drop_lost_slot(session: Session, name: str) -> None:
    """Drop a slot that was invalidated: nobody can read it any more, and its name is free again."""
    state = slot_state(session, name)
    if state is not None and state.lost:
        session.execute("select pg_drop_replication_slot(%s)", (name,))


def publish(session: Session, publication: str, tables: Mapping[str, int]) -> None:
    """Make a publication of tables (quoted, with their oids) unless it is there; tables that it
    lacks are added.
    """
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
    """Let the server forget what lies before a position; False where the slot is being read, so
    that it must be tried another time.
    """
    state = slot_state(session, name)
    if state is None or state.lost or state.confirmed >= position:
        return True
    failpoint("postgrescdc.advance.before")
    try:
        session.execute(
            "select pg_replication_slot_advance(%s, %s::pg_lsn)", (name, lsn.text(position))
        )
    except DatabaseTrouble as error:
        if error.code != IN_USE:
            raise
        return False
    failpoint("postgrescdc.advance.after")
    return True


def copy_slot(session: Session, name: str, copy: str) -> bool:
    """A copy of a slot that ends with the session; False where the server has no room for one."""
    try:
        session.execute("select pg_copy_logical_replication_slot(%s, %s, true)", (name, copy))
    except (DatabaseTrouble, StatementRefused) as error:
        if error.code != NO_FREE_SLOT:
            raise
        return False
    return True
