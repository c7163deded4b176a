"""Dialect of csv, text and json-lines files, from the options.

Pure: validation uses it too.
"""

from dataclasses import dataclass

from tidegate.connectors.localfile.bad_rows import RECORD_BYTES_MAX
from tidegate.connectors.localfile.option_syntax import unescape
from tidegate.plugin.option import Values


@dataclass(frozen=True, kw_only=True, slots=True)
class DelimitedDialect:
    """How records are written.

    `terminator` is one byte if files are to be cut; `quote` and `escape` may be empty.
    `record_bytes_max` is the longest accepted record: an unclosed quote must not swallow the rest
    of a file.
    """

    delimiter: bytes = b","
    quote: bytes = b""
    escape: bytes = b""
    terminator: bytes = b"\n"
    record_bytes_max: int = RECORD_BYTES_MAX

    @property
    def plain(self) -> bool:
        """Whether every terminator ends a record."""
        return not self.quote and not self.escape

    @property
    def starts(self) -> tuple[bytes, ...]:
        """What precedes the first character of a field."""
        return (
            (self.delimiter, b"\n", b"\r")
            if self.terminator == b"\n"
            else (self.delimiter, self.terminator)
        )


def dialect_of(values: Values) -> DelimitedDialect:
    """Build the dialect of a csv or text file."""
    is_csv = values["file_format_type"] == "csv"
    given = values["field_delimiter"]
    delimiter = unescape(given) if given else "," if is_csv else "\x01"
    quote = values["quote_char"] or "" if is_csv else ""
    escape = values["escape_char"] or "" if is_csv else ""
    row = unescape(values["row_delimiter"] or "\n")
    return DelimitedDialect(
        delimiter=delimiter.encode(),
        quote=quote.encode(),
        escape=(
            b"" if escape == quote else escape.encode()
        ),  # a quote that escapes itself is a doubled quote
        terminator=b"\n" if row in ("\n", "\r\n", "\r") else row.encode(),
        record_bytes_max=int(values.get("max_record_bytes") or RECORD_BYTES_MAX),
    )
