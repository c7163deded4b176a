"""Before a range of the log is read: whether every table is still what the offset knows. The part
of Postgres-CDC that decides when a job stops.

A table is compared in the catalogue (definition.py, altered.py); where something is not as it was,
the messages of the range are looked through for the first transaction that shows it. Everything
before that is delivered first. A stop is raised only at a position before which nothing is left to
deliver, so that it is the same at every restart, and a person's choice is found by it.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.connectors.postgrescdc import publication as publications
from tidegate.connectors.postgrescdc.column_defaults import read_column_defaults
from tidegate.connectors.postgrescdc.definition import (
    CatalogTable,
    Definition,
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
    Weight,
    differences,
    scan,
    writers_of,
)
from tidegate.connectors.postgrescdc.identity import check_identities
from tidegate.connectors.postgrescdc.partitions import rows_of_before
from tidegate.databases.catalog import NativeColumn
from tidegate.databases.cdc.column_defaults import UNKNOWN, ColumnDefaults
from tidegate.databases.cdc.errors import ChangeChoice, NotSetUp, TableChanged
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.cdc.source import CdcSource
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres.pgoutput_stream import SlotRange, changes
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.session import Session
from tidegate.plugin.contract import Offset

_UNLOGGED = (
    "it has new files and no row from before: it was UNLOGGED for a while, when its changes were"
    " not in the log, or its rows were written anew (VACUUM FULL, CLUSTER, ALTER TABLE), which"
    " cannot be told apart here"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """Up to where the log can be read, and what is recorded with that.

    `rows`: whether the range has rows of ours, None where nobody looked.
    """

    end: int
    columns: dict[str, list[Any]] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    reread: frozenset[str] = frozenset()
    rows: bool | None = None
    stopped: bool = False
    """Whether the end is before a change, and not as far as it could be."""
    settled: bool = False
    """Whether all tables are found as they are recorded with the end."""


class CheckedSource(CdcSource):
    """What is the same whatever the log is read with."""

    _types = Types([], [])
    _clean: tuple[str, dict[str, Any]] | None = None
    _attached_empty: frozenset[tuple[int, str]] = frozenset()
    """Partitions that are new since the position, and had no rows when they were attached."""
    _roots: dict[str, int] = {}  # noqa: RUF012  # replaced, never changed

    @property
    @abstractmethod
    def slot(self) -> str: ...

    @property
    @abstractmethod
    def publication(self) -> str: ...

    @abstractmethod
    def _open(self) -> PostgresSession: ...

    def definitions(
        self, session: Session, paths: Sequence[str] | None = None
    ) -> dict[str, CatalogTable]:
        """Of the tables that are read, as the catalogue has them."""
        wanted = self._wanted()
        return definitions_of(
            session, {p: wanted[p] for p in paths or wanted}, self.publication, _version(session)
        )[0]

    def _wanted(self) -> dict[str, WatchedTable]:
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
        return sorted({captured.info.name.schema for captured in self.cdc_tables.values()})

    def check_publication(
        self, session: Session, found: Mapping[str, CatalogTable], *, members: bool = True
    ) -> None:
        """NotSetUp where changes of a table would not be in the log.

        `members`: also where the publication lacks the table.
        """
        if said := self._publication_problems(session, found, members):
            raise NotSetUp("; ".join(dict.fromkeys(said.values())))

    def _publication_problems(
        self, session: Session, found: Mapping[str, CatalogTable], members: bool = True
    ) -> dict[str, str]:
        quoted = {self.dialect.qualified(self.cdc_tables[p].info.name): p for p in found}
        oids = {name: int(found[p].definition["oid"]) for name, p in quoted.items()}
        said = publications.problems(
            session, self.publication, oids, _version(session), members=members
        )
        return {quoted[name]: text for name, text in said.items()}

    def checked(
        self, session: Session, start: Offset, begin: int, written: int, bound: Callable[[int], int]
    ) -> Checked:
        """For the range from a position to `bound` of how far the log is written, which was asked
        for before anything here.
        """
        roots = self._roots = self._roots or roots_of(session, self._wanted())
        seen = fingerprint(
            session, roots, self._schemas(), self.publication, self._types, _version(session)
        )
        entries = {path: start["tables"][path] for path in self.cdc_tables}
        state = {
            path: [e["columns"], e.get("definition"), e["read"] is None]
            for path, e in entries.items()
        }
        if not seen.locked and self._clean == (seen.value, state):
            return Checked(end=bound(written), settled=True)
        before, (found, self._types) = (
            self._types,
            definitions_of(session, self._wanted(), self.publication, _version(session)),
        )
        self._roots = {path: int(table.definition["oid"]) for path, table in found.items()}
        fresh = self._taken_unread(session, entries, found)
        differing = self._differing(
            session,
            begin,
            {
                p: e
                for p, e in entries.items()
                if p not in fresh.definitions and e["read"] is not None
            },
            found,
        )
        if not differing and not seen.locked:
            if not fresh.definitions and before == self._types and roots == self._roots:
                self._clean = (seen.value, state)
            return replace(fresh, end=bound(written), settled=True)
        return self._decided(
            session,
            start,
            begin,
            _Seen(seen.value, bool(seen.locked), found, differing, written, bound, fresh),
        )

    def _taken_unread(
        self, session: Session, entries: Mapping[str, Any], found: Mapping[str, CatalogTable]
    ) -> Checked:
        """Tables of which nothing is read yet are taken as they are."""
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
        return Checked(end=0, columns=columns, definitions=definitions)

    def _differing(
        self,
        session: Session,
        begin: int,
        entries: Mapping[str, Any],
        found: Mapping[str, CatalogTable],
    ) -> dict[str, list[DefinitionChange]]:
        differing = {}
        for path, entry in entries.items():
            said = self._differences(session, begin, path, entry, found.get(path))
            if said:
                differing[path] = said
        return differing

    def _differences(
        self,
        session: Session,
        begin: int,
        path: str,
        entry: Mapping[str, Any],
        now: CatalogTable | None,
    ) -> list[DefinitionChange]:
        known = entry.get("definition")
        if known is None or now is None:  # of a former version, or of the first range
            columns = self._columns_now(session, self.cdc_tables[path])
            if columns is None or now is None:
                return [
                    DefinitionChange(
                        Weight.SHOWN, "the table is gone: dropped or renamed", (ChangeChoice.SKIP,)
                    )
                ]
            same = [c[:2] for c in columns] == [list(c[:2]) for c in entry["columns"]]
            return [
                (
                    DefinitionChange(Weight.LOOK, "its definition is not recorded yet")
                    if same
                    else DefinitionChange(Weight.SHOWN, "its columns were changed")
                )
            ]
        said = differences(entry["columns"], known, now)
        if not said or known["oid"] != now.definition["oid"]:
            return said
        if said[0].what == "its columns were changed" and not self._is_decodable(
            path, entry["columns"]
        ):
            return [replace(said[0], weight=Weight.SILENT)]
        if said[0].weight is Weight.SILENT:
            return self._with_cause(session, path, now, said)
        return [*self._new_partitions(session, begin, path, known, now), *said]

    def _is_decodable(self, path: str, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether rows with these columns fit the pipeline, which is built for the columns that the
        table had when it started.
        """
        flowing = {c.name: c.type for c in self.cdc_tables[path].table.columns}
        known = {
            str(c[0]): self.dialect.data_type(NativeColumn(name=str(c[0]), native=str(c[1])))
            for c in columns
        }
        return all(flowing.get(name, kind) == kind for name, kind in known.items())

    def _with_cause(
        self, session: Session, path: str, now: CatalogTable, said: list[DefinitionChange]
    ) -> list[DefinitionChange]:
        """What is wrong with the publication, where that is the difference."""
        if said[0].choices and (known := self._publication_problems(session, {path: now})):
            return [
                DefinitionChange(
                    Weight.SILENT,
                    f"{known[path]}. Changes since then may not be in the log",
                    REREAD,
                ),
                *said,
            ]
        return said

    def _new_partitions(
        self, session: Session, begin: int, path: str, known: Definition, now: CatalogTable
    ) -> list[DefinitionChange]:
        """Partitions that have rows which the log does not tell of; a new one must be set up as the
        others are.
        """
        before = {int(part[0]) for part in known["parts"]}
        new = [part for part in now.definition["parts"] if int(part[0]) not in before]
        if new:
            check_identities([{**now.definition, "parts": new}], full=self.has_before_images)
        filled_before = [
            part[1]
            for part in new
            if self._had_rows(session, begin, path, part, now.definition["parts"][0][1])
        ]
        what = (
            f"its partition {', '.join(filled_before)} was attached with rows in it, which are not"
            " in the log"
        )
        return [DefinitionChange(Weight.SILENT, what)] if filled_before else []

    def _had_rows(
        self, session: Session, begin: int, path: str, part: Sequence[Any], root: str
    ) -> bool:
        """Whether a new partition has rows that the log does not have, or may not have."""
        attached = int(part[0]), str(part[3])
        if attached in self._attached_empty:
            return False
        writers = rows_of_before(session, part, root)
        if writers is None or (
            writers
            and not writers
            <= self._writers(begin, lsn.number(self.current_position(session)["lsn"]), path)
        ):
            return True
        self._attached_empty = self._attached_empty | {
            attached
        }  # a range that ends before now has fewer writers
        return False

    def _writers(self, begin: int, end: int, path: str) -> frozenset[int]:
        """The transactions of a range that wrote rows of a table."""
        if begin >= end:
            return frozenset()
        with closing(
            changes(
                self._open,
                SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end),
            )
        ) as found:
            return writers_of(found, self.address.database, path)

    def _decided(self, session: Session, start: Offset, begin: int, seen: "_Seen") -> Checked:
        for path, said in seen.differing.items():
            if said[0].weight is Weight.SILENT or (
                said[0].weight is Weight.SHOWN and self.accepted(path, lsn.text(begin)) is not None
            ):
                return self._applied(
                    session,
                    start,
                    begin,
                    _Stop(path, self._words(session, start, path, said[0]), begin, said[0].choices),
                    seen,
                )
        end, whole = self._range_to_look_at(session, seen)
        shown = self._scanned(start, begin, end)
        if shown.first is not None:
            if shown.rows:
                return Checked(end=shown.first.commit, rows=True, stopped=True)
            return self._at_first(session, start, begin, shown.first, seen)
        stops = [path for path, said in seen.differing.items() if said[0].weight is Weight.SHOWN]
        if not whole or (stops and shown.rows):
            return replace(seen.fresh, end=end, rows=shown.rows)
        if stops:
            return self._not_in_log(session, start, begin, stops[0], seen)
        for path in seen.differing:
            if self._may_have_been_unlogged(session, start, path, seen):
                return self._applied(
                    session,
                    start,
                    begin,
                    _Stop(path, _UNLOGGED, begin, (ChangeChoice.SKIP, ChangeChoice.REREAD)),
                    seen,
                )
        definitions = {path: seen.found[path].definition for path in seen.differing}
        columns = {
            path: now
            for path in seen.differing
            if (now := self._columns_now(session, self.cdc_tables[path])) is not None
        }
        columns = {
            path: now for path, now in columns.items() if now != start["tables"][path]["columns"]
        }
        columns, definitions = (
            {**seen.fresh.columns, **columns},
            {**seen.fresh.definitions, **definitions},
        )
        return replace(
            seen.fresh,
            end=end,
            rows=shown.rows,
            settled=True,
            columns=columns,
            definitions=definitions,
        )

    def _may_have_been_unlogged(
        self, session: Session, start: Offset, path: str, seen: "_Seen"
    ) -> bool:
        """Whether a table with new files may have been SET UNLOGGED, changed, and SET LOGGED again.
        That writes all rows anew, as of then; VACUUM FULL and CLUSTER leave their transactions as
        they were. The server allows it only where the publication does not name the table itself.
        """
        known, now = start["tables"][path].get("definition"), seen.found[path].definition
        if known is None or now["publication"][3] or known["parts"][0][2] == now["parts"][0][2]:
            return False
        oldest = int(start["log"].get("xmin", 0)) % (1 << 32) or int(known["row"])
        return not session.scalar(
            f"select exists (select 1 from only {now['parts'][0][1]} where age(xmin) >"
            " age(%s::text::xid))",
            (str(oldest),),
        )

    def _range_to_look_at(self, session: Session, seen: "_Seen") -> tuple[int, bool]:
        """Its end, and whether everything that the catalogue shows lies before it: so where the
        catalogue did not change while the end was taken.
        """
        later = lsn.number(self.current_position(session)["lsn"])
        again = fingerprint(
            session, self._roots, self._schemas(), self.publication, self._types, _version(session)
        )
        if (
            seen.locked
            or again.locked
            or definitions_of(session, self._wanted(), self.publication, _version(session))[0]
            != seen.found
        ):
            return seen.bound(seen.written), False
        end = seen.bound(later)
        return end, end >= later

    def _scanned(self, start: Offset, begin: int, end: int) -> DefinitionScan:
        entries = {
            path: e
            for path, e in start["tables"].items()
            if path in self.cdc_tables and e["read"] is not None
        }
        known = {
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
            return scan(found, self.address.database, known, begin, self._passed_over)

    def _passed_over(self, path: str, commit: int) -> bool:
        return self.accepted(path, lsn.text(commit)) is ChangeChoice.SKIP

    def _at_first(
        self, session: Session, start: Offset, begin: int, first: FirstChange, seen: "_Seen"
    ) -> Checked:
        """The first transaction of the range shows another table."""
        if first.columns is None:
            stop = _Stop(
                first.path, "TRUNCATE", first.commit, (ChangeChoice.SKIP, ChangeChoice.REREAD)
            )
            return self._applied(session, start, begin, stop, seen)
        known = {str(c[0]) for c in start["tables"][first.path]["columns"]}
        if set(first.columns) > known and self.accepted(first.path, lsn.text(first.commit)) is None:
            columns = self._columns_after(session, start, first.path, first.columns, first.commit)
            return Checked(end=begin, columns={first.path: columns}, stopped=True)
        what = first.what
        if (said := seen.differing.get(first.path)) and said[0].what == "its columns were changed":
            what = self._columns_words(session, start, first.path)
        choices = (
            REREAD if "REPLICA IDENTITY" in what or "replica identity" in what else ADOPT_OR_REREAD
        )
        return self._applied(
            session, start, begin, _Stop(first.path, what, first.commit, choices), seen
        )

    def _not_in_log(
        self, session: Session, start: Offset, begin: int, path: str, seen: "_Seen"
    ) -> Checked:
        """A table that differs, and has no row in the log since: nothing is left to deliver before
        the change.
        """
        difference = seen.differing[path][0]
        now = seen.found.get(path)
        names = [str(c[0]) for c in start["tables"][path]["columns"]]
        if (
            now is not None
            and self.accepted(path, lsn.text(begin)) is None
            and {c[0] for c in now.columns} > set(names)
        ):
            return Checked(
                end=begin,
                columns={path: self._columns_after(session, start, path, None, begin)},
                stopped=True,
            )
        return self._applied(
            session,
            start,
            begin,
            _Stop(path, self._words(session, start, path, difference), begin, difference.choices),
            seen,
        )

    def _applied(
        self, session: Session, start: Offset, begin: int, stop: "_Stop", seen: "_Seen"
    ) -> Checked:
        """What a person chose; TableChanged where nobody has chosen yet."""
        at = lsn.text(stop.at)
        choice = self.accepted(stop.path, at) or self.accepted(stop.path, lsn.text(begin))
        entry, now = start["tables"][stop.path], seen.found.get(stop.path)
        if (
            choice is None or choice not in stop.choices or now is None
        ):  # one that is gone is passed over when the job starts again
            raise TableChanged(stop.path, stop.what, at, choices=stop.choices)
        columns = self._columns_now(session, self.cdc_tables[stop.path]) or entry["columns"]
        if (
            choice is not ChangeChoice.REREAD
            and entry["columns"] == columns
            and entry.get("definition") == now.definition
        ):
            what = (
                f"{stop.what}; and it was changed again since, so that rows between the changes"
                " cannot be read"
            )
            raise TableChanged(stop.path, what, at, choices=REREAD)
        reread = frozenset([stop.path]) if choice is ChangeChoice.REREAD else frozenset()
        return Checked(
            end=begin,
            columns={stop.path: columns},
            definitions={stop.path: now.definition},
            reread=reread,
            stopped=True,
        )

    def _words(
        self, session: Session, start: Offset, path: str, difference: DefinitionChange
    ) -> str:
        return (
            self._columns_words(session, start, path)
            if difference.what == "its columns were changed"
            else difference.what
        )

    def _columns_words(self, session: Session, start: Offset, path: str) -> str:
        return (
            f"its columns were {_shown(start['tables'][path]['columns'])} and are"
            f" {_shown(self._columns_now(session, self.cdc_tables[path]))}"
        )

    def _columns_now(self, session: Session, cdc_table: CdcTable) -> list[Any] | None:
        info = self.dialect.table_info(session, cdc_table.info.name)
        return None if info is None else self.columns_of(replace(cdc_table, info=info))

    def _columns_after(
        self, session: Session, start: Offset, path: str, shown: tuple[str, ...] | None, at: int
    ) -> list[Any]:
        """Those of the catalogue that a transaction shows, as later ones are not there yet;
        TableChanged where they are not carried on.
        """
        before = start["tables"][path]["columns"]
        found = self._columns_now(session, self.cdc_tables[path])
        now = found if found is None or shown is None else [c for c in found if c[0] in shown]
        same = [c[: len(before[0])] for c in now or () if c[0] in {b[0] for b in before}] == before
        whole = now is not None and (shown is None or len(now) == len(shown)) and same
        if now is None or not whole or not self.values["schema-changes.enabled"]:
            raise TableChanged(
                path,
                f"its columns were {_shown(before)} and are {_shown(now)}",
                lsn.text(at),
                choices=ADOPT_OR_REREAD,
            )
        names = {c[0] for c in before}
        values = self.column_defaults(session, self._as_now(session, path))
        unknown = [
            str(c[0]) for c in now if c[0] not in names and values.get(c[0], UNKNOWN) is UNKNOWN
        ]
        if unknown:
            what = (
                f"it got {', '.join(unknown)}, and what the rows of before have in it cannot be"
                " told (its default differs from row to row)"
            )
            raise TableChanged(path, what, lsn.text(at), choices=ADOPT_OR_REREAD)
        return now

    def _as_now(self, session: Session, path: str) -> CdcTable:
        captured = self.cdc_tables[path]
        info = self.dialect.table_info(session, captured.info.name) or captured.info
        return replace(
            captured,
            info=info,
            table=info.as_table({c.name: self.dialect.data_type(c) for c in info.columns}),
        )

    def column_defaults(self, session: Session, cdc_table: CdcTable) -> ColumnDefaults:
        """As the catalogue keeps it."""
        return read_column_defaults(session, self.dialect, cdc_table)

    def columns_of(self, cdc_table: CdcTable) -> list[Any]:
        """Name, type in words, type, modifier and number of each that the log has."""
        return [
            [c.name, c.native, c.type_id, c.modifier, c.number]
            for c in cdc_table.info.columns
            if not c.generated
        ]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read of the catalogue for one range."""

    value: str
    locked: bool
    found: dict[str, CatalogTable]
    differing: dict[str, list[DefinitionChange]]
    written: int
    bound: Callable[[int], int]
    fresh: Checked


@dataclass(frozen=True, slots=True)
class _Stop:
    """A change that only a person can decide about."""

    path: str
    what: str
    at: int
    choices: tuple[ChangeChoice, ...]


def _version(session: Session) -> int:
    assert isinstance(session, PostgresSession)
    version: int = session.connection.info.server_version
    return version


def _shown(columns: Sequence[Any] | None) -> str:
    return "gone" if columns is None else ", ".join(f"{c[0]} {c[1]}" for c in columns)
