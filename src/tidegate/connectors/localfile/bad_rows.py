"""Leniency options, and the error that names the first bad rows of a file.

Used by all readers, in tasks. A row that does not fit is never guessed at: the job fails. After the
first bad row a reader continues for a bounded number of bytes, so that one run reports several.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.errors import TerminalError

SHOWN_MAX = 10
"""Bad rows named in one error."""
SCANNED_BYTES_MAX = 64 << 20
"""How far a reader searches for more bad rows after the first one."""
RECORD_BYTES_MAX = 128 << 20
EXPANSION_RATIO_MAX = 500
EXPANSION_FREE_BYTES = 1 << 30
"""Up to this size a compressed file may expand at any ratio."""
TEXT_CHARS_MAX = 60
NULL_IN_REQUIRED_COLUMN = "the value is null, and the column is not nullable"


class BadFile(TerminalError):
    """A file that is damaged or does not have the declared format."""

    condition = "bad-file"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.has_advice = False  # set by advise_recovery


@dataclass(frozen=True, kw_only=True, slots=True)
class Leniency:
    """Deviations from the schema that the options accept."""

    fill_short: bool = False
    drop_extra: bool = False
    fill_missing: bool = False
    round_digits: bool = False

    @staticmethod
    def of(values: Mapping[str, Any]) -> "Leniency":
        """Read the options; plans of older releases lack these keys."""
        return Leniency(
            fill_short=values.get("short_rows") == "fill_null",
            drop_extra=values.get("long_rows") == "drop_extra",
            fill_missing=values.get("missing_columns") == "fill_null",
            round_digits=values.get("excess_digits") == "round",
        )


STRICT = Leniency()


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that does not fit the schema.

    `offset` is its first byte (or the faulty quote) in the decoded text, or the number of the row.
    """

    offset: int
    problem: str


@dataclass(slots=True)
class BadRows:
    """Collect the bad rows of one part of a file.

    `describe_offsets` turns offsets into texts such as `line 7`; it may read the file again.
    """

    path: str
    describe_offsets: Callable[[Sequence[int]], list[str]]
    shown: list[BadRow] = field(default_factory=list)
    count: int = 0
    scanned: int = 0

    def add(self, row: BadRow) -> None:
        self.count += 1
        if len(self.shown) < SHOWN_MAX:
            self.shown.append(row)

    def end_block(self, size: int) -> None:
        """Count a block that was read to its end; raise once enough bad rows are known."""
        if not self.count:
            return
        self.scanned += size
        if self.count >= SHOWN_MAX or self.scanned >= SCANNED_BYTES_MAX:
            self.close()

    def close(self) -> None:
        """Raise if any row was bad; called at the end of the input."""
        if self.count:
            raise self.error()

    def error(self) -> BadFile:
        """Build the error from the first rows and the total count."""
        positions = self.describe_offsets([row.offset for row in self.shown])
        lines = [
            f"{position}: {row.problem}"
            for position, row in zip(positions, self.shown, strict=True)
        ]
        if self.count == 1:
            return BadFile(self.path, lines[0])
        more = self.count - len(lines)
        seen = f"{self.count} bad rows so far" + (
            f", the first {len(lines)} of them" if more else ""
        )
        return BadFile(
            self.path, f"{lines[0]} ({seen}):" + "".join(f"\n  {line}" for line in lines)
        )


def excerpt(value: Any) -> str:
    """Format a value for a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 3] + "..."


def faults_by_row(faults: Mapping[int, list[str]]) -> Iterator[tuple[int, str]]:
    """Yield the faults of each row as one text, in the order of the rows."""
    for row in sorted(faults):
        yield row, "; ".join(faults[row])


def size_text(size: int) -> str:
    """Format a number of bytes for a message."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
