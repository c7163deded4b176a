"""Postgres-CDC: a logical replication slot as the log of a CaptureSource. Called by the engine through plugin.contract.

A position is {"lsn", "files"}: transactions whose commit lies at or after it are not read yet; altered.py tells what the files are for. Any position is a
good end of a range, as whole transactions belong to ranges by the position of their commit; so the driver does not read the log, it only asks whether there is
something in it. Columns are [name, type].
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.connectors.postgrescdc.altered import Files, FirstChange, files_of, first_change
from tidegate.connectors.postgrescdc.filled import filled
from tidegate.connectors.postgrescdc.identity import Kept, identities
from tidegate.connectors.postgrescdc.outside import PUBLICATION, SLOT, place_of
from tidegate.databases.capture.errors import NotSetUp, PositionGone, TableChanged
from tidegate.databases.capture.filled import UNKNOWN, Filled
from tidegate.databases.capture.selection import CaptureTable
from tidegate.databases.capture.source import CaptureSource, Look
from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.patience import patiently
from tidegate.databases.pgoutput import lsn, messages
from tidegate.databases.pgoutput.reader import SlotTable, read_range
from tidegate.databases.pgoutput.slots import SlotState, advance, make_slot, publish, slot_state
from tidegate.databases.pgoutput.stream import SlotRange, changes
from tidegate.databases.postgres import PostgresSession
from tidegate.databases.session import Session
from tidegate.databases.url import System
from tidegate.model.errors import TidegateError
from tidegate.plugin.contract import Book, Limit, Offset, Resource, Runway

RANGE_BYTES_MIN = 16 << 20
ASKED_BYTES_MAX = 1 << 20
"""Ranges up to this are looked into before a batch is made of them: they may hold nothing for us."""
SEEN_WAIT_S = 30.0
PAUSE_S = 0.02
LOOKS_BEFORE_NUDGE = 4


class PostgresCdcSource(CaptureSource):
    """Snapshot and slot."""

    system = System.POSTGRES
    _book: Book | None = None
    _seen: tuple[int, dict[str, str]] = (0, {})
    logs_generated = False

    def session(self) -> Session:
        """A connection."""
        return self._open()

    def _open(self) -> PostgresSession:
        return patiently(lambda: PostgresSession(self.address), int(self.values["connect.max-retries"]))

    @property
    def takes_back(self) -> bool:
        """Whole images before are there where the replica identity is full."""
        return bool(self.values["require-replica-identity-full"])

    @property
    def slot(self) -> str:
        """The slot's name."""
        return str(self.values["slot.name"])

    @property
    def publication(self) -> str:
        """The publication's name."""
        return str(self.values["publication.name"] or f"tidegate_{self.slot}")

    def check_server(self, session: Session) -> None:
        """Logical decoding is needed."""
        level = session.one("select current_setting('wal_level')")
        if level != "logical":
            raise NotSetUp(f"the source {self.address} does not write the log that is needed; set wal_level = logical in its configuration (it is {level})")

    def _check_identity(self, session: Session) -> None:
        told = [identity for c in self.captured.values() for identity in identities(session, self.dialect, c.info.name)]
        if without := [identity.table for identity in told if identity.kind is Kept.NOTHING]:
            raise NotSetUp(f"the server refuses updates and deletes of a published table whose rows its log could not tell apart; run: {_full(without)}")
        short = [identity.table for identity in told if identity.kind is not Kept.WHOLE]
        if short and self.takes_back:
            raise NotSetUp(
                f"the source writes only keys of changed rows; run: {_full(short)} (or set require-replica-identity-full = false, and read what that means)"
            )

    def log_begin(self, session: Session) -> dict[str, Any]:
        """The publication first: the slot's plugin looks for it in the past."""
        self._check_identity(session)
        self._record_new(session)
        publish(session, self.publication, [self.dialect.qualified(c.info.name) for c in self.captured.values()])
        make_slot(session, self.slot)
        state = slot_state(session, self.slot)
        assert state is not None, "it was made before"
        if state.lost:
            raise NotSetUp(f"the replication slot {self.slot!r} was invalidated and cannot be used any more: drop it, or choose another slot.name")
        if self.values["startup.mode"] == "latest":
            return self.log_now(session)
        return _document(state.confirmed)

    def equip(self, book: Book) -> None:
        """What it makes on the server is recorded first."""
        self._book = book

    def _record_new(self, session: Session) -> None:
        """Only what is not there yet: what somebody else has made is not this job's to drop."""
        if self._book is None:
            return
        place = place_of(self.address)
        if not session.query("select 1 from pg_publication where pubname = %s", (self.publication,)):
            self._book.record(Resource(kind=PUBLICATION, name=self.publication, place=place))
        if slot_state(session, self.slot) is None:
            self._book.record(Resource(kind=SLOT, name=self.slot, place=place))

    def log_stop(self, session: Session) -> dict[str, Any] | None:
        """By stop.mode."""
        return self.log_now(session) if self.values["stop.mode"] == "latest" else None

    def log_now(self, session: Session) -> dict[str, Any]:
        """After everything that can be seen now, once it can be read: commits that were not waited for are written a moment later."""
        wanted = str(session.one("select pg_current_wal_insert_lsn()::text"))
        delay_s = 1.0 + 3 * float(session.one("select setting::float from pg_settings where name = 'wal_writer_delay'")) / 1000
        deadline_s = time.monotonic() + delay_s
        looks = 0
        while not session.one("select pg_current_wal_flush_lsn() >= %s::pg_lsn", (wanted,)) and time.monotonic() < deadline_s:
            looks += 1
            if looks == LOOKS_BEFORE_NUDGE:  # what a read itself wrote may wait for the next commit: a message without rows is one
                with suppress(TidegateError):
                    session.execute("select pg_logical_emit_message(true, 'tidegate', '')")
            time.sleep(PAUSE_S)  # the server's own writer comes by
        return {"lsn": str(session.one("select pg_current_wal_flush_lsn()::text"))}

    def passed(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        """By number."""
        return lsn.number(log["lsn"]) >= lsn.number(stop["lsn"])

    def look(self, session: Session, start: Offset, limit: Limit) -> Look:
        """As far as the log is written, within the limit."""
        begin = lsn.number(start["log"]["lsn"])
        self._slot(session, begin)
        before = self._files(session)
        written = lsn.number(str(session.one("select pg_current_wal_flush_lsn()::text")))
        end = min(written, begin + max(RANGE_BYTES_MIN, limit.bytes or 0))
        if "stop" in start:
            end = min(end, lsn.number(start["stop"]["lsn"]))
        caught_up = end == written or ("stop" in start and end == lsn.number(start["stop"]["lsn"]))
        end, columns = self._before_changes(session, start, (begin, max(begin, end), written), before)
        self._publish_new(session, start)
        quiet = end - begin <= ASKED_BYTES_MAX and not self._anything(begin, end)
        if caught_up and any(t["read"] is None or t["read"]["upto"] is not None for t in start["tables"].values()):
            self._wait_until_seen(session, begin, end)
        return Look(
            log=_document(end, self._known_files(start, begin)),
            touched=frozenset() if quiet else frozenset(self.captured),
            caught_up=caught_up and not columns,
            idle_bytes=end - begin,
            columns=columns,
        )

    def _files(self, session: Session) -> Files:
        return files_of(session, {path: self.dialect.qualified(c.info.name) for path, c in self.captured.items()})

    def _known_files(self, start: Offset, begin: int) -> dict[str, str]:
        """The files of tables that nothing has emptied between a position and the moment when they had these files."""
        seen_from, seen = self._seen
        known = {**start["log"].get("files", {}), **(seen if begin >= seen_from else {})}
        return {path: files for path, files in known.items() if path in self.captured}

    def _slot(self, session: Session, begin: int) -> SlotState:
        """The slot, which must hold everything from a position on."""
        state = slot_state(session, self.slot)
        why = self._gone(state, begin)
        if state is None or why:
            raise PositionGone(lsn.text(begin), _oldest(state), why)
        return state

    def _gone(self, state: SlotState | None, begin: int) -> str:
        if state is None:
            return f"there is no replication slot {self.slot!r} any more"
        if state.lost:
            return f"the replication slot {self.slot!r} was invalidated, as it held back more log than max_slot_wal_keep_size allows"
        if state.confirmed > begin:
            return f"the replication slot {self.slot!r} was moved on by somebody else"
        return ""

    def _publish_new(self, session: Session, start: Offset) -> None:
        """Tables that are new since the last start."""
        if any(t["read"] is None for t in start["tables"].values()):
            self._check_identity(session)
            publish(session, self.publication, [self.dialect.qualified(c.info.name) for c in self.captured.values()])

    def _anything(self, begin: int, end: int) -> bool:
        """Whether a transaction of ours is in a range."""
        if begin >= end:
            return False
        wanted = SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end)
        inside = False
        with closing(changes(self._open, wanted)) as found:
            for data in found:
                if data[0] == messages.BEGIN:
                    inside = begin <= messages.begin(data)[0] < end
                elif inside and data[0] in (messages.INSERT, messages.UPDATE, messages.DELETE, messages.TRUNCATE):
                    return True
        return False

    def _before_changes(self, session: Session, start: Offset, span: tuple[int, int, int], before: Files) -> tuple[int, dict[str, list[Any]]]:
        """Where a table does not look any more as it did, or was emptied: the end before the first transaction that shows it; if it is the first, its columns.

        The span is where the range begins, where it may end, and how far the log was written when `before` was known and nothing later was.
        """
        begin, end, written = span
        now = self._files(session)  # after the end was taken: what is in the range can be seen here, or holds its lock
        altered = self._altered(session, start)
        if not altered and not now.locked and now.names == self._known_files(start, begin):
            return end, {}
        known = {path: [str(c[0]) for c in entry["columns"]] for path, entry in start["tables"].items() if path in self.captured}
        first = None
        if begin < end:
            with closing(changes(self._open, SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end))) as found:
                first = first_change(found, self.address.database, known, begin)
        if first is not None:
            return (first.commit, {}) if self._anything(begin, first.commit) else (begin, self._carried_on(session, start, first))
        if end == written and not now.locked and now.names == before.names:
            self._seen = (begin, dict(now.names))
        if begin < end or not altered:
            return end, {}
        return begin, {path: self._columns_after(session, start, path, None, begin) for path in altered}

    def _altered(self, session: Session, start: Offset) -> set[str]:
        """Tables that have other columns now than they are known with."""
        altered = set()
        for path, captured in self.captured.items():
            now = self._columns_now(session, captured)
            if now != start["tables"].get(path, {"columns": now})["columns"]:
                altered.add(path)
        return altered

    def _columns_now(self, session: Session, captured: CaptureTable) -> list[Any] | None:
        info = self.dialect.table_info(session, captured.info.name)
        return None if info is None else self.columns_of(replace(captured, info=info))

    def _carried_on(self, session: Session, start: Offset, first: FirstChange) -> dict[str, list[Any]]:
        if first.columns is None:
            raise TableChanged(first.path, "TRUNCATE", lsn.text(first.commit))
        return {first.path: self._columns_after(session, start, first.path, first.columns, first.commit)}

    def _columns_after(self, session: Session, start: Offset, path: str, shown: tuple[str, ...] | None, at: int) -> list[Any]:
        """Those of the catalogue that a transaction shows, as later ones are not there yet; TableChanged where they are not carried on."""
        before = start["tables"][path]["columns"]
        found = self._columns_now(session, self.captured[path])
        now = found if found is None or shown is None else [c for c in found if c[0] in shown]
        whole = now is not None and (shown is None or len(now) == len(shown)) and [c for c in now if c in before] == before
        if now is None or not whole or not self.values["schema-changes.enabled"]:
            raise TableChanged(path, f"its columns were {_shown(before)} and are {_shown(now)}", lsn.text(at))
        names = {c[0] for c in before}
        values = self.filled(session, self._as_now(session, path))
        unknown = [str(c[0]) for c in now if c[0] not in names and values.get(c[0], UNKNOWN) is UNKNOWN]
        if unknown:
            what = f"it got {', '.join(unknown)}, and what the rows of before have in it cannot be told (its default differs from row to row)"
            raise TableChanged(path, what, lsn.text(at))
        return now

    def _as_now(self, session: Session, path: str) -> CaptureTable:
        captured = self.captured[path]
        info = self.dialect.table_info(session, captured.info.name) or captured.info
        return replace(captured, info=info, table=info.as_table({c.name: self.dialect.data_type(c) for c in info.columns}))

    def filled(self, session: Session, captured: CaptureTable) -> Filled:
        """As the catalogue keeps it."""
        return filled(session, self.dialect, captured)

    def _wait_until_seen(self, session: Session, begin: int, end: int) -> None:
        """A commit is in the log a moment before others can see it: chunks of this range must not be read in that moment."""
        deadline_s = time.monotonic() + SEEN_WAIT_S
        while time.monotonic() < deadline_s:
            running = {int(row[0]) for row in session.query("select x::text::bigint % 4294967296 from pg_snapshot_xip(pg_current_snapshot()) x")}
            if not running or not self._committed_of(running, begin, end):
                return
            time.sleep(PAUSE_S)  # the commit becomes visible
        raise DatabaseTrouble(str(self.address), "a transaction is committed in the log and not visible yet; is a synchronous standby missing?")

    def _committed_of(self, running: set[int], begin: int, end: int) -> bool:
        if begin >= end:
            return False
        with closing(changes(self._open, SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end))) as found:
            return any(data[0] == messages.BEGIN and messages.begin(data)[1] in running for data in found)

    def read_log(self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes of these tables."""
        tables = {p: SlotTable(columns=tuple(str(c[0]) for c in known), table=self.captured[p].table) for p, known in columns.items()}
        wanted = SlotRange(slot=self.slot, publication=self.publication, start=lsn.number(start["lsn"]), end=lsn.number(end["lsn"]))
        return read_range(self._open, wanted, tables, self.address.database)

    def columns_of(self, captured: CaptureTable) -> list[Any]:
        """Name and type of each that the log has."""
        return [[c.name, c.native] for c in captured.info.columns if not c.generated]

    def runway(self, offset: Offset) -> Runway:
        """Whether the slot holds the position, and how much more may be written."""
        with self.session() as session:
            state = slot_state(session, self.slot)
        why = self._gone(state, lsn.number(offset["log"]["lsn"]))
        if state is None or why:
            return Runway(False, why, position=offset["log"]["lsn"], oldest=_oldest(state))
        room = "without a limit" if state.safe_bytes is None else f"until {state.safe_bytes >> 20} MiB more are written"
        return Runway(True, f"the slot is {state.status} and holds {state.behind_bytes >> 20} MiB of log, {room}")

    def release(self, offset: Offset) -> None:
        """The slot moves on to the oldest position that a restore point needs; where it is being read, with a later checkpoint."""
        with self.session() as session:
            advance(session, self.slot, lsn.number(offset["log"]["lsn"]))


def _full(tables: list[str]) -> str:
    return "; ".join(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables)


def _oldest(state: SlotState | None) -> str:
    """The first position that can still be read."""
    return lsn.text(state.confirmed) if state is not None and not state.lost else "none"


def _document(position: int, files: dict[str, str] | None = None) -> dict[str, Any]:
    return {"lsn": lsn.text(position), **({"files": files} if files else {})}


def _shown(columns: list[Any] | None) -> str:
    return "gone" if columns is None else ", ".join(f"{name} {kind}" for name, kind in columns)
