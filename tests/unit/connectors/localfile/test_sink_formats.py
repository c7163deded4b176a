"""Contents and names of the file sink's files: formats, codecs, columns, partitions."""

import bz2
import csv
import datetime
import gzip
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from tidegate.connectors.localfile import write_formats
from tidegate.connectors.localfile import writer as writer_module
from tidegate.connectors.localfile.options import SINK_OPTIONS
from tidegate.connectors.localfile.sink import LocalFileSink
from tidegate.connectors.localfile.write_text import NotText
from tidegate.model.errors import Unsupported, UserError
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, Column, Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Commit, OperatorContext, SinkRestore, WriteTask
from tidegate.plugin.option import Block

EVERY_TYPE = {
    "s": "string",
    "b": "boolean",
    "i8": "tinyint",
    "i64": "bigint",
    "f": "float",
    "d": "double",
    "dec": "decimal(20,4)",
    "by": "bytes",
    "day": "date",
    "t": "time",
    "ts": "timestamp",
    "tz": "timestamp_tz",
    "a": "array<int>",
    "m": "map<string,int>",
    "r": "row<x int,y string>",
}
NOON = datetime.datetime(2024, 2, 29, 12, 34, 56, 789000)
ROW: dict[str, Any] = {
    "s": 'say "hi", you\\\n',
    "b": True,
    "i8": -5,
    "i64": 2**60,
    "f": 0.5,
    "d": 1e300,
    "dec": Decimal("123456.7890"),
    "by": b"abc",
    "day": NOON.date(),
    "t": datetime.time(1, 2, 3),
    "ts": NOON,
    "tz": NOON.replace(tzinfo=datetime.UTC),
    "a": [1, None, 3],
    "m": [("k", 1), ("l", 2)],
    "r": {"x": 1, "y": "z"},
}
NULLS = dict.fromkeys(EVERY_TYPE)


def table_of(types: dict[str, str], path: str = "db.orders", **more: Any) -> Table:
    return Table(
        path=path,
        columns=tuple(Column(name=n, type=parse_type(t)) for n, t in types.items()),
        **more,
    )


def sink_of(root: Path | str, **options: Any) -> LocalFileSink:
    values, problems = SINK_OPTIONS.read(
        Block({"path": str(root), **options}, lambda _: Location("job.conf"), "sink[0]")
    )
    assert problems == []
    context = OperatorContext(
        job_id=7, job_name="orders", pipeline=1, operator="files", mode=JobMode.BATCH, parallelism=1
    )
    return pickle.loads(pickle.dumps(LocalFileSink(values, context)))


def write(
    root: Path | str, *batches: tuple[Table, list[dict[str, Any]]], **options: Any
) -> list[Any]:
    """Everything in one task and one batch; returns the files' entries of its message."""
    sink = sink_of(root, **options)
    committer = sink.committer()
    committer.open(SinkRestore(lineage="L", generation=1, checkpoint=0))
    writer = sink.writer(WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token="t"))
    for table, rows in batches:
        writer.write(table, pa.RecordBatch.from_pylist(rows, schema=table_schema(table)))
    message = writer.close()
    committer.commit(
        Commit(
            lineage="L",
            pipeline=1,
            checkpoint=1,
            generation=1,
            offsets={},
            messages=[json.loads(json.dumps(message))],
        )
    )
    committer.finish()
    committer.close()
    return list(message["files"])


def only(root: Path) -> Path:
    files = [p for p in root.rglob("*") if p.is_file()]
    assert len(files) == 1, files
    return files[0]


@pytest.mark.parametrize("codec", ["none", "snappy", "lz4", "gzip", "brotli", "zstd"])
def test_parquet_keeps_every_type_and_value(tmp_path: Path, codec: str) -> None:
    table = table_of(EVERY_TYPE)
    write(tmp_path, (table, [ROW, NULLS]), file_format_type="parquet", compress_codec=codec)
    file = pq.ParquetFile(only(tmp_path))
    assert file.schema_arrow.equals(table_schema(table))
    assert file.read().to_pylist() == [ROW, NULLS]
    assert file.metadata.row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(
        codec, codec.upper()
    )
    assert only(tmp_path).name.endswith(
        {"none": "_0.parquet", "gzip": "_0.gz.parquet", "brotli": "_0.br.parquet"}.get(
            codec, f"_0.{codec}.parquet"
        )
    )


@pytest.mark.parametrize("codec", ["none", "snappy", "lz4", "zlib", "zstd"])
def test_orc_keeps_every_value_and_writes_times_as_timestamps(tmp_path: Path, codec: str) -> None:
    write(
        tmp_path, (table_of(EVERY_TYPE), [ROW, NULLS]), file_format_type="orc", compress_codec=codec
    )
    read = orc.read_table(only(tmp_path)).to_pylist()
    expected = {**ROW, "t": datetime.datetime(1970, 1, 1, 1, 2, 3)}
    assert {
        k: v.to_pydatetime() if hasattr(v, "to_pydatetime") else v for k, v in read[0].items()
    } == expected
    assert read[1] == NULLS


def test_csv_quotes_only_where_needed_and_distinguishes_null_from_empty(tmp_path: Path) -> None:
    rows = [
        {"s": "plain", "i64": 1},
        {"s": 'a,"b"\nc', "i64": None},
        {"s": "", "i64": 3},
        {"s": None, "i64": 4},
    ]
    write(tmp_path, (table_of({"s": "string", "i64": "bigint"}), rows), enable_header_write=True)
    assert only(tmp_path).read_text() == 's,i64\nplain,1\n"a,""b""\nc",\n"",3\n,4\n'


def test_csv_of_every_type_is_what_a_csv_reader_expects(tmp_path: Path) -> None:
    write(tmp_path, (table_of(EVERY_TYPE), [ROW, NULLS]))
    with only(tmp_path).open(newline="") as file:
        first, second = csv.reader(file)
    assert first == [
        'say "hi", you\\\n', "true", "-5", str(2**60), "0.5", "1e+300", "123456.7890", "abc",
        "2024-02-29", "01:02:03", "2024-02-29 12:34:56", "2024-02-29 12:34:56", "1\x02\x023",
        "k\x031\x02l\x032", "1\x02z",
    ]  # fmt: skip
    assert second == [""] * len(EVERY_TYPE)


def test_text_uses_the_delimiters_and_the_null_text_as_given_and_never_quotes(
    tmp_path: Path,
) -> None:
    rows = [{"s": 'a "b"', "i64": None}, {"s": "c", "i64": 2}]
    write(
        tmp_path,
        (table_of({"s": "string", "i64": "bigint"}), rows),
        file_format_type="text",
        field_delimiter="||",
        row_delimiter="\\r\\n",
        null_format="\\N",
    )
    assert only(tmp_path).read_bytes() == b'a "b"||\\N\r\nc||2\r\n'
    assert only(tmp_path).suffix == ".txt"


def test_text_fields_are_separated_by_control_a_by_default(tmp_path: Path) -> None:
    write(
        tmp_path,
        (table_of({"s": "string", "i64": "bigint"}), [{"s": "a", "i64": 1}]),
        file_format_type="text",
    )
    assert only(tmp_path).read_bytes() == b"a\x011\n"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 12:34:56"),
        ("yyyy/MM/dd HH:mm:ss", "2024/02/29 12:34:56"),
        ("yyyy.MM.dd HH:mm:ss", "2024.02.29 12:34:56"),
        ("yyyyMMddHHmmss", "20240229123456"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-02-29T12:34:56.789"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "2024-02-29 12:34:56.789000"),
        ("dd MM yy", "29 02 24"),
    ],
)
def test_timestamps_follow_the_pattern(tmp_path: Path, pattern: str, expected: str) -> None:
    write(
        tmp_path,
        (table_of({"ts": "timestamp"}), [{"ts": NOON}]),
        file_format_type="text",
        datetime_format=pattern,
    )
    assert only(tmp_path).read_text() == expected + "\n"


def test_times_before_1970_are_not_rounded_up(tmp_path: Path) -> None:
    old = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    write(tmp_path, (table_of({"ts": "timestamp"}), [{"ts": old}]))
    assert only(tmp_path).read_text() == "1969-12-31 23:59:59\n"


def test_json_lines_are_json_with_every_column(tmp_path: Path) -> None:
    write(tmp_path, (table_of(EVERY_TYPE), [ROW, NULLS]), file_format_type="json")
    first, second = (json.loads(line) for line in only(tmp_path).read_text().splitlines())
    assert second == NULLS
    assert first == {
        **ROW, "dec": 123456.789, "by": "YWJj", "day": "2024-02-29", "t": "01:02:03.000000",
        "ts": "2024-02-29T12:34:56.789000", "tz": "2024-02-29T12:34:56.789000Z",
        "m": {"k": 1, "l": 2},
    }  # fmt: skip


def test_json_escapes_control_characters_and_writes_nan_and_infinity_as_text(
    tmp_path: Path,
) -> None:
    rows = [
        {"s": "a\x00\u2028ü\t", "d": float("nan")},
        {"s": "ok", "d": float("-inf")},
        {"s": None, "d": 1.0},
    ]
    write(tmp_path, (table_of({"s": "string", "d": "double"}), rows), file_format_type="json")
    read = [json.loads(line) for line in only(tmp_path).read_text().split("\n") if line]
    assert read == [
        {"s": "a\x00\u2028ü\t", "d": "NaN"},
        {"s": "ok", "d": "-Infinity"},
        {"s": None, "d": 1.0},
    ]


def test_text_formats_are_compressed_as_a_whole(tmp_path: Path) -> None:
    for codec, suffix, opened in (("gzip", ".csv.gz", gzip.open), ("bz2", ".csv.bz2", bz2.open)):
        write(tmp_path / codec, (table_of({"s": "string"}), [{"s": "x"}]), compress_codec=codec)
        assert only(tmp_path / codec).name.endswith(suffix)
        with opened(only(tmp_path / codec)) as file:
            assert file.read() == b"x\n"


def test_other_encodings_are_written_and_missing_characters_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a", (table_of({"s": "string"}), [{"s": "中文"}]), encoding="gbk")
    assert only(tmp_path / "a").read_bytes() == "中文\n".encode("gbk")
    with pytest.raises(NotText, match="iso-8859-1 has no character for '中'"):
        write(tmp_path / "b", (table_of({"s": "string"}), [{"s": "中文"}]), encoding="ISO-8859-1")


def test_bytes_that_are_not_text_are_refused_in_csv(tmp_path: Path) -> None:
    with pytest.raises(NotText, match="not UTF-8"):
        write(tmp_path, (table_of({"by": "bytes"}), [{"by": b"\xff"}]))


def test_a_codec_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="parquet files cannot be compressed with lzo"):
        write(
            tmp_path,
            (table_of({"s": "string"}), [{"s": "x"}]),
            file_format_type="parquet",
            compress_codec="lzo",
        )


def test_row_kinds_are_dropped_and_every_row_is_written(tmp_path: Path) -> None:
    rows = [{"i64": i, ROW_KIND: i} for i in range(4)]
    write(tmp_path, (table_of({"i64": "bigint"}, kinds=True), rows), file_format_type="parquet")
    assert pq.read_table(only(tmp_path)).to_pylist() == [{"i64": i} for i in range(4)]


def test_sink_columns_select_and_order_ignoring_case(tmp_path: Path) -> None:
    write(
        tmp_path,
        (table_of({"a": "int", "b": "int", "c": "int"}), [{"a": 1, "b": 2, "c": 3}]),
        sink_columns=["C", "a"],
        enable_header_write=True,
    )
    assert only(tmp_path).read_text() == "c,a\n3,1\n"
    with pytest.raises(UserError, match="sink_columns names 'nope'"):
        write(tmp_path / "x", (table_of({"a": "int"}), [{"a": 1}]), sink_columns=["nope"])


def test_files_are_rolled_after_batch_size_rows(tmp_path: Path) -> None:
    table = table_of({"i64": "bigint"})
    files = write(
        tmp_path,
        (table, [{"i64": i} for i in range(7)]),
        (table, [{"i64": i} for i in range(7, 10)]),
        batch_size=4,
        file_format_type="parquet",
    )
    assert [f["rows"] for f in files] == [4, 4, 2]
    assert sorted(ds.dataset(tmp_path).to_table()["i64"].to_pylist()) == list(range(10))


def test_parquet_without_options_is_compressed_and_rolls_by_bytes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_formats, "ROWS_MAX", 5)
    table = table_of({"i64": "bigint"})
    [file] = write(tmp_path, (table, [{"i64": i} for i in range(20)]), file_format_type="parquet")
    assert file["rows"] == 20
    assert pq.ParquetFile(only(tmp_path)).metadata.row_group(0).column(0).compression == "ZSTD"
    assert [
        f["rows"] for f in write(tmp_path / "csv", (table, [{"i64": i} for i in range(9)]))
    ] == [5, 4]


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_files_are_rolled_at_about_their_target_size(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_GROUP_ROWS", 2000)
    table = table_of({"s": "string"})
    batches = [
        (table, [{"s": f"{i} {j} {(i * 7919 + j * 104729) % 99991}"} for j in range(1000)])
        for i in range(40)
    ]
    files = write(tmp_path, *batches, file_format_type=form, target_file_size=60_000)
    assert len(files) > 3
    assert all(60_000 <= f["bytes"] <= 130_000 for f in files[:-1])
    assert sum(f["rows"] for f in files) == 40_000


def test_single_file_mode_writes_one_file_without_an_index(tmp_path: Path) -> None:
    write(
        tmp_path,
        (table_of({"i64": "bigint"}), [{"i64": i} for i in range(9)]),
        batch_size=4,
        single_file_mode=True,
        file_name_expression="${transactionId}",
    )
    assert only(tmp_path).name.endswith("_0_1.csv")
    assert len(only(tmp_path).read_text().split()) == 9


def test_file_name_expressions_are_replaced_and_get_the_transaction_id_in_front(
    tmp_path: Path,
) -> None:
    options = {
        "custom_filename": True,
        "file_name_expression": "${table_name}_${now}_${uuid}",
        "filename_time_format": "yyyy",
    }
    write(tmp_path, (table_of({"i64": "bigint"}), [{"i64": 1}]), **options)
    assert only(tmp_path).name.startswith("T_7_")
    assert f"_1_orders_{datetime.datetime.now().year}_" in only(tmp_path).name


# -- partitions

SALES = table_of({"day": "date", "shop": "string", "n": "int"})
SOLD = [{"day": datetime.date(2024, 1, 1 + i % 2), "shop": f"s{i % 3}", "n": i} for i in range(12)]


def test_partitioned_files_are_read_back_as_hive_partitions(tmp_path: Path) -> None:
    write(
        tmp_path,
        (SALES, SOLD),
        (SALES, SOLD),
        have_partition=True,
        partition_by=["day", "shop"],
        file_format_type="parquet",
    )
    read = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert sorted(read["n"].to_pylist()) == sorted(2 * list(range(12)))
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("*/*"))[:2] == [
        "day=2024-01-01/shop=s0",
        "day=2024-01-01/shop=s1",
    ]
    assert all(len(list(d.iterdir())) == 1 for d in tmp_path.glob("*/*"))
    assert pq.read_schema(next(tmp_path.glob("*/*/*"))).names == ["n"]


def test_partition_columns_stay_in_the_file_by_option_and_directories_follow_the_expression(
    tmp_path: Path,
) -> None:
    options = {
        "partition_by": ["shop"],
        "partition_dir_expression": "by-${k0}/${v0}",
        "is_partition_field_write_in_file": True,
    }
    write(tmp_path, (SALES, SOLD[:3]), **options, file_format_type="json")
    assert sorted(p.relative_to(tmp_path).parent.as_posix() for p in tmp_path.rglob("*.json")) == [
        "by-shop/s0",
        "by-shop/s1",
        "by-shop/s2",
    ]
    assert all(json.loads(p.read_text())["shop"] == p.parent.name for p in tmp_path.rglob("*.json"))


@pytest.mark.parametrize("expression", ["${k0}=${v0}", "${v0}"])
@pytest.mark.parametrize(
    "value",
    ["..", "../../escaped", "/etc", "a\x00b", ".tidegate", "_x", ".", "a=b", "%", "ü", None, ""],
)
def test_no_partition_value_leaves_the_directory_or_hides_its_rows(
    tmp_path: Path, value: str | None, expression: str
) -> None:
    root = tmp_path / "root"
    table = table_of({"k": "string", "n": "int"})
    write(
        root,
        (table, [{"k": value, "n": 1}]),
        partition_by=["k"],
        partition_dir_expression=expression,
        file_format_type="parquet",
    )
    assert [p.name for p in tmp_path.iterdir()] == ["root"]
    directory = only(root).parent
    assert directory.parent == root
    assert not directory.name.startswith((".", "_"))
    if expression == "${k0}=${v0}":
        hive = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
        assert ds.dataset(root, partitioning=hive).to_table()["k"].to_pylist() == [value or None]


def test_partitions_beyond_the_limit_of_open_files_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "OPEN_FILES_MAX", 3)
    table = table_of({"k": "int", "n": "int"})
    batches = [(table, [{"k": i % 10, "n": b * 100 + i} for i in range(50)]) for b in range(3)]
    write(tmp_path, *batches, partition_by=["k"], file_format_type="parquet")
    read = ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert sorted(r["n"] for r in read) == sorted(r["n"] for _, rows in batches for r in rows)
    assert all(r["n"] % 10 == r["k"] for r in read)


def test_bad_partition_options_are_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="partition_by names 'nope'"):
        write(tmp_path, (SALES, SOLD), partition_by=["nope"])
    with pytest.raises(UserError, match=r"no column of db\.orders is left"):
        write(tmp_path, (table_of({"k": "int"}), [{"k": 1}]), partition_by=["k"])
    with pytest.raises(UserError, match=r"partition_dir_expression has \$\{v1\}"):
        write(tmp_path, (SALES, SOLD), partition_by=["day"], partition_dir_expression="${v0}/${v1}")


# -- several tables


def test_tables_are_written_to_directories_named_by_placeholders(tmp_path: Path) -> None:
    orders, items = (
        table_of({"n": "int"}, "shop.public.orders"),
        table_of({"m": "string"}, "shop.items"),
    )
    path = f"{tmp_path}/${{database_name}}/${{schema_name:none}}/${{table_name}}"
    write(path, (orders, [{"n": 1}]), (items, [{"m": "x"}]), (orders, [{"n": 2}]))
    assert only(tmp_path / "shop/public/orders").read_text() == "1\n2\n"
    assert only(tmp_path / "shop/none/items").read_text() == "x\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["shop"]


def test_a_table_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    write(
        f"{tmp_path}/root/${{table_name}}", (table_of({"n": "int"}, "/etc/../passwd"), [{"n": 1}])
    )
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


def test_placeholder_in_a_list_expands_to_all_columns(tmp_path: Path) -> None:
    table = table_of({"a": "int", "b": "int", "c": "int"}, primary_key=("c", "a"))
    write(tmp_path, (table, [{"a": 1, "b": 2, "c": 3}]), sink_columns=["${primary_key}"])
    assert only(tmp_path).read_text() == "3,1\n"


def test_a_table_whose_columns_change_within_a_task_gets_a_new_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        (table_of({"a": "int"}), [{"a": 1}]),
        (table_of({"a": "int", "b": "int"}), [{"a": 2, "b": 3}]),
    )
    assert sorted(p.read_text() for p in tmp_path.iterdir()) == ["1\n", "2,3\n"]
