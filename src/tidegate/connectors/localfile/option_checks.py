"""Check what the option declarations of a LocalFile block cannot express.

Called by options.py: unsupported formats, codecs that do not fit, schemas, patterns, paths. Reads
file names, and the beginning of the first text files if that is cheap (sample_check.py). Reports
all problems at once.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.connectors.localfile.listing import file_pattern, local_path, matches_nothing
from tidegate.connectors.localfile.option_syntax import to_strptime, unescape
from tidegate.connectors.localfile.sample_check import sample_problems
from tidegate.connectors.localfile.source_options import SUPPORTED, TABLE_OPTIONS
from tidegate.model.job import Path as OptionPath
from tidegate.model.problem import Problem, ProblemKind, Severity
from tidegate.plugin.option import Block, Values
from tidegate.plugin.schema import read_schema

_STREAM_CODECS = ("none", "gzip", "bz2", "zstd", "lz4", "brotli", "lzo")
WRITABLE = {
    "csv": _STREAM_CODECS,
    "text": _STREAM_CODECS,
    "json": _STREAM_CODECS,
    "parquet": ("none", "snappy", "lz4", "gzip", "brotli", "zstd"),
    "orc": ("none", "snappy", "lz4", "zlib", "zstd"),
}
"""Codecs that the sink can write, by format."""


def check_source(block: Block, values: Values) -> Iterator[Problem]:
    """Yield the problems of a source block and of every entry of its tables_configs."""
    if values["tables_configs"] is None:
        yield from _check_table(block, values)
        return
    names: set[str] = set()
    for index, raw in enumerate(values["tables_configs"]):
        position: OptionPath = ("tables_configs", index)
        if not isinstance(raw, Mapping):
            yield block.problem(position, "an entry of tables_configs is a block { path = ... }")
            continue
        inner = block.inside(position, raw)
        found, problems = TABLE_OPTIONS.read(inner)
        yield from problems
        if found["path"] is None:
            yield inner.problem(
                (), "path is missing: set it to the directory with the files of this table"
            )
        yield from _check_table(inner, found)
        name = (found["schema"] or {}).get("table")
        if name in names:
            yield inner.problem(("schema", "table"), f"the table {name!r} is defined twice")
        names |= {name} if name else set()


def check_sink(block: Block, values: Values) -> Iterator[Problem]:
    """Yield the problems of a sink block."""
    yield from _check_format(block, values)
    yield from _check_time_patterns(
        block, values, ("date_format", "datetime_format", "time_format", "filename_time_format")
    )
    form, codec = values["file_format_type"], values["compress_codec"]
    if form in WRITABLE and codec is not None and codec not in WRITABLE[form]:
        yield _unsupported(
            block, "compress_codec", f"{form} files cannot be written with {codec}", WRITABLE[form]
        )
    if values["have_partition"] and not values["partition_by"]:
        yield block.problem(
            ("have_partition",), "partition_by is missing: have_partition = true requires it"
        )
    path = values["path"]
    if path and "${" not in path and Path(local_path(path)).is_file():
        yield block.problem(("path",), f"{path} is a file: the sink requires a directory")


def _check_table(block: Block, values: Values) -> Iterator[Problem]:
    if values["file_format_type"] is None:
        yield block.problem(
            (),
            "file_format_type is missing: " + TABLE_OPTIONS.options[1].description,
            expected=TABLE_OPTIONS.options[1].expected,
        )
    yield from _check_format(block, values)
    yield from _check_time_patterns(
        block, values, ("date_format", "datetime_format", "time_format")
    )
    yield from _check_filters(block, values)
    yield from _check_schema(block, values)
    if values["compress_codec"] not in _STREAM_CODECS and values["file_format_type"] in (
        "csv",
        "text",
        "json",
    ):
        yield _unsupported(
            block,
            "compress_codec",
            f"files compressed with {values['compress_codec']} cannot be read",
            _STREAM_CODECS,
        )
    if values["path"] is not None:
        yield from _check_path(block, values)
        yield from _check_samples(block, values)


def _check_format(block: Block, values: Values) -> Iterator[Problem]:
    form = values["file_format_type"]
    if form is not None and form not in SUPPORTED:
        yield _unsupported(block, "file_format_type", f"{form} files are not supported", SUPPORTED)
    try:
        codecs.lookup(values["encoding"])
    except LookupError:
        yield block.problem(("encoding",), f"unknown encoding {values['encoding']!r}")
    keys = ("quote_char", "escape_char", "field_delimiter") if form == "csv" else ()
    for key in keys:
        if values[key] and len(unescape(values[key]).encode()) != 1 and values[key] != "\\":
            yield block.problem(
                (key,),
                f"{key} of a csv file must be a single ASCII character; text files can have longer"
                " delimiters",
            )


def _unsupported(block: Block, key: str, what: str, instead: tuple[str, ...]) -> Problem:
    return block.problem((key,), what, expected=f"one of {', '.join(instead)}")


def _check_time_patterns(block: Block, values: Values, keys: tuple[str, ...]) -> Iterator[Problem]:
    for key in keys:
        try:
            to_strptime(values[key])
        except ValueError as error:
            yield block.problem((key,), str(error))


def _check_filters(block: Block, values: Values) -> Iterator[Problem]:
    if values["file_filter_pattern"]:
        try:
            file_pattern(values["file_filter_pattern"])
        except re.error as error:
            yield block.problem(
                ("file_filter_pattern",),
                f"{values['file_filter_pattern']!r} is not a regular expression: {error}",
            )
    for key in ("file_filter_modified_start", "file_filter_modified_end"):
        if values[key] and not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", values[key]):
            yield block.problem(
                (key,), f"{values[key]!r} is not a time: use the format yyyy-MM-dd HH:mm:ss"
            )


def _check_schema(block: Block, values: Values) -> Iterator[Problem]:
    raw: Any = values["schema"]
    form = values["file_format_type"]
    if raw is None or not (raw.get("fields") or raw.get("columns")):
        if form == "json" and not _may_be_empty(values):
            yield block.problem(
                ("schema",) if raw is not None else (),
                "schema is missing: json files do not declare their columns",
            )
        if values["read_columns"] and form in ("csv", "text") and not values["csv_use_header_line"]:
            yield block.problem(
                ("read_columns",),
                "read_columns requires a schema: without one the only column is `content`",
            )
        return
    table, problems = read_schema(block, raw)
    yield from problems
    if table is None:
        return
    names = table.names()
    for column in values["read_columns"] or ():
        if column not in names:
            yield block.problem(
                ("read_columns",), f"read_columns names {column!r}, which is not in the schema"
            )


def _may_be_empty(values: Values) -> bool:
    """Report whether an empty schema is harmless: no file exists, now or later.

    SeaTunnel accepts that too.
    """
    if (
        values["schema"] is None
        or values["path"] is None
        or values.get("discovery_mode") == "continuous"
    ):
        return False
    return matches_nothing(values)


def _check_path(block: Block, values: Values) -> Iterator[Problem]:
    path = values["path"]
    if not Path(local_path(path)).exists() and not any(c in path for c in "*?["):
        absent = block.problem(
            ("path",), f"{path} does not exist on this host", severity=Severity.WARNING
        )
        yield replace(absent, kind=ProblemKind.PATH)
    elif matches_nothing(values):
        yield block.problem(
            ("path",), f"there is no file to read in {path} yet", severity=Severity.WARNING
        )


def _check_samples(block: Block, values: Values) -> Iterator[Problem]:
    """Compare the first files with the schema.

    Only a warning: the files may be replaced before the job runs.
    """
    for what in sample_problems(values):
        yield replace(
            block.problem(("path",), what, severity=Severity.WARNING), kind=ProblemKind.DATA
        )
