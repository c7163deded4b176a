"""Check the beginning of a table's first text files: encoding, header, number of fields.

Called by option_checks.py for validation. Reads at most a few kilobytes of a few plain files,
without Arrow, and reports only what is certainly wrong; files that cannot be read cheaply are left
to the run.
"""

import codecs
import os
import re
from collections.abc import Iterator
from itertools import islice

from tidegate.connectors.localfile.bad_rows import Leniency
from tidegate.connectors.localfile.delimited_dialect import dialect_of
from tidegate.connectors.localfile.field_splitter import splitter_of
from tidegate.connectors.localfile.header_checks import (
    encoding_problem,
    first_row_problem,
    header_problem,
    names_problem,
    skipped_problem,
    width_problem,
)
from tidegate.connectors.localfile.listing import list_files, local_path
from tidegate.connectors.localfile.source_options import SUFFIXES
from tidegate.model.errors import TidegateError
from tidegate.model.problem import Location
from tidegate.model.types import Table
from tidegate.plugin.option import Block, Values
from tidegate.plugin.schema import read_schema

TOP_BYTES = 64 * 1024
FILES_MAX = 3
ENTRIES_MAX = 1000
"""Larger directories are not listed for validation."""


def sample_problems(values: Values) -> Iterator[str]:
    """Yield a sentence with name and line for each file that does not match the options."""
    if values["file_format_type"] not in ("csv", "text") or not _is_uncompressed(values):
        return
    try:
        codecs.lookup(values["encoding"])
        files = _first_files(values)
    except (TidegateError, LookupError, OSError, ValueError, re.error):
        return  # reported as problems of the options
    for path in files:
        what = _problem(path, values)
        if what:
            yield f"{path}: {what}"


def _is_uncompressed(values: Values) -> bool:
    return bool(values["compress_codec"] == "none" and values["archive_compress_codec"] == "none")


def _first_files(values: Values) -> list[str]:
    path = local_path(values["path"])
    if os.path.isfile(path):
        found = [path]
    elif (
        os.path.isdir(path) and sum(1 for _ in islice(os.scandir(path), ENTRIES_MAX)) < ENTRIES_MAX
    ):
        found = [info.path for info in list_files(values)[:FILES_MAX]]
    else:
        found = []
    return [path for path in found if os.path.splitext(path)[1].lower() not in SUFFIXES]


def _problem(path: str, values: Values) -> str:
    try:
        with open(path, "rb") as file:
            top = file.read(TOP_BYTES)
    except OSError:
        return ""
    problem = encoding_problem(top, values["encoding"])
    if problem or not top:
        return problem
    text = (
        codecs.getincrementaldecoder(values["encoding"])("replace")
        .decode(top)
        .removeprefix("\ufeff")
    )
    return _text_problem(text, values, cut=len(top) == TOP_BYTES)


def _text_problem(text: str, values: Values, *, cut: bool) -> str:
    table = _table(values)
    dialect = dialect_of(values)
    terminator = dialect.terminator.decode()
    skipped = ""
    count = values["skip_header_row_number"]
    for _ in range(count):
        skipped, _, text = text.partition(terminator)
    splitter = splitter_of(dialect)
    record = next(splitter.records(text), None)
    if record is None or (cut and record.end >= len(text)):
        return ""
    fields = [field.text.strip() for field in record.fields]
    leniency = Leniency.of(values)
    if values["csv_use_header_line"] and values["file_format_type"] == "csv":
        wanted = values["read_columns"] or (table.names() if table else [])
        problem = (
            header_problem(fields, wanted, splitter.delimiter, fill_missing=leniency.fill_missing)
            if table
            else names_problem(fields)
        )
        return f"line {count + 1}: {problem}" if problem else ""
    if table is None:
        return ""
    names = table.names()
    before = (
        [f.text.strip() for f in next(splitter.records(skipped)).fields] if skipped.strip() else []
    )
    problem = skipped_problem(before, names)
    if problem:
        return f"line {count}: {problem}"
    line = text[record.start : record.end].rstrip("\r\n")
    problem = first_row_problem(fields, names) or width_problem(
        len(fields), len(names), line, splitter.delimiter, leniency
    )
    return f"line {count + 1 + text.count(chr(10), 0, record.start)}: {problem}" if problem else ""


def _table(values: Values) -> Table | None:
    raw = values["schema"] or {}
    if not (raw.get("fields") or raw.get("columns")):
        return None
    table, problems = read_schema(Block(values, lambda _: Location(""), ""), raw)
    return None if problems else table
