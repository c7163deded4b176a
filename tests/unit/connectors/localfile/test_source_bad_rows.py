"""Bad input is a bad row: the job fails with file, line, column and value, and lenient reading
needs an option that says so.
"""

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
from pyarrow import orc, parquet

from tidegate.connectors.localfile import bad_rows, records, streams
from tidegate.connectors.localfile.bad_rows import BadFile
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block

ID_NAME = {"id": "int", "name": "string"}


def make(path: Path, form: str, schema: Any, **options: Any) -> LocalFileSource:
    fields = {"columns": schema} if isinstance(schema, list) else {"fields": schema}
    given = {
        "path": str(path),
        "file_format_type": form,
        **({"schema": fields} if schema else {}),
        **options,
    }
    values, problems = SOURCE_OPTIONS.read(Block(given, lambda _: Location("job.conf"), "source[0]"))
    assert not problems
    context = OperatorContext(job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1)
    source = LocalFileSource(values, context)
    source.piece_bytes_min = 1
    return source


def read(path: Path, form: str, schema: Any, splits: int = 1, **options: Any) -> list[dict[str, Any]]:
    source = make(path, form, schema, **options)
    start = source.initial()
    end = source.latest(start, Limit())
    return [row for split in source.splits(start, end, splits) for batch in source.read(split) for row in batch.to_pylist()]


def error(path: Path, form: str, schema: Any, splits: int = 1, **options: Any) -> str:
    with pytest.raises(BadFile) as raised:
        read(path, form, schema, splits, **options)
    text = str(raised.value)
    assert text.startswith(f"{raised.value.path}: ")
    return text.removeprefix(f"{raised.value.path}: ")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "id;name;city\n1;a;b\n",
            {},
            "line 1: the header has no column 'id', 'name'; it is: 'id;name;city'. The header has one column: "
            "it contains ';' 2 times, set field_delimiter = \";\"",
        ),
        ("id\tname\n1\ta\n", {}, "it contains '\\t' once, set field_delimiter = \"\\t\""),
        (
            "key,label\n1,a\n",
            {},
            "line 1: the header has no column 'id', 'name'; it is: 'key', 'label'. No column of the schema is in this file",
        ),
        (
            "id,label\n1,a\n",
            {},
            "line 1: the header has no column 'name'; it is: 'id', 'label'. Correct the schema, or set missing_columns",
        ),
        ("id,name,name\n1,a,b\n", {}, "line 1: the header names 'name' more than once"),
        ("ID,Id,name\n1,2,a\n", {}, "line 1: the header names 'id' more than once"),
        (
            "# top\nid,nam\n1,a\n",
            {"skip_header_row_number": 1},
            "line 2: the header has no column 'name'",
        ),
        ('id,"name\n1,a\n', {}, 'line 1: the header: the quote " is not closed'),
        ("1,a\n2,b\n", {}, "This seems to be a row: set csv_use_header_line = false"),
    ],
)
def test_a_header_that_does_not_match_is_refused_before_any_row(tmp_path: Path, text: str, options: Any, message: str) -> None:
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
    assert "the header has 'c', which the first file of the table lacks" in error(tmp_path, "csv", None, csv_use_header_line=True)
    (tmp_path / "1.csv").write_text("a,a\n1,2\n")
    assert "the header names 'a' more than once" in error(tmp_path, "csv", None, csv_use_header_line=True)
    (tmp_path / "1.csv").write_text(",a\n1,2\n")
    assert "column 1 of the header has no name" in error(tmp_path, "csv", None, csv_use_header_line=True)


def test_a_skipped_header_in_another_order_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("name,id\na,b\n")
    text = error(tmp_path, "csv", {"id": "string", "name": "string"}, skip_header_row_number=1)
    assert text.startswith("line 1: the header line that is skipped names the columns in another order")
    (tmp_path / "f.csv").write_text("other,words\na,b\n")
    assert len(read(tmp_path, "csv", {"id": "string", "name": "string"}, skip_header_row_number=1)) == 1


@pytest.mark.parametrize("form", ["csv", "text"])
def test_names_of_columns_are_not_read_as_a_row(tmp_path: Path, form: str) -> None:
    (tmp_path / "f").write_text("Id,name\n1,a\n")
    text = error(tmp_path, form, {"id": "string", "name": "string"}, field_delimiter=",")
    assert text.startswith("line 1: this row holds the names of the columns: set csv_use_header_line = true")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("form", ["csv", "text", "json", "lines"])
def test_wide_encodings_read_as_utf8_are_named(tmp_path: Path, encoding: str, form: str) -> None:
    content = '{"id": 1, "name": "a"}\n' * 9 if form == "json" else "id,name\n1,a\n"
    (tmp_path / "f").write_bytes(content.encode(encoding))
    schema = None if form == "lines" else ID_NAME
    named = {"utf-16": "UTF-16LE", "utf-32": "UTF-32LE"}.get(encoding, encoding.upper().replace("-LE", "LE").replace("-BE", "BE"))
    form = "text" if form == "lines" else form
    assert f'set encoding = "{named}"' in error(tmp_path, form, schema, field_delimiter=",")
    if schema and form != "json":
        assert read(tmp_path, form, schema, encoding=named, field_delimiter=",", skip_header_row_number=1) == [{"id": 1, "name": "a"}]


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
            "line 2: column name: the bytes b'\\xe9t\\xe9' are not UTF-8: name the encoding",
        ),
        (b"1,a\n2,b\0c\n", "line 2: column name: 'b\\x00c' holds a zero byte"),
    ],
)
def test_bytes_that_are_no_text_are_a_bad_row(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert error(tmp_path, "csv", ID_NAME).startswith(message)
    assert error(tmp_path, "text", ID_NAME, field_delimiter=",").startswith(message)
    assert error(tmp_path, "text", None).startswith("line 2: ")


def test_undecodable_bytes_of_other_encodings_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("1,表\n2,文\n".encode("gbk") + b"3,\xff\n")
    assert error(tmp_path, "csv", ID_NAME, encoding="gbk").startswith("line 3: the bytes b'\\xff' are not gbk")


def test_a_quote_that_is_never_closed_is_a_bad_row_at_its_line(tmp_path: Path) -> None:
    lines = [f'{i},"name {i}"' for i in range(1, 1000)]
    lines[499] = '500,"never closed'
    (tmp_path / "f.csv").write_text("\n".join(lines) + "\n")
    assert error(tmp_path, "csv", ID_NAME).startswith("line 500: quote: there is text behind the closing quote")
    (tmp_path / "f.csv").write_text('1,a\n2,"never closed\n3,c\n4,d\n')
    text = error(tmp_path, "csv", ID_NAME)
    assert text.startswith('line 2: quote: the quote " is not closed of \'"never closed')
    assert 'set quote_char = "" if quotes mean nothing' in text
    assert read(tmp_path, "csv", ID_NAME, quote_char="")[1] == {"id": 2, "name": '"never closed'}


def test_an_unclosed_quote_is_only_followed_for_a_bounded_stretch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", 4096)
    (tmp_path / "f.csv").write_text('1,a\n2,"open\n' + "3,c\n" * 100_000)
    source = make(tmp_path, "csv", ID_NAME, max_record_bytes=20_000)
    reader = source.files[0].reader(source.files[0]._find()[0])
    part = streams.Part(
        str(tmp_path / "f.csv"),
        (tmp_path / "f.csv").stat().st_size,
        (tmp_path / "f.csv").stat().st_mtime_ns,
        0,
        -1,
    )
    with pytest.raises(
        BadFile,
        match=r"line 2: the quote \" that opens here is not closed within 19\.53 KiB \(max_record_bytes\)",
    ):
        list(reader.read(part))


@pytest.mark.parametrize("splits", [1, 3, 7])
def test_text_behind_a_closing_quote_is_a_bad_row(tmp_path: Path, splits: int) -> None:
    (tmp_path / "f.csv").write_text('1,"a"\n' * 50 + '2,"b"c\n' + '3,"d"\n' * 50)
    assert error(tmp_path, "csv", ID_NAME, splits).startswith('line 51: quote: there is text behind the closing quote " of \'"b"c')
    (tmp_path / "f.csv").write_text('1,5" pipe\n2,a"b"\n')
    assert [row["name"] for row in read(tmp_path, "csv", ID_NAME, splits)] == ['5" pipe', 'a"b"']


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "7",
            "line 3: the row has 1 field instead of 2: '7'; short_rows = \"fill_null\" accepts such rows",
        ),
        (
            "7;x",
            "line 3: the row has 1 field instead of 2: '7;x'; it contains ';' once, set field_delimiter",
        ),
        (
            "7,x,y",
            "line 3: the row has 3 fields instead of 2: '7,x,y'; long_rows = \"drop_extra\" accepts such rows",
        ),
        ("7,x,", "line 3: the row has 3 fields instead of 2"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "text"])
def test_rows_that_are_short_or_long_are_bad(tmp_path: Path, form: str, row: str, message: str) -> None:
    (tmp_path / "f").write_text(f"1,a\n\n{row}\n4,d\n")
    assert error(tmp_path, form, ID_NAME, field_delimiter=",").startswith(message)
    lenient = {"short_rows": "fill_null", "long_rows": "drop_extra"}
    if ";" not in row:
        assert read(tmp_path, form, ID_NAME, field_delimiter=",", **lenient)[1]["id"] == 7


def test_one_leniency_does_not_bring_the_other(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n2,b,c\n")
    assert error(tmp_path, "csv", ID_NAME, short_rows="fill_null").startswith("line 2: the row has 3 fields")
    assert error(tmp_path, "csv", ID_NAME, long_rows="drop_extra").startswith("line 1: the row has 1 field")
    (tmp_path / "f").write_text("2,b,c\n1,a,b\n")
    assert "2 bad rows so far" in error(tmp_path, "csv", ID_NAME, short_rows="fill_null")


BAD_VALUES = [
    ("decimal(10,2)", "1.23456", "'1.23456' has more digits behind the point than decimal(10,2)"),
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
    ("timestamp", "2024-01-01 00:00:00.1234567", "has more than 6 digits behind the point"),
    ("timestamp", "2024-01-01T00:00:00.1234567", "has more than 6 digits behind the point"),
    ("timestamp", "2024-01-01T00:00:00+02:00", "has a time zone"),
    ("timestamp", "soon", "'soon' is not a timestamp"),
    ("array<int>", "[1,x]", ""),
]


@pytest.mark.parametrize(("kind", "value", "message"), BAD_VALUES)
@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_a_value_that_does_not_fit_is_a_bad_row(tmp_path: Path, form: str, kind: str, value: str, message: str) -> None:
    rows = ["", value, ""]
    if form == "json":
        (tmp_path / "f").write_text("".join(json.dumps({"k": "x", "v": v or None}) + "\n" for v in rows))
    else:
        (tmp_path / "f").write_text("".join(f"x|{v}\n" for v in rows))
    text = error(tmp_path, form, {"k": "string", "v": kind}, field_delimiter="|")
    assert text.startswith("line 2: column v: ")
    assert message in text


@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_rounding_and_cutting_need_their_option(tmp_path: Path, form: str) -> None:
    values = {"d": "1.235", "t": "2024-01-01 00:00:00.1234567", "e": "2024-01-01 12:00:00"}
    (tmp_path / "f").write_text(json.dumps(values) + "\n" if form == "json" else "|".join(values.values()) + "\n")
    schema = {"d": "decimal(10,2)", "t": "timestamp", "e": "date"}
    text = error(tmp_path, form, schema, field_delimiter="|")
    assert text.count('excess_digits = "round"') == 3
    expected = [{"d": Decimal("1.24"), "t": datetime(2024, 1, 1, 0, 0, 0, 123456), "e": date(2024, 1, 1)}]
    assert read(tmp_path, form, schema, field_delimiter="|", excess_digits="round") == expected


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_null_in_a_column_that_is_not_nullable_is_a_bad_row(tmp_path: Path, form: str) -> None:
    columns = [{"name": "id", "type": "int", "nullable": False}, {"name": "name", "type": "string"}]
    (tmp_path / "f").write_text('{"id":1,"name":"a"}\n{"id":null,"name":"b"}\n' if form == "json" else "1,a\n,b\n")
    assert error(tmp_path, form, columns) == "line 2: column id: there is no value, and the column is not nullable"


def test_the_first_ten_bad_rows_are_named_with_the_count(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{i if i % 3 else 'x'},n\n" for i in range(1, 301)))
    text = error(tmp_path, "csv", ID_NAME)
    assert text.startswith("line 3: column id: 'x' is not a whole number (100 bad rows so far, the first 10 of them):\n  line 3: ")
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == [f"  line {i}" for i in range(3, 33, 3)]


def test_bad_rows_are_counted_over_blocks_and_the_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64)
    monkeypatch.setattr(bad_rows, "SCANNED_BYTES_MAX", 2000)
    (tmp_path / "f").write_text("".join(f"{i if i not in (5, 100, 900) else 'x'},n\n" for i in range(1, 1001)))
    text = error(tmp_path, "csv", ID_NAME)
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "line 5",
        "  line 5",
        "  line 100",
    ]


@pytest.mark.parametrize("splits", [2, 5, 9])
@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_lines_are_those_of_the_file_however_it_is_cut(tmp_path: Path, form: str, splits: int) -> None:
    rows = [(str(i), f"n{i}") for i in range(1, 501)]
    rows[449] = ("x", "n")
    line = (lambda r: json.dumps({"id": r[0], "name": r[1]})) if form == "json" else ",".join
    (tmp_path / "f").write_text("".join(line(row) + "\n" for row in rows))
    assert error(tmp_path, form, ID_NAME, splits, field_delimiter=",").startswith("line 450: column id: 'x'")


@pytest.mark.parametrize("way", ["gz", "zip", "tar_gz", "gbk", "utf-16", "crlf", "cr"])
def test_lines_are_right_behind_codecs_archives_and_encodings(tmp_path: Path, way: str) -> None:
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
    assert error(tmp_path, "csv", {"a": "string", "b": "int"}, **options).startswith(f"{prefix}line 31: column b: 'x'")


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
        assert error(tmp_path, form, schema, max_record_bytes=10, field_delimiter=",").startswith("line 2: the record")
    (tmp_path / "f").write_text('{"id":1,"name":"a"}\n{"id":2,"name":"aaaaaaaaaa"}\n')
    assert error(tmp_path, "json", ID_NAME, max_record_bytes=25).startswith("line 2: the record is longer than 25 bytes")


@pytest.mark.parametrize("way", ["gzip", "zip", "tar_gz", "suffix"])
def test_an_archive_bomb_is_an_error_that_names_the_file(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EXPANSION_FREE_BYTES", 1 << 16)
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
    assert "10 times its size: this may be an archive bomb; set max_expansion_ratio higher" in text
    assert len(read(tmp_path, "csv", ID_NAME, max_expansion_ratio=2000, **options)) == 1 << 16


def test_the_longest_look_for_a_cut_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('1,"open\n' + "2,b\n" * 100_000)
    dialect = records.Dialect(quote=b'"', record_bytes_max=1 << 18)
    with path.open("rb") as file:
        size = path.stat().st_size
        assert records.record_end(file.fileno(), 0, 1000, size, dialect) == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"id":1,"name":"a"}\n{"id":2}\n',
            "line 2: column name: there is no such key, only 'id'; missing_columns = \"fill_null\" reads null for it",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":2,"nmae":null,"x":{"name":null}}\n',
            "line 2: column name: there is no such key, only 'id', 'nmae', 'x'",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":2,"id":3,"name":"b"}\n',
            "line 2: column id: the key 'id' is there more than once",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":[2],"name":"b"}\n',
            "line 2: column id: '[2]' is not a whole number",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":2.5,"name":"b"}\n',
            "line 2: column id: '2.5' is not a whole number",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":3000000000,"name":"b"}\n',
            "line 2: column id: '3000000000' does not fit into int",
        ),
        ('{"id":1,"name":"a"}\n{"id":2,"name":"b"\n', "line 2: this is not JSON"),
        (
            '{"id":1,"name":"a"}\n{"id":2,"name":"b"} garbage\n',
            "line 2: this is not JSON: Expecting value: 'garbage",
        ),
        ('{"id":1,"name":"a"}\n[7]\n', "line 2: a row is an object, not 7"),
        ('[\n{"id":1,"name":"a"},\n{"id":2}\n]', "line 3: column name: there is no such key"),
        ('[\n{"id":1,"name":"a"}\n', "line 3: this is not JSON: the array is not closed"),
        ('[\n{"id":1,"name":"a"}\n] x', "line 3: this is not JSON"),
        ('[\n{"id":1,"name":"a"},\n]', "line 3: this is not JSON: an element is missing"),
        ('{\n"id":1,\n"name":"a"\n', "line 4: this is not JSON"),
        ('{\n"id":"x",\n"name":"a"\n}', "line 1: column id: 'x' is not a whole number"),
    ],
)
def test_a_json_row_that_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f").write_text(text)
    assert error(tmp_path, "json", ID_NAME).startswith(message)


def test_json_nulls_are_told_from_keys_that_are_missing(tmp_path: Path) -> None:
    schema = {"a": "int", "r": {"x": "int", "y": "int"}}
    good = '{"a":null,"r":{"x":1,"y":null},"other":{"a":1}}\n{"a": null,"r":null}\n{"a":\tnull,"r":{"x":1,"y":2}}\n'
    (tmp_path / "f").write_text(good)
    rows = [
        {"a": None, "r": {"x": 1, "y": None}},
        {"a": None, "r": None},
        {"a": None, "r": {"x": 1, "y": 2}},
    ]
    assert read(tmp_path, "json", schema) == rows
    (tmp_path / "f").write_text(good + '{"a":1,"r":{"x":1}}\n')
    assert error(tmp_path, "json", schema).startswith("line 4: column r: {'x': 1} has no key 'y'")
    (tmp_path / "f").write_text(good + '{"other":{"a":null},"r":null}\n')
    assert error(tmp_path, "json", schema).startswith("line 4: column a: there is no such key")
    assert read(tmp_path, "json", schema, missing_columns="fill_null")[3] == {"a": None, "r": None}


def test_json_numbers_keep_their_digits(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"d":12345678901234567.89,"s":1.10}\n')
    assert read(tmp_path, "json", {"d": "decimal(20,2)", "s": "string"}) == [{"d": Decimal("12345678901234567.89"), "s": "1.10"}]


def write(path: Path, form: str, table: pa.Table) -> None:
    if form == "parquet":
        parquet.write_table(table, path, row_group_size=2)
    else:
        orc.write_table(table, str(path))


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("values", "given", "kind", "message"),
    [
        (
            [1, 2, 2**40],
            pa.int64(),
            "int",
            "row 3: column v: '1099511627776' (int64) does not fit into int",
        ),
        (
            [1.0, 2.5, 3.0],
            pa.float64(),
            "int",
            "row 2: column v: '2.5' (double) does not fit into int",
        ),
        (
            [1.5, 1.23456],
            pa.float64(),
            "decimal(10,2)",
            "row 2: column v: '1.23456' (double) does not fit into decimal(10,2); excess_digits",
        ),
        (
            [1.0, 1e300],
            pa.float64(),
            "float",
            "row 2: column v: '1e+300' (double) does not fit into float",
        ),
        (
            [0, 1, 5],
            pa.int32(),
            "boolean",
            "row 3: column v: '5' (int32) does not fit into boolean",
        ),
        (["1", "x"], pa.string(), "int", "row 2: column v: 'x' (string) does not fit into int"),
        (
            [Decimal("1.10"), Decimal("1.123")],
            pa.decimal128(10, 3),
            "decimal(10,2)",
            "row 2: column v: '1.123'",
        ),
        (
            [Decimal("1.1"), Decimal("12345.1")],
            pa.decimal128(10, 1),
            "decimal(4,1)",
            "row 2: column v: '12345.1'",
        ),
        (
            [datetime(2024, 1, 1), datetime(2024, 1, 1, 12)],
            pa.timestamp("us"),
            "date",
            "row 2: column v: '2024-01-01 12:00:00'",
        ),
        ([1, 2], pa.int32(), "date", "row 1: column v: '1' (int32) does not fit into date"),
        ([2**60, 2**60 + 1], pa.int64(), "double", "row 1: column v: "),
    ],
)
def test_a_column_that_does_not_fit_its_type_is_named_with_its_row(tmp_path: Path, form: str, values: Any, given: Any, kind: str, message: str) -> None:
    write(tmp_path / "f", form, pa.table({"k": ["a"] * len(values), "v": pa.array(values, given)}))
    text = error(tmp_path, form, {"k": "string", "v": kind})
    if form == "orc":
        text = text.replace("timestamp[ns]", "timestamp[us]")
    assert text.startswith(message)


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_columns_that_a_file_lacks_or_has_no_values_for_are_named(tmp_path: Path, form: str) -> None:
    write(tmp_path / "f", form, pa.table({"id": [1, None, 3], "label": ["a", "b", "c"]}))
    assert error(tmp_path, form, ID_NAME).startswith("has no column 'name'; it has 'id', 'label'. Correct the schema")
    assert error(tmp_path, form, {"x": "int"}, missing_columns="fill_null").startswith("has no column 'x'")
    assert [row["name"] for row in read(tmp_path, form, ID_NAME, missing_columns="fill_null")] == [None] * 3
    strict = [{"name": "id", "type": "bigint", "nullable": False}]
    assert error(tmp_path, form, strict) == "row 2: column id: there is no value, and the column is not nullable"
    write(tmp_path / "g", form, pa.table({"id": [1], "label": ["a"], "more": [1]}))
    assert "has 'more', which the first file of the table lacks: give a schema" in error(tmp_path, form, None)
    assert len(read(tmp_path, form, {"id": "bigint", "label": "string"})) == 4


def test_rows_of_parquet_are_counted_over_row_groups(tmp_path: Path) -> None:
    write(tmp_path / "f", "parquet", pa.table({"v": pa.array([*range(99), 2**40], pa.int64())}))
    assert error(tmp_path, "parquet", {"v": "int"}, 7).startswith("row 100: column v: ")


def test_nanoseconds_of_parquet_are_cut_only_by_option(tmp_path: Path) -> None:
    write(tmp_path / "f", "parquet", pa.table({"t": pa.array([1000, 1001], pa.timestamp("ns"))}))
    assert error(tmp_path, "parquet", {"t": "timestamp"}).startswith("row 2: column t: ")
    assert [r["t"] for r in read(tmp_path, "parquet", {"t": "timestamp"}, excess_digits="round")] == [datetime(1970, 1, 1, 0, 0, 0, 1)] * 2


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_damaged_file_is_named_wherever_the_damage_is(tmp_path: Path, form: str) -> None:
    write(tmp_path / "f", form, pa.table({"v": [f"value {i}" for i in range(5000)]}))
    whole = (tmp_path / "f").read_bytes()
    for damaged in (
        whole[:-10],
        whole[: len(whole) // 2],
        b"x" * 20 + whole[20:],
        whole[:-4] + b"none",
    ):
        (tmp_path / "f").write_bytes(damaged)
        if damaged == b"x" * 20 + whole[20:] and form == "orc":
            continue  # the first bytes of an orc file may hold nothing that is read
        assert f"cannot be read as {form}" in error(tmp_path, form, {"v": "string"})
