"""Check, before a range is read, that every table matches what the offset records.

This part of Postgres-CDC decides when a job stops; it works in the driver. A table is compared in
the catalogue (definition.py, definition_changes.py); if it differs, the messages of the range are
searched for the first transaction that shows it. Everything before that is delivered first. A stop
is raised only at a position before which nothing is left to deliver, so that it is the same at
every restart, and the choice of the operator is found by it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from tidegate.connectors.postgrescdc import publication as publications
from tidegate.connectors.postgrescdc.catalog_view import CatalogCheck, CatalogView, PendingChange
from tidegate.connectors.postgrescdc.column_defaults import read_column_defaults
from tidegate.connectors.postgrescdc.definition import (
    CatalogTable,
    Types,
    WatchedTable,
    definitions_of,
    fingerprint,
    layout_of_definition,
    roots_of,
)
from tidegate.connectors.postgrescdc.definition_changes import (
    ADOPT_OR_REREAD,
    REREAD,
    DefinitionChange,
    DefinitionScan,
    FirstChange,
    LogVisibility,
    differences,
    find_first_change,
)
from tidegate.connectors.postgrescdc.partition_check import PartitionCheckingSource
from tidegate.databases.catalog import NativeColumn
from tidegate.databases.cdc.column_defaults import UNKNOWN, ColumnDefaults
from tidegate.databases.cdc.errors import ChangeChoice, NotSetUp, TableChanged
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres.pgoutput_stream import SlotRange, changes
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.session import Session
from tidegate.plugin.contract import Offset

_UNLOGGED = (
    "it has new files and no row from before: it was UNLOGGED for a while, when its changes "
    "were not in the log, or its rows were rewritten (VACUUM FULL, CLUSTER, ALTER TABLE), "
    "which cannot be distinguished"
)


class CatalogCheckingSource(PartitionCheckingSource):
    """The part of Postgres-CDC that compares tables with the catalogue."""

    _types = Types([], [])
    _verified: tuple[str, dict[str, Any]] | None = None
    _roots: dict[str, int] = {}  # noqa: RUF012  # replaced, never changed

    def definitions(
        self, session: Session, paths: Sequence[str] | None = None
    ) -> dict[str, CatalogTable]:
        """Return the definitions of the tables that are read, from the catalogue."""
        watched = self._watched_tables()
        return definitions_of(
            session, {p: watched[p] for p in paths or watched}, self.publication, _version(session)
        )[0]

    def _watched_tables(self) -> dict[str, WatchedTable]:
        configs = {
            str(c["table"]): c
            for c in self.values.get("table-names-config") or ()
            if isinstance(c, Mapping) and "table" in c
        }
        return {
            path: WatchedTable(
                quoted=self.dialect.qualified(c.info.name),
                key=tuple(map(str, configs.get(path, {}).get("primaryKeys") or ())),
            )
            for path, c in self.cdc_tables.items()
        }

    def _schemas(self) -> list[str]:
        return sorted({table.info.name.schema for table in self.cdc_tables.values()})

    def check_publication(
        self, session: Session, found: Mapping[str, CatalogTable], *, members: bool = True
    ) -> None:
        """Raise NotSetUp if changes of a table would not be in the log.

        `members` also checks that the publication has the table.
        """
        if reported := self._publication_problems(session, found, members):
            raise NotSetUp("; ".join(dict.fromkeys(reported.values())))

    def _publication_problems(
        self, session: Session, found: Mapping[str, CatalogTable], members: bool = True
    ) -> dict[str, str]:
        quoted = {self.dialect.qualified(self.cdc_tables[p].info.name): p for p in found}
        oids = {name: int(found[p].definition["oid"]) for name, p in quoted.items()}
        reported = publications.problems(
            session, self.publication, oids, _version(session), members=members
        )
        return {quoted[name]: text for name, text in reported.items()}

    def check_catalog(
        self, session: Session, start: Offset, begin: int, written: int, bound: Callable[[int], int]
    ) -> CatalogCheck:
        """Check the range from a position to `bound(written)`.

        `written` is the end of the log, which must be read before the catalogue.
        """
        roots = self._roots or roots_of(session, self._watched_tables())
        self._roots = roots
        fingerprint_now = fingerprint(
            session, roots, self._schemas(), self.publication, self._types, _version(session)
        )
        entries = {path: start["tables"][path] for path in self.cdc_tables}
        state = {
            path: [e["columns"], e.get("definition"), e["read"] is None]
            for path, e in entries.items()
        }
        if not fingerprint_now.locked and self._verified == (fingerprint_now.value, state):
            return CatalogCheck(end=bound(written), verified=True)
        before, (found, self._types) = (
            self._types,
            definitions_of(session, self._watched_tables(), self.publication, _version(session)),
        )
        self._roots = {path: int(table.definition["oid"]) for path, table in found.items()}
        unread = self._record_unread(session, entries, found)
        differing = self._find_differences(
            session,
            begin,
            {
                p: e
                for p, e in entries.items()
                if p not in unread.definitions and e["read"] is not None
            },
            found,
        )
        if not differing and not fingerprint_now.locked:
            if not unread.definitions and before == self._types and roots == self._roots:
                self._verified = (fingerprint_now.value, state)
            return replace(unread, end=bound(written), verified=True)
        return self._decide(
            session,
            start,
            begin,
            CatalogView(
                fingerprint_now.value,
                bool(fingerprint_now.locked),
                found,
                differing,
                written,
                bound,
                unread,
            ),
        )

    def _record_unread(
        self, session: Session, entries: Mapping[str, Any], found: Mapping[str, CatalogTable]
    ) -> CatalogCheck:
        """Return new definitions of tables of which nothing is read yet."""
        unread = [p for p, e in entries.items() if p in found and e["read"] is None]
        definitions = {
            p: found[p].definition
            for p in unread
            if entries[p].get("definition") != found[p].definition
        }
        columns = {}
        for path in definitions:
            now = self._columns_now(session, self.cdc_tables[path])
            if now is not None and now != entries[path]["columns"]:
                columns[path] = now
        return CatalogCheck(end=0, columns=columns, definitions=definitions)

    def _find_differences(
        self,
        session: Session,
        begin: int,
        entries: Mapping[str, Any],
        found: Mapping[str, CatalogTable],
    ) -> dict[str, list[DefinitionChange]]:
        differing = {}
        for path, entry in entries.items():
            changes_of_table = self._differences(session, begin, path, entry, found.get(path))
            if changes_of_table:
                differing[path] = changes_of_table
        return differing

    def _differences(
        self,
        session: Session,
        begin: int,
        path: str,
        entry: Mapping[str, Any],
        now: CatalogTable | None,
    ) -> list[DefinitionChange]:
        recorded = entry.get("definition")
        if recorded is None or now is None:  # of a former version, or before the first range
            columns = self._columns_now(session, self.cdc_tables[path])
            if columns is None or now is None:
                return [
                    DefinitionChange(
                        LogVisibility.VISIBLE,
                        "the table is gone: dropped or renamed",
                        (ChangeChoice.SKIP,),
                    )
                ]
            same = [c[:2] for c in columns] == [list(c[:2]) for c in entry["columns"]]
            return [
                (
                    DefinitionChange(LogVisibility.CHECK_LOG, "its definition is not recorded yet")
                    if same
                    else DefinitionChange(LogVisibility.VISIBLE, "its columns were changed")
                )
            ]
        found = differences(entry["columns"], recorded, now)
        if not found or recorded["oid"] != now.definition["oid"]:
            return found
        if found[0].what == "its columns were changed" and not self._is_decodable(
            path, entry["columns"]
        ):
            return [replace(found[0], visibility=LogVisibility.SILENT)]
        if found[0].visibility is LogVisibility.SILENT:
            return self._with_cause(session, path, now, found)
        return [*self._new_partitions(session, begin, path, recorded, now), *found]

    def _is_decodable(self, path: str, columns: Sequence[Sequence[Any]]) -> bool:
        """Return whether rows with these columns fit the pipeline.

        It is built for the columns that the table had when it started.
        """
        flowing = {c.name: c.type for c in self.cdc_tables[path].table.columns}
        recorded = {
            str(c[0]): self.dialect.data_type(NativeColumn(name=str(c[0]), native=str(c[1])))
            for c in columns
        }
        return all(flowing.get(name, kind) == kind for name, kind in recorded.items())

    def _with_cause(
        self, session: Session, path: str, now: CatalogTable, found: list[DefinitionChange]
    ) -> list[DefinitionChange]:
        """Add the problem of the publication, if that is the difference."""
        if found[0].choices and (causes := self._publication_problems(session, {path: now})):
            return [
                DefinitionChange(
                    LogVisibility.SILENT,
                    f"{causes[path]}. Changes since then may not be in the log",
                    REREAD,
                ),
                *found,
            ]
        return found

    def _decide(
        self, session: Session, start: Offset, begin: int, view: CatalogView
    ) -> CatalogCheck:
        for path, changes_of_table in view.changes.items():
            if changes_of_table[0].visibility is LogVisibility.SILENT or (
                changes_of_table[0].visibility is LogVisibility.VISIBLE
                and self.accepted(path, lsn.text(begin)) is not None
            ):
                return self._apply_choice(
                    session,
                    start,
                    begin,
                    PendingChange(
                        path,
                        self._describe(session, start, path, changes_of_table[0]),
                        begin,
                        changes_of_table[0].choices,
                    ),
                    view,
                )
        end, complete = self._range_to_scan(session, view)
        scan = self._scan_range(start, begin, end)
        if scan.first is not None:
            if scan.rows:
                return CatalogCheck(end=scan.first.commit, rows=True, stopped=True)
            return self._decide_first_change(session, start, begin, scan.first, view)
        stops = [
            path
            for path, said in view.changes.items()
            if said[0].visibility is LogVisibility.VISIBLE
        ]
        if not complete or (stops and scan.rows):
            return replace(view.unread, end=end, rows=scan.rows)
        if stops:
            return self._decide_change_at_end(session, start, begin, stops[0], view)
        for path in view.changes:
            if self._may_have_been_unlogged(session, start, path, view):
                return self._apply_choice(
                    session,
                    start,
                    begin,
                    PendingChange(path, _UNLOGGED, begin, (ChangeChoice.SKIP, ChangeChoice.REREAD)),
                    view,
                )
        definitions = {path: view.tables[path].definition for path in view.changes}
        columns = {
            path: now
            for path in view.changes
            if (now := self._columns_now(session, self.cdc_tables[path])) is not None
        }
        columns = {
            path: now for path, now in columns.items() if now != start["tables"][path]["columns"]
        }
        columns, definitions = (
            {**view.unread.columns, **columns},
            {**view.unread.definitions, **definitions},
        )
        return replace(
            view.unread,
            end=end,
            rows=scan.rows,
            verified=True,
            columns=columns,
            definitions=definitions,
        )

    def _may_have_been_unlogged(
        self, session: Session, start: Offset, path: str, view: CatalogView
    ) -> bool:
        """Return whether a table with new files may have been unlogged for a while.

        SET UNLOGGED and SET LOGGED rewrite all rows in a new transaction; VACUUM FULL and CLUSTER
        keep their transactions. The server allows it only if the publication does not name the
        table itself.
        """
        recorded, now = start["tables"][path].get("definition"), view.tables[path].definition
        if (
            recorded is None
            or now["publication"][3]
            or recorded["parts"][0][2] == now["parts"][0][2]
        ):
            return False
        oldest = int(start["log"].get("xmin", 0)) % (1 << 32) or int(recorded["row"])
        return not session.scalar(
            f"select exists (select 1 from only {now['parts'][0][1]} where age(xmin) >"
            " age(%s::text::xid))",
            (str(oldest),),
        )

    def _range_to_scan(self, session: Session, view: CatalogView) -> tuple[int, bool]:
        """Return the end of the range, and whether it includes all changes of the catalogue.

        It does if the catalogue did not change while the end was read.
        """
        later = lsn.number(self.current_position(session)["lsn"])
        again = fingerprint(
            session, self._roots, self._schemas(), self.publication, self._types, _version(session)
        )
        if (
            view.locked
            or again.locked
            or definitions_of(session, self._watched_tables(), self.publication, _version(session))[
                0
            ]
            != view.tables
        ):
            return view.bound(view.written), False
        end = view.bound(later)
        return end, end >= later

    def _scan_range(self, start: Offset, begin: int, end: int) -> DefinitionScan:
        entries = {
            path: e
            for path, e in start["tables"].items()
            if path in self.cdc_tables and e["read"] is not None
        }
        layouts = {
            path: layout_of_definition(e["columns"], e.get("definition"))
            for path, e in entries.items()
        }
        if begin >= end:
            return DefinitionScan(None, False)
        with closing(
            changes(
                self._open,
                SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end),
            )
        ) as found:
            return find_first_change(found, self.address.database, layouts, begin, self._is_skipped)

    def _is_skipped(self, path: str, commit: int) -> bool:
        return self.accepted(path, lsn.text(commit)) is ChangeChoice.SKIP

    def _decide_first_change(
        self, session: Session, start: Offset, begin: int, first: FirstChange, view: CatalogView
    ) -> CatalogCheck:
        """Decide about the first transaction of the range, which shows another layout."""
        if first.columns is None:
            stop = PendingChange(
                first.path, "TRUNCATE", first.commit, (ChangeChoice.SKIP, ChangeChoice.REREAD)
            )
            return self._apply_choice(session, start, begin, stop, view)
        recorded = {str(c[0]) for c in start["tables"][first.path]["columns"]}
        if (
            set(first.columns) > recorded
            and self.accepted(first.path, lsn.text(first.commit)) is None
        ):
            columns = self._columns_after(session, start, first.path, first.columns, first.commit)
            return CatalogCheck(end=begin, columns={first.path: columns}, stopped=True)
        what = first.what
        if (changes_of_table := view.changes.get(first.path)) and changes_of_table[
            0
        ].what == "its columns were changed":
            what = self._describe_columns(session, start, first.path)
        choices = (
            REREAD if "REPLICA IDENTITY" in what or "replica identity" in what else ADOPT_OR_REREAD
        )
        return self._apply_choice(
            session, start, begin, PendingChange(first.path, what, first.commit, choices), view
        )

    def _decide_change_at_end(
        self, session: Session, start: Offset, begin: int, path: str, view: CatalogView
    ) -> CatalogCheck:
        """Decide about a table that differs and has no rows in the log since.

        Nothing is left to deliver before the change.
        """
        difference = view.changes[path][0]
        now = view.tables.get(path)
        names = [str(c[0]) for c in start["tables"][path]["columns"]]
        if (
            now is not None
            and self.accepted(path, lsn.text(begin)) is None
            and {c[0] for c in now.columns} > set(names)
        ):
            return CatalogCheck(
                end=begin,
                columns={path: self._columns_after(session, start, path, None, begin)},
                stopped=True,
            )
        return self._apply_choice(
            session,
            start,
            begin,
            PendingChange(
                path, self._describe(session, start, path, difference), begin, difference.choices
            ),
            view,
        )

    def _apply_choice(
        self,
        session: Session,
        start: Offset,
        begin: int,
        stop: PendingChange,
        view: CatalogView,
    ) -> CatalogCheck:
        """Apply the choice of an operator; raise TableChanged if there is none."""
        at = lsn.text(stop.at)
        choice = self.accepted(stop.path, at) or self.accepted(stop.path, lsn.text(begin))
        entry, now = start["tables"][stop.path], view.tables.get(stop.path)
        # A table that is gone is skipped when the job restarts.
        if choice is None or choice not in stop.choices or now is None:
            raise TableChanged(stop.path, stop.what, at, choices=stop.choices)
        columns = self._columns_now(session, self.cdc_tables[stop.path]) or entry["columns"]
        if (
            choice is not ChangeChoice.REREAD
            and entry["columns"] == columns
            and entry.get("definition") == now.definition
        ):
            what = (
                f"{stop.what}; it was changed again later, so that rows between the changes "
                "cannot be read"
            )
            raise TableChanged(stop.path, what, at, choices=REREAD)
        reread = frozenset([stop.path]) if choice is ChangeChoice.REREAD else frozenset()
        return CatalogCheck(
            end=begin,
            columns={stop.path: columns},
            definitions={stop.path: now.definition},
            reread=reread,
            stopped=True,
        )

    def _describe(
        self, session: Session, start: Offset, path: str, difference: DefinitionChange
    ) -> str:
        return (
            self._describe_columns(session, start, path)
            if difference.what == "its columns were changed"
            else difference.what
        )

    def _describe_columns(self, session: Session, start: Offset, path: str) -> str:
        return (
            f"its columns were {_shown(start['tables'][path]['columns'])} and are"
            f" {_shown(self._columns_now(session, self.cdc_tables[path]))}"
        )

    def _columns_now(self, session: Session, cdc_table: CdcTable) -> list[Any] | None:
        info = self.dialect.table_info(session, cdc_table.info.name)
        return None if info is None else self.columns_of(replace(cdc_table, info=info))

    def _columns_after(
        self, session: Session, start: Offset, path: str, logged: tuple[str, ...] | None, at: int
    ) -> list[Any]:
        """Return the columns of the catalogue that a transaction shows.

        Columns of later changes are not included. Raises TableChanged if they cannot be propagated.
        """
        before = start["tables"][path]["columns"]
        found = self._columns_now(session, self.cdc_tables[path])
        now = found if found is None or logged is None else [c for c in found if c[0] in logged]
        same = [c[: len(before[0])] for c in now or () if c[0] in {b[0] for b in before}] == before
        complete = now is not None and (logged is None or len(now) == len(logged)) and same
        if now is None or not complete or not self.values["schema-changes.enabled"]:
            raise TableChanged(
                path,
                f"its columns were {_shown(before)} and are {_shown(now)}",
                lsn.text(at),
                choices=ADOPT_OR_REREAD,
            )
        names = {c[0] for c in before}
        values = self.column_defaults(session, self._current_table(session, path))
        unknown = [
            str(c[0]) for c in now if c[0] not in names and values.get(c[0], UNKNOWN) is UNKNOWN
        ]
        if unknown:
            what = (
                f"it got {', '.join(unknown)}, whose value in existing rows is unknown (its "
                "default differs from row to row)"
            )
            raise TableChanged(path, what, lsn.text(at), choices=ADOPT_OR_REREAD)
        return now

    def _current_table(self, session: Session, path: str) -> CdcTable:
        cdc_table = self.cdc_tables[path]
        info = self.dialect.table_info(session, cdc_table.info.name) or cdc_table.info
        return replace(
            cdc_table,
            info=info,
            table=info.as_table({c.name: self.dialect.data_type(c) for c in info.columns}),
        )

    def column_defaults(self, session: Session, cdc_table: CdcTable) -> ColumnDefaults:
        """Return the defaults that the catalogue keeps for existing rows."""
        return read_column_defaults(session, self.dialect, cdc_table)

    def columns_of(self, cdc_table: CdcTable) -> list[Any]:
        """Return name, type name, type, modifier and number of each column in the log."""
        return [
            [c.name, c.native, c.type_id, c.modifier, c.number]
            for c in cdc_table.info.columns
            if not c.generated
        ]


def _version(session: Session) -> int:
    assert isinstance(session, PostgresSession)
    version: int = session.connection.info.server_version
    return version


def _shown(columns: Sequence[Any] | None) -> str:
    return "gone" if columns is None else ", ".join(f"{c[0]} {c[1]}" for c in columns)
