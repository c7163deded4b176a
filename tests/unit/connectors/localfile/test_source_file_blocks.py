"""Blocks of records, read by Arrow and in Python, which must agree."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.connectors.localfile.delimited import DelimitedReader
from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect, dialect_of
from tidegate.connectors.localfile.field_splitter import FieldSplitter
from tidegate.connectors.localfile.file_blocks import record_blocks
from tidegate.connectors.localfile.record_boundaries import (
    first_end,
    last_end,
    record_end,
    rows_end,
)
from tidegate.connectors.localfile.source_options import TABLE_OPTIONS
from tidegate.model.problem import Location
from tidegate.model.types import Column, parse_type
from tidegate.plugin.option import Block

CSV = DelimitedDialect(quote=b'"')
ESCAPED = DelimitedDialect(quote=b'"', escape=b"\\")
dialects = st.sampled_from(
    [DelimitedDialect(), CSV, ESCAPED, DelimitedDialect(quote=b"'", delimiter=b"|")]
)
texts = st.text(st.sampled_from("ab\"'|,\n\r\\"), max_size=50)


def ends(text: str, dialect: DelimitedDialect) -> list[int]:
    """List where records end, by splitting them one after the other."""
    splitter = FieldSplitter(
        dialect.delimiter.decode(), dialect.quote.decode(), dialect.escape.decode()
    )
    text += "$"  # so that an open quote or a waiting escape is seen not to end at a newline
    found = []
    place = 0
    while place < len(text):
        last = False
        while not last:
            _, place, last = splitter._field(text, place)
        if text[place - 1] == "\n":
            found.append(place)
    return found


@settings(max_examples=500, deadline=None)
@given(text=texts, dialect=dialects, target=st.integers(1, 50))
@example('a"\n"b\nc",x\n', CSV, 1)
@example('"a""\nb"\n', CSV, 3)
@example('x,"\\"\n"\n', ESCAPED, 1)
def test_ends_of_records_are_those_of_the_field_parser(
    text: str, dialect: DelimitedDialect, target: int
) -> None:
    expected = ends(text, dialect)
    assert last_end(text.encode(), dialect) == max(expected, default=0)
    assert first_end(text.encode(), dialect, target) == min(
        (e for e in expected if e >= target), default=-1
    )


@settings(max_examples=300, deadline=None)
@given(text=texts, dialect=dialects, sizes=st.lists(st.integers(1, 9), min_size=1))
def test_blocks_hold_all_bytes_and_end_where_records_end(
    text: str, dialect: DelimitedDialect, sizes: list[int]
) -> None:
    data = text.encode()
    pieces, place = [], 0
    while place < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[place : place + size])
        place += size
    blocks = list(record_blocks(iter(pieces), dialect))
    assert b"".join(blocks) == data
    assert all(blocks)
    place = 0
    for block in blocks[:-1]:
        place += len(block)
        assert place in ends(text, dialect)


def reader(**options: Any) -> DelimitedReader:
    values, problems = TABLE_OPTIONS.read(
        Block({"path": "/x", "file_format_type": "csv", **options}, lambda _: Location(""), "")
    )
    assert not problems
    kinds = [
        "string",
        "int",
        "double",
        "boolean",
        "decimal(6,2)",
        "date",
        "time",
        "timestamp",
        "bytes",
    ]
    columns = [Column(name=f"c{i}", type=parse_type(k)) for i, k in enumerate(kinds)]
    return DelimitedReader(values, columns, columns)


PLAIN = [
    "",
    '""',
    "x",
    '"x"',
    ' "x"',
    "7",
    '"7"',
    " 7 ",
    "1.5",
    "1e2",
    "true",
    "FALSE",
    "1",
    "0",
    "12.345",
    "2024-02-29",
    "2024/02/29",
    "23:59:59",
    "23:59:59.5",
    "0x1F",
    "1_000",
    "1e400",
    "-inf",
    "+7",
    ".5",
    "12.340",
    "1e-3",
    "20240229",
    "2024229",
]
TIMES = [
    "2024-02-29 01:02:03",
    "2024-02-29T01:02:03.123456",
    "2024/02/29 01:02:03",
    "20240229010203",
    '"a\nb"',
    "é",
    "nan",
    "\\N",
    '"\\N"',
]
cells = st.sampled_from(PLAIN) | st.sampled_from(TIMES)


@settings(max_examples=500, deadline=None)
@given(rows=st.lists(st.tuples(*[cells] * 9), min_size=1, max_size=4), at=st.integers(0, 8))
def test_both_parsers_return_the_same_values_column_by_column(
    rows: list[tuple[str, ...]], at: int
) -> None:
    full = reader(null_format="\\N")
    only = DelimitedReader(full.values, full.columns, [full.columns[at]])
    block = "".join(",".join(row) + "\n" for row in rows).encode()
    try:
        fast = only._parse_with_arrow(block, [at], 9)
    except (pa.ArrowInvalid, ValueError):
        return  # the slow way decides
    slow, faults, _ = only.fallback().read(block, [at], 9)
    assert not faults
    assert slow is not None
    assert repr(fast[0].to_pylist()) == repr(slow[0].to_pylist())


def test_plain_file_is_only_read_near_the_target(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789\n" * 1000)
    with path.open("rb") as file:
        assert record_end(file.fileno(), 0, 5000, 11_000, DelimitedDialect()) == 5005
        assert record_end(file.fileno(), 0, 5005, 11_000, DelimitedDialect()) == 5005
        assert record_end(file.fileno(), 0, 10_995, 11_000, DelimitedDialect()) == 11_000
        assert rows_end(file.fileno(), 11, 10, 11_000, DelimitedDialect()) == (121, 10)
        assert rows_end(file.fileno(), 10_978, 10, 11_000, DelimitedDialect()) == (11_000, 3)


def test_the_defaults_of_csv_and_text_differ() -> None:
    values, _ = TABLE_OPTIONS.read(
        Block({"path": "/x", "file_format_type": "text"}, lambda _: Location(""), "")
    )
    assert dialect_of(values) == DelimitedDialect(delimiter=b"\x01")
    assert dialect_of({**values, "file_format_type": "csv"}) == DelimitedDialect(
        delimiter=b",", quote=b'"'
    )
    assert dialect_of(
        {**values, "field_delimiter": "\\t", "row_delimiter": "\\r\\n"}
    ) == DelimitedDialect(delimiter=b"\t")
