"""Base class of the sources of all databases that have a log.

The package docstring describes the algorithm; the log itself is left to the subclasses in the CDC
connectors. The offset:

    {"log": position,
     "tables": {path: {"columns": ..., "read": progress, "definition": ...?}},
     "touched": [paths that changed in the last range],
     "gone": [paths that are missing in the catalogue and that an operator has given up]?,
     "stop": position?}

The position, the columns and the definition have a format that only the subclass of the database
reads. A change of a table that cannot be applied automatically stops the job (TableChanged) before
it, until an operator has chosen what to do about it (`accepted`).
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from tidegate.databases.catalog import NativeColumn
from tidegate.databases.cdc.changes import SnapshotRollback, as_inserts, normalize_changes
from tidegate.databases.cdc.column_defaults import ColumnDefaults, to_stored
from tidegate.databases.cdc.errors import ChangeChoice, ColumnsAdded, OrderChanged, TableChanged
from tidegate.databases.cdc.key_order import KeyOrder, order_of
from tidegate.databases.cdc.keys import KeyChunk, SplitKey, split_key
from tidegate.databases.cdc.progress import (
    chunk_budget,
    chunks_between,
    is_done,
    next_cuts,
    snapshot_done,
    unfinished,
)
from tidegate.databases.cdc.selection import CdcTable, matches_patterns, select
from tidegate.databases.cdc.spool import Spool
from tidegate.databases.cdc.unique import check_unique
from tidegate.databases.cdc.window import LogWindow
from tidegate.databases.dialect import Dialect, dialect_of
from tidegate.databases.errors import TableMissing
from tidegate.databases.session import Session
from tidegate.databases.tls import from_debezium
from tidegate.databases.url import Address, System, parse_url
from tidegate.failpoint import failpoint
from tidegate.model.table_changes import choice_for
from tidegate.model.types import Table
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import MULTIPLE_TABLES, Limit, Offset, OperatorContext, Source, Split
from tidegate.plugin.option import Values

IDLE_BYTES_MAX = 4 << 20
"""Log of other tables to skip before the position advances; up to then, a poll that finds nothing
writes nothing.
"""


TABLE_GONE = (
    "the catalogue no longer has it (dropped, renamed, or the privileges were revoked); "
    "changes that the log still has of it are not delivered"
)


class CdcSource(Source):
    """Snapshot and log of one database."""

    system: ClassVar[System]
    logs_generated: ClassVar[bool] = True
    """Whether the log has columns that the database computes."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        properties = {
            **from_debezium(values["debezium"]),
            "connect_timeout_s": str(max(1, int(values["connect.timeout.ms"]) // 1000)),
        }
        self.address: Address = parse_url(
            str(values["url"]), values["username"], values["password"], properties
        )
        self.dialect: Dialect = dialect_of(self.system)
        # Tables of the job file that the catalogue does not have.
        self._missing: dict[str, TableMissing] = {}
        # Tables of which nothing is read at the beginning of the range that is planned.
        self._nothing_read: frozenset[str] = frozenset()
        # Whether the last poll stopped before the end; true before the first one, so that it runs
        # without delay.
        self._has_backlog = True

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to tasks.

        It has the tables, so that tasks need not read the catalogue.
        """
        own = {
            "values": self.values,
            "context": self.context,
            "address": self.address,
            "dialect": self.dialect,
        }
        return (
            {**own, "cdc_tables": self.__dict__["cdc_tables"]}
            if "cdc_tables" in self.__dict__
            else own
        )

    # What a subclass implements.

    @abstractmethod
    def session(self) -> Session:
        """Open a connection; retries while the server is starting."""

    @abstractmethod
    def check_server(self, session: Session) -> None:
        """Raise NotSetUp if the server does not write the log that CDC needs.

        The error has all problems.
        """

    @abstractmethod
    def start_position(self, session: Session) -> dict[str, Any]:
        """Return where the log is read from, by startup.mode."""

    @abstractmethod
    def stop_position(self, session: Session) -> dict[str, Any] | None:
        """Return where the log ends, by stop.mode; None for never."""

    @abstractmethod
    def next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        """Return the next range of the log; PositionGone if the server no longer has it."""

    @abstractmethod
    def has_reached(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        """Return whether a position is at or after another."""

    @abstractmethod
    def current_position(self, session: Session) -> dict[str, Any]:
        """Return a position at or after everything that a finished read can have seen."""

    @abstractmethod
    def read_log(
        self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the changes of (start, end] of these tables, as (path, batch)."""

    @abstractmethod
    def columns_of(self, cdc_table: CdcTable) -> list[Any]:
        """Return what decoding the log requires of the columns of a table, as JSON."""

    @abstractmethod
    def column_defaults(self, session: Session, cdc_table: CdcTable) -> ColumnDefaults:
        """Return what each column holds in rows that existed before it was added."""

    @property
    def has_before_images(self) -> bool:
        """Whether the log has complete before images, which chunks are rolled back with."""
        return True

    # What all databases share.

    @cached_property
    def cdc_tables(self) -> dict[str, CdcTable]:
        """The tables that are read, by path."""
        with self.session() as session:
            self.check_server(session)
            found = select(session, self.dialect, self.values, generated=self.logs_generated)
            self._missing = found.missing
            if not self.values["schema-changes.enabled"]:
                return found.tables
            return {path: self._with_defaults(session, c) for path, c in found.tables.items()}

    def _with_defaults(self, session: Session, cdc_table: CdcTable) -> CdcTable:
        """Add the defaults of existing rows, which sinks read when they add a column."""
        options = {
            **cdc_table.table.options,
            "defaults": to_stored(self.column_defaults(session, cdc_table)),
        }
        return replace(cdc_table, table=replace(cdc_table.table, options=options))

    def tables(self) -> tuple[Table, ...]:
        """Return the tables as the catalogue defines them now."""
        return tuple(c.table for c in self.cdc_tables.values())

    @property
    def bounded(self) -> bool:
        """Whether the job file sets an end."""
        return bool(
            self.values["stop.mode"] != "never" or self.values["startup.mode"] == "snapshot-only"
        )

    def initial(self) -> Offset:
        """Return the log position of startup.mode, with unread tables if it takes a snapshot."""
        cdc_tables = self.cdc_tables
        for missing in self._missing.values():
            raise missing
        with self.session() as session:
            log, stop = self.start_position(session), self.stop_position(session)
        snapshot = self.values["startup.mode"] in ("initial", "snapshot-only")
        tables = {
            path: {"columns": self.columns_of(c), "read": None if snapshot else snapshot_done()}
            for path, c in cdc_tables.items()
        }
        return {
            "log": log,
            "tables": tables,
            "touched": [],
            **({"stop": stop} if stop is not None else {}),
        }

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """Return the offset after the next range of the log.

        Chunks of unread tables are added if the range reaches the end of the log.
        """
        position = self._without_dropped_tables(self._with_new_tables(start))
        if self.is_exhausted(position):
            self._has_backlog = False
            return position
        with self.session() as session:
            window = self._resolve_lost_columns(
                position, self._next_window(session, position, limit)
            )
            tables = {path: dict(entry) for path, entry in position["tables"].items()}
            for path, columns in (window.columns or {}).items():
                self._check_pipeline_columns(session, path, columns)
                tables[path]["columns"] = columns
            for path, definition in (window.definitions or {}).items():
                tables[path]["definition"] = definition
            for path in window.reread:
                tables[path]["read"] = None
            todo = unfinished(
                {p: t["read"] for p, t in tables.items()},
                [p for p in tables if p in self.cdc_tables],
            )
            # Chunks are counted from the progress at the beginning of the range.
            if window.caught_up and todo and not window.reread:
                self._plan_chunks(session, tables, todo, limit)
        self._has_backlog = not window.caught_up or any(
            not is_done(tables[path]["read"]) for path in todo
        )
        moves = (
            tables != position["tables"]
            or window.idle_bytes > IDLE_BYTES_MAX
            or any(position["tables"][p]["read"] for p in window.touched)
        )
        # A range that stops before the end of the log must be continued from there.
        moves = moves or (not window.caught_up and window.log != position["log"])
        reached = (
            "stop" in position
            and self.has_reached(window.log, position["stop"])
            and window.log != position["log"]
        )
        if not (moves or reached):
            return start if position == start else position
        return {**position, "log": window.log, "tables": tables, "touched": sorted(window.touched)}

    def _with_new_tables(self, start: Offset) -> Offset:
        """Add tables that match since the last start; they are read from their beginning."""
        new_tables = {
            p: {"columns": self.columns_of(c), "read": None}
            for p, c in self.cdc_tables.items()
            if p not in start["tables"]
        }
        if not new_tables:
            return start
        gone = [path for path in start.get("gone", ()) if path not in new_tables]
        return {
            **start,
            "tables": {**start["tables"], **new_tables},
            **({"gone": gone} if "gone" in start else {}),
        }

    def _without_dropped_tables(self, start: Offset) -> Offset:
        """Leave out tables that the catalogue no longer has, once an operator has accepted it.

        They are recorded as gone, so that nobody has to decide again.
        """
        recorded = start["tables"]
        gone = [
            path
            for path in recorded
            if path not in self.cdc_tables
            and (path in self._missing or matches_patterns(self.values, path))
        ]
        for path, missing in self._missing.items():
            if path not in recorded and path not in start.get("gone", ()):
                raise missing
        at = self.position_text(start["log"])
        for path in gone:
            if self.accepted(path, at) is not ChangeChoice.SKIP:
                raise TableChanged(path, TABLE_GONE, at, choices=(ChangeChoice.SKIP,)).for_job(
                    self.context.job_id
                )
        if not gone:
            return start
        remaining = {path: entry for path, entry in recorded.items() if path not in gone}
        return {**start, "tables": remaining, "gone": sorted({*start.get("gone", ()), *gone})}

    def position_text(self, log: Mapping[str, Any]) -> str:
        """Return a human-readable position: the same at every call."""
        return str(log["lsn"]) if "lsn" in log else f"{log['file']}:{log['pos']}"

    def _next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        """Return the next range; name the commands of this job if a change needs a decision."""
        self._nothing_read = frozenset(
            path for path, entry in start["tables"].items() if entry["read"] is None
        )
        try:
            return self.next_window(session, start, limit)
        except TableChanged as error:
            raise error.for_job(self.context.job_id) from None

    def _resolve_lost_columns(self, start: Offset, window: LogWindow) -> LogWindow:
        """Stop, or reread tables, if rows of the range do not fit the pipeline.

        The pipeline is built with the columns of the catalogue, which may be newer than the log.
        """
        at = self.position_text(start["log"])
        reread = set()
        for path in sorted(window.touched):
            entry = start["tables"].get(path)
            if entry is None or entry["read"] is None or path not in self.cdc_tables:
                continue
            lost = self._lost_columns(path, entry["columns"])
            choice = self.accepted(path, at) if lost else ChangeChoice.ADOPT
            if choice not in (ChangeChoice.ADOPT, ChangeChoice.REREAD):
                what = (
                    f"the log has rows with {', '.join(lost)}, from before a later change of "
                    "the table; adopt delivers them without these values, reread reads the "
                    "table again in its current state"
                )
                raise TableChanged(
                    path, what, at, choices=(ChangeChoice.ADOPT, ChangeChoice.REREAD)
                ).for_job(self.context.job_id)
            if choice is ChangeChoice.REREAD:
                reread.add(path)
        return (
            replace(window, touched=window.touched - reread, reread=window.reread | reread)
            if reread
            else window
        )

    def _lost_columns(self, path: str, columns: Sequence[Any]) -> list[str]:
        """Return columns of rows in the log that the pipeline lacks, or has with another type."""
        cdc_table = self.cdc_tables[path]
        flows = {c.name: c.type for c in cdc_table.table.columns}
        lost = []
        for name, native, *_ in columns:
            now = cdc_table.info.column(str(name))
            if str(name) in flows and now is not None and now.native == native:
                continue
            if (
                str(name) not in flows
                or self.dialect.data_type(NativeColumn(name=str(name), native=str(native)))
                != flows[str(name)]
            ):
                lost.append(f"{name} {native}")
        return lost

    def accepted(self, path: str, at: str) -> ChangeChoice | None:
        """Return what an operator has decided about the change of a table at a position.

        A table of which nothing is read is read in its current state.
        """
        return choice_for(self.context.accepted_changes, path, at) or (
            ChangeChoice.REREAD if path in self._nothing_read else None
        )

    def _check_pipeline_columns(self, session: Session, path: str, columns: Sequence[Any]) -> None:
        """Raise ColumnsAdded if the pipeline must restart to include the columns of a table.

        Columns flow through the whole pipeline, which is built when it starts.
        """
        cdc_table = self.cdc_tables.get(path)
        if cdc_table is None:
            return
        names = {c.name for c in cdc_table.table.columns}
        lacking = [str(c[0]) for c in columns if str(c[0]) not in names]
        if lacking:
            raise ColumnsAdded(
                path, "the column" + ("s " if len(lacking) > 1 else " ") + ", ".join(lacking)
            )
        if self._outdated(session, cdc_table):
            raise ColumnsAdded(path, "other columns than it had when the pipeline started")

    def _plan_chunks(
        self, session: Session, tables: dict[str, Any], todo: Sequence[str], limit: Limit
    ) -> None:
        rows_each = int(self.values["snapshot.split.size"])
        remaining = chunk_budget(limit.rows, rows_each, self.context.parallelism)
        for path in todo:
            before = tables[path]["read"]
            key = self._split(path, (before or {}).get("order"))
            tables[path]["read"] = next_cuts(
                session, self.relation(self.cdc_tables[path]), key, before, rows_each, remaining
            )
            self._check_order(session, path, key)
            chunk = KeyChunk(before["upto"] if before else None, tables[path]["read"]["upto"])
            check_unique(
                session,
                self.dialect,
                self.cdc_tables[path],
                self.relation(self.cdc_tables[path]),
                key,
                chunk,
            )
            remaining -= len(tables[path]["read"]["cuts"])
            if remaining <= 0:
                return

    def _outdated(self, session: Session, cdc_table: CdcTable) -> bool:
        """Return whether the catalogue has other columns than the pipeline was built with."""
        info = self.dialect.table_info(session, cdc_table.info.name)
        return info is None or self.columns_of(replace(cdc_table, info=info)) != self.columns_of(
            cdc_table
        )

    def relation(self, cdc_table: CdcTable) -> str:
        """Return what the rows of a table are selected from."""
        return self.dialect.qualified(cdc_table.info.name)

    def _split(self, path: str, order: list[str] | None) -> SplitKey | None:
        return split_key(self.cdc_tables[path], self.dialect, order)

    def _check_order(self, session: Session, path: str, key: SplitKey | None) -> None:
        """Raise OrderChanged if new bounds may be in another order than those before them."""
        if key is None or not key.column.collation:
            return
        info = self.dialect.table_info(session, self.cdc_tables[path].info.name)
        now = info.column(key.column.name) if info is not None else None
        if now is None or now.collation != key.column.collation:
            became = now.collation if now is not None else "gone"
            raise OrderChanged(path, key.column.name, key.column.collation, became)

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """Return a split for each changed table and one for each chunk.

        The changes of a table must stay in order.
        """
        del count  # the chunks are fixed
        log = [
            Split(path, payload, 1)
            for payload in self._log_payloads(start, end)
            for path in payload["tables"]
        ]
        return [*log, *self._chunk_splits(start, end)]

    def shared_splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """Return one split of the log for all tables, and one for each chunk."""
        del count  # the chunks are fixed
        log = [
            Split(
                MULTIPLE_TABLES if len(payload["tables"]) > 1 else next(iter(payload["tables"])),
                payload,
                1,
            )
            for payload in self._log_payloads(start, end)
            if payload["tables"]
        ]
        return [*log, *self._chunk_splits(start, end)]

    def _log_payloads(self, start: Offset, end: Offset) -> Iterator[dict[str, Any]]:
        if start["log"] == end["log"]:
            return
        read_tables = {
            p: t
            for p, t in start["tables"].items()
            if t["read"] is not None and p in self.cdc_tables and p in end["touched"]
        }
        yield {
            "log": [start["log"], end["log"]],
            "tables": {p: _task_entry(t) for p, t in read_tables.items()},
        }

    def _chunk_splits(self, start: Offset, end: Offset) -> Iterator[Split]:
        for path, after in end["tables"].items():
            before = start["tables"].get(path, {"read": None})["read"]
            for chunk in chunks_between(before, after["read"]) if path in self.cdc_tables else ():
                payload = {
                    "chunk": [chunk.low, chunk.high],
                    "order": after["read"].get("order"),
                    "at": end["log"],
                    "columns": after["columns"],
                }
                yield Split(path, payload, int(self.values["snapshot.split.size"]) * 64)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield, in a task, the changes of a range or the rows of a chunk."""
        if "chunk" in split.payload:
            yield from self._read_chunk(split.table, split.payload)
            return
        entries = (
            split.payload["tables"]
            if split.table == MULTIPLE_TABLES
            else {split.table: split.payload["tables"][split.table]}
        )
        start, end = split.payload["log"]
        with ExitStack() as stack:
            orders = {
                path: stack.enter_context(self._order(path, entry))
                for path, entry in entries.items()
                if entry["upto"] is not None
            }
            for path, batch in self.read_log(
                start, end, {p: t["columns"] for p, t in entries.items()}
            ):
                inside = orders[path].upto(batch, entries[path]["upto"]) if path in orders else None
                changes = normalize_changes(batch, self.cdc_tables[path].table.primary_key, inside)
                if changes.num_rows:
                    yield (
                        changes.replace_schema_metadata({"table": path})
                        if split.table == MULTIPLE_TABLES
                        else changes
                    )

    def _order(self, path: str, entry: Mapping[str, Any]) -> KeyOrder:
        key = self._split(path, entry.get("order"))
        assert key is not None, "the table was split by this key before"
        return order_of(key, self.session)

    def _read_chunk(self, path: str, payload: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Read the current rows, then roll them back to the position.

        A table without rows gives an empty batch, so that sinks create it.
        """
        chunk = KeyChunk(*payload["chunk"])
        table = self.cdc_tables[path].table
        schema, key = table_schema(table), table.primary_key
        is_whole_table = chunk == KeyChunk(None, None)
        with (
            Spool(schema) as spool,
            nullcontext() if is_whole_table else self._order(path, payload) as order,
        ):
            failpoint("capture.chunk.before")
            for batch in self._rows(path, chunk, payload.get("order")):
                spool.add(as_inserts(batch, schema))
            failpoint("capture.chunk.middle")
            rollback = SnapshotRollback(
                key, None if order is None else lambda batch: order.inside(batch, chunk)
            )
            if self.has_before_images:
                with self.session() as session:
                    now = self.current_position(session)
                for _, batch in self.read_log(payload["at"], now, {path: payload["columns"]}):
                    rollback.add(normalize_changes(batch, key))
            empty = chunk.low is None
            for batch in rollback.apply(spool, schema):
                empty = False
                yield batch
            if empty:
                yield pa.RecordBatch.from_pylist([], schema=schema)
            failpoint("capture.chunk.after")

    def _rows(
        self, path: str, chunk: KeyChunk, order: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        cdc_table = self.cdc_tables[path]
        types = {c.name: c.type for c in cdc_table.table.columns}
        selected = ", ".join(
            self.dialect.expression(c, types[c.name]) for c in cdc_table.info.columns
        )
        key = self._split(path, order)
        condition = key.condition(chunk) if key is not None else ""
        sql = f"select {selected} from {self.relation(cdc_table)}" + (
            f" where {condition}" if condition else ""
        )
        return self.dialect.batches(
            self.address, sql, list(types.items()), int(self.values["snapshot.fetch.size"])
        )

    def has_backlog(self, offset: Offset) -> bool:  # noqa: ARG002  # the last poll knows
        """Return whether the log or the tables had more than the batch may take."""
        return self._has_backlog

    def is_exhausted(self, offset: Offset) -> bool:
        """Return whether everything is read up to the stop."""
        if not self.bounded:
            return False
        all_read = all(is_done(t["read"]) for t in offset["tables"].values())
        return all_read and (
            self.values["stop.mode"] == "never"
            or ("stop" in offset and self.has_reached(offset["log"], offset["stop"]))
        )


def _task_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task needs of a table that is read at least in part."""
    return {
        "columns": entry["columns"],
        "upto": entry["read"]["upto"],
        "order": entry["read"].get("order"),
    }
