"""Read csv and text files, in tasks. Called by table_files.py.

Blocks of complete records are parsed by Arrow with the column types of the schema. A block that
Arrow refuses, or that contains what Arrow would accept by mistake (misplaced quotes, zero bytes,
numbers that overflow), is parsed again in Python: that finds every row that does not fit, with its
line and column. Both parsers return the same rows for what both accept, so the result does not
depend on block boundaries.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tidegate.connectors.localfile.bad_rows import (
    BadFile,
    BadRow,
    BadRows,
    faults_by_row,
    size_text,
)
from tidegate.connectors.localfile.delimited_dialect import dialect_of
from tidegate.connectors.localfile.fallback_reader import FallbackReader
from tidegate.connectors.localfile.field_splitter import FieldSplitter, splitter_of
from tidegate.connectors.localfile.file_blocks import (
    ExpansionLimit,
    FilePart,
    RecordBlocks,
    RecordTooLong,
    archive_members,
    codec_of,
    decode_to_utf8,
    line_numbers,
    open_part,
    read_blocks,
    record_blocks,
)
from tidegate.connectors.localfile.header_checks import (
    column_indexes,
    first_row_problem,
    header_problem,
    skipped_problem,
)
from tidegate.connectors.localfile.record_boundaries import first_end
from tidegate.connectors.localfile.value_converters import TIMESTAMPS, ConversionRules, from_text
from tidegate.model.types import Column, TypeName
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.option import Values

_BOM = codecs.BOM_UTF8
_TOP_BYTES = 64 * 1024
_VISIBLE = re.compile(rb"[^\r\n]")
_DIRECT = (
    TypeName.STRING,
    TypeName.BYTES,
    TypeName.BINARY_VECTOR,
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


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file.

    The names in its header, its size in bytes, and the blocks after it.
    """

    names: list[str]
    size: int
    rows: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """The number of fields in a record, and the field of each wanted column (-1: none)."""

    indexes: list[int]
    width: int


class DelimitedReader:
    """Reader of one table's csv or text files.

    `columns` are those of the files, in order; `wanted` those that are read. `exact` means that the
    columns come from a header and not from a schema: then no file may have additional columns.
    """

    def __init__(
        self,
        values: Values,
        columns: Sequence[Column],
        wanted: Sequence[Column],
        *,
        exact: bool = False,
    ) -> None:
        self.values = values
        self.columns = columns
        self.wanted = wanted
        self.exact = exact
        self.dialect = dialect_of(values)
        self.rules = ConversionRules.of(values)
        self.use_header = (
            bool(values["csv_use_header_line"]) and values["file_format_type"] == "csv"
        )
        self.nulls = ["", values["null_format"]] if values["null_format"] else [""]
        separators = self.dialect.delimiter + self.dialect.terminator
        self.refuse_zeros = b"\0" not in separators

    def splitter(self) -> FieldSplitter:
        return splitter_of(self.dialect)

    def fallback(self) -> FallbackReader:
        return FallbackReader(
            self.splitter(),
            self.rules,
            self.wanted,
            self.nulls,
            self.dialect,
            refuse_zeros=self.refuse_zeros,
        )

    def header(self, part: FilePart) -> list[str]:
        """Read the names in a file's header line."""
        whole = replace(part, start=0, end=-1)
        with open_part(part) as file:
            for _, member in archive_members(
                file, part, self.values, ExpansionLimit(part, self.values)
            ):
                return self.head(self.text(member, whole), whole).names
        return []

    def head_bytes(self, block: bytes) -> int:
        """Return the offset of the first row in a file's first block; -1 if it lies beyond."""
        offset = len(_BOM) if block.startswith(_BOM) else 0
        for _ in range(self.values["skip_header_row_number"]):
            found = block.find(self.dialect.terminator, offset)
            if found < 0:
                return -1
            offset = found + len(self.dialect.terminator)
        if not self.use_header:
            return offset
        end = first_end(block[offset:], self.dialect, len(self.dialect.terminator))
        return offset + end if end >= 0 else -1

    def read(self, part: FilePart) -> Iterator[list[Any]]:
        """Yield the arrays of the wanted columns, one list per block."""
        names = self.header(part) if self.use_header and part.start else []
        expansion = ExpansionLimit(part, self.values)
        with open_part(part) as file:
            for index, (name, member) in enumerate(
                archive_members(file, part, self.values, expansion)
            ):
                blocks = self.text(member, part, expansion)
                head = self.head(blocks, part) if part.start == 0 else FileHead(names, 0, blocks)
                layout = self._layout(head.names, part)
                bad = BadRows(part.path, self.line_lookup(part, index, name, head.size))
                yield from self._rows(
                    record_blocks(head.rows, self.dialect), layout, bad, part.start == 0
                )

    def text(
        self, file: Any, part: FilePart, expansion: ExpansionLimit | None = None
    ) -> Iterator[bytes]:
        """Yield the blocks of a part, in UTF-8."""
        raw = read_blocks(file, part, codec_of(part.path, self.values), expansion)
        return decode_to_utf8(raw, self.values["encoding"], part)

    def line_lookup(
        self, part: FilePart, index: int, name: str, start: int
    ) -> Callable[[Sequence[int]], list[str]]:
        """Return a function that turns offsets in a member's rows into line numbers.

        It reads the text again.
        """

        def found(offsets: Sequence[int]) -> list[str]:
            with open_part(part) as file:
                expansion = ExpansionLimit(part, self.values)
                found_members = archive_members(
                    file, part, self.values, expansion
                )  # closes the files when it is garbage-collected
                _, member = next(islice(found_members, index, None))
                lines = line_numbers(
                    part, self.text(member, part), [start + offset for offset in offsets]
                )
            return [f"{name}: line {line}" if name else f"line {line}" for line in lines]

        return found

    def head(self, blocks: Iterator[bytes], part: FilePart) -> FileHead:
        """Split byte order mark, skipped lines and header from the blocks of a file."""
        buffer = b""
        for block in blocks:
            buffer += block
            end = self.head_bytes(buffer)
            if end >= 0:
                return FileHead(self._names(buffer[:end], part), end, chain([buffer[end:]], blocks))
            if len(buffer) > self.dialect.record_bytes_max:
                limit = size_text(self.dialect.record_bytes_max)
                raise BadFile(
                    part.path, f"line 1: the header does not end within {limit} (max_record_bytes)"
                )
        return FileHead(self._names(buffer, part), len(buffer), iter(()))

    def _names(self, head: bytes, part: FilePart) -> list[str]:
        lines = head.removeprefix(_BOM)
        skipped = b""
        count = self.values["skip_header_row_number"]
        for _ in range(count):
            skipped, _, lines = lines.partition(self.dialect.terminator)
        if self.use_header:
            return self._split(lines, part)
        if count and self.columns:
            problem = skipped_problem(self._split(skipped, part), [c.name for c in self.columns])
            if problem:
                raise BadFile(part.path, f"line {count}: {problem}")
        return []

    def _split(self, line: bytes, part: FilePart) -> list[str]:
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            if not self.use_header:
                return []
            number = self.values["skip_header_row_number"] + 1
            raise BadFile(
                part.path,
                f"line {number}: the header is not UTF-8 ({error.reason}): set `encoding`",
            ) from None
        record = next(self.splitter().records(text), None)
        if record is None:
            return []
        fault = next((field.fault for field in record.fields if field.fault), "")
        if fault and self.use_header:
            raise BadFile(
                part.path, f"line {self.values['skip_header_row_number'] + 1}: the header: {fault}"
            )
        return [field.text.strip() for field in record.fields]

    def _layout(self, names: list[str], part: FilePart) -> FieldLayout:
        order = [c.name for c in self.columns]
        wanted = [c.name for c in self.wanted]
        if not self.use_header:
            return FieldLayout([order.index(name) for name in wanted], len(order))
        problem = header_problem(
            names,
            wanted,
            self.dialect.delimiter.decode(),
            fill_missing=self.rules.leniency.fill_missing,
        )
        extra = (
            [n for n, index in zip(names, column_indexes(order, names), strict=True) if index < 0]
            if self.exact
            else []
        )
        if not problem and extra:
            problem = (
                f"the header has {', '.join(map(repr, extra))}, which the first file of the table"
                " lacks: add a schema"
            )
        if problem:
            raise BadFile(part.path, f"line {self.values['skip_header_row_number'] + 1}: {problem}")
        return FieldLayout(column_indexes(names, wanted), len(names))

    def _rows(
        self, blocks: RecordBlocks, layout: FieldLayout, bad: BadRows, at_top: bool
    ) -> Iterator[list[Any]]:
        slow = self.fallback()
        offset = 0
        try:
            for block in blocks:
                if at_top:
                    self._check_first_row(block, bad)
                    at_top = False
                arrays = self._arrays(block, blocks.faulty, layout, slow, bad, offset)
                offset += len(block)
                if arrays and not bad.count:
                    yield arrays
                bad.end_block(len(block))
        except RecordTooLong as error:
            self._add_too_long(error, bad)
        bad.close()

    def _add_too_long(self, error: RecordTooLong, bad: BadRows) -> None:
        limit = f"{size_text(self.dialect.record_bytes_max)} (max_record_bytes)"
        if error.open_at >= 0:
            quote = self.dialect.quote.decode()
            bad.add(
                BadRow(
                    error.open_at, f"the quote {quote} that opens here is not closed within {limit}"
                )
            )
        else:
            bad.add(BadRow(error.offset, f"the record that begins here is longer than {limit}"))

    def _check_first_row(self, block: bytes, bad: BadRows) -> None:
        if self.use_header:
            return
        record = next(self.splitter().records(self._first(block).decode("utf-8", "replace")), None)
        problem = (
            first_row_problem([f.text for f in record.fields], [c.name for c in self.columns])
            if record
            else ""
        )
        if problem:
            bad.add(BadRow(0, problem))

    def _arrays(
        self,
        block: bytes,
        faulty: bool,
        layout: FieldLayout,
        slow: FallbackReader,
        bad: BadRows,
        offset: int,
    ) -> list[Any] | None:
        """Parse a block with Arrow, else with the fallback; None if it has no good rows."""
        if (
            not faulty
            and len(block) <= self.dialect.record_bytes_max
            and not (self.refuse_zeros and b"\0" in block)
        ):
            try:
                width = self._width(block, layout)
                return self._parse_with_arrow(block, layout.indexes, width) if width else None
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
                pass  # the fallback accepts more, or finds the bad rows
        arrays, faults, starts = slow.read(block, layout.indexes, layout.width)
        for row, what in faults_by_row(faults):
            bad.add(BadRow(offset + starts(row), what))
        return arrays if arrays and len(arrays[0]) else None

    def _width(self, block: bytes, layout: FieldLayout) -> int:
        """Return the number of fields that Arrow should expect; 0 if there is no record.

        If rows of other widths are accepted, it is the width of the first record.
        """
        leniency = self.rules.leniency
        if not leniency.fill_short and not leniency.drop_extra:
            return layout.width if _VISIBLE.search(block) else 0
        record = next(self.splitter().records(self._first(block).decode("utf-8", "replace")), None)
        width = len(record.fields) if record else 0
        short, long = (
            width < layout.width and not leniency.fill_short,
            width > layout.width and not leniency.drop_extra,
        )
        return layout.width if width and (short or long) else width

    def _first(self, block: bytes) -> bytes:
        """Return the first record of a block that is not an empty line."""
        top = block[:_TOP_BYTES].lstrip(b"\r\n")
        end = first_end(top, self.dialect, len(self.dialect.terminator))
        if end < 0:  # a long record, or many empty lines
            top = block.lstrip(b"\r\n")
            end = first_end(top, self.dialect, len(self.dialect.terminator))
        return top[:end] if end >= 0 else top

    def _parse_with_arrow(self, block: bytes, indexes: list[int], width: int) -> list[Any]:
        dialect = self.dialect
        if len(dialect.delimiter) != 1 or dialect.terminator != b"\n":
            raise ValueError("Arrow does not support this dialect")
        present = {
            index: column
            for index, column in zip(indexes, self.wanted, strict=True)
            if 0 <= index < width
        }
        if not present:
            raise ValueError("the file has none of the columns")
        data: Any = pa.BufferReader(block)
        table = pa_csv.read_csv(
            data,
            read_options=pa_csv.ReadOptions(
                column_names=[str(i) for i in range(width)],
                use_threads=False,
                block_size=len(block) + 1,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter.decode(),
                quote_char=dialect.quote.decode() or False,
                escape_char=dialect.escape.decode() or False,
                newlines_in_values=bool(dialect.quote and dialect.quote in block)
                or bool(dialect.escape),
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={
                    str(index): self._parsed_as(column) for index, column in present.items()
                },
                include_columns=[str(index) for index in present],
                null_values=self.nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                timestamp_parsers=self._timestamp_parsers(),
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            ),
        )
        return [
            self._finish_column(table, index, column)
            for index, column in zip(indexes, self.wanted, strict=True)
        ]

    def _parsed_as(self, column: Column) -> Any:
        """Return the type to request from Arrow's parser; strings if it lacks the type."""
        iso = {
            TypeName.DATE: self.rules.date == "%Y-%m-%d",
            TypeName.TIME: self.rules.time == "%H:%M:%S",
        }
        return (
            arrow_type(column.type)
            if column.type.name in _DIRECT or iso.get(column.type.name)
            else pa.string()
        )

    def _timestamp_parsers(self) -> list[Any]:
        if self.rules.datetime == TIMESTAMPS[0]:
            return [pa_csv.ISO8601, *TIMESTAMPS[1:]]
        return [self.rules.datetime, pa_csv.ISO8601, *TIMESTAMPS[1:]]

    def _finish_column(self, table: Any, index: int, column: Column) -> Any:
        wanted = arrow_type(column.type)
        index = table.schema.get_field_index(str(index)) if index >= 0 else -1
        array = (
            pa.nulls(table.num_rows, wanted) if index < 0 else table.column(index).combine_chunks()
        )
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        if array.null_count and not column.nullable:
            raise ValueError("a null in a column that is not nullable")
        if array.type != wanted:
            return self._convert_strings(array, column)
        if pa.types.is_floating(wanted) and pc.any(pc.is_inf(array)).as_py():
            raise ValueError("a number that may have overflowed")
        return array

    def _convert_strings(self, array: Any, column: Column) -> Any:
        """Convert texts to types that Arrow's parser lacks."""
        if column.type.name is TypeName.DATE:
            return pc.strptime(array, format=self.rules.date, unit="s").cast(
                arrow_type(column.type)
            )
        convert = from_text(column.type, self.rules)
        values = [
            None if text is None or not text.strip() else convert(text)
            for text in array.to_pylist()
        ]
        return pa.array(values, arrow_type(column.type))


class LineReader:
    """Reader of csv and text files without a schema: every non-empty line is a row."""

    def __init__(self, values: Values) -> None:
        self.inner = DelimitedReader(
            {**values, "csv_use_header_line": False, "quote_char": None, "escape_char": None},
            (),
            (),
        )

    def read(self, part: FilePart) -> Iterator[list[Any]]:
        """Yield one array of lines per block."""
        inner = self.inner
        expansion = ExpansionLimit(part, inner.values)
        with open_part(part) as file:
            for index, (name, member) in enumerate(
                archive_members(file, part, inner.values, expansion)
            ):
                blocks = inner.text(member, part, expansion)
                head = inner.head(blocks, part) if part.start == 0 else FileHead([], 0, blocks)
                bad = BadRows(part.path, inner.line_lookup(part, index, name, head.size))
                yield from self._rows(record_blocks(head.rows, inner.dialect), bad)

    def _rows(self, blocks: RecordBlocks, bad: BadRows) -> Iterator[list[Any]]:
        offset = 0
        try:
            for block in blocks:
                lines = self._split(block)
                self._check(block, lines, bad, offset)
                offset += len(block)
                if not bad.count:
                    yield [pa.array([line for line in lines if line], pa.string())]
                bad.end_block(len(block))
        except RecordTooLong as error:
            self.inner._add_too_long(error, bad)
        bad.close()

    def _split(self, block: bytes) -> list[bytes]:
        if self.inner.dialect.terminator == b"\n":
            return block.splitlines()
        return block.split(self.inner.dialect.terminator)

    def _check(self, block: bytes, lines: list[bytes], bad: BadRows, offset: int) -> None:
        try:
            block.decode()
        except UnicodeDecodeError:
            pass
        else:
            zeros = self.inner.refuse_zeros and b"\0" in block
            if not zeros and len(block) <= self.inner.dialect.record_bytes_max:
                return
        position = 0
        for line in lines:
            position = max(block.find(line, position), position)
            what = _line_problem(line, self.inner)
            if what:
                bad.add(BadRow(offset + position, what))
            position += len(line)


def _line_problem(line: bytes, inner: DelimitedReader) -> str:
    if len(line) > inner.dialect.record_bytes_max:
        return (
            "the record that begins here is longer than"
            f" {size_text(inner.dialect.record_bytes_max)} (max_record_bytes)"
        )
    if b"\0" in line and inner.refuse_zeros:
        return f"{line[:40]!r} contains a zero byte"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"the bytes {line[error.start : error.end]!r} are not UTF-8: set `encoding`"
    return ""
