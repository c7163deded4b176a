"""Positions of the binary log as an offset keeps them. Pure; called by source.py.

    file, pos      a byte of a file
    gtid           all transactions before it, by their global ids, as far as known
    server, uuid   the server of the file
    begun, last    what identifies the log (binlog_history.py)
    skip, also     how the range that ends here is read: parts that are skipped,
                   and parts elsewhere that belong to it
    xa             XA transactions that are prepared and not completed, with the
                   position of their rows
    kept           tables whose rows a rollback does not revert
    folds          whether the server ignores case in names of tables

Offsets of former versions have the first three rows of this list, without uuid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.databases.mysql.binlog_history import LogFileMark
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_scan import ReadRange, ScanResult
from tidegate.databases.mysql.binlog_xa import PreparedTransaction

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What identifies a server: the id of replication, and on MySQL its UUID."""

    id: str
    uuid: str = ""

    def json(self) -> Document:
        """Return the form that the offset keeps."""
        return {"server": self.id, **({"uuid": self.uuid} if self.uuid else {})}

    def wrote(self, log: Mapping[str, Any]) -> bool:
        """Return whether a position is of this server; what is not recorded counts as equal."""
        return log.get("server", self.id) == self.id and (
            not self.uuid or log.get("uuid", self.uuid) == self.uuid
        )


def position_document(
    position: LogPosition,
    gtid: str = "",
    server: ServerIdentity | None = None,
    mark: LogFileMark | None = None,
) -> Document:
    """Return the document of a position that was not reached by reading."""
    return {
        **position.json(),
        **({"gtid": gtid} if gtid else {}),
        **(server.json() if server else {}),
        **(mark.json() if mark else {}),
    }


def range_end_document(
    found: ScanResult, server: ServerIdentity, nontransactional: frozenset[str], *, folds_case: bool
) -> Document:
    """Return the document of the end of a range."""
    document = position_document(found.end, found.gtid, server, found.mark)
    document["skip"] = [list(part) for part in found.read_range.skip]
    document["also"] = [
        [position.file, position.pos, *part] for position, part in found.read_range.also
    ]
    if found.prepared:
        document["xa"] = {xid: prepared.json() for xid, prepared in found.prepared.items()}
    if nontransactional:
        document["kept"] = sorted(nontransactional)
    if folds_case:
        document["folds"] = True
    return document


def read_range_of(log: Mapping[str, Any]) -> ReadRange | None:
    """Return how the range that ends here is read; None if it was not scanned."""
    if "skip" not in log:
        return None
    return ReadRange(
        skip=tuple((str(f), int(b), int(e)) for f, b, e in log["skip"]),
        also=tuple(
            (LogPosition(str(file), int(pos)), (str(f), int(b), int(e)))
            for file, pos, f, b, e in log["also"]
        ),
    )


def prepared_of(log: Mapping[str, Any]) -> dict[str, PreparedTransaction]:
    """Return the XA transactions that are prepared before a position."""
    return {str(xid): PreparedTransaction.of(entry) for xid, entry in log.get("xa", {}).items()}
