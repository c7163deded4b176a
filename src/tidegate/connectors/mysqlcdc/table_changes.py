"""Decide about changes of tables that the log of a range contains.

Subclassed by source.py; works in the driver. A change is applied, waits for the decision of an
operator, or makes the table be read again (decisions.py).
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tidegate.connectors.mysqlcdc.column_defaults import read_column_defaults, undefaultable
from tidegate.connectors.mysqlcdc.decisions import ChangedTable, Decisions
from tidegate.connectors.mysqlcdc.traits import (
    CASCADES_OPTION,
    check_cascades,
)
from tidegate.databases.catalog import TableInfo
from tidegate.databases.cdc.column_defaults import ColumnDefaults
from tidegate.databases.cdc.errors import TableChanged
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.cdc.source import CdcSource
from tidegate.databases.mysql.binlog_ddl import Effect
from tidegate.databases.mysql.binlog_definition import (
    Recorded,
    RecordedColumn,
    is_complete,
    key_of,
    recorded,
)
from tidegate.databases.mysql.binlog_row_layout import log_columns
from tidegate.databases.mysql.binlog_scan import (
    ScanLimit,
    ScanResult,
    ScanStart,
    scan,
)
from tidegate.databases.mysql.binlog_statements import WatchedTables
from tidegate.databases.session import Session
from tidegate.model.table_changes import ChangeChoice
from tidegate.plugin.contract import Offset


class ChangeDecidingSource(CdcSource):
    """The part of MySQL-CDC that decides about changes of tables."""

    @abstractmethod
    def _log_connection(self) -> Any:
        """Open a connection for reading the log."""

    def _decide_changes(
        self,
        session: Session,
        start: Offset,
        found: ScanResult,
        watched: WatchedTables,
        decisions: Decisions,
    ) -> None:
        """Decide about every table that the change affects.

        Raises TableChanged if a decision by an operator is missing.
        """
        assert found.change is not None
        change = found.change.change.statement
        if (
            change.alteration is not None
            and change.alteration.cascades
            and self.values[CASCADES_OPTION] != "ignore"
        ):
            check_cascades(session, [c.info.name for c in self.cdc_tables.values()])
        for path in found.change.change.paths:
            info = self.dialect.table_info(session, self.cdc_tables[path].info.name)
            now = (
                None
                if info is None
                else recorded(self.columns_of(replace(self.cdc_tables[path], info=info)))
            )
            # A table that is gone is named as the next start names it.
            at = str(found.change.at) if info is not None else self.position_text(start["log"])
            changed = ChangedTable(
                path=path,
                recorded=watched.tables[path],
                now=now,
                change=change,
                at=at,
                accepted=self.accepted(path, at),
                is_current=partial(self._is_current, path, found, watched),
            )
            if changed.is_unchanged():
                continue
            if info is not None and change.effect is Effect.ADD_COLUMN and changed.accepted is None:
                self._add_columns(
                    session,
                    changed,
                    info,
                    decisions,
                    partial(self._is_last, path, found, watched, now),
                )
            else:
                changed.apply_choice(decisions)

    def _add_columns(
        self,
        session: Session,
        changed: ChangedTable,
        info: TableInfo,
        decisions: Decisions,
        is_last: Callable[[], bool],
    ) -> None:
        """Propagate added columns, as the catalogue has them.

        That requires that the former columns are unchanged and that existing rows can get their
        values. The catalogue may be newer than the log: what later statements add is left to them.
        """
        former = {c.log.name.lower() for c in changed.recorded}
        names = former | {column.name.lower() for column in changed.change.added}
        now = tuple(c for c in changed.now or () if c.log.name.lower() in names)
        if now == changed.recorded and len(names) == len(former):
            return  # IF NOT EXISTS
        if (
            len(now) != len(names)
            or not self.values["schema-changes.enabled"]
            or tuple(c for c in now if c.log.name.lower() in former) != changed.recorded
        ):
            changed.apply_choice(decisions)
            return
        types = {c.name: self.dialect.data_type(c) for c in info.columns}
        cdc_table = replace(self.cdc_tables[changed.path], info=info, table=info.as_table(types))
        both = {c.name: (types[c.name], c.native) for c in info.columns}
        if why := undefaultable(
            changed.change, former, read_column_defaults(session, cdc_table), both, is_last
        ):
            changed.apply_choice(decisions, why)
            return
        decisions.columns[changed.path] = [c.json() for c in now]

    def _is_current(
        self, path: str, found: ScanResult, watched: WatchedTables, columns: Recorded
    ) -> bool:
        """Return whether the catalogue has the definition right after a change.

        That is so if the rest of the log fits it, and no statement alters the table again.
        """
        remaining = replace(watched, tables={path: columns}, unread=frozenset())
        start = ScanStart(at=found.end, gtid=found.gtid, mark=found.mark, prepared=found.prepared)
        while True:
            later = scan(self._log_connection, start, remaining, ScanLimit())
            if later.change is not None and later.change.change.statement.effect not in (
                Effect.TRUNCATE,
                Effect.ROWS,
                Effect.UNKNOWN,
            ):
                return False
            if later.caught_up or later.end.key <= start.at.key:
                return True
            start = ScanStart(
                at=later.end, gtid=later.gtid, mark=later.mark, prepared=later.prepared
            )

    def _is_last(
        self, path: str, found: ScanResult, watched: WatchedTables, columns: Recorded | None
    ) -> bool:
        """Return whether no statement about a table follows in the log."""
        remaining = replace(
            watched,
            tables={path: columns or watched.tables[path]},
            unread=frozenset(),
            stop_at_any=True,
        )
        start = ScanStart(at=found.end, gtid=found.gtid, mark=found.mark, prepared=found.prepared)
        while True:
            later = scan(self._log_connection, start, remaining, ScanLimit())
            if later.change is not None:
                return False
            if later.caught_up:
                return True
            start = ScanStart(
                at=later.end, gtid=later.gtid, mark=later.mark, prepared=later.prepared
            )

    def _check_keys(self, start: Offset, found: ScanResult, watched: WatchedTables) -> Decisions:
        """Reread tables whose key changed before rows of this range were written.

        Rows flow with the key that the catalogue had when the pipeline was built, which does not
        identify rows that were written under another key. That happens if the key was changed while
        the job was stopped; the statement is later in the log.
        """
        decisions, at = Decisions(), self.position_text(start["log"])
        for path in found.tables:
            was, now = key_of(watched.tables[path]), self.cdc_tables[path].table.primary_key
            if was == now or not is_complete(watched.tables[path]):
                continue
            if self.accepted(path, at) is not ChangeChoice.REREAD:
                text = (
                    f"rows were changed while its key was ({', '.join(was)}), and it is now "
                    f"({', '.join(now)})"
                )
                raise TableChanged(path, text, at, choices=(ChangeChoice.REREAD,))
            decisions.columns[path] = self.columns_of(self.cdc_tables[path])
            decisions.reread.add(path)
        return decisions

    def column_defaults(self, session: Session, cdc_table: CdcTable) -> ColumnDefaults:
        return read_column_defaults(session, cdc_table)

    def columns_of(self, cdc_table: CdcTable) -> list[Any]:
        info, configured = cdc_table.info, self._configured_key(cdc_table.info.name.path)
        key = configured or info.primary_key or info.unique_key
        sign = 1 if key == info.primary_key else -1
        found = []
        for column, logged in zip(info.columns, log_columns(info), strict=True):
            position = sign * (key.index(column.name) + 1) if column.name in key else 0
            found.append(RecordedColumn(logged, column.nullable, position).json())
        return found

    def _configured_key(self, path: str) -> tuple[str, ...]:
        configs = [
            c
            for c in self.values.get("table-names-config") or ()
            if isinstance(c, Mapping) and c.get("table") == path
        ]
        return tuple(str(c) for config in configs for c in config.get("primaryKeys") or ())
