"""Positions of the binary log as an offset keeps them. Pure; called by source.py.

    file, pos      a byte of a file
    gtid           all transactions before it, by their global ids, as far as they are known
    server, uuid   the server whose file it is
    begun, last    what the log is recognised by (binlog/history.py)
    skip, also     how the range that ends here is read: parts that are passed over, and parts elsewhere that belong to it
    xa             XA transactions that are prepared and not decided, with the place of their rows
    kept           tables whose rows a rollback does not undo
    folds          whether the server ignores case in names of tables

Offsets of former versions have the first three rows of this list, without uuid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.databases.mysql.binlog_history import LogFileMark
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_scan import ReadRange, Scanned
from tidegate.databases.mysql.binlog_xa import PreparedTransaction

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What tells servers apart: the id of replication, and on MySQL one that no two servers have."""

    id: str
    uuid: str = ""

    def json(self) -> Document:
        """As an offset keeps it."""
        return {"server": self.id, **({"uuid": self.uuid} if self.uuid else {})}

    def wrote(self, log: Mapping[str, Any]) -> bool:
        """Whether a position is one of this server; what is not recorded is taken to be the same."""
        return log.get("server", self.id) == self.id and (
            not self.uuid or log.get("uuid", self.uuid) == self.uuid
        )


def plain(
    position: LogPosition,
    gtid: str = "",
    server: ServerIdentity | None = None,
    mark: LogFileMark | None = None,
) -> Document:
    """A position that was not reached by reading."""
    return {
        **position.json(),
        **({"gtid": gtid} if gtid else {}),
        **(server.json() if server else {}),
        **(mark.json() if mark else {}),
    }


def scanned(
    found: Scanned, server: ServerIdentity, kept: frozenset[str], *, folds: bool
) -> Document:
    """The end of a range."""
    document = plain(found.end, found.gtid, server, found.mark)
    document["skip"] = [list(part) for part in found.taken.skip]
    document["also"] = [[position.file, position.pos, *part] for position, part in found.taken.also]
    if found.prepared:
        document["xa"] = {xid: prepared.json() for xid, prepared in found.prepared.items()}
    if kept:
        document["kept"] = sorted(kept)
    if folds:
        document["folds"] = True
    return document


def taken_of(log: Mapping[str, Any]) -> ReadRange | None:
    """How the range that ends here is read; None where nobody has looked at it."""
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
    """XA transactions that are prepared before a position."""
    return {str(xid): PreparedTransaction.of(entry) for xid, entry in log.get("xa", {}).items()}
