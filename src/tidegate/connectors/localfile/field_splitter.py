"""Split records into fields in Python, for blocks that Arrow's parser refuses.

Called by delimited.py. It must agree with Arrow's csv parser on everything that Arrow accepts. What
Arrow would accept although it is surely a mistake (an unclosed quote, text after a closing quote)
is marked as a fault of its field; the caller decides what a fault or a wrong number of fields
means.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect


@dataclass(frozen=True, slots=True)
class FieldText:
    """Text of one field.

    `quoted` distinguishes an empty text from no text. `start` is where the field begins, in
    characters.
    """

    text: str
    quoted: bool = False
    fault: str = ""
    start: int = 0


@dataclass(frozen=True, slots=True)
class DelimitedRecord:
    """One record from `start` to `end`, in characters; `end` is after its terminator."""

    start: int
    fields: list[FieldText]
    end: int = 0


class FieldSplitter:
    r"""Splits csv (with quotes) or text (without) into records and fields.

    `terminator` None means any of \n, \r\n and \r.
    """

    def __init__(
        self, delimiter: str, quote: str = "", escape: str = "", terminator: str | None = None
    ) -> None:
        self.delimiter = delimiter
        self.quote = quote
        self.escape = escape
        self.end = re.compile(re.escape(terminator) if terminator else "\r\n|\n|\r")
        stop = f"{re.escape(delimiter)}|{self.end.pattern}"
        self.stop = re.compile(f"(?:{stop})|\\Z")
        self.plain = re.compile(f"{re.escape(escape)}.|{stop}" if escape else stop, re.DOTALL)
        self.inside = re.compile(
            (f"{re.escape(escape)}.|" if escape else "")
            + (f"{re.escape(quote * 2)}|{re.escape(quote)}" if quote else "(?!)"),
            re.DOTALL,
        )

    def records(self, text: str) -> Iterator[DelimitedRecord]:
        """Yield all records that are not empty lines."""
        offset = 0
        while offset < len(text):
            empty = self.end.match(text, offset)
            if empty:
                offset = empty.end()
                continue
            start, fields = offset, []
            last = False
            while not last:
                field, offset, last = self._field(text, offset)
                fields.append(field)
            yield DelimitedRecord(start, fields, offset)

    def _field(self, text: str, offset: int) -> tuple[FieldText, int, bool]:
        """Read a field; return it, where the next one begins, and whether it was the last one."""
        start = offset
        quoted = bool(self.quote) and text.startswith(self.quote, offset)
        parts: list[str] = []
        fault = ""
        if quoted:
            offset, fault = self._quoted(text, offset + len(self.quote), parts)
        while True:
            match = self.plain.search(text, offset)
            if match is None:
                return (
                    FieldText("".join([*parts, text[offset:]]), quoted, fault, start),
                    len(text),
                    True,
                )
            parts.append(text[offset : match.start()])
            offset = match.end()
            if not (self.escape and match[0].startswith(self.escape)):
                return (
                    FieldText("".join(parts), quoted, fault, start),
                    offset,
                    match[0] != self.delimiter,
                )
            parts.append(match[0][1:])

    def _quoted(self, text: str, offset: int, parts: list[str]) -> tuple[int, str]:
        """Read quoted text; return the offset after the closing quote, and the fault if any."""
        while True:
            match = self.inside.search(text, offset)
            if match is None:
                parts.append(text[offset:])
                return len(text), f"the quote {self.quote} is not closed"
            parts.append(text[offset : match.start()])
            offset = match.end()
            if match[0] == self.quote:
                behind = not self.stop.match(text, offset)
                return (
                    offset,
                    f"there is text after the closing quote {self.quote}" if behind else "",
                )
            parts.append(match[0][1:])


def splitter_of(dialect: DelimitedDialect) -> FieldSplitter:
    """Build the splitter of a dialect."""
    terminator = None if dialect.terminator == b"\n" else dialect.terminator.decode()
    return FieldSplitter(
        dialect.delimiter.decode(), dialect.quote.decode(), dialect.escape.decode(), terminator
    )
