"""Check that a position belongs to the history of this server.

Called by source.py, in the driver. A position records:

    lsn      everything before it is read
    history  the system identifier and the timeline of the server
    xmin     all transactions with lower numbers had ended when the tables were last
             found as they are recorded
    started  when the server was started, in microseconds
    mark     a transaction of ours before it: the position of its commit, its
             number, its time

A restored copy of the files of the server has the same identifier and timeline. It is detected by a
log that ends before the position, by transaction numbers lower than `xmin`, or by another
transaction at the mark. The mark is only checked after a restart: files cannot be restored without
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.databases.errors import AccessDenied
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres.slots import SlotState
from tidegate.databases.session import Session

_STATE = """
select pg_walfile_name(written), written::text, pg_snapshot_xmin(s)::text::bigint,
  pg_snapshot_xmax(s)::text::bigint,
  (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
from pg_current_wal_flush_lsn() written, pg_current_snapshot() s"""
Mark = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """What the server reports about itself.

    `written` is the end of its log; `xmin` and `xmax` are of its transactions; `started` is in
    microseconds.
    """

    history: list[str]
    written: int
    xmin: int
    xmax: int
    started: int


def server_state(session: Session) -> ServerState:
    file, written, xmin, xmax, started = session.query_prepared(_STATE)[0]
    try:
        identifier = str(session.scalar("select system_identifier::text from pg_control_system()"))
    except AccessDenied:  # some hosting providers deny it
        identifier = ""
    return ServerState(
        history=[identifier, str(file)[:8]],
        written=lsn.number(str(written)),
        xmin=int(xmin),
        xmax=int(xmax),
        started=int(started),
    )


def position_of(
    lsn_number: int, server: ServerState, *, xmin: int, mark: Mark | None
) -> dict[str, Any]:
    """Return the document of a position."""
    document = {
        "lsn": lsn.text(lsn_number),
        "history": server.history,
        "xmin": xmin,
        "started": server.started,
    }
    return {**document, "mark": list(mark)} if mark else document


def mark_of(log: Mapping[str, Any]) -> Mark | None:
    """Return the transaction that a position remembers."""
    found = log.get("mark")
    return (str(found[0]), int(found[1]), int(found[2])) if found else None


def unavailable_reason(
    log: Mapping[str, Any], server: ServerState, state: SlotState | None, slot: str
) -> str:
    """Describe why this server does not have the log of a position; empty if it has."""
    begin = lsn.number(log["lsn"])
    identifier, timeline = log.get("history", server.history)
    if identifier and server.history[0] and identifier != server.history[0]:
        return (
            f"this is another server: its system identifier is {server.history[0]}, and the"
            f" position is of {identifier}"
        )
    if timeline != server.history[1]:
        return (
            f"the server has another history: it is on timeline {int(server.history[1], 16)}, and"
            f" the position is of timeline {int(timeline, 16)}; a replica was promoted, or a backup"
            " restored"
        )
    if begin > server.written:
        return (
            f"the server's log ends at {lsn.text(server.written)}, before the position: it was"
            " restored to an earlier state"
        )
    if server.xmax < log.get("xmin", 0):
        return (
            f"the server has had {server.xmax} transactions, and {log['xmin']} at the time of "
            "the position: it was restored to an earlier state, and has written other "
            "changes since"
        )
    if state is None:
        return f"the replication slot {slot!r} no longer exists"
    if state.lost:
        return (
            f"the replication slot {slot!r} was invalidated, as it held back more log than"
            " max_slot_wal_keep_size allows"
        )
    if state.confirmed > begin:
        return f"the replication slot {slot!r} was advanced by another client"
    return ""
