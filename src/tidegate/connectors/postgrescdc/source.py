"""Postgres-CDC: snapshot and logical replication slot of PostgreSQL.

Called by the engine through plugin.contract. A position is {"lsn", ...} (server_history.py):
transactions whose commit lies at or after it are not read yet. Any position can end a range, as
transactions belong to ranges by the position of their commit; so the driver does not read the log,
it only checks whether a range has changes, unless the catalogue shows that a table changed
(check.py). Columns are [name, type name, type, modifier, number].
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa

from tidegate.connectors.postgrescdc.check import CatalogCheckingSource
from tidegate.connectors.postgrescdc.definition import CatalogTable
from tidegate.connectors.postgrescdc.identity import check_identities
from tidegate.connectors.postgrescdc.server_history import (
    Mark,
    ServerState,
    mark_of,
    position_of,
    server_state,
    unavailable_reason,
)
from tidegate.connectors.postgrescdc.server_resources import PUBLICATION, SLOT, location_of
from tidegate.databases.cdc.errors import ChangeChoice, NoTables, NotSetUp, PositionGone
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.cdc.window import LogWindow
from tidegate.databases.errors import StatementRefused, TransientDatabaseError
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.catalog import KINDS
from tidegate.databases.postgres.pgoutput_reader import SlotTable, read_range
from tidegate.databases.postgres.pgoutput_row_layout import layout_of
from tidegate.databases.postgres.pgoutput_stream import SlotRange, changes
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.postgres.slots import (
    PLUGIN,
    SlotState,
    advance,
    create_slot,
    drop_lost_slot,
    publish,
    slot_state,
)
from tidegate.databases.reconnect import retry_connect
from tidegate.databases.session import Session
from tidegate.databases.url import System
from tidegate.model.errors import TidegateError
from tidegate.plugin.contract import Limit, LogRetention, Offset, Resource, ResourceRegistry

RANGE_BYTES_MIN = 16 << 20
PROBE_BYTES_MAX = 1 << 20
"""Ranges up to this size are probed before a batch is made of them: they may have no changes of our
tables.
"""
VISIBLE_WAIT_S = 30.0
PAUSE_S = 0.02
POLLS_BEFORE_NUDGE = 4
UNLOGGED = {"u": "unlogged", "t": "temporary"}
NO_SUCH_OBJECT = "42704"


class PostgresCdcSource(CatalogCheckingSource):
    system = System.POSTGRES
    _resources: ResourceRegistry | None = None
    logs_generated = False
    _mark_checked_at = 0
    """The start of the server after which the mark was found."""

    def session(self) -> Session:
        return self._open()

    def _open(self) -> PostgresSession:
        return retry_connect(
            lambda: PostgresSession(self.address), int(self.values["connect.max-retries"])
        )

    @property
    def has_before_images(self) -> bool:
        """Whether before images are complete, as all replica identities are full."""
        return bool(self.values["require-replica-identity-full"])

    @property
    def slot(self) -> str:
        return str(self.values["slot.name"])

    @property
    def publication(self) -> str:
        return str(self.values["publication.name"] or f"tidegate_{self.slot}")

    def check_server(self, session: Session) -> None:
        level = session.scalar("select current_setting('wal_level')")
        if level != "logical":
            raise NotSetUp(
                f"the source {self.address} does not write the log that CDC needs: set "
                f"wal_level = logical in its configuration (it is {level})"
            )
        for text in self.values.get("table-names") or ():
            self._check_kind(session, str(text))

    def _check_kind(self, session: Session, text: str) -> None:
        """Check that a named table can be in the log.

        Its kind is reported before other problems.
        """
        try:
            name = self.dialect.parse_table(text, self.address)
        except ValueError:
            return  # reported with the names of all tables
        found = session.query(
            "select relkind::text, relpersistence::text from pg_class where oid = to_regclass(%s)",
            (self.dialect.qualified(name),),
        )
        kind, persistence = found[0] if found else ("r", "p")
        if kind not in ("r", "p"):
            raise NoTables(
                f"{name.path} is a {KINDS.get(kind, 'relation of another kind')}, whose "
                "changes are not in the log: name its underlying tables"
            )
        if persistence != "p":
            raise NoTables(
                f"{name.path} is {UNLOGGED[persistence]}, and its changes are not in the log: "
                "change it to a logged table, or leave it out"
            )

    def _check_tables(self, session: Session) -> dict[str, CatalogTable]:
        """Check, before anything is published, that the log can have the changes of each table."""
        found = self.definitions(session)
        if unlogged := [
            path for path, table in found.items() if table.definition["persistence"] != "p"
        ]:
            raise NotSetUp(
                f"changes of {', '.join(unlogged)} are not in the log, as it or a partition is"
                " unlogged: run ALTER TABLE ... SET LOGGED, or leave it out"
            )
        if hidden := [path for path, table in found.items() if table.hidden]:
            raise NotSetUp(
                f"row security hides rows of {', '.join(hidden)} from the user {self.address.user},"
                " which the log would show: give that user BYPASSRLS, or let it own the table"
                " without FORCE ROW LEVEL SECURITY"
            )
        check_identities(
            [table.definition for table in found.values()], full=self.has_before_images
        )
        return found

    def start_position(self, session: Session) -> dict[str, Any]:
        """Return the position of startup.mode; create the publication and the slot.

        The publication comes first: decoding needs it at every position of the slot.
        """
        found = self._check_tables(session)
        self._ensure_publication(session, found)
        drop_lost_slot(session, self.slot)
        create_slot(session, self.slot)
        state = slot_state(session, self.slot)
        assert state is not None, "it was created before"
        if state.plugin != PLUGIN or state.database != self.address.database:
            raise NotSetUp(
                f"the replication slot {self.slot!r} belongs to the plugin {state.plugin} and "
                f"the database {state.database}, and not to {PLUGIN} and "
                f"{self.address.database}: choose another slot.name"
            )
        if self.values["startup.mode"] == "latest":
            return self.current_position(session)
        if self.values["startup.mode"] in ("initial", "snapshot-only"):
            state = self._with_readable_log(session, state)
        server = server_state(session)
        return position_of(state.confirmed, server, xmin=server.xmin, mark=None)

    def _with_readable_log(self, session: Session, state: SlotState) -> SlotState:
        """Advance an existing slot whose log begins before the publication.

        That log cannot be decoded, and the tables are read again.
        """
        written = server_state(session).written
        try:
            self._first_transaction(state.confirmed, written)
        except StatementRefused as error:
            if error.code != NO_SUCH_OBJECT:
                raise
            advance(session, self.slot, written)
            return slot_state(session, self.slot) or state
        return state

    def _ensure_publication(self, session: Session, found: Mapping[str, CatalogTable]) -> None:
        """Create or complete the publication.

        Raises NotSetUp if an existing one omits changes.
        """
        self.check_publication(session, found, members=False)
        self._record_new(session)
        tables = {
            self.dialect.qualified(self.cdc_tables[path].info.name): int(table.definition["oid"])
            for path, table in found.items()
        }
        publish(session, self.publication, tables)
        self.check_publication(session, found)

    def attach_resources(self, book: ResourceRegistry) -> None:
        """Record resources in this registry before they are created on the server."""
        self._resources = book

    def _record_new(self, session: Session) -> None:
        """Record resources that do not exist yet: others do not belong to this job."""
        if self._resources is None:
            return
        location = location_of(self.address)
        if not session.query(
            "select 1 from pg_publication where pubname = %s", (self.publication,)
        ):
            self._resources.record(
                Resource(kind=PUBLICATION, name=self.publication, location=location)
            )
        if slot_state(session, self.slot) is None:
            self._resources.record(Resource(kind=SLOT, name=self.slot, location=location))

    def stop_position(self, session: Session) -> dict[str, Any] | None:
        return self.current_position(session) if self.values["stop.mode"] == "latest" else None

    def current_position(self, session: Session) -> dict[str, Any]:
        """Return a position after everything that is visible now, once it can be read.

        Asynchronous commits are written a moment later.
        """
        target = str(session.scalar("select pg_current_wal_insert_lsn()::text"))
        delay_s = (
            1.0
            + 3
            * float(
                session.scalar(
                    "select setting::float from pg_settings where name = 'wal_writer_delay'"
                )
            )
            / 1000
        )
        deadline_s = time.monotonic() + delay_s
        polls = 0
        while (
            not session.scalar("select pg_current_wal_flush_lsn() >= %s::pg_lsn", (target,))
            and time.monotonic() < deadline_s
        ):
            polls += 1
            # What a read itself wrote may wait for the next commit: a message without rows is one.
            if polls == POLLS_BEFORE_NUDGE:
                with suppress(TidegateError):
                    session.execute("select pg_logical_emit_message(true, 'tidegate', '')")
            time.sleep(PAUSE_S)  # until the WAL writer has run
        server = server_state(session)
        return position_of(server.written, server, xmin=server.xmin, mark=None)

    def has_reached(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        return lsn.number(log["lsn"]) >= lsn.number(stop["lsn"])

    def next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        """Return the range up to the end of the log, within the limit.

        It ends before the first change of a table that cannot be applied automatically.
        """
        begin = lsn.number(start["log"]["lsn"])
        server = server_state(session)
        self._check_position(session, start["log"], server)
        self._publish_new(session, start)

        def bound(written: int) -> int:
            end = min(written, begin + max(RANGE_BYTES_MIN, limit.bytes or 0))
            return max(
                begin, min(end, lsn.number(start["stop"]["lsn"])) if "stop" in start else end
            )

        checked = self.check_catalog(session, start, begin, server.written, bound)
        end = checked.end
        caught_up = (
            not checked.stopped
            and end == bound(max(server.written, end))
            and (
                end >= server.written
                or ("stop" in start and end == lsn.number(start["stop"]["lsn"]))
            )
        )
        small = end - begin <= PROBE_BYTES_MAX
        first = self._first_transaction(begin, end) if small and checked.rows is not False else None
        quiet = small and first is None and not checked.rows
        if caught_up and any(
            t["read"] is None or t["read"]["upto"] is not None for t in start["tables"].values()
        ):
            self._wait_until_visible(session, begin, end)
        return LogWindow(
            log=(
                dict(start["log"])
                if end == begin
                else self._position(start["log"], end, server, first, verified=checked.verified)
            ),
            touched=frozenset() if quiet else frozenset(self.cdc_tables),
            caught_up=caught_up,
            idle_bytes=end - begin,
            columns=checked.columns,
            definitions=checked.definitions,
            reread=checked.reread,
        )

    def _check_position(
        self, session: Session, log: Mapping[str, Any], server: ServerState
    ) -> None:
        """Raise PositionGone if this server does not have the log from a position on."""
        state = slot_state(session, self.slot)
        why = unavailable_reason(log, server, state, self.slot)
        if why or state is None:
            raise PositionGone(log["lsn"], _oldest(state), why)
        self._check_mark(log, server, state)

    def _check_mark(self, log: Mapping[str, Any], server: ServerState, state: SlotState) -> None:
        """Raise PositionGone if the log has another transaction at the mark."""
        mark = mark_of(log)
        if server.started in (log.get("started"), self._mark_checked_at) or mark is None:
            return
        at = lsn.number(mark[0])
        if state.confirmed <= at and self._first_transaction(at, at + 1, fallback=mark) != mark:
            why = (
                f"the log does not have the transaction {mark[1]} at {mark[0]}, which was "
                "read there: it was restored to an earlier state, and has continued "
                "differently"
            )
            raise PositionGone(log["lsn"], _oldest(state), why)
        self._mark_checked_at = server.started

    def _publish_new(self, session: Session, start: Offset) -> None:
        """Publish tables that are new since the last start."""
        if any(t["read"] is None for t in start["tables"].values()):
            self._ensure_publication(session, self._check_tables(session))

    def _position(
        self,
        before: Mapping[str, Any],
        end: int,
        server: ServerState,
        first: Mark | None,
        *,
        verified: bool,
    ) -> dict[str, Any]:
        """Return the document of the end of a range.

        `verified` says whether all tables match what is recorded at the end.
        """
        xmin = server.xmin if verified else before.get("xmin", 0)
        return position_of(end, server, xmin=xmin, mark=first or mark_of(before))

    def _first_transaction(
        self, begin: int, end: int, *, fallback: Mark | None = None
    ) -> Mark | None:
        """Return the first transaction of a range with changes of our tables.

        `fallback` is returned if the publication did not exist then, so that the log cannot be
        decoded.
        """
        if begin >= end:
            return None
        slot_range = SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end)
        transaction: Mark | None = None
        try:
            with closing(changes(self._open, slot_range)) as found:
                for data in found:
                    if data[0] == messages.BEGIN:
                        at, number = messages.begin(data)
                        transaction = (
                            (lsn.text(at), number, messages.commit_time(data))
                            if begin <= at < end
                            else None
                        )
                    elif transaction and data[0] in (
                        messages.INSERT,
                        messages.UPDATE,
                        messages.DELETE,
                        messages.TRUNCATE,
                    ):
                        return transaction
        except StatementRefused as error:
            if fallback is None or error.code != NO_SUCH_OBJECT:
                raise
            return fallback  # definition.py finds out what happened to the publication
        return None

    def _wait_until_visible(self, session: Session, begin: int, end: int) -> None:
        """Wait until all commits of the range are visible.

        A commit is in the log a moment before others can see it: chunks of this range must not be
        read in that moment.
        """
        deadline_s = time.monotonic() + VISIBLE_WAIT_S
        while time.monotonic() < deadline_s:
            running = {
                int(row[0])
                for row in session.query(
                    "select x::text::bigint % 4294967296 from"
                    " pg_snapshot_xip(pg_current_snapshot()) x"
                )
            }
            if not running or not self._any_committed(running, begin, end):
                return
            time.sleep(PAUSE_S)  # until the commit becomes visible
        raise TransientDatabaseError(
            str(self.address),
            "a transaction is committed in the log and not visible yet; check whether a "
            "synchronous standby is missing",
        )

    def _any_committed(self, running: set[int], begin: int, end: int) -> bool:
        if begin >= end:
            return False
        with closing(
            changes(
                self._open,
                SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end),
            )
        ) as found:
            return any(
                data[0] == messages.BEGIN and messages.begin(data)[1] in running for data in found
            )

    def read_log(
        self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the changes of these tables in a range."""
        tables = {p: self._slot_table(p, recorded) for p, recorded in columns.items()}
        slot_range = SlotRange(
            slot=self.slot,
            publication=self.publication,
            start=lsn.number(start["lsn"]),
            end=lsn.number(end["lsn"]),
        )
        return read_range(self._open, slot_range, tables, self.address.database)

    def relation(self, cdc_table: CdcTable) -> str:
        """Select only the own rows of a table.

        The log has those of inheriting tables under their own names; partitions belong to the
        table.
        """
        name = super().relation(cdc_table)
        return f"only {name}" if cdc_table.info.kind == "table" else name

    def _slot_table(self, path: str, columns: list[Any]) -> SlotTable:
        cdc_table = self.cdc_tables[path]
        key = set(cdc_table.table.primary_key)
        return SlotTable(
            layout=layout_of(columns),
            table=cdc_table.table,
            needs_before=self.has_before_images,
            skips_truncate=self._skips_truncate(path),
            deferred=any(set(late) == key for late in cdc_table.info.deferrable_keys),
        )

    def _skips_truncate(self, path: str) -> bool:
        """Return whether an operator has skipped a TRUNCATE of a table.

        The driver has checked which one.
        """
        return any(
            c.choice is ChangeChoice.SKIP and c.table in ("", path)
            for c in self.context.accepted_changes
        )

    def log_retention(self, offset: Offset) -> LogRetention:
        """Return whether the slot has the position, and how much more log may be written."""
        with self.session() as session:
            state = slot_state(session, self.slot)
            why = unavailable_reason(offset["log"], server_state(session), state, self.slot)
        if state is None or why:
            return LogRetention(False, why, position=offset["log"]["lsn"], oldest=_oldest(state))
        room = (
            "without a limit"
            if state.safe_bytes is None
            else f"until {state.safe_bytes >> 20} MiB more are written"
        )
        return LogRetention(
            True,
            f"the slot is {state.status} and holds {state.behind_bytes >> 20} MiB of log, {room}",
        )

    def release(self, offset: Offset) -> None:
        """Advance the slot to the oldest position that a restore point needs.

        If the slot is in use, a later checkpoint does it.
        """
        with self.session() as session:
            advance(session, self.slot, lsn.number(offset["log"]["lsn"]))


def _oldest(state: SlotState | None) -> str:
    """Return the first position that can still be read."""
    return lsn.text(state.confirmed) if state is not None and not state.lost else "none"
