"""Reads json files, in tasks: one object per line, or documents and arrays of objects over several lines. Called by tables.py.

Lines go through Arrow's parser where its types and the schema's agree; a block that Arrow refuses is read again with Python's, which also takes numbers
in quotes, maps and times in other notations, and says file and line of what is wrong.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from tidegate.connectors.localfile.convert import TimeNotation, from_json, nullable
from tidegate.connectors.localfile.records import Dialect
from tidegate.connectors.localfile.streams import BadFile, Part, as_utf8, bytes_of, codec_of, line_of, members, opened, record_blocks, whole_text
from tidegate.model.types import Column, DataType, TypeName
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.option import Values

LINES = Dialect()
_PLAIN = (
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
_AS_TEXT = (TypeName.DATE, TypeName.TIME, TypeName.BYTES)
"""Arrow gives their text, and the value is made of it here: bytes are base64."""
_BY_TEXT = (*_AS_TEXT, TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ)


def by_lines(head: bytes) -> bool:
    """Whether a file that begins like this holds one object per line, so that it can be cut at newlines."""
    line, newline, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return not newline  # the line goes on behind what was looked at
    return True


class JsonReader:
    """The reader of one table's json files."""

    def __init__(self, values: Values, wanted: Sequence[Column]) -> None:
        self.values, self.wanted = values, wanted
        self.notation = TimeNotation.of(values)
        iso = self.notation.datetime == "%Y-%m-%d %H:%M:%S"
        self.direct = all(_arrow_reads(c.type, iso) and c.default is None for c in wanted)

    def read(self, part: Part) -> Iterator[list[Any]]:
        """The arrays of the wanted columns, block after block."""
        with opened(part) as file:
            for member in members(file, self.values["archive_compress_codec"], part.path, "json"):
                blocks = as_utf8(bytes_of(member, part, codec_of(part.path, self.values)), self.values["encoding"], part.path)
                yield from self._rows(blocks, part)

    def _rows(self, blocks: Iterator[bytes], part: Part) -> Iterator[list[Any]]:
        first = next(blocks, b"")
        if part.start == 0:
            first = first.removeprefix(b"\xef\xbb\xbf")
            if not by_lines(first):
                yield from self._documents(first + whole_text(blocks), part)
                return
        offset = 0
        for block in record_blocks(_chain(first, blocks), LINES):
            if block.strip():
                yield self._block(block, part, offset)
            offset += len(block)

    def _block(self, block: bytes, part: Part, offset: int) -> list[Any]:
        if self.direct:
            try:
                return self._fast(block)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
                pass  # the slow way knows more, or says what is wrong
        return self._slow(block, part, offset)

    def _fast(self, block: bytes) -> list[Any]:
        fields = [pa.field(c.name, pa.string() if c.type.name in _AS_TEXT else arrow_type(c.type)) for c in self.wanted]
        data: Any = pa.BufferReader(block)
        table = pa_json.read_json(
            data,
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)  # Arrow's parser lets bytes through that are not UTF-8
        return [self._finished(table.column(c.name).combine_chunks(), c) for c in self.wanted]

    def _finished(self, array: Any, column: Column) -> Any:
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        if column.type.name not in _AS_TEXT:
            return array
        convert = nullable(from_json(column.type, self.notation))
        return pa.array([convert(text) for text in array.to_pylist()], arrow_type(column.type))

    def _slow(self, block: bytes, part: Part, offset: int) -> list[Any]:
        rows: list[Any] = []
        place = offset
        converters = [(c, _with_default(c, self.notation)) for c in self.wanted]
        for line in block.splitlines(keepends=True):
            try:
                for value in _values(line.decode()):
                    rows.append([_converted(c, convert, value) for c, convert in converters])
            except ValueError as error:
                raise BadFile(part.path, f"{line_of(part, place, self._untraceable(part))}{error}") from None
            place += len(line)
        return [pa.array([row[i] for row in rows], arrow_type(c.type)) for i, c in enumerate(self.wanted)]

    def _untraceable(self, part: Part) -> str:
        plain = self.values["archive_compress_codec"] == "none" and self.values["encoding"].lower().replace("_", "-") in ("utf-8", "utf8")
        return codec_of(part.path, self.values) if plain else "changed on the way"

    def _documents(self, data: bytes, part: Part) -> Iterator[list[Any]]:
        converters = [(c, _with_default(c, self.notation)) for c in self.wanted]
        try:
            rows = [[_converted(c, convert, value) for c, convert in converters] for value in _values(data.decode())]
        except ValueError as error:
            raise BadFile(part.path, str(error)) from None
        yield [pa.array([row[i] for row in rows], arrow_type(c.type)) for i, c in enumerate(self.wanted)]


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _arrow_reads(kind: DataType, iso: bool) -> bool:
    match kind.name:
        case TypeName.ARRAY:
            return kind.children[0].name not in _BY_TEXT and _arrow_reads(kind.children[0], iso)
        case TypeName.ROW:
            return all(c.type.name not in _BY_TEXT and _arrow_reads(c.type, iso) for c in kind.columns)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_TZ:
            return iso
        case _:
            return kind.name in _PLAIN or kind.name in _BY_TEXT


def _values(text: str) -> Iterator[Any]:
    """All objects of a text with one or more JSON documents; arrays give their elements."""
    decoder = json.JSONDecoder()
    place = 0
    while (place := place + len(text[place:]) - len(text[place:].lstrip())) < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise ValueError(f"this is not JSON: {error.msg}") from None
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise ValueError(f"a row is an object, not {json.dumps(item)[:60]}")
            yield item


def _with_default(column: Column, notation: TimeNotation) -> Any:
    convert = from_json(column.type, notation)
    if column.default is None:
        return nullable(convert)
    return lambda value: convert(column.default if value is None else value)


def _converted(column: Column, convert: Any, value: dict[str, Any]) -> Any:
    try:
        return convert(value.get(column.name))
    except ValueError as error:
        raise ValueError(f"column {column.name}: {error}") from None
