"""Reads csv and text files, in tasks. Called by tables.py.

Blocks of whole records go through Arrow's parser with the column types of the schema. A block that Arrow refuses is read again, field by field in
Python: there rows may be short (the rest is null) or long (the rest is left out), as in the reference, and what is wrong gets an error with file, line and
column. Both ways give the same rows for what both accept, so that it does not matter where blocks begin.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tidegate.connectors.localfile.convert import TIMESTAMPS, TimeNotation, from_text
from tidegate.connectors.localfile.fields import Field, Record, Splitter
from tidegate.connectors.localfile.notation import literal
from tidegate.connectors.localfile.records import Dialect, first_end
from tidegate.connectors.localfile.streams import BadFile, Part, as_utf8, bytes_of, codec_of, line_of, members, opened, record_blocks
from tidegate.model.types import Column, TypeName
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.option import Values

_BOM = codecs.BOM_UTF8
_TOP_BYTES = 64 * 1024
_TEXTUAL = (TypeName.STRING, TypeName.BYTES, TypeName.BINARY_VECTOR)
_DIRECT = (
    *_TEXTUAL,
    TypeName.BOOLEAN,
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.FLOAT,
    TypeName.DOUBLE,
    TypeName.DECIMAL,
    TypeName.TIMESTAMP,
    TypeName.TIMESTAMP_TZ,
)


def dialect_of(values: Values) -> Dialect:
    """How the records of a csv or text file are written."""
    is_csv = values["file_format_type"] == "csv"
    given = values["field_delimiter"]
    delimiter = literal(given) if given else "," if is_csv else "\x01"
    quote = values["quote_char"] or "" if is_csv else ""
    escape = values["escape_char"] or "" if is_csv else ""
    row = literal(values["row_delimiter"] or "\n")
    return Dialect(
        delimiter=delimiter.encode(),
        quote=quote.encode(),
        escape=b"" if escape == quote else escape.encode(),  # a quote that escapes itself is a doubled one
        terminator=b"\n" if row in ("\n", "\r\n", "\r") else row.encode(),
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The top of a file: the names in its header line, how many bytes come before its rows, and the blocks behind them."""

    names: list[str]
    size: int
    rows: Iterator[bytes]


class Delimited:
    """The reader of one table's csv or text files. `columns` are those of the files, in order; `wanted` those that are read."""

    def __init__(self, values: Values, columns: Sequence[Column], wanted: Sequence[Column]) -> None:
        self.values, self.columns, self.wanted = values, columns, wanted
        self.dialect = dialect_of(values)
        self.notation = TimeNotation.of(values)
        self.use_header = bool(values["csv_use_header_line"]) and values["file_format_type"] == "csv"
        self.nulls = ["", values["null_format"]] if values["null_format"] else [""]

    def splitter(self) -> Splitter:
        """For the slow way."""
        terminator = None if self.dialect.terminator == b"\n" else self.dialect.terminator.decode()
        return Splitter(self.dialect.delimiter.decode(), self.dialect.quote.decode(), self.dialect.escape.decode(), terminator)

    def header(self, part: Part) -> list[str]:
        """The names in a file's header line."""
        with opened(part) as file:
            return self.head(self.text(file, replace(part, start=0, end=-1))).names

    def head_bytes(self, block: bytes) -> int:
        """Where the rows begin in the first block of a file; -1 where the block does not say."""
        place = len(_BOM) if block.startswith(_BOM) else 0
        for _ in range(self.values["skip_header_row_number"]):
            found = block.find(self.dialect.terminator, place)
            if found < 0:
                return -1
            place = found + len(self.dialect.terminator)
        if not self.use_header:
            return place
        end = first_end(block[place:], self.dialect, len(self.dialect.terminator))
        return place + end if end >= 0 else -1

    def read(self, part: Part) -> Iterator[list[Any]]:
        """The arrays of the wanted columns, block after block."""
        archive = self.values["archive_compress_codec"]
        names = self.header(part) if self.use_header and archive == "none" else []
        with opened(part) as file:
            for member in members(file, archive, part.path, self.values["file_format_type"]):
                blocks = self.text(member, part)
                head = self.head(blocks) if part.start == 0 else Head(names, 0, blocks)
                yield from self._rows(record_blocks(head.rows, self.dialect), self._places(head.names), part, head.size)

    def text(self, file: Any, part: Part) -> Iterator[bytes]:
        """The blocks of a part, in UTF-8."""
        return as_utf8(bytes_of(file, part, codec_of(part.path, self.values)), self.values["encoding"], part.path)

    def head(self, blocks: Iterator[bytes]) -> Head:
        """Byte order mark, skipped lines and header, taken off the blocks of a file."""
        buffer = b""
        for block in blocks:
            buffer += block
            end = self.head_bytes(buffer)
            if end >= 0:
                return Head(self._names(buffer[:end]), end, chain([buffer[end:]], blocks))
        return Head(self._names(buffer), len(buffer), iter(()))

    def _names(self, head: bytes) -> list[str]:
        if not self.use_header:
            return []
        lines = head.removeprefix(_BOM)
        for _ in range(self.values["skip_header_row_number"]):
            lines = lines.partition(self.dialect.terminator)[2]
        record = next(self.splitter().records(lines.decode("utf-8", "replace")), None)
        return [f.text.strip() for f in record.fields] if record else []

    def _places(self, names: list[str]) -> list[int]:
        """In which field of a record each wanted column stands; -1 where in none."""
        if not self.use_header:
            order = [c.name for c in self.columns]
            return [order.index(c.name) for c in self.wanted]
        folded = [n.lower() for n in names]
        return [names.index(c.name) if c.name in names else folded.index(c.name.lower()) if c.name.lower() in folded else -1 for c in self.wanted]

    def _rows(self, blocks: Iterator[bytes], places: list[int], part: Part, offset: int) -> Iterator[list[Any]]:
        splitter = self.splitter()
        for block in blocks:
            width = self._width(block, splitter, part)
            if width:
                try:
                    yield self._fast(block, places, width)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
                    yield self._slow(block, places, splitter, part, offset)
            offset += len(block)

    def _width(self, block: bytes, splitter: Splitter, part: Part) -> int:
        """The number of fields of the first record; 0 where there is none."""
        top = block[:_TOP_BYTES].lstrip(b"\r\n")
        end = first_end(top, self.dialect, len(self.dialect.terminator))
        if end < 0:  # a long record, or many empty lines
            top = block.lstrip(b"\r\n")
            end = first_end(top, self.dialect, len(self.dialect.terminator))
        record = next(splitter.records(_decoded(top[:end] if end >= 0 else top, part)), None)
        return len(record.fields) if record else 0

    def _fast(self, block: bytes, places: list[int], width: int) -> list[Any]:
        dialect = self.dialect
        if len(dialect.delimiter) != 1 or dialect.terminator != b"\n":
            raise ValueError("not a dialect of Arrow's")
        there = {place: column for place, column in zip(places, self.wanted, strict=True) if 0 <= place < width}
        if not there:
            raise ValueError("no column is there")
        data: Any = pa.BufferReader(block)
        table = pa_csv.read_csv(
            data,
            read_options=pa_csv.ReadOptions(column_names=[str(i) for i in range(width)], use_threads=False, block_size=len(block) + 1),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter.decode(),
                quote_char=dialect.quote.decode() or False,
                escape_char=dialect.escape.decode() or False,
                newlines_in_values=bool(dialect.quote and dialect.quote in block) or bool(dialect.escape),
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={str(place): self._parsed_as(column) for place, column in there.items()},
                include_columns=[str(place) for place in there],
                null_values=self.nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                timestamp_parsers=self._timestamp_parsers(),
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            ),
        )
        return [self._finished(table, place, column) for place, column in zip(places, self.wanted, strict=True)]

    def _parsed_as(self, column: Column) -> Any:
        """The type that Arrow's parser is asked for; what it cannot make goes through strings."""
        iso = {TypeName.DATE: self.notation.date == "%Y-%m-%d", TypeName.TIME: self.notation.time == "%H:%M:%S"}
        return arrow_type(column.type) if column.type.name in _DIRECT or iso.get(column.type.name) else pa.string()

    def _timestamp_parsers(self) -> list[Any]:
        if self.notation.datetime == TIMESTAMPS[0]:
            return [pa_csv.ISO8601, *TIMESTAMPS[1:]]
        return [self.notation.datetime, pa_csv.ISO8601, *TIMESTAMPS[1:]]

    def _finished(self, table: Any, place: int, column: Column) -> Any:
        wanted = arrow_type(column.type)
        index = table.schema.get_field_index(str(place)) if place >= 0 else -1
        if index < 0:
            return pa.nulls(table.num_rows, wanted)
        array = table.column(index).combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        if array.type == wanted:
            return array
        if column.type.name is TypeName.DATE:
            return pc.strptime(array, format=self.notation.date, unit="s").cast(wanted)
        convert = from_text(column.type, self.notation)
        return pa.array([None if text is None or not text.strip() else convert(text) for text in array.to_pylist()], wanted)

    def _slow(self, block: bytes, places: list[int], splitter: Splitter, part: Part, offset: int) -> list[Any]:
        text = _decoded(block, part)
        records = list(splitter.records(text))
        arrays = []
        for place, column in zip(places, self.wanted, strict=True):
            try:
                arrays.append(self._column(records, place, column))
            except _BadField as bad:
                where = line_of(part, offset + len(text[: bad.start].encode()), self._untraceable(part))
                raise BadFile(part.path, f"{where}column {column.name}: {bad}") from None
        return arrays

    def _untraceable(self, part: Part) -> str:
        plain = self.values["archive_compress_codec"] == "none" and codecs.lookup(self.values["encoding"]).name in ("utf-8", "ascii")
        return codec_of(part.path, self.values) if plain else "changed on the way"

    def _column(self, records: list[Record], place: int, column: Column) -> Any:
        convert = from_text(column.type, self.notation)
        textual = column.type.name in _TEXTUAL
        values: list[Any] = []
        for record in records:
            field = record.fields[place] if 0 <= place < len(record.fields) else Field("")
            if (not field.quoted and field.text in self.nulls) or (not textual and not field.text.strip()):
                values.append(None)
                continue
            try:
                values.append(convert(field.text))
            except ValueError as error:
                raise _BadField(record.start, str(error)) from None
        return pa.array(values, arrow_type(column.type))


class Lines:
    """The reader of csv and text files without a schema: every line that is not empty is a row with one column."""

    def __init__(self, values: Values) -> None:
        self.inner = Delimited({**values, "csv_use_header_line": False, "quote_char": None, "escape_char": None}, (), ())

    def read(self, part: Part) -> Iterator[list[Any]]:
        """One array of lines, block after block."""
        inner = self.inner
        with opened(part) as file:
            for member in members(file, inner.values["archive_compress_codec"], part.path, inner.values["file_format_type"]):
                blocks = inner.text(member, part)
                blocks = inner.head(blocks).rows if part.start == 0 else blocks
                for block in record_blocks(blocks, inner.dialect):
                    lines = block.splitlines() if inner.dialect.terminator == b"\n" else block.split(inner.dialect.terminator)
                    try:
                        yield [pa.array([line for line in lines if line], pa.string())]
                    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                        raise BadFile(part.path, f"is not written in {inner.values['encoding']}") from error


class _BadField(Exception):
    """A field that does not fit; `start` is where its record begins."""

    def __init__(self, start: int, what: str) -> None:
        super().__init__(what)
        self.start = start


def _decoded(block: bytes, part: Part) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        raise BadFile(part.path, f"is not written in UTF-8 ({error.reason}): name its encoding") from error
