"""Read json files, in tasks: one object per line, or documents and arrays of objects.

Called by table_files.py. Lines are parsed by Arrow if its types agree with those of the schema. A
block that Arrow refuses, or in which a null may be a missing key, is parsed again in Python. That
also accepts quoted numbers, maps and times in other formats, and finds every row that does not fit.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tidegate.connectors.localfile.bad_rows import (
    NULL_IN_REQUIRED_COLUMN,
    RECORD_BYTES_MAX,
    BadRow,
    BadRows,
    excerpt,
    size_text,
)
from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect
from tidegate.connectors.localfile.file_blocks import (
    ExpansionLimit,
    FilePart,
    RecordTooLong,
    archive_members,
    codec_of,
    decode_to_utf8,
    line_numbers,
    open_part,
    read_blocks,
    record_blocks,
)
from tidegate.connectors.localfile.json_documents import BadDocument, JsonDocuments
from tidegate.connectors.localfile.json_values import DECODER
from tidegate.connectors.localfile.value_converters import (
    ConversionRules,
    from_json,
    refuse_duplicate_keys,
)
from tidegate.model.types import Column, DataType, TypeName
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.option import Values

LINES = DelimitedDialect()
_ARROW_TYPES = (
    TypeName.STRING,
    TypeName.BOOLEAN,
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.FLOAT,
    TypeName.DOUBLE,
    TypeName.DECIMAL,
)
_PARSED_AS_TEXT = (TypeName.DATE, TypeName.TIME, TypeName.BYTES)
"""Arrow returns the text, which is converted here: bytes are base64."""
_DOCUMENT_ROWS = 16_384
_KEYS_MAX = 10
_BOM = b"\xef\xbb\xbf"
_BY_TEXT = (*_PARSED_AS_TEXT, TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ)


def by_lines(head: bytes) -> bool:
    """Report whether a file that begins like this has one object per line.

    Such a file can be cut at newlines.
    """
    line, newline, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return not newline  # the line is longer than the sample
    return True


class BadRowValue(ValueError):
    """A row that does not fit."""


class JsonReader:
    """Reader of one table's json files."""

    def __init__(self, values: Values, wanted: Sequence[Column]) -> None:
        self.values = values
        self.wanted = wanted
        self.rules = ConversionRules.of(values)
        self.limit = int(values.get("max_record_bytes") or RECORD_BYTES_MAX)
        self.limit_text = f"{size_text(self.limit)} (max_record_bytes)"
        iso = self.rules.datetime == "%Y-%m-%d %H:%M:%S"
        self.direct = all(_arrow_reads(c.type, iso) and c.default is None for c in wanted)
        self.converters = [(c, from_json(c.type, self.rules)) for c in wanted]

    def read(self, part: FilePart) -> Iterator[list[Any]]:
        """Yield the arrays of the wanted columns, one list per block."""
        expansion = ExpansionLimit(part, self.values)
        with open_part(part) as file:
            for index, (name, member) in enumerate(
                archive_members(file, part, self.values, expansion)
            ):
                yield from self._rows(self._text(member, part, expansion), part, index, name)

    def _text(self, file: Any, part: FilePart, expansion: ExpansionLimit) -> Iterator[bytes]:
        raw = read_blocks(file, part, codec_of(part.path, self.values), expansion)
        return decode_to_utf8(raw, self.values["encoding"], part)

    def _rows(
        self, blocks: Iterator[bytes], part: FilePart, index: int, name: str
    ) -> Iterator[list[Any]]:
        first = next(blocks, b"")
        start = 0
        if part.start == 0:
            start = len(_BOM) if first.startswith(_BOM) else 0
            first = first[start:]
            if not by_lines(first):
                yield from self._documents(chain([first], blocks), BadRows(part.path, _lines(name)))
                return
        bad = BadRows(part.path, self._line_lookup(part, index, name, start))
        yield from self._line_rows(chain([first], blocks), bad)

    def _line_rows(self, blocks: Iterator[bytes], bad: BadRows) -> Iterator[list[Any]]:
        offset = 0
        try:
            for block in record_blocks(blocks, replace(LINES, record_bytes_max=self.limit)):
                arrays = self._block(block, bad, offset) if block.strip() else None
                offset += len(block)
                if arrays and not bad.count:
                    yield arrays
                bad.end_block(len(block))
        except RecordTooLong as error:
            bad.add(
                BadRow(
                    error.offset, f"the record that begins here is longer than {self.limit_text}"
                )
            )
        bad.close()

    def _line_lookup(
        self, part: FilePart, index: int, name: str, start: int
    ) -> Callable[[Sequence[int]], list[str]]:
        """Return a function that turns offsets in a member into line numbers.

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
                    part, self._text(member, part, expansion), [start + o for o in offsets]
                )
            return _lines(name)(lines)

        return found

    def _block(self, block: bytes, bad: BadRows, offset: int) -> list[Any] | None:
        if self.direct and len(block) <= self.limit:
            try:
                return self._parse_with_arrow(block)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, RecursionError):
                pass  # the fallback accepts more, or finds the bad rows
        return self._parse_with_python(block, bad, offset)

    def _parse_with_arrow(self, block: bytes) -> list[Any]:
        texts = (*_PARSED_AS_TEXT, TypeName.TIMESTAMP)
        fields = [
            pa.field(c.name, pa.string() if c.type.name in texts else arrow_type(c.type))
            for c in self.wanted
        ]
        data: Any = pa.BufferReader(block)
        table = pa_json.read_json(
            data,
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)  # Arrow's parser lets bytes through that are not UTF-8
        arrays = [_flat(table.column(c.name).combine_chunks()) for c in self.wanted]
        self._check(block, arrays)
        return [self._finish_column(array, c) for array, c in zip(arrays, self.wanted, strict=True)]

    def _check(self, block: bytes, arrays: list[Any]) -> None:
        """Raise if the block has to be parsed in Python.

        That is the case for nulls that may be missing keys, and for numbers that may have
        overflowed.
        """
        empty = [c for array, c in zip(arrays, self.wanted, strict=True) if array.null_count]
        if any(not c.nullable for c in empty):
            raise BadRowValue("a null in a column that is not nullable")
        if any(_overflowed(array) for array in arrays):
            raise BadRowValue("a number that may have overflowed")
        if self.rules.leniency.fill_missing:
            return
        if any(_holds_empty_child(array) for array in arrays):
            raise BadRowValue("a null in a row that may be a missing key")
        if (
            empty
            and not _nulls_are_written(block, arrays, self.wanted)
            and not _all_have(block, [c.name for c in empty])
        ):
            raise BadRowValue("a missing key")

    def _finish_column(self, array: Any, column: Column) -> Any:
        if column.type.name is TypeName.TIMESTAMP:
            return array.cast(
                arrow_type(column.type)
            )  # refuses zones, which Arrow's JSON parser ignores
        if column.type.name not in _PARSED_AS_TEXT:
            return array
        convert = from_json(column.type, self.rules)
        values = [None if text is None else convert(text) for text in array.to_pylist()]
        return pa.array(values, arrow_type(column.type))

    def _parse_with_python(self, block: bytes, bad: BadRows, offset: int) -> list[Any] | None:
        rows: list[list[Any]] = []
        start = offset
        for line in block.splitlines(keepends=True):
            try:
                if len(line) > self.limit:
                    raise BadRowValue(f"the record is longer than {self.limit_text}")
                rows += [self._row(value) for value in _values(line)]
            except BadRowValue as error:
                bad.add(BadRow(start, str(error)))
            start += len(line)
        return self._arrays(rows)

    def _documents(self, blocks: Iterator[bytes], bad: BadRows) -> Iterator[list[Any]]:
        rows: list[list[Any]] = []
        try:
            for line, value in JsonDocuments(blocks, self.limit, self.limit_text).values():
                try:
                    rows.append(self._row(value))
                except BadRowValue as error:
                    bad.add(BadRow(line, str(error)))
                    bad.end_block(1)
                if len(rows) >= _DOCUMENT_ROWS and not bad.count:
                    yield self._arrays(rows)
                    rows = []
        except BadDocument as error:
            bad.add(BadRow(error.line, str(error)))
        bad.close()
        if rows:
            yield self._arrays(rows)

    def _arrays(self, rows: list[list[Any]]) -> list[Any]:
        return [
            pa.array([row[i] for row in rows], arrow_type(c.type))
            for i, c in enumerate(self.wanted)
        ]

    def _row(self, value: Any) -> list[Any]:
        """Convert the values of the wanted columns; BadRowValue names all that do not fit."""
        if not isinstance(value, dict):
            raise BadRowValue(f"a row is an object, not {excerpt(value)}")
        row: list[Any] = []
        faults: list[str] = []
        for column, convert in self.converters:
            try:
                row.append(self._value(value, column, convert))
            except ValueError as error:
                faults.append(f"column {column.name}: {error}")
        if faults:
            raise BadRowValue("; ".join(faults))
        return row

    def _value(self, row: dict[str, Any], column: Column, convert: Callable[[Any], Any]) -> Any:
        name = column.name
        refuse_duplicate_keys(row, (name,))
        found = row.get(name)
        if found is None and column.default is not None:
            found = column.default
        elif name not in row and not self.rules.leniency.fill_missing:
            keys = ", ".join(map(repr, islice(row, _KEYS_MAX)))
            raise ValueError(
                f"the key is missing, the object has {keys or 'none'}; missing_columns ="
                ' "fill_null" reads null for it'
            )
        if found is None and not column.nullable:
            raise ValueError(NULL_IN_REQUIRED_COLUMN)
        return None if found is None else convert(found)


def _lines(name: str) -> Callable[[Sequence[int]], list[str]]:
    return lambda lines: [f"{name}: line {line}" if name else f"line {line}" for line in lines]


def _flat(array: Any) -> Any:
    if isinstance(array, pa.ChunkedArray):
        return array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array


def _overflowed(array: Any) -> bool:
    """Report whether a number may have become infinite."""
    return pa.types.is_floating(array.type) and bool(pc.any(pc.is_inf(array)).as_py())


def _holds_empty_child(array: Any) -> bool:
    """Report whether a nested row has a null, which may be a missing key."""
    if pa.types.is_list(array.type):
        return _holds_empty_child(array.flatten())
    if not pa.types.is_struct(array.type):
        return False
    return any(
        child.null_count > array.null_count or _holds_empty_child(child)
        for child in array.flatten()
    )


def _nulls_are_written(block: bytes, arrays: list[Any], columns: Sequence[Column]) -> bool:
    """Report whether every null is written in the text.

    Only certain for flat objects without escapes, in which Arrow has found each key once.
    """
    if b"\\" in block or block.count(b"{") != len(arrays[0]):
        return False
    for array, column in zip(arrays, columns, strict=True):
        key = json.dumps(column.name, ensure_ascii=False).encode()
        left = array.null_count
        for null in (b": null", b":null"):
            left -= block.count(key + null) if left else 0
        if left:
            return False
    return True


def _all_have(block: bytes, names: Sequence[str]) -> bool:
    """Report whether every line is an object with all of these keys."""
    for line in block.splitlines():
        if line.strip():
            value = json.loads(line)
            if not isinstance(value, dict) or any(name not in value for name in names):
                return False
    return True


def _values(line: bytes) -> Iterator[Any]:
    """Yield the objects of a line, and the elements of arrays."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        wrong = line[error.start : error.end]
        raise BadRowValue(f"the bytes {wrong!r} are not UTF-8: set `encoding`") from None
    position = 0
    while (position := len(text) - len(text[position:].lstrip())) < len(text):
        try:
            value, position = DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise BadRowValue(
                f"this is not JSON: {error.msg}: {excerpt(text[error.pos : error.pos + 60])}"
            ) from None
        except RecursionError:
            raise BadRowValue("this value is nested too deeply") from None
        yield from value if isinstance(value, list) else [value]


def _arrow_reads(kind: DataType, iso: bool) -> bool:
    match kind.name:
        case TypeName.ARRAY:
            return kind.children[0].name not in _BY_TEXT and _arrow_reads(kind.children[0], iso)
        case TypeName.ROW:
            return all(
                c.type.name not in _BY_TEXT and _arrow_reads(c.type, iso) for c in kind.columns
            )
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_TZ:
            return iso
        case _:
            return kind.name in _ARROW_TYPES or kind.name in _BY_TEXT
