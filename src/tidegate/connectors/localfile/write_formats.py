"""Encode record batches as one file of csv, text, json, parquet or orc.

Called by the writer, in tasks. An encoder owns its open file until close. It neither names files
nor syncs them, and runs no Python per row for plain types.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tidegate.connectors.localfile.lzo import LzopStream
from tidegate.connectors.localfile.option_syntax import unescape
from tidegate.connectors.localfile.write_text import NotText, TimeFormats, json_text, plain_text
from tidegate.model.errors import Unsupported
from tidegate.plugin.option import Values

_CHUNK_ROWS_MAX = 65_536
_CHUNK_BYTES_MAX = 256 * 2**20
_GROUP_ROWS_MAX = 1_000_000
_STREAM_CODECS = {"gzip": "gzip", "zstd": "zstd", "lz4": "lz4", "bz2": "bz2", "brotli": "brotli"}
_ORC_CODECS = {
    "none": "uncompressed",
    "snappy": "snappy",
    "lz4": "lz4",
    "zlib": "zlib",
    "zstd": "zstd",
}
_PARQUET_CODECS = {
    "none": "NONE",
    "snappy": "SNAPPY",
    "lz4": "LZ4",
    "gzip": "GZIP",
    "brotli": "BROTLI",
    "zstd": "ZSTD",
}
_NUMBER_CHARACTERS = set("0123456789.+-:eEaifnrstuTZ ")


ROWS_MAX = 1_000_000
FILE_BYTES_TARGET = 128 * 2**20


def codec_name(values: Values) -> str:
    """Return the codec of the options; parquet is compressed by default."""
    return str(
        values["compress_codec"] or ("zstd" if values["file_format_type"] == "parquet" else "none")
    )


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """When a file is closed and the next one begun; 0 is never."""

    rows: int
    bytes: int

    @staticmethod
    def of(values: Values) -> "RollPolicy":
        """Read the options; by default columnar files roll by size, others by rows."""
        if values.get("single_file_mode"):
            return RollPolicy(0, 0)
        columnar = values["file_format_type"] in ("parquet", "orc")
        rows = int(values.get("batch_size") or (0 if columnar else ROWS_MAX))
        return RollPolicy(
            rows, int(values.get("target_file_size") or (FILE_BYTES_TARGET if columnar else 0))
        )


class Encoder(ABC):
    columnar = False
    """Whether small batches should be combined before they are written."""

    @abstractmethod
    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write batches of the schema that the encoder was opened with."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes written to the file so far."""

    @abstractmethod
    def close(self) -> None:
        """Write everything and close the file."""


class ParquetEncoder(Encoder):
    """Writes row groups as they come, of up to a million rows each."""

    columnar = True

    def __init__(self, path: str, schema: pa.Schema, values: Values) -> None:
        codec = _codec(_PARQUET_CODECS, values)
        self._file = pa.OSFile(path, "wb")
        int96 = bool(values.get("parquet_avro_write_timestamp_as_int96"))
        # With a codec, dictionaries of numbers cost a third of the time and make the file larger;
        # without one they are what keeps it small.
        dictionaries: Any = (
            [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
            if codec != "NONE"
            else True
        )
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=codec,
            use_dictionary=dictionaries,
            use_deprecated_int96_timestamps=int96,
        )

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._writer.write_table(pa.Table.from_batches(batches), row_group_size=_GROUP_ROWS_MAX)

    def size(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._file.close()


class OrcEncoder(Encoder):
    """Writes stripes; types that ORC lacks become the nearest one.

    A time becomes a timestamp of 1970-01-01, a column of nulls one of strings.
    """

    columnar = True

    def __init__(self, path: str, schema: pa.Schema, values: Values) -> None:
        codec = _codec(_ORC_CODECS, values)
        self._schema = pa.schema([pa.field(f.name, _orc_type(f.type)) for f in schema])
        self._file = pa.OSFile(path, "wb")
        self._writer = orc.ORCWriter(self._file, compression=codec)

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches)
        columns = [_orc_column(c, f.type) for c, f in zip(table.columns, self._schema, strict=True)]
        self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))

    def size(self) -> int:
        return int(self._file.tell())  # grows when a stripe of 64 MiB is full

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._file.close()


def _orc_type(kind: Any) -> Any:
    if pa.types.is_time(kind):
        return pa.timestamp("us")
    return pa.string() if pa.types.is_null(kind) else kind


def _orc_column(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if pa.types.is_time(column.type):
        return pc.divide(column.cast(pa.int64()), 1000).cast(kind)
    return column.cast(kind)


class LineEncoder(Encoder):
    """Writes rows of text.

    `lines` makes one string of each row, its delimiter included; their bytes are written directly
    from Arrow's buffers.
    """

    def __init__(
        self, path: str, values: Values, header: str, lines: Callable[[pa.RecordBatch], Any]
    ) -> None:
        codec = codec_name(values)
        self._lines = lines
        self._encoding = _encoding(values)
        self._stream: Any = pa.OSFile(path, "wb")
        self._layers = [self._stream]
        if codec != "none":
            self._stream = (
                LzopStream(self._stream)
                if codec == "lzo"
                else pa.CompressedOutputStream(self._stream, _codec(_STREAM_CODECS, values))
            )
            self._layers.insert(0, self._stream)
        if header:
            self._stream.write(header.encode(self._encoding))

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        for batch in batches:
            step = min(
                _CHUNK_ROWS_MAX, max(1, _CHUNK_BYTES_MAX * batch.num_rows // max(1, batch.nbytes))
            )
            for start in range(0, batch.num_rows, step):
                self._write_lines(self._lines(batch.slice(start, step)))

    def _write_lines(self, lines: Any) -> None:
        chunk = lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines
        offsets, data = chunk.buffers()[1:]
        assert data is not None, "every row ends with its delimiter"
        bounds = pa.Array.from_buffers(
            pa.int32(), len(chunk) + 1, [None, offsets], offset=chunk.offset
        )
        begin, end = bounds[0].as_py(), bounds[len(chunk)].as_py()
        whole = data.slice(begin, end - begin)
        if self._encoding == "utf-8":
            self._stream.write(whole)
            return
        try:
            self._stream.write(bytes(whole).decode().encode(self._encoding))
        except UnicodeEncodeError as error:
            raise NotText(
                f"the encoding {self._encoding} has no character for"
                f" {error.object[error.start : error.start + 1]!r}"
            ) from None

    def size(self) -> int:
        return int(self._layers[-1].tell())

    def close(self) -> None:
        for layer in self._layers:
            layer.close()


def _encoding(values: Values) -> str:
    name = (values.get("encoding") or "UTF-8").lower().replace("_", "-")
    return "utf-8" if name in ("utf-8", "utf8") else name


@dataclass(frozen=True, slots=True)
class DelimitedFormat:
    """Format of rows in csv and text files.

    `quote` is empty if values are never quoted (text).
    """

    field: str
    row: str
    null: str
    quote: str
    escape: str
    quote_all: bool
    times: TimeFormats

    def header(self, names: Sequence[str]) -> str:
        line = self.lines(
            pa.RecordBatch.from_arrays(
                [pa.array([n]) for n in names], names=[str(i) for i in range(len(names))]
            )
        )
        return str(line[0].as_py())

    def lines(self, batch: pa.RecordBatch) -> Any:
        """Format each row as one string."""
        columns = [_without_nulls(self._column(c), self.null) for c in batch.columns]
        last = pc.binary_join_element_wise(columns[-1], self.row, "")
        return (
            last
            if len(columns) == 1
            else pc.binary_join_element_wise(*columns[:-1], last, self.field)
        )

    def _column(self, column: Any) -> Any:
        text = plain_text(column, self.times)
        textual = (
            pa.types.is_string(column.type)
            or pa.types.is_binary(column.type)
            or pa.types.is_nested(column.type)
        )
        if not self.quote or not (
            textual
            or set(self.field + self.quote) & _NUMBER_CHARACTERS
            or pa.types.is_temporal(column.type)
        ):
            return text
        return self._quoted(text, every=self.quote_all and textual)

    def _quoted(self, text: Any, *, every: bool) -> Any:
        """Quote the values that need it, including a text that equals the text of null."""
        special = "".join(
            f"\\x{{{ord(c):x}}}" for c in f"{self.field}{self.row}{self.quote}{self.escape}\r\n"
        )
        needs_quotes = pc.or_(
            pc.match_substring_regex(text, f"[{special}]"), pc.equal(text, pa.scalar(self.null))
        )
        if not every and not pc.any(needs_quotes).as_py():
            return text
        inside = text
        if self.escape:
            inside = pc.replace_substring(inside, self.escape, self.escape * 2)
        if self.escape != self.quote:
            inside = pc.replace_substring(
                inside, self.quote, (self.escape or self.quote) + self.quote
            )
        quoted = pc.binary_join_element_wise(self.quote, inside, self.quote, "")
        return quoted if every else pc.if_else(needs_quotes, quoted, text)


def _without_nulls(text: Any, null: str) -> Any:
    return pc.fill_null(text, null) if text.null_count else text


def delimited_format(values: Values) -> DelimitedFormat:
    """Build the format from the options of the sink."""
    csv = values["file_format_type"] == "csv"
    mode = values.get("csv_string_quote_mode") or "MINIMAL"
    given = values.get("field_delimiter")
    return DelimitedFormat(
        field=unescape(given) if given else ("," if csv else "\x01"),
        row=unescape(values.get("row_delimiter") or "\n"),
        null=values.get("null_format") or "",
        quote=(values.get("quote_char") or '"') if csv and mode != "NONE" else "",
        escape=values.get("escape_char") or "",
        quote_all=mode == "ALL",
        times=TimeFormats(
            date=values["date_format"],
            datetime=values["datetime_format"],
            time=values["time_format"],
        ),
    )


def json_lines(schema: pa.Schema, row_delimiter: str) -> Callable[[pa.RecordBatch], Any]:
    """Format each row as one JSON object with all its columns; nulls are written as null."""
    names = [json_text(pa.array([name]))[0].as_py() for name in schema.names]

    def lines(batch: pa.RecordBatch) -> Any:
        parts: list[Any] = []
        for index, (name, column) in enumerate(zip(names, batch.columns, strict=True)):
            parts += [
                ("{" if index == 0 else ",") + name + ":",
                _without_nulls(json_text(column), "null"),
            ]
        return pc.binary_join_element_wise(*parts, "}" + row_delimiter, "")

    return lines


def open_encoder(path: str, schema: pa.Schema, values: Values) -> Encoder:
    """Open a new file in the format of the options."""
    match values["file_format_type"]:
        case "parquet":
            return ParquetEncoder(path, schema, values)
        case "orc":
            return OrcEncoder(path, schema, values)
        case "json":
            return LineEncoder(
                path, values, "", json_lines(schema, unescape(values.get("row_delimiter") or "\n"))
            )
        case "csv" | "text":
            text_format = delimited_format(values)
            return LineEncoder(
                path,
                values,
                text_format.header(schema.names) if values.get("enable_header_write") else "",
                text_format.lines,
            )
        case other:
            raise Unsupported(
                f"{other} files cannot be written: use csv, text, json, parquet or orc"
            )


def _codec(known: dict[str, str], values: Values) -> Any:
    codec = codec_name(values)
    if codec not in known:
        raise Unsupported(
            f"{values['file_format_type']} files cannot be compressed with {codec}: use"
            f" {', '.join(['none', *known])}"
        )
    return known[codec]
