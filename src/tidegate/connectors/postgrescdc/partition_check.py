"""Check partitions that are new since a position. Subclassed by check.py; works in the driver.

A partition may have been attached with rows that are not in the log.
"""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tidegate.connectors.postgrescdc.definition import (
    CatalogTable,
    Definition,
)
from tidegate.connectors.postgrescdc.definition_changes import (
    DefinitionChange,
    LogVisibility,
    writers_of,
)
from tidegate.connectors.postgrescdc.identity import check_identities
from tidegate.connectors.postgrescdc.partitions import earlier_writers
from tidegate.databases.cdc.source import CdcSource
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres.pgoutput_stream import SlotRange, changes
from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.session import Session


class PartitionCheckingSource(CdcSource):
    """The part of Postgres-CDC that compares partitions with the log."""

    _attached_empty: frozenset[tuple[int, str]] = frozenset()
    """Partitions that are new since the position, and had no rows when they were attached."""

    @property
    @abstractmethod
    def slot(self) -> str: ...

    @property
    @abstractmethod
    def publication(self) -> str: ...

    @abstractmethod
    def _open(self) -> PostgresSession: ...

    def _new_partitions(
        self, session: Session, begin: int, path: str, recorded: Definition, now: CatalogTable
    ) -> list[DefinitionChange]:
        """Return differences by partitions that have rows which are not in the log.

        Raises NotSetUp if the identity of a new partition is not sufficient.
        """
        before = {int(part[0]) for part in recorded["parts"]}
        new = [part for part in now.definition["parts"] if int(part[0]) not in before]
        if new:
            check_identities([{**now.definition, "parts": new}], full=self.has_before_images)
        filled_before = [
            part[1]
            for part in new
            if self._had_rows(session, begin, path, part, now.definition["parts"][0][1])
        ]
        what = (
            f"its partition {', '.join(filled_before)} was attached with rows, which are not "
            "in the log"
        )
        return [DefinitionChange(LogVisibility.SILENT, what)] if filled_before else []

    def _had_rows(
        self, session: Session, begin: int, path: str, part: Sequence[Any], root: str
    ) -> bool:
        """Return whether a new partition has rows that may not be in the log."""
        attached = int(part[0]), str(part[3])
        if attached in self._attached_empty:
            return False
        writers = earlier_writers(session, part, root)
        if writers is None or (
            writers
            and not writers
            <= self._writers(begin, lsn.number(self.current_position(session)["lsn"]), path)
        ):
            return True
        # A range that ends before now has fewer writers.
        self._attached_empty = self._attached_empty | {attached}
        return False

    def _writers(self, begin: int, end: int, path: str) -> frozenset[int]:
        """Return the transactions of a range that wrote rows of a table."""
        if begin >= end:
            return frozenset()
        with closing(
            changes(
                self._open,
                SlotRange(slot=self.slot, publication=self.publication, start=begin, end=end),
            )
        ) as found:
            return writers_of(found, self.address.database, path)
