"""Bad rows fail the job with file, line, column and value, unless an option accepts them."""

import gzip
import io
import json
import tarfile
import zipfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bad_row_kit import ID_NAME, error, make, read

from tidegate.connectors.localfile import bad_rows, file_blocks, record_boundaries
from tidegate.connectors.localfile.bad_rows import BadFile


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "id;name;city\n1;a;b\n",
            {},
            (
                "line 1: the header has no column 'id', 'name'; it is: 'id;name;city'. The header"
                " has one column: it contains ';' 2 times, set field_delimiter = \";\""
            ),
        ),
        ("id\tname\n1\ta\n", {}, "it contains '\\t' once, set field_delimiter = \"\\t\""),
        (
            "key,label\n1,a\n",
            {},
            (
                "line 1: the header has no column 'id', 'name'; it is: 'key', 'label'. This file"
                " has no column of the schema"
            ),
        ),
        (
            "id,label\n1,a\n",
            {},
            (
                "line 1: the header has no column 'name'; it is: 'id', 'label'. Correct the schema,"
                " or set missing_columns"
            ),
        ),
        ("id,name,name\n1,a,b\n", {}, "line 1: the header names 'name' more than once"),
        ("ID,Id,name\n1,2,a\n", {}, "line 1: the header names 'id' more than once"),
        (
            "# top\nid,nam\n1,a\n",
            {"skip_header_row_number": 1},
            "line 2: the header has no column 'name'",
        ),
        ('id,"name\n1,a\n', {}, 'line 1: the header: the quote " is not closed'),
        ("1,a\n2,b\n", {}, "This line seems to be a row: set csv_use_header_line = false"),
    ],
)
def test_a_header_that_does_not_match_is_refused_before_any_row(
    tmp_path: Path, text: str, options: Any, message: str
) -> None:
    (tmp_path / "f.csv").write_text(text)
    assert message in error(tmp_path, "csv", ID_NAME, csv_use_header_line=True, **options)


def test_headers_are_matched_by_name_and_may_have_more_columns(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("more,NAME,id\nx,a,1\n")
    assert read(tmp_path, "csv", ID_NAME, csv_use_header_line=True) == [{"id": 1, "name": "a"}]
    rows = read(
        tmp_path,
        "csv",
        {**ID_NAME, "none": "int"},
        csv_use_header_line=True,
        missing_columns="fill_null",
    )
    assert rows == [{"id": 1, "name": "a", "none": None}]


def test_without_a_schema_every_file_must_have_the_columns_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a,c\n1,2,3\n")
    assert "the header has 'c', which the first file of the table lacks" in error(
        tmp_path, "csv", None, csv_use_header_line=True
    )
    (tmp_path / "1.csv").write_text("a,a\n1,2\n")
    assert "the header names 'a' more than once" in error(
        tmp_path, "csv", None, csv_use_header_line=True
    )
    (tmp_path / "1.csv").write_text(",a\n1,2\n")
    assert "column 1 of the header has no name" in error(
        tmp_path, "csv", None, csv_use_header_line=True
    )


def test_a_skipped_header_in_another_order_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("name,id\na,b\n")
    text = error(tmp_path, "csv", {"id": "string", "name": "string"}, skip_header_row_number=1)
    assert text.startswith(
        "line 1: the header line that is skipped names the columns in another order"
    )
    (tmp_path / "f.csv").write_text("other,words\na,b\n")
    assert (
        len(read(tmp_path, "csv", {"id": "string", "name": "string"}, skip_header_row_number=1))
        == 1
    )


@pytest.mark.parametrize("form", ["csv", "text"])
def test_names_of_columns_are_not_read_as_a_row(tmp_path: Path, form: str) -> None:
    (tmp_path / "f").write_text("Id,name\n1,a\n")
    text = error(tmp_path, form, {"id": "string", "name": "string"}, field_delimiter=",")
    assert text.startswith(
        "line 1: this row contains the names of the columns: set csv_use_header_line = true"
    )


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
@pytest.mark.parametrize("form", ["csv", "text", "json", "lines"])
def test_wide_encodings_read_as_utf8_are_named(tmp_path: Path, encoding: str, form: str) -> None:
    content = '{"id": 1, "name": "a"}\n' * 9 if form == "json" else "id,name\n1,a\n"
    (tmp_path / "f").write_bytes(content.encode(encoding))
    schema = None if form == "lines" else ID_NAME
    named = {"utf-16": "UTF-16LE", "utf-32": "UTF-32LE"}.get(
        encoding, encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    )
    form = "text" if form == "lines" else form
    assert f'set encoding = "{named}"' in error(tmp_path, form, schema, field_delimiter=",")
    if schema and form != "json":
        assert read(
            tmp_path, form, schema, encoding=named, field_delimiter=",", skip_header_row_number=1
        ) == [{"id": 1, "name": "a"}]


def test_utf8_read_as_a_wide_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1,a\n2,b\n")
    assert 'set encoding = "UTF-8"' in error(tmp_path, "csv", ID_NAME, encoding="UTF-16LE")
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf1,a\n")
    assert read(tmp_path, "csv", ID_NAME) == [{"id": 1, "name": "a"}]
    assert "byte order mark of UTF-8" in error(tmp_path, "csv", ID_NAME, encoding="ISO-8859-1")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"1,a\n2,\xe9t\xe9\n3,c\n",
            "line 2: column name: the bytes b'\\xe9t\\xe9' are not UTF-8: set `encoding`",
        ),
        (b"1,a\n2,b\0c\n", "line 2: column name: 'b\\x00c' contains a zero byte"),
    ],
)
def test_bytes_that_are_not_text_are_a_bad_row(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert error(tmp_path, "csv", ID_NAME).startswith(message)
    assert error(tmp_path, "text", ID_NAME, field_delimiter=",").startswith(message)
    assert error(tmp_path, "text", None).startswith("line 2: ")


def test_undecodable_bytes_of_other_encodings_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("1,表\n2,文\n".encode("gbk") + b"3,\xff\n")
    assert error(tmp_path, "csv", ID_NAME, encoding="gbk").startswith(
        "line 3: the bytes b'\\xff' are not gbk"
    )


def test_a_quote_that_is_never_closed_is_a_bad_row_at_its_line(tmp_path: Path) -> None:
    lines = [f'{i},"name {i}"' for i in range(1, 1000)]
    lines[499] = '500,"never closed'
    (tmp_path / "f.csv").write_text("\n".join(lines) + "\n")
    assert error(tmp_path, "csv", ID_NAME).startswith(
        "line 500: quote: there is text after the closing quote"
    )
    (tmp_path / "f.csv").write_text('1,a\n2,"never closed\n3,c\n4,d\n')
    text = error(tmp_path, "csv", ID_NAME)
    assert text.startswith('line 2: quote: the quote " is not closed of \'"never closed')
    assert 'set quote_char = "" if this file does not use quotes' in text
    assert read(tmp_path, "csv", ID_NAME, quote_char="")[1] == {"id": 2, "name": '"never closed'}


def test_unclosed_quote_is_followed_only_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_blocks, "BLOCK_BYTES", 4096)
    (tmp_path / "f.csv").write_text('1,a\n2,"open\n' + "3,c\n" * 100_000)
    source = make(tmp_path, "csv", ID_NAME, max_record_bytes=20_000)
    reader = source.files[0].reader(source.files[0]._resolve()[0])
    part = file_blocks.FilePart(
        str(tmp_path / "f.csv"),
        (tmp_path / "f.csv").stat().st_size,
        (tmp_path / "f.csv").stat().st_mtime_ns,
        0,
        -1,
    )
    with pytest.raises(
        BadFile,
        match=(
            r"line 2: the quote \" that opens here is not closed within 19\.53 KiB"
            r" \(max_record_bytes\)"
        ),
    ):
        list(reader.read(part))


@pytest.mark.parametrize("splits", [1, 3, 7])
def test_text_after_a_closing_quote_is_a_bad_row(tmp_path: Path, splits: int) -> None:
    (tmp_path / "f.csv").write_text('1,"a"\n' * 50 + '2,"b"c\n' + '3,"d"\n' * 50)
    assert error(tmp_path, "csv", ID_NAME, splits).startswith(
        'line 51: quote: there is text after the closing quote " of \'"b"c'
    )
    (tmp_path / "f.csv").write_text('1,5" pipe\n2,a"b"\n')
    assert [row["name"] for row in read(tmp_path, "csv", ID_NAME, splits)] == ['5" pipe', 'a"b"']


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "7",
            (
                "line 3: the row has 1 field instead of 2: '7'; short_rows = \"fill_null\" accepts"
                " such rows"
            ),
        ),
        (
            "7;x",
            (
                "line 3: the row has 1 field instead of 2: '7;x'; it contains ';' once, set"
                " field_delimiter"
            ),
        ),
        (
            "7,x,y",
            (
                "line 3: the row has 3 fields instead of 2: '7,x,y'; long_rows = \"drop_extra\""
                " accepts such rows"
            ),
        ),
        ("7,x,", "line 3: the row has 3 fields instead of 2"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "text"])
def test_rows_that_are_short_or_long_are_bad(
    tmp_path: Path, form: str, row: str, message: str
) -> None:
    (tmp_path / "f").write_text(f"1,a\n\n{row}\n4,d\n")
    assert error(tmp_path, form, ID_NAME, field_delimiter=",").startswith(message)
    lenient = {"short_rows": "fill_null", "long_rows": "drop_extra"}
    if ";" not in row:
        assert read(tmp_path, form, ID_NAME, field_delimiter=",", **lenient)[1]["id"] == 7


def test_each_leniency_option_accepts_only_its_own_rows(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n2,b,c\n")
    assert error(tmp_path, "csv", ID_NAME, short_rows="fill_null").startswith(
        "line 2: the row has 3 fields"
    )
    assert error(tmp_path, "csv", ID_NAME, long_rows="drop_extra").startswith(
        "line 1: the row has 1 field"
    )
    (tmp_path / "f").write_text("2,b,c\n1,a,b\n")
    assert "2 bad rows so far" in error(tmp_path, "csv", ID_NAME, short_rows="fill_null")


BAD_VALUES = [
    ("decimal(10,2)", "1.23456", "'1.23456' has more decimal places than decimal(10,2)"),
    ("decimal(10,2)", "123456789.00", "'123456789.00' does not fit into decimal(10,2)"),
    ("decimal(10,2)", "nan", "'nan' is not a number"),
    ("decimal(10,2)", "1_0", "'1_0' is not a number"),
    ("tinyint", "128", "'128' does not fit into tinyint"),
    ("smallint", "-32769", "does not fit into smallint"),
    ("int", "2147483648", "does not fit into int"),
    ("bigint", "9223372036854775808", "does not fit into bigint"),
    ("bigint", "1" * 5000, "does not fit into bigint"),
    ("int", "1_000", "'1_000' is not a whole number"),
    ("int", "1.0", "'1.0' is not a whole number"),
    ("int", "\u0661", "is not a whole number"),
    ("double", "1,5", "'1,5' is not a number"),
    ("double", "1_0.5", "is not a number"),
    ("double", "1e400", "'1e400' does not fit into double"),
    ("float", "1e39", "'1e39' does not fit into float"),
    ("boolean", "yes", "'yes' is neither true nor false"),
    ("date", "2024-02-30", "'2024-02-30' is not a date"),
    ("date", "2024229", "'2024229' is not a date"),
    ("date", "2024-02-29 13:00:00", "is not a date but a timestamp"),
    ("time", "25:00:00", "is not a time"),
    ("timestamp", "2024-01-01 00:00:00.1234567", "has more than 6 decimal places"),
    ("timestamp", "2024-01-01T00:00:00.1234567", "has more than 6 decimal places"),
    ("timestamp", "2024-01-01T00:00:00+02:00", "has a time zone"),
    ("timestamp", "soon", "'soon' is not a timestamp"),
    ("array<int>", "[1,x]", ""),
]


@pytest.mark.parametrize(("kind", "value", "message"), BAD_VALUES)
@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_a_value_that_does_not_fit_is_a_bad_row(
    tmp_path: Path, form: str, kind: str, value: str, message: str
) -> None:
    rows = ["", value, ""]
    if form == "json":
        (tmp_path / "f").write_text(
            "".join(json.dumps({"k": "x", "v": v or None}) + "\n" for v in rows)
        )
    else:
        (tmp_path / "f").write_text("".join(f"x|{v}\n" for v in rows))
    text = error(tmp_path, form, {"k": "string", "v": kind}, field_delimiter="|")
    assert text.startswith("line 2: column v: ")
    assert message in text


@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_rounding_and_cutting_need_their_option(tmp_path: Path, form: str) -> None:
    values = {"d": "1.235", "t": "2024-01-01 00:00:00.1234567", "e": "2024-01-01 12:00:00"}
    (tmp_path / "f").write_text(
        json.dumps(values) + "\n" if form == "json" else "|".join(values.values()) + "\n"
    )
    schema = {"d": "decimal(10,2)", "t": "timestamp", "e": "date"}
    text = error(tmp_path, form, schema, field_delimiter="|")
    assert text.count('excess_digits = "round"') == 3
    expected = [
        {"d": Decimal("1.24"), "t": datetime(2024, 1, 1, 0, 0, 0, 123456), "e": date(2024, 1, 1)}
    ]
    assert read(tmp_path, form, schema, field_delimiter="|", excess_digits="round") == expected


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_null_in_a_column_that_is_not_nullable_is_a_bad_row(tmp_path: Path, form: str) -> None:
    columns = [{"name": "id", "type": "int", "nullable": False}, {"name": "name", "type": "string"}]
    (tmp_path / "f").write_text(
        '{"id":1,"name":"a"}\n{"id":null,"name":"b"}\n' if form == "json" else "1,a\n,b\n"
    )
    assert (
        error(tmp_path, form, columns)
        == "line 2: column id: the value is null, and the column is not nullable"
    )


def test_the_first_ten_bad_rows_are_named_with_the_count(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{i if i % 3 else 'x'},n\n" for i in range(1, 301)))
    text = error(tmp_path, "csv", ID_NAME)
    assert text.startswith(
        "line 3: column id: 'x' is not a whole number (100 bad rows so far, the first 10 of"
        " them):\n  line 3: "
    )
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == [
        f"  line {i}" for i in range(3, 33, 3)
    ]


def test_bad_rows_are_counted_over_blocks_and_the_search_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(bad_rows, "SCANNED_BYTES_MAX", 2000)
    (tmp_path / "f").write_text(
        "".join(f"{i if i not in (5, 100, 900) else 'x'},n\n" for i in range(1, 1001))
    )
    text = error(tmp_path, "csv", ID_NAME)
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "line 5",
        "  line 5",
        "  line 100",
    ]


@pytest.mark.parametrize("splits", [2, 5, 9])
@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_lines_are_those_of_the_file_however_it_is_cut(
    tmp_path: Path, form: str, splits: int
) -> None:
    rows = [(str(i), f"n{i}") for i in range(1, 501)]
    rows[449] = ("x", "n")
    line = (lambda r: json.dumps({"id": r[0], "name": r[1]})) if form == "json" else ",".join
    (tmp_path / "f").write_text("".join(line(row) + "\n" for row in rows))
    assert error(tmp_path, form, ID_NAME, splits, field_delimiter=",").startswith(
        "line 450: column id: 'x'"
    )


@pytest.mark.parametrize("way", ["gz", "zip", "tar_gz", "gbk", "utf-16", "crlf", "cr"])
def test_line_numbers_are_right_with_codecs_archives_and_encodings(
    tmp_path: Path, way: str
) -> None:
    text = "é,1\n" * 30 + "é,x\n"
    options: dict[str, Any] = {}
    data = text.encode()
    if way == "gz":
        data = gzip.compress(data)
        options = {"compress_codec": "gzip"}
    elif way in ("zip", "tar_gz"):
        data = archive(way, {"a.csv": b"e,1\n" * 5, "b.csv": data})
        options = {"archive_compress_codec": way}
    elif way in ("gbk", "utf-16"):
        data = text.encode(way)
        options = {"encoding": way}
    else:
        data = text.replace("\n", {"crlf": "\r\n", "cr": "\r"}[way]).encode()
    (tmp_path / "f").write_bytes(data)
    prefix = "b.csv: " if "archive_compress_codec" in options else ""
    assert error(tmp_path, "csv", {"a": "string", "b": "int"}, **options).startswith(
        f"{prefix}line 31: column b: 'x'"
    )


def archive(kind: str, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in files.items():
                packed.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["csv", "text", "json", "lines", "document"])
@pytest.mark.parametrize("way", ["none", "gzip", "zip"])
def test_one_huge_record_is_an_error_and_is_not_held(tmp_path: Path, form: str, way: str) -> None:
    good, head, tail = {
        "csv": ("1,a\n", '2,"', ""),
        "text": ("1,a\n", "2,", ""),
        "json": ('{"id":1,"name":"a"}\n', '{"id":2,"name":"', ""),
        "lines": ("1,a\n", "2,", ""),
        "document": ("[\n", '{"id":2,"name":"', ""),
    }[form]
    data = (good + head).encode() + b"x" * (40 << 20) + tail.encode()
    options: dict[str, Any] = {"max_record_bytes": 10 << 20, "field_delimiter": ","}
    if way == "gzip":
        data = gzip.compress(data, 1)
        options["compress_codec"] = "gzip"
    if way == "zip":
        data = archive("zip", {"f.txt" if form in ("text", "lines") else f"f.{form}": data})
        options["archive_compress_codec"] = "zip"
    (tmp_path / "f").write_bytes(data)
    schema = None if form == "lines" else ID_NAME
    kind = {"lines": "text", "document": "json"}.get(form, form)
    before = pa.total_allocated_bytes()
    text = error(tmp_path, kind, schema, **options)
    assert "line 2: the " in text
    assert "10 MiB (max_record_bytes)" in text
    assert pa.total_allocated_bytes() - before < 30 << 20


def test_small_limits_for_records_are_exact(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1,aaaa\n2,aaaaaaaaaaaaaaaaaaaa\n")
    for form, schema in (("csv", ID_NAME), ("text", ID_NAME), ("text", None)):
        assert error(tmp_path, form, schema, max_record_bytes=10, field_delimiter=",").startswith(
            "line 2: the record"
        )
    (tmp_path / "f").write_text('{"id":1,"name":"a"}\n{"id":2,"name":"aaaaaaaaaa"}\n')
    assert error(tmp_path, "json", ID_NAME, max_record_bytes=25).startswith(
        "line 2: the record is longer than 25 bytes"
    )


@pytest.mark.parametrize("way", ["gzip", "zip", "tar_gz", "suffix"])
def test_an_archive_bomb_is_an_error_that_names_the_file(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_blocks, "EXPANSION_FREE_BYTES", 1 << 16)
    data = b"1,a\n" * (1 << 16)
    options: dict[str, Any] = {}
    if way in ("gzip", "suffix"):
        packed = gzip.compress(data)
        options = {"compress_codec": "gzip"} if way == "gzip" else {}
    else:
        packed = archive(way, {"f.csv": data})
        options = {"archive_compress_codec": way}
    (tmp_path / "f.gz").write_bytes(packed)
    text = error(tmp_path, "csv", ID_NAME, max_expansion_ratio=10, **options)
    assert "10 times its size: this may be an archive bomb; increase max_expansion_ratio" in text
    assert len(read(tmp_path, "csv", ID_NAME, max_expansion_ratio=2000, **options)) == 1 << 16


def test_search_for_a_cut_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('1,"open\n' + "2,b\n" * 100_000)
    dialect = record_boundaries.DelimitedDialect(quote=b'"', record_bytes_max=1 << 18)
    with path.open("rb") as file:
        size = path.stat().st_size
        assert record_boundaries.record_end(file.fileno(), 0, 1000, size, dialect) == size
