"""Parse JSON documents over several lines: objects, and the elements of arrays.

Called by jsonlines.py. The text is read block by block and only as much of it is held as one value
needs, so an array of any length can be read.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from tidegate.connectors.localfile.json_values import DECODER

_SPACE = re.compile(r"[ \t\n\r]*")
_NEAR_END_CHARS = 16
"""An error this close to the end of the buffer may only mean that more has to be read."""


class BadDocument(Exception):
    """The text cannot be parsed from this line on."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class JsonDocuments:
    """The values of a text, with the lines at which they begin."""

    def __init__(self, blocks: Iterator[bytes], value_bytes_max: int, limit_text: str) -> None:
        self.blocks = blocks
        self.limit = value_bytes_max
        self.limit_text = limit_text
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""
        self.at = 0
        self.line = 1
        self.ended = False

    def values(self) -> Iterator[tuple[int, Any]]:
        """Yield all values, in order."""
        inside = False
        element = False  # after an element, a comma or the end of the array must follow
        while self._skip_space():
            mark = self.text[self.at]
            if not inside and mark == "[":
                inside, element = True, False
                self.at += 1
            elif inside and mark == "]":
                inside = False
                self.at += 1
            elif inside and element:
                if mark != ",":
                    raise BadDocument(
                        self.line,
                        "this is not JSON: a comma is missing between the elements of an array",
                    )
                self.at += 1
                self._skip_space()
                if self.text[self.at : self.at + 1] in ("]", ""):
                    raise BadDocument(
                        self.line, "this is not JSON: an element is missing after a comma"
                    )
                element = False
            else:
                yield self._value()
                element = True
        if inside:
            raise BadDocument(self.line, "this is not JSON: the array is not closed")

    def _value(self) -> tuple[int, Any]:
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                incomplete = error.pos >= len(self.text) - _NEAR_END_CHARS or error.msg.startswith(
                    "Unterminated"
                )
                if len(self.text) - self.at > self.limit:
                    raise BadDocument(
                        self.line, f"the value that begins here is longer than {self.limit_text}"
                    ) from None
                if not (incomplete and self._read_more()):
                    raise BadDocument(
                        self.line + self.text.count("\n", self.at, error.pos),
                        f"this is not JSON: {error.msg}",
                    ) from None
                continue
            except RecursionError:
                raise BadDocument(self.line, "this value is nested too deeply") from None
            line = self.line
            self._advance(end)
            return line, value

    def _skip_space(self) -> bool:
        """Skip white space; report whether there is more text."""
        while True:
            space = _SPACE.match(self.text, self.at)
            assert space is not None, "the pattern matches the empty text"
            self._advance(space.end())
            if self.at < len(self.text):
                return True
            if not self._read_more():
                return False

    def _advance(self, offset: int) -> None:
        self.line += self.text.count("\n", self.at, offset)
        self.at = offset

    def _read_more(self) -> bool:
        if self.ended:
            return False
        block = next(self.blocks, b"")
        self.ended = not block
        try:
            found = self.decoder.decode(block, final=self.ended)
        except UnicodeDecodeError as error:
            line = (
                self.line
                + self.text.count("\n", self.at)
                + error.object[: error.start].count(b"\n")
            )
            wrong = error.object[error.start : error.end]
            raise BadDocument(line, f"the bytes {wrong!r} are not UTF-8: set `encoding`") from None
        self.text = self.text[self.at :] + found
        self.at = 0
        return bool(found) or not self.ended
