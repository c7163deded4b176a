"""Rows read from files of every format, codec and encoding."""

import bz2
import gzip
import io
import json
import tarfile
import zipfile
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.errors import TerminalError, Unsupported, UserError
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block


def make(
    path: Path, form: str, schema: dict[str, Any] | None = None, **options: Any
) -> LocalFileSource:
    given = {
        "path": str(path),
        "file_format_type": form,
        **({"schema": {"fields": schema}} if schema else {}),
        **options,
    }
    values, problems = SOURCE_OPTIONS.read(
        Block(given, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    return LocalFileSource(
        values,
        OperatorContext(
            job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
        ),
    )


def read(
    path: Path, form: str, schema: dict[str, Any] | None = None, **options: Any
) -> list[dict[str, Any]]:
    source = make(path, form, schema, **options)
    (table,) = source.tables()
    start = source.initial()
    rows = []
    for split in source.splits(start, source.latest(start, Limit()), 3):
        for batch in source.read(split):
            assert batch.schema.equals(table_schema(table))
            rows += batch.to_pylist()
    return rows


EVERYTHING = {
    "c_string": "string",
    "c_boolean": "boolean",
    "c_tinyint": "tinyint",
    "c_smallint": "smallint",
    "c_int": "int",
    "c_bigint": "bigint",
    "c_float": "float",
    "c_double": "double",
    "c_decimal": "decimal(30, 8)",
    "c_null": "null",
    "c_bytes": "bytes",
    "c_date": "date",
    "c_time": "time",
    "c_timestamp": "timestamp",
    "c_tz": "timestamp_tz",
    "c_array": "array<int>",
    "c_map": "map<string, string>",
    "c_row": {"x": "int", "y": {"z": "array<string>"}},
}
EXPECTED = {
    "c_string": "a b",
    "c_boolean": True,
    "c_tinyint": -128,
    "c_smallint": 32767,
    "c_int": -5,
    "c_bigint": 2**62,
    "c_float": 1.5,
    "c_double": -2.25,
    "c_decimal": Decimal("12345678901234567890.12345678"),
    "c_null": None,
    "c_bytes": b"xyz",
    "c_date": date(2024, 2, 29),
    "c_time": time(23, 59, 58, 123000),
    "c_timestamp": datetime(2024, 2, 29, 1, 2, 3, 456000),
    "c_tz": datetime(2024, 2, 28, 23, 2, 3, tzinfo=UTC),
    "c_array": [1, None, 3],
    "c_map": [("k", "v"), ("n", None)],
    "c_row": {"x": 7, "y": {"z": ["p", "q"]}},
}
NULLS = dict.fromkeys(EVERYTHING)
TEXTS = [
    "a b",
    "true",
    "-128",
    "32767",
    "-5",
    str(2**62),
    "1.5",
    "-2.25",
    "12345678901234567890.12345678",
    "",
    "xyz",
    "2024-02-29",
    "23:59:58.123",
]
TEXTS += ["2024-02-29 01:02:03.456", "2024-02-29T01:02:03+02:00"]


@pytest.mark.parametrize("form", ["text", "csv"])
@pytest.mark.parametrize("nested", ["separators", "json"])
def test_every_type_is_read_from_text_and_csv(tmp_path: Path, form: str, nested: str) -> None:
    deep = {
        "separators": ["1\x02\x023", "k\x03v\x02n\x03", "7\x02p\x04q"],
        "json": ["[1,null,3]", '{"k":"v","n":null}', '{"x":7,"y":{"z":["p","q"]}}'],
    }
    fields = [*TEXTS, *deep[nested]]
    if form == "csv":
        fields = [f'"{f.replace(chr(34), chr(34) * 2)}"' if "," in f else f for f in fields]
    delimiter = "\x01" if form == "text" else ","
    (tmp_path / "f").write_text(delimiter.join(fields) + "\n" + delimiter * 17 + "\n")
    assert read(tmp_path, form, EVERYTHING) == [EXPECTED, NULLS]


def test_every_type_is_read_from_json(tmp_path: Path) -> None:
    plain = {
        k: v if isinstance(v, int | float | str | type(None)) else str(v)
        for k, v in EXPECTED.items()
    }
    given = {
        **plain,
        "c_bytes": "eHl6",
        "c_array": [1, None, 3],
        "c_map": {"k": "v", "n": None},
        "c_row": EXPECTED["c_row"],
        "unknown": [{}],
    }
    (tmp_path / "f.json").write_text(json.dumps(given) + "\n\n" + "{}\n")
    assert read(tmp_path, "json", EVERYTHING, missing_columns="fill_null") == [EXPECTED, NULLS]


def test_bytes_in_json_are_base64_at_every_depth(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        '{"b": "/wA=", "xs": ["eHl6", null], "r": {"b": ""}}\n{"b": null, "xs": null, "r": null}\n'
    )
    rows = read(tmp_path, "json", {"b": "bytes", "xs": "array<bytes>", "r": {"b": "bytes"}})
    assert rows == [
        {"b": b"\xff\x00", "xs": [b"xyz", None], "r": {"b": b""}},
        {"b": None, "xs": None, "r": None},
    ]
    assert read(tmp_path, "json", {"b": "bytes"}) == [{"b": b"\xff\x00"}, {"b": None}]
    (tmp_path / "f").write_text('{"b": "no base64!"}\n')
    with pytest.raises(TerminalError, match="line 1: column b: 'no base64!' is not base64"):
        read(tmp_path, "json", {"b": "bytes"})


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_parquet_and_orc_bring_their_own_schema(tmp_path: Path, form: str) -> None:
    wanted = {
        k: v
        for k, v in EVERYTHING.items()
        if k not in ("c_null", "c_time", "c_tinyint", "c_smallint") or form == "parquet"
    }
    wanted.pop("c_null", None)
    schema = table_schema(make(tmp_path, "text", wanted).tables()[0])
    table = pa.Table.from_pylist([{k: EXPECTED[k] for k in wanted}, {}], schema=schema)
    if form == "parquet":
        parquet.write_table(table, tmp_path / "f")
    else:
        orc.write_table(table, str(tmp_path / "f"))
    assert read(tmp_path, form) == [{k: EXPECTED[k] for k in wanted}, dict.fromkeys(wanted)]
    assert read(tmp_path, form, read_columns=["c_int", "c_string"]) == [
        {"c_int": -5, "c_string": "a b"},
        {"c_int": None, "c_string": None},
    ]


def test_a_given_schema_holds_for_parquet_too(tmp_path: Path) -> None:
    parquet.write_table(
        pa.table(
            {
                "A": pa.array([1, 2], pa.int32()),
                "t": pa.array([1_000_001, None], pa.timestamp("ns")),
            }
        ),
        tmp_path / "f",
    )
    found = read(
        tmp_path,
        "parquet",
        {"a": "bigint", "t": "timestamp", "lacking": "string"},
        missing_columns="fill_null",
        excess_digits="round",
    )
    assert found == [
        {"a": 1, "t": datetime(1970, 1, 1, 0, 0, 0, 1000), "lacking": None},
        {"a": 2, "t": None, "lacking": None},
    ]


def test_lines_without_a_schema_are_one_column(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('tyrant#26\n\n"x,y\n')
    assert read(tmp_path, "csv") == [{"content": "tyrant#26"}, {"content": '"x,y'}]


def test_a_header_line_finds_columns_by_name(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text('\ufeff"b\nb",A,c\n1,2,3\n')
    (tmp_path / "2.csv").write_text("c,a\n6,5\n")
    assert read(tmp_path, "csv", {"a": "int", "c": "string"}, csv_use_header_line=True) == [
        {"a": 2, "c": "3"},
        {"a": 5, "c": "6"},
    ]
    assert read(tmp_path / "2.csv", "csv", csv_use_header_line=True) == [{"c": "6", "a": "5"}]


def test_header_lines_are_skipped_in_every_file_and_only_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(
            '# "a comment\nname,n\n' + "".join(f"{name},{i}\n" for i in range(50))
        )
    source = make(tmp_path, "csv", {"name": "string", "n": "int"}, skip_header_row_number=2)
    source.piece_bytes_min = 10
    start = source.initial()
    splits = source.splits(start, source.latest(start, Limit()), 6)
    assert len(splits) > 3
    rows = [row for split in splits for batch in source.read(split) for row in batch.to_pylist()]
    assert rows == [{"name": name, "n": i} for name in "ab" for i in range(50)]


def test_rows_may_be_short_or_long_where_options_say_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1,x\n2\n3,y,z\n")
    lenient = {"short_rows": "fill_null", "long_rows": "drop_extra"}
    assert read(tmp_path, "csv", {"a": "int", "b": "string"}, **lenient) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": None},
        {"a": 3, "b": "y"},
    ]
    assert read(tmp_path, "csv", {"a": "int", "b": "string"}, read_columns=["b"], **lenient) == [
        {"b": "x"},
        {"b": None},
        {"b": "y"},
    ]


def test_only_quotes_tell_an_empty_text_from_null(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('"",\n,""\n"\\N",\\N\n')
    schema = {"a": "string", "b": "string"}
    expected = [{"a": "", "b": None}, {"a": None, "b": ""}, {"a": "\\N", "b": None}]
    assert read(tmp_path, "csv", schema, null_format="\\N") == expected
    (tmp_path / "f").write_text(
        (tmp_path / "f").read_text() + "short\n"
    )  # its block goes the slow way: the same
    assert read(tmp_path / "f", "csv", schema, null_format="\\N", short_rows="fill_null") == [
        *expected,
        {"a": "short", "b": None},
    ]
    (tmp_path / "f").write_text('x,""\n')
    assert read(tmp_path / "f", "csv", {"a": "string", "b": "int"}) == [{"a": "x", "b": None}]


def test_other_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a;'x;''y';1\r\nb;z;2\r\n")
    schema = {"a": "string", "b": "string", "c": "int"}
    expected = [{"a": "a", "b": "x;'y", "c": 1}, {"a": "b", "b": "z", "c": 2}]
    assert read(tmp_path, "csv", schema, field_delimiter=";", quote_char="'") == expected
    (tmp_path / "f").write_text("a||x;'y||1$b||z||2$")
    assert read(tmp_path, "text", schema, field_delimiter=r"\|\|", row_delimiter="$") == expected
    (tmp_path / "f").write_text('a\t"x\t1\n')
    assert read(tmp_path, "text", schema, field_delimiter="\\t") == [{"a": "a", "b": '"x', "c": 1}]


def test_other_time_formats(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("29/02/2024,2024-01-02 03-04-05,03h04\n")
    schema = {"d": "date", "t": "timestamp", "h": "time"}
    found = read(
        tmp_path,
        "csv",
        schema,
        date_format="dd/MM/yyyy",
        datetime_format="yyyy-MM-dd HH-mm-ss",
        time_format="HH'h'mm",
    )
    assert found == [{"d": date(2024, 2, 29), "t": datetime(2024, 1, 2, 3, 4, 5), "h": time(3, 4)}]
    (tmp_path / "f").write_text(
        json.dumps({"d": "29/02/2024", "t": "2024-05-01 00-00-00", "h": "03h04"})
    )
    found = read(
        tmp_path,
        "json",
        schema,
        date_format="dd/MM/yyyy",
        datetime_format="yyyy-dd-MM HH-mm-ss",
        time_format="HH'h'mm",
    )
    assert found == [{"d": date(2024, 2, 29), "t": datetime(2024, 1, 5), "h": time(3, 4)}]


@pytest.mark.parametrize("encoding", ["gbk", "ISO-8859-1", "utf-16", "shift_jis"])
def test_files_in_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    word = {"gbk": "表|文", "shift_jis": "表ソ|x", "ISO-8859-1": "é|ü", "utf-16": "表|文"}[encoding]
    (tmp_path / "f").write_bytes((word + "\n" + word + "\n").encode(encoding))
    a, b = word.split("|")
    assert (
        read(
            tmp_path, "csv", {"a": "string", "b": "string"}, encoding=encoding, field_delimiter="|"
        )
        == [{"a": a, "b": b}] * 2
    )


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("codec", ["gzip", "bz2", "zstd", "lz4", "suffix"])
def test_compressed_files_are_read_by_option_and_by_name(
    tmp_path: Path, form: str, codec: str
) -> None:
    data = "".join(
        f"{i},x{i}\n" if form == "csv" else json.dumps({"a": i, "b": f"x{i}"}) + "\n"
        for i in range(1000)
    ).encode()
    packed = {"gzip": gzip.compress, "suffix": gzip.compress, "bz2": bz2.compress}
    if codec in packed:
        data = packed[codec](data)
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        data = sink.getvalue().to_pybytes()
    (tmp_path / ("f.gz" if codec == "suffix" else "f")).write_bytes(data)
    options = {} if codec == "suffix" else {"compress_codec": codec}
    assert read(tmp_path, form, {"a": "int", "b": "string"}, **options) == [
        {"a": i, "b": f"x{i}"} for i in range(1000)
    ]


@pytest.mark.parametrize("archive", ["zip", "tar", "tar_gz"])
def test_files_of_the_format_are_read_from_archives(tmp_path: Path, archive: str) -> None:
    contents = {"b.csv": "h\n2\n", "a.csv": "h\n1\n", "readme.md": "no\n", ".hidden.csv": "h\n9\n"}
    buffer = io.BytesIO()
    if archive == "zip":
        with zipfile.ZipFile(buffer, "w") as packed:
            for name, text in contents.items():
                packed.writestr(f"dir/{name}", text)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz" if archive == "tar_gz" else "w") as tar:
            for name, text in contents.items():
                entry = tarfile.TarInfo(f"dir/{name}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
    file = tmp_path / f"f.{archive.replace('_', '.')}"
    file.write_bytes(buffer.getvalue())
    assert read(
        tmp_path, "csv", {"n": "int"}, archive_compress_codec=archive, skip_header_row_number=1
    ) == [{"n": 1}, {"n": 2}]
    file.write_bytes(buffer.getvalue()[:50])
    with pytest.raises(TerminalError, match=r"f\..*: is not a complete"):
        read(tmp_path, "csv", {"n": "int"}, archive_compress_codec=archive)


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1},{"a":2}]',
        '{\n  "a": 1\n}\n{\n  "a": 2\n}',
        '[\n{"a":1}]\n[{"a":"2"}]',
        '{"a":1} {"a":2}',
        '\ufeff\n{"a":1}\n{"a":"2"}',
    ],
)
def test_json_documents_of_any_shape(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.json").write_text(text)
    assert read(tmp_path, "json", {"a": "int"}) == [{"a": 1}, {"a": 2}]


def test_json_takes_defaults_and_texts_of_other_types(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"s":{"k":1},"n":null}\n{"s":true,"n":"5"}\n')
    columns = [{"name": "s", "type": "string"}, {"name": "n", "type": "int", "defaultValue": 7}]
    given = {"path": str(tmp_path), "file_format_type": "json", "schema": {"columns": columns}}
    values, _ = SOURCE_OPTIONS.read(Block(given, lambda _: Location(""), ""))
    source = LocalFileSource(
        values,
        OperatorContext(
            job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
        ),
    )
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, Limit()), 1)
    assert [r for b in source.read(split) for r in b.to_pylist()] == [
        {"s": '{"k": 1}', "n": 7},
        {"s": "true", "n": 5},
    ]


def test_directories_of_the_path_become_columns(tmp_path: Path) -> None:
    for day, text in (
        ("day=1", "a\n"),
        ("day=x%2Fy", "b\n"),
        ("day=__HIVE_DEFAULT_PARTITION__", "c\n"),
    ):
        (tmp_path / day / "k=2").mkdir(parents=True)
        (tmp_path / day / "k=2" / "f=not.txt").write_text(text)
    rows = read(tmp_path, "text", {"v": "string"})
    assert rows == [
        {"v": "a", "day": "1", "k": "2"},
        {"v": "c", "day": None, "k": "2"},
        {"v": "b", "day": "x/y", "k": "2"},
    ]
    assert read(tmp_path, "text", {"v": "string"}, parse_partition_from_path=False) == [
        {"v": v} for v in "acb"
    ]
    assert read(tmp_path, "text", {"v": "string"}, read_partitions=["day=1"]) == [
        {"v": "a", "day": "1", "k": "2"}
    ]


def test_hidden_and_filtered_files_are_ignored(tmp_path: Path) -> None:
    for name in (
        "a.csv",
        "b.txt",
        ".c.csv",
        "_d.csv",
        "_t/e.csv",
        ".t/f.csv",
        "s/g.csv",
        "empty.csv",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if name == "empty.csv" else f"{name}\n")
    found = [r["content"] for r in read(tmp_path, "csv")]
    assert found == ["a.csv", "b.txt", "s/g.csv"]
    assert [r["content"] for r in read(tmp_path, "csv", file_filter_pattern=r".*\.csv")] == [
        "a.csv",
        "s/g.csv",
    ]
    assert [
        r["content"] for r in read(tmp_path, "csv", file_filter_pattern=rf"{tmp_path}/s/.*")
    ] == ["s/g.csv"]
    assert [r["content"] for r in read(tmp_path, "csv", filename_extension="txt")] == ["b.txt"]
    assert [r["content"] for r in read(tmp_path / "*.csv", "csv")] == ["a.csv"]
    assert read(tmp_path, "csv", file_filter_modified_end="2001-01-01 00:00:00") == []
    assert [r["content"] for r in read(Path(f"file://{tmp_path}/a.csv"), "csv")] == ["a.csv"]


def test_several_tables_come_from_one_source(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "b").write_text('{"x":2}\n')
    configs = [
        {
            "path": str(tmp_path / "a"),
            "file_format_type": "csv",
            "schema": {"table": "db.a", "fields": {"n": "int"}},
        },
        {
            "path": str(tmp_path / "b"),
            "file_format_type": "json",
            "schema": {"fields": {"x": "int"}},
        },
    ]
    values, problems = SOURCE_OPTIONS.read(
        Block({"tables_configs": configs}, lambda _: Location(""), "")
    )
    assert not problems
    source = LocalFileSource(
        values,
        OperatorContext(
            job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
        ),
    )
    assert [t.path for t in source.tables()] == ["db.a", "default.default.default_1"]
    start = source.initial()
    middle = source.latest(start, Limit(files=1))
    assert not source.is_exhausted(middle)
    end = source.latest(middle, Limit())
    assert source.is_exhausted(end)
    batches = [
        (s.table, b.to_pylist())
        for a, b in ((start, middle), (middle, end))
        for s in source.splits(a, b, 2)
        for b in source.read(s)
    ]
    assert batches == [("db.a", [{"n": 1}]), ("default.default.default_1", [{"x": 2}])]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("csv", "n,1\n" * 9 + "n,x\n", r"f: line 11: column b: 'x' is not a whole number"),
        ("csv", "n,1\n\nm,300\n", r"f: line 4: column b: '300' does not fit into tinyint"),
        ("text", "n,1\n\nm,300\n", r"f: line 4: column b: '300' does not fit into tinyint"),
        ("json", '{"b":1}\n{"b":1.5}\n', r"f: line 3: column b: '1.5' is not a whole number"),
        ("json", '{"b":1}\n{"b":\n', r"f: line 3: this is not JSON"),
        ("json", "7", r"f: line 2: a row is an object"),
    ],
)
def test_a_bad_value_is_named_with_file_line_and_column(
    tmp_path: Path, form: str, text: str, message: str
) -> None:
    (tmp_path / "f").write_text(("skipped\n" if form != "json" else "\n") + text)
    options = (
        {"skip_header_row_number": 1, "field_delimiter": ","}
        if form != "json"
        else {"missing_columns": "fill_null"}
    )
    with pytest.raises(TerminalError, match=message):
        read(tmp_path, form, {"a": "string", "b": "tinyint"}, **options)


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("csv", b"\xff\xfe,1\n"),
        ("text", b"\xff"),
        ("json", b'{"a":"\xff"}\n'),
        ("parquet", b"PAR1no"),
        ("orc", b"no"),
    ],
)
def test_a_file_that_is_something_else_is_refused_by_name(
    tmp_path: Path, form: str, data: bytes
) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(TerminalError, match=str(tmp_path / "f")):
        read(tmp_path, form, {"a": "string"})
    if form == "text":
        with pytest.raises(TerminalError, match=str(tmp_path / "f")):
            read(tmp_path, form)


def test_unreadable_tables_are_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="excel files are not supported"):
        make(tmp_path, "excel")
    with pytest.raises(UserError, match="add a schema"):
        make(tmp_path, "parquet").tables()
    with pytest.raises(UserError, match="schema is missing"):
        make(tmp_path, "json").tables()
    (tmp_path / "f").write_text("1\n")
    with pytest.raises(UserError, match="read_columns names b"):
        make(tmp_path, "csv", {"a": "int"}, read_columns=["b"]).tables()
