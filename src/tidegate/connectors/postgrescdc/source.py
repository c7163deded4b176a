"""Postgres-CDC: a logical replication slot as the log of a CaptureSource. Called by the engine
through plugin.contract.

A position is {"lsn", ...} (past.py): transactions whose commit lies at or after it are not read
yet. Any position is a good end of a range, as whole transactions belong to ranges by the position
of their commit; so the driver does not read the log, it only asks whether there is something in it,
unless the catalogue shows that a table is not what it was (check.py). Columns are [name, type in
words, type, modifier, number].
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa

from tidegate.connectors.postgrescdc.check import CheckedSource
from tidegate.connectors.postgrescdc.definition import CatalogTable
from tidegate.connectors.postgrescdc.identity import check_identities
from tidegate.connectors.postgrescdc.outside import PUBLICATION, SLOT, place_of
from tidegate.connectors.postgrescdc.past import (
    Mark,
    ServerState,
    mark_of,
    position_of,
    server_state,
    why_gone,
)
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
    drop_lost_slot,
    make_slot,
    publish,
    slot_state,
)
from tidegate.databases.reconnect import retry_connect
from tidegate.databases.session import Session
from tidegate.databases.url import System
from tidegate.model.errors import TidegateError
from tidegate.plugin.contract import Limit, LogRetention, Offset, Resource, ResourceRegistry

RANGE_BYTES_MIN = 16 << 20
ASKED_BYTES_MAX = 1 << 20
"""Ranges up to this are looked into before a batch is made of them: they may hold nothing for us."""
SEEN_WAIT_S = 30.0
PAUSE_S = 0.02
LOOKS_BEFORE_NUDGE = 4
UNLOGGED = {"u": "unlogged", "t": "temporary"}
NO_SUCH_OBJECT = "42704"


class PostgresCdcSource(CheckedSource):
    system = System.POSTGRES
    _book: ResourceRegistry | None = None
    logs_generated = False
    _marked = 0
    """The start of the server after which the mark was found."""

    def session(self) -> Session:
        return self._open()

    def _open(self) -> PostgresSession:
        return retry_connect(
            lambda: PostgresSession(self.address), int(self.values["connect.max-retries"])
        )

    @property
    def has_before_images(self) -> bool:
        """Whole images before are there where the replica identity is full."""
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
                f"the source {self.address} does not write the log that is needed; set wal_level ="
                f" logical in its configuration (it is {level})"
            )
        for text in self.values.get("table-names") or ():
            self._check_kind(session, str(text))

    def _check_kind(self, session: Session, text: str) -> None:
        """A table that is named must be one that has a log: what it is instead is said before
        anything else is wanted of it.
        """
        try:
            name = self.dialect.parse_table(text, self.address)
        except ValueError:
            return  # said with the names of all tables
        found = session.query(
            "select relkind::text, relpersistence::text from pg_class where oid = to_regclass(%s)",
            (self.dialect.qualified(name),),
        )
        kind, persistence = found[0] if found else ("r", "p")
        if kind not in ("r", "p"):
            raise NoTables(
                f"{name.path} is a {KINDS.get(kind, 'relation of another kind')}, whose changes are"
                " not in the log: name the tables that it is made of"
            )
        if persistence != "p":
            raise NoTables(
                f"{name.path} is {UNLOGGED[persistence]}, and its changes are not in the log: make"
                " it a logged table, or leave it out"
            )

    def _check_tables(self, session: Session) -> dict[str, CatalogTable]:
        """Before anything is published or changed: each table must be one whose changes the log can
        tell.
        """
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
        """The publication first: the slot's plugin looks for it in the past."""
        found = self._check_tables(session)
        self._published(session, found)
        drop_lost_slot(session, self.slot)
        make_slot(session, self.slot)
        state = slot_state(session, self.slot)
        assert state is not None, "it was made before"
        if state.plugin != PLUGIN or state.database != self.address.database:
            raise NotSetUp(
                f"the replication slot {self.slot!r} is of the plugin {state.plugin} and the"
                f" database {state.database}, and not of {PLUGIN} and {self.address.database}:"
                " choose another slot.name"
            )
        if self.values["startup.mode"] == "latest":
            return self.current_position(session)
        if self.values["startup.mode"] in ("initial", "snapshot-only"):
            state = self._with_readable_log(session, state)
        server = server_state(session)
        return position_of(state.confirmed, server, xmin=server.xmin, mark=None)

    def _with_readable_log(self, session: Session, state: SlotState) -> SlotState:
        """A slot that was there, and whose log is of a time without the publication, moves on:
        nobody can read that, and the tables are read anew.
        """
        written = server_state(session).written
        try:
            self._first(state.confirmed, written)
        except StatementRefused as error:
            if error.code != NO_SUCH_OBJECT:
                raise
            advance(session, self.slot, written)
            return slot_state(session, self.slot) or state
        return state

    def _published(self, session: Session, found: Mapping[str, CatalogTable]) -> None:
        """The publication, made or completed; NotSetUp where one that is there leaves changes out."""
        self.check_publication(session, found, members=False)
        self._record_new(session)
        tables = {
            self.dialect.qualified(self.cdc_tables[path].info.name): int(table.definition["oid"])
            for path, table in found.items()
        }
        publish(session, self.publication, tables)
        self.check_publication(session, found)

    def attach_resources(self, book: ResourceRegistry) -> None:
        """What it makes on the server is recorded first."""
        self._book = book

    def _record_new(self, session: Session) -> None:
        """Only what is not there yet: what somebody else has made is not this job's to drop."""
        if self._book is None:
            return
        place = place_of(self.address)
        if not session.query(
            "select 1 from pg_publication where pubname = %s", (self.publication,)
        ):
            self._book.record(Resource(kind=PUBLICATION, name=self.publication, location=place))
        if slot_state(session, self.slot) is None:
            self._book.record(Resource(kind=SLOT, name=self.slot, location=place))

    def stop_position(self, session: Session) -> dict[str, Any] | None:
        return self.current_position(session) if self.values["stop.mode"] == "latest" else None

    def current_position(self, session: Session) -> dict[str, Any]:
        """After everything that can be seen now, once it can be read: commits that were not waited
        for are written a moment later.
        """
        wanted = str(session.scalar("select pg_current_wal_insert_lsn()::text"))
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
        looks = 0
        while (
            not session.scalar("select pg_current_wal_flush_lsn() >= %s::pg_lsn", (wanted,))
            and time.monotonic() < deadline_s
        ):
            looks += 1
            if (
                looks == LOOKS_BEFORE_NUDGE
                # what a read itself wrote may wait for the next commit: a message without rows is one
            ):
                with suppress(TidegateError):
                    session.execute("select pg_logical_emit_message(true, 'tidegate', '')")
            time.sleep(PAUSE_S)  # the server's own writer comes by
        server = server_state(session)
        return position_of(server.written, server, xmin=server.xmin, mark=None)

    def has_reached(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        return lsn.number(log["lsn"]) >= lsn.number(stop["lsn"])

    def next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        """As far as the log is written, within the limit, and up to the first change of a table
        that is not carried on.
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

        checked = self.checked(session, start, begin, server.written, bound)
        end = checked.end
        caught_up = (
            not checked.stopped
            and end == bound(max(server.written, end))
            and (
                end >= server.written
                or ("stop" in start and end == lsn.number(start["stop"]["lsn"]))
            )
        )
        small = end - begin <= ASKED_BYTES_MAX
        first = self._first(begin, end) if small and checked.rows is not False else None
        quiet = small and first is None and not checked.rows
        if caught_up and any(
            t["read"] is None or t["read"]["upto"] is not None for t in start["tables"].values()
        ):
            self._wait_until_seen(session, begin, end)
        return LogWindow(
            log=(
                dict(start["log"])
                if end == begin
                else self._position(start["log"], end, server, first, settled=checked.settled)
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
        """PositionGone where this is not the log that the position is of, or it does not hold
        everything from there on.
        """
        state = slot_state(session, self.slot)
        why = why_gone(log, server, state, self.slot)
        if why or state is None:
            raise PositionGone(log["lsn"], _oldest(state), why)
        self._check_mark(log, server, state)

    def _check_mark(self, log: Mapping[str, Any], server: ServerState, state: SlotState) -> None:
        """PositionGone where the log has another transaction at the mark than the one that was read
        there.
        """
        mark = mark_of(log)
        if server.started in (log.get("started"), self._marked) or mark is None:
            return
        at = lsn.number(mark[0])
        if state.confirmed <= at and self._first(at, at + 1, missing=mark) != mark:
            why = (
                f"the log does not have the transaction {mark[1]} at {mark[0]}, which was read"
                " there: it was restored to an earlier state, and has gone past it"
            )
            raise PositionGone(log["lsn"], _oldest(state), why)
        self._marked = server.started

    def _publish_new(self, session: Session, start: Offset) -> None:
        """Tables that are new since the last start."""
        if any(t["read"] is None for t in start["tables"].values()):
            self._published(session, self._check_tables(session))

    def _position(
        self,
        before: Mapping[str, Any],
        end: int,
        server: ServerState,
        first: Mark | None,
        *,
        settled: bool,
    ) -> dict[str, Any]:
        """The end of a range. `settled`: all tables are found as they are recorded with it."""
        xmin = server.xmin if settled else before.get("xmin", 0)
        return position_of(end, server, xmin=xmin, mark=first or mark_of(before))

    def _first(self, begin: int, end: int, *, missing: Mark | None = None) -> Mark | None:
        """The first transaction of ours in a range.

        `missing`: instead, where the publication was not there then, so that nobody can read it.
        """
        if begin >= end:
            return None
        wanted = SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end)
        inside: Mark | None = None
        try:
            with closing(changes(self._open, wanted)) as found:
                for data in found:
                    if data[0] == messages.BEGIN:
                        at, number = messages.begin(data)
                        inside = (
                            (lsn.text(at), number, messages.commit_time(data))
                            if begin <= at < end
                            else None
                        )
                    elif inside and data[0] in (
                        messages.INSERT,
                        messages.UPDATE,
                        messages.DELETE,
                        messages.TRUNCATE,
                    ):
                        return inside
        except StatementRefused as error:
            if missing is None or error.code != NO_SUCH_OBJECT:
                raise
            return missing  # definition.py tells what became of it
        return None

    def _wait_until_seen(self, session: Session, begin: int, end: int) -> None:
        """A commit is in the log a moment before others can see it: chunks of this range must not
        be read in that moment.
        """
        deadline_s = time.monotonic() + SEEN_WAIT_S
        while time.monotonic() < deadline_s:
            running = {
                int(row[0])
                for row in session.query(
                    "select x::text::bigint % 4294967296 from"
                    " pg_snapshot_xip(pg_current_snapshot()) x"
                )
            }
            if not running or not self._committed_of(running, begin, end):
                return
            time.sleep(PAUSE_S)  # the commit becomes visible
        raise TransientDatabaseError(
            str(self.address),
            "a transaction is committed in the log and not visible yet; is a synchronous standby"
            " missing?",
        )

    def _committed_of(self, running: set[int], begin: int, end: int) -> bool:
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
        """The changes of these tables."""
        tables = {p: self._slot_table(p, known) for p, known in columns.items()}
        wanted = SlotRange(
            slot=self.slot,
            publication=self.publication,
            start=lsn.number(start["lsn"]),
            end=lsn.number(end["lsn"]),
        )
        return read_range(self._open, wanted, tables, self.address.database)

    def relation(self, cdc_table: CdcTable) -> str:
        """Only the table's own rows: the log has those of tables that inherit from it under their
        own names. Partitions are the table's own.
        """
        name = super().relation(cdc_table)
        return f"only {name}" if cdc_table.info.kind == "table" else name

    def _slot_table(self, path: str, columns: list[Any]) -> SlotTable:
        captured = self.cdc_tables[path]
        key = set(captured.table.primary_key)
        return SlotTable(
            layout=layout_of(columns),
            table=captured.table,
            whole=self.has_before_images,
            passes_truncate=self._passes_truncate(path),
            deferred=any(set(late) == key for late in captured.info.deferrable_keys),
        )

    def _passes_truncate(self, path: str) -> bool:
        """Whether a person has passed over a TRUNCATE of a table; the driver has looked which one."""
        return any(
            c.choice is ChangeChoice.SKIP and c.table in ("", path)
            for c in self.context.accepted_changes
        )

    def log_retention(self, offset: Offset) -> LogRetention:
        """Whether the slot holds the position, and how much more may be written."""
        with self.session() as session:
            state = slot_state(session, self.slot)
            why = why_gone(offset["log"], server_state(session), state, self.slot)
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
        """The slot moves on to the oldest position that a restore point needs; where it is being
        read, with a later checkpoint.
        """
        with self.session() as session:
            advance(session, self.slot, lsn.number(offset["log"]["lsn"]))


def _oldest(state: SlotState | None) -> str:
    """The first position that can still be read."""
    return lsn.text(state.confirmed) if state is not None and not state.lost else "none"
