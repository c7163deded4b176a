"""Bad rows: which leniency the options allow, and the error that names the first bad rows of a file
with their lines. Used by all readers, in tasks.

A row that does not fit is never guessed at: the job fails. The reader that meets one continues for
a bounded stretch, so that one run names several.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.errors import TerminalError

SHOWN_MAX = 10
"""So many bad rows are named in one error."""
SCANNED_BYTES_MAX = 64 << 20
"""So far behind the first bad row a reader searches for more of them."""
RECORD_BYTES_MAX = 128 << 20
EXPANSION_RATIO_MAX = 500
EXPANSION_FREE_BYTES = 1 << 30
"""Up to here a compressed file may expand whatever its ratio is."""
TEXT_CHARS_MAX = 60


class BadFile(TerminalError):
    """A file cannot be read as what the job file says it is."""

    condition = "bad-file"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


@dataclass(frozen=True, kw_only=True, slots=True)
class Leniency:
    """What the options accept besides rows that fit exactly."""

    fill_short: bool = False
    drop_extra: bool = False
    fill_missing: bool = False
    round_digits: bool = False

    @staticmethod
    def of(values: Mapping[str, Any]) -> "Leniency":
        """From the options; plans of older releases do not hold these keys."""
        return Leniency(
            fill_short=values.get("short_rows") == "fill_null",
            drop_extra=values.get("long_rows") == "drop_extra",
            fill_missing=values.get("missing_columns") == "fill_null",
            round_digits=values.get("excess_digits") == "round",
        )


STRICT = Leniency()


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that does not fit. `offset` is its first byte in the text that was read (or the quote
    that is at fault), or the number of the row.
    """

    offset: int
    problem: str


@dataclass(slots=True)
class BadRows:
    """The bad rows of one stretch of a file. `places` turns offsets into texts such as `line 7`; it
    may read the file again.
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
        """A block was read to its end; enough is enough."""
        if not self.count:
            return
        self.scanned += size
        if self.count >= SHOWN_MAX or self.scanned >= SCANNED_BYTES_MAX:
            self.close()

    def close(self) -> None:
        """The end of what is read: raises where a row was bad."""
        if self.count:
            raise self.error()

    def error(self) -> BadFile:
        """The error with the first rows and the count of all that were seen."""
        places = self.describe_offsets([row.offset for row in self.shown])
        lines = [f"{place}: {row.problem}" for place, row in zip(places, self.shown, strict=True)]
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
    """A value in a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 3] + "..."


def faults_by_row(faults: Mapping[int, list[str]]) -> Iterator[tuple[int, str]]:
    """The faults of each row as one text, in the order of the rows."""
    for row in sorted(faults):
        yield row, "; ".join(faults[row])


def size_text(size: int) -> str:
    """A number of bytes for a message."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
