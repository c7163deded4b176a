"""Infer the format of a file: codec, encoding, delimiter, quote, header and column types.

Called by `tidegate infer`; reads a bounded sample. The resulting LocalFile options are tried out:
the reader of a job reads the sample with them, and a column in which a value does not fit becomes a
string. What cannot be determined is an error or a note, not a guess.
"""

import codecs
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.connectors.localfile.bad_rows import BadFile
from tidegate.connectors.localfile.columnar import file_schema
from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect
from tidegate.connectors.localfile.field_splitter import DelimitedRecord, splitter_of
from tidegate.connectors.localfile.file_blocks import (
    ExpansionLimit,
    FilePart,
    archive_members,
    open_part,
    read_blocks,
)
from tidegate.connectors.localfile.header_checks import detect_encoding, names_problem
from tidegate.connectors.localfile.infer_types import STRING, type_of_texts, type_of_values
from tidegate.connectors.localfile.json_documents import BadDocument, JsonDocuments
from tidegate.connectors.localfile.source_options import SUFFIXES, TABLE_OPTIONS
from tidegate.connectors.localfile.table_files import TableFiles
from tidegate.model.errors import TidegateError, Unsupported, UserError
from tidegate.model.problem import Location
from tidegate.model.types import Column, DataType, TypeName
from tidegate.plugin.arrow import table_of
from tidegate.plugin.option import Block, Values

SAMPLE_BYTES = 4 << 20
SAMPLE_ROWS = 10_000
_DELIMITERS = (",", ";", "\t", "|", "\x01")
_ARCHIVES = {".zip": "zip", ".tar": "tar", ".tgz": "tar_gz", ".tar.gz": "tar_gz"}
_SHOWN_PROBLEMS_MAX = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceHints:
    """What the caller knows about the file."""

    form: str = ""
    encoding: str = ""
    delimiter: str = ""
    header: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Inferred:
    """LocalFile options besides path and schema, the columns, and notes for the user."""

    options: Mapping[str, Any]
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sample:
    """The first bytes of a file, decoded; `whole` if the file has no more."""

    text: str
    whole: bool
    options: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def infer(path: str, hints: InferenceHints) -> Inferred:
    """Infer the options and columns of a file. UserError or BadFile if it cannot be read."""
    part = _part(path)
    form = hints.form or _columnar_form(part)
    if form in ("parquet", "orc"):
        try:
            table = table_of(file_schema(part, form), "t")
        except TypeError as error:
            raise Unsupported(f"{path} has a column that cannot be read: {error}") from error
        found = Inferred(options={"file_format_type": form}, columns=table.columns)
        return replace(found, notes=tuple(_problems(path, found))[:_SHOWN_PROBLEMS_MAX])
    sample = _sample(part, hints)
    if not sample.text.strip():
        raise UserError(f"{path} has no rows to infer from")
    objects = _objects(sample) if form in ("", "json") else None
    if objects:
        return _widened(path, _of_json(sample, objects))
    if form == "json":
        raise BadFile(path, "does not contain JSON objects")
    return _widened(path, _of_text(path, sample, hints))


def _part(path: str) -> FilePart:
    if not os.path.isfile(path):
        raise UserError(f"{path} is not a file")
    status = os.stat(path)
    return FilePart(path, status.st_size, status.st_mtime_ns, 0, -1)


def _columnar_form(part: FilePart) -> str:
    with open_part(part) as file:
        top = file.read(4)
    return {b"PAR1": "parquet", b"ORC": "orc"}.get(top if top == b"PAR1" else top[:3], "")


def _sample(part: FilePart, hints: InferenceHints) -> _Sample:
    """The first bytes, with codec, archive and encoding undone."""
    options: dict[str, Any] = {}
    name = part.path.lower()
    archive = next((kind for suffix, kind in _ARCHIVES.items() if name.endswith(suffix)), "none")
    if archive != "none":
        options["archive_compress_codec"] = archive
    codec = _codec(part, name) if archive == "none" else ""
    if codec and SUFFIXES.get(os.path.splitext(name)[1]) != codec:
        options["compress_codec"] = codec
    values = {"archive_compress_codec": archive, "file_format_type": hints.form or "csv"}
    data = b""
    whole = True
    with open_part(part) as file:
        expansion = ExpansionLimit(part, values)
        found = archive_members(file, part, values, expansion)
        for _, member in found:
            for block in read_blocks(member, part, codec, expansion):
                data += block
                if len(data) >= SAMPLE_BYTES:
                    break
            whole = len(data) < SAMPLE_BYTES
            break
    return _decoded(part.path, data[:SAMPLE_BYTES], whole, options, hints)


def _codec(part: FilePart, name: str) -> str:
    with open_part(part) as file:
        top = file.read(4)
    if top[:2] == b"\x1f\x8b":
        return "gzip"
    return SUFFIXES.get(os.path.splitext(name)[1], "")


def _decoded(
    path: str, data: bytes, whole: bool, options: dict[str, Any], hints: InferenceHints
) -> _Sample:
    encoding = hints.encoding or detect_encoding(data) or "UTF-8"
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        text = decoder.decode(data, final=whole)
    except LookupError:
        raise UserError(f"unknown encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        advice = "set it with --encoding (such as ISO-8859-1, GBK, UTF-16LE)"
        raise UserError(f"{path} is not {encoding} (byte {error.start}): {advice}") from None
    if "\0" in text:
        raise UserError(
            f"{path} contains zero bytes: it is not a text file, or it has another encoding: set it"
            " with --encoding"
        )
    if encoding.upper() != "UTF-8":
        options["encoding"] = encoding
    return _Sample(text.removeprefix("\ufeff"), whole, options)


def _objects(sample: _Sample) -> list[dict[str, Any]] | None:
    """Parse the JSON objects of a sample; None if it has anything else."""
    if sample.text.lstrip()[:1] not in ("{", "["):
        return None
    found: list[dict[str, Any]] = []
    documents = JsonDocuments(iter([sample.text.encode()]), SAMPLE_BYTES, "the sample")
    try:
        for _, value in documents.values():
            if not isinstance(value, dict):
                return None
            found.append(value)
            if len(found) >= SAMPLE_ROWS:
                break
    except BadDocument as error:
        if sample.whole:
            sample.notes.append(f"line {error.line}: {error}")
    return found


def _of_json(sample: _Sample, objects: list[dict[str, Any]]) -> Inferred:
    names = list(dict.fromkeys(name for value in objects for name in value))
    columns = tuple(Column(name=n, type=type_of_values([o.get(n) for o in objects])) for n in names)
    options = {"file_format_type": "json", **sample.options}
    if _has_gaps(objects):
        options["missing_columns"] = "fill_null"
        sample.notes.append("some objects lack keys that others have: these are read as null")
    return Inferred(options=options, columns=columns, notes=tuple(sample.notes))


def _has_gaps(values: Sequence[Any]) -> bool:
    """Report whether objects at any depth lack keys that others have."""
    objects = [value for value in values if isinstance(value, dict)]
    lists = [each for value in values if isinstance(value, list) for each in value]
    names = {name for value in objects for name in value}
    if any(len(value) < len(names) for value in objects) or (lists and _has_gaps(lists)):
        return True
    return any(_has_gaps([value.get(name) for value in objects]) for name in names)


def _of_text(path: str, sample: _Sample, hints: InferenceHints) -> Inferred:
    dialect, records = _split(sample, hints)
    rows = [[f.text for f in record.fields] for record in records]
    width = max(len(row) for row in rows)
    delimiter = dialect.delimiter.decode()
    form = hints.form or ("text" if delimiter == "\x01" else "csv")
    options: dict[str, Any] = {"file_format_type": form, **sample.options}
    if delimiter != {"csv": ",", "text": "\x01"}[form]:
        options["field_delimiter"] = {"\t": "\\t", "\x01": "\\001"}.get(delimiter, delimiter)
    if form == "csv" and dialect.quote != b'"':
        options["quote_char"] = dialect.quote.decode()
    body = rows[1:]
    null = "\\N" if any("\\N" in row for row in body) else ""
    if null:
        options["null_format"] = null
    header = _is_header(rows, null) if hints.header is None else hints.header
    names = (
        [name.strip() for name in rows[0]]
        if header
        else [f"column_{i}" for i in range(1, width + 1)]
    )
    problem = names_problem(names) if header else ""
    if problem:
        raise BadFile(path, f"{problem}; or use --no-header")
    if header:
        options |= {"csv_use_header_line": True} if form == "csv" else {"skip_header_row_number": 1}
    values = body if header else rows
    columns = tuple(
        Column(name=name, type=_column(values, i, null)) for i, name in enumerate(names)
    )
    return Inferred(options=options, columns=columns, notes=tuple(sample.notes))


def _column(rows: Sequence[Sequence[str]], index: int, null: str) -> DataType:
    return type_of_texts(row[index] for row in rows if index < len(row) and row[index] != null)


def _split(
    sample: _Sample, hints: InferenceHints
) -> tuple[DelimitedDialect, list[DelimitedRecord]]:
    """Find the dialect with the same number of fields in all records, as many as possible."""
    delimiters = (hints.delimiter,) if hints.delimiter else _DELIMITERS
    quotes = ("",) if hints.form == "text" else ('"', "'", "")
    best: tuple[tuple[float, ...], DelimitedDialect, list[DelimitedRecord]] | None = None
    for rank, delimiter in enumerate(delimiters):
        for quote in quotes:
            if quote and quote not in sample.text and quote != '"':
                continue
            dialect = DelimitedDialect(delimiter=delimiter.encode(), quote=quote.encode())
            records = _records(sample, dialect)
            score = (*_score(records), -quotes.index(quote), -rank)
            if records and (best is None or score > best[0]):
                best = (score, dialect, records)
    assert best is not None, "a non-empty text has a record"
    return best[1], best[2]


def _records(sample: _Sample, dialect: DelimitedDialect) -> list[DelimitedRecord]:
    found: list[DelimitedRecord] = []
    for record in splitter_of(dialect).records(sample.text):
        found.append(record)
        if len(found) >= SAMPLE_ROWS:
            return found
    # The last record of a truncated sample is incomplete.
    return found if sample.whole or len(found) == 1 else found[:-1]


def _score(records: Sequence[DelimitedRecord]) -> tuple[float, ...]:
    """Rank a dialect: no faulty quotes first, then a uniform width, then many fields."""
    if not records:
        return (0.0, 0.0, 0.0)
    faults = sum(bool(f.fault) for record in records for f in record.fields)
    widths = [len(record.fields) for record in records]
    common = max(set(widths), key=widths.count)
    alike = widths.count(common) / len(widths) if common > 1 else 0.0
    return (-float(faults), round(alike, 2), float(common))


def _is_header(rows: Sequence[Sequence[str]], null: str) -> bool:
    """Report whether the first row names the columns.

    Its texts are not values, and the rows below have a type or do not repeat them.
    """
    first, body = [cell.strip() for cell in rows[0]], rows[1:]
    if (
        names_problem(first)
        or any(type_of_texts([cell]) != STRING for cell in first)
        or null in first
    ):
        return False
    if not body:
        return len(first) > 1
    typed = [
        i
        for i in range(len(first))
        if any(i < len(row) and row[i].strip() for row in body) and _column(body, i, null) != STRING
    ]
    repeated = any(row[i : i + 1] == [first[i]] for row in body for i in range(len(first)))
    return bool(typed) or (not repeated and all(_is_name(cell) for cell in first))


def _is_name(cell: str) -> bool:
    return cell.isidentifier() and (cell == cell.lower() or cell == cell.upper())


def _widened(path: str, inferred: Inferred) -> Inferred:
    """Try the options; columns with values that do not fit become strings."""
    for _ in range(len(inferred.columns) + 1):
        bad = list(_problems(path, inferred))
        named = [
            c
            for c in inferred.columns
            if c.type != STRING and any(f"column {c.name}: " in text for text in bad)
        ]
        if not bad or not named:
            return replace(inferred, notes=(*inferred.notes, *bad[:_SHOWN_PROBLEMS_MAX]))
        columns = tuple(replace(c, type=STRING) if c in named else c for c in inferred.columns)
        inferred = replace(inferred, columns=columns)
    return inferred


def _problems(path: str, inferred: Inferred) -> Iterator[str]:
    files = TableFiles(0, values_of(path, inferred), "t")
    try:
        yield from files.inspect(SAMPLE_ROWS)
    except TidegateError as error:
        yield str(error)


def values_of(path: str, inferred: Inferred) -> Values:
    """Return the option values of a LocalFile source."""
    columns = [{"name": c.name, "type": type_text(c.type)} for c in inferred.columns]
    given = {
        "path": path,
        **inferred.options,
        "schema": {"columns": columns},
        "parse_partition_from_path": False,
    }
    values, problems = TABLE_OPTIONS.read(Block(given, lambda _: Location(""), ""))
    if problems:
        raise UserError("; ".join(problem.message for problem in problems))
    return values


def type_text(kind: DataType) -> Any:
    """Format a type for a job file; a row is a block."""
    if kind.name is TypeName.ROW:
        return {c.name: type_text(c.type) for c in kind.columns}
    return str(kind)
