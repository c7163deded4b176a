"""FakeSource: reproducible rows, SeaTunnel's sizes and ranges, intervals, fixed rows."""

import os
import pickle
import subprocess
import sys
from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.connectors.fake import source as source_module
from tidegate.connectors.fake.options import CONNECTORS, OPTIONS, check
from tidegate.connectors.fake.source import FakeSource
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block

ALL_TYPES = {
    "c_map": "map<string, array<int>>",
    "c_flags": "map<boolean, string>",
    "c_array": "array<int>",
    "c_string": "string",
    "c_boolean": "boolean",
    "c_tinyint": "tinyint",
    "c_smallint": "smallint",
    "c_int": "int",
    "c_bigint": "bigint",
    "c_float": "float",
    "c_double": "double",
    "c_decimal": "decimal(10, 2)",
    "c_wide": "decimal(38, 18)",
    "c_null": "null",
    "c_bytes": "bytes",
    "c_date": "date",
    "c_time": "time",
    "c_timestamp": "timestamp",
    "c_timestamp_tz": "timestamp_tz",
    "c_row": {"a": "int", "b": {"c": "string", "d": "array<double>"}},
    "c_binary_vector": "binary_vector",
    "c_float_vector": "float_vector",
    "c_float16_vector": "float16_vector",
    "c_bfloat16_vector": "bfloat16_vector",
    "c_sparse": "sparse_float_vector",
}


def fake(
    options: dict[str, Any], *, mode: JobMode = JobMode.BATCH, parallelism: int = 1
) -> FakeSource:
    block = Block(options, lambda _: Location("job.conf", 1), "source[0]")
    values, problems = OPTIONS.read(block)
    assert [*problems, *check(block, values)] == []
    context = OperatorContext(
        job_id=1,
        job_name="job",
        pipeline=1,
        operator="Source[0]-FakeSource",
        mode=mode,
        parallelism=parallelism,
    )
    return FakeSource(values, context)


def problems_of(options: dict[str, Any]) -> list[str]:
    block = Block(options, lambda _: Location("job.conf", 1), "source[0]")
    values, problems = OPTIONS.read(block)
    return [str(p) for p in [*problems, *check(block, values)]]


def read(
    source: FakeSource, start: Any, end: Any, count: int = 4
) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {t.path: [] for t in source.tables()}
    for split in source.splits(start, end, count):
        for batch in pickle.loads(pickle.dumps(source)).read(split):
            rows[split.table] += batch.to_pylist()
    return rows


def all_rows(source: FakeSource) -> list[dict[str, Any]]:
    start = source.initial()
    (rows,) = read(source, start, source.latest(start, Limit())).values()
    return rows


def of_type(kind: Any, count: int = 500, **options: Any) -> list[Any]:
    return [
        row["x"]
        for row in all_rows(
            fake({"row.num": count, "seed": 1, "schema": {"fields": {"x": kind}}, **options})
        )
    ]


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(1, 90), max_size=6), count=st.integers(1, 8))
def test_rows_are_equal_for_any_division_of_a_range(cuts: list[int], count: int) -> None:
    source = fake(
        {
            "row.num": 400,
            "seed": 11,
            "schema": {
                "fields": {
                    "i": "int",
                    "s": "string",
                    "a": "array<tinyint>",
                    "m": "map<tinyint, date>",
                }
            },
        }
    )
    start = source.initial() | {"now": "2024-05-06T07:08:09"}
    whole = read(source, start, source.latest(start, Limit()), 1)
    pieces: list[dict[str, Any]] = []
    at = start
    with mock.patch.object(source_module, "_SPLIT_ROWS_MIN", 7):
        for rows in [*cuts, 400]:
            end = source.latest(at, Limit(rows=rows))
            pieces += read(source, at, end, count)["default.default.default"]
            at = end
    assert source.is_exhausted(at)
    assert pieces == whole["default.default.default"]


def test_batches_of_every_type_have_exactly_the_schema_of_the_table() -> None:
    source = fake({"row.num": 300, "schema": {"fields": ALL_TYPES}})
    start = source.initial()
    (table,) = source.tables()
    (split,) = source.splits(start, source.latest(start, Limit()), 1)
    for batch in source.read(split):
        batch.validate(full=True)
        assert batch.schema.equals(table_schema(table))
        assert batch.num_rows == 300
        assert {name for name in batch.schema.names if batch.column(name).null_count} == {"c_null"}


def test_default_seed_is_random_and_drawn_once() -> None:
    options: dict[str, Any] = {"row.num": 20, "schema": {"fields": {"s": "string"}}}
    assert all_rows(fake(options | {"seed": 1})) == all_rows(fake(options | {"seed": 1}))
    assert all_rows(fake(options | {"seed": 1})) != all_rows(fake(options | {"seed": 2}))
    source = fake(options)
    start = source.initial()
    end = source.latest(start, Limit())
    assert read(source, start, end) == read(source, start, end)
    assert start["seed"] != fake(options).initial()["seed"]


def test_every_parallel_reader_generates_row_num_rows() -> None:
    assert (
        len(all_rows(fake({"row.num": 7, "schema": {"fields": {"i": "int"}}}, parallelism=3))) == 21
    )


def test_default_ranges_are_those_of_seatunnel() -> None:
    assert all(len(v) == 5 and v.isalpha() for v in of_type("string"))
    assert all(len(v) == 5 and v.isalpha() for v in of_type("bytes"))
    assert all(0 <= v < 127 for v in of_type("tinyint"))
    assert all(0 <= v < 2**31 - 1 for v in of_type("int"))
    assert all(v >= 0 for v in of_type("bigint"))
    assert all(0 <= v <= 3.4028234663852886e38 for v in of_type("float"))
    assert all(len(v) == 5 for v in of_type("array<int>"))
    assert all(len(v) == 4 for v in of_type("float_vector"))
    assert all(len(v) == 1 for v in of_type("binary_vector"))
    assert all(
        abs(v) < Decimal("1e8") and v.as_tuple().exponent == -2 for v in of_type("decimal(10, 2)")
    )
    assert {v.year for v in of_type("date")} == {datetime.now().year}
    assert all(1 <= v.day <= 28 for v in of_type("date"))


def test_values_are_spread_over_their_range() -> None:
    counts = Counter(of_type("int", 10_000, **{"int.min": 10, "int.max": 14}))
    assert set(counts) == {10, 11, 12, 13}
    assert all(2_200 < n < 2_800 for n in counts.values())
    assert set(of_type("boolean")) == {True, False}
    assert max(of_type("double", **{"double.min": -1.0, "double.max": 1.0})) > 0.9
    assert min(of_type("double", **{"double.min": -1.0, "double.max": 1.0})) < -0.9


def test_min_equal_to_max_gives_that_value() -> None:
    assert set(of_type("smallint", **{"smallint.min": 4, "smallint.max": 4})) == {4}


def test_wide_decimals_fill_all_their_digits() -> None:
    values = of_type("decimal(38, 0)", 2_000)
    assert max(values) > 10**36
    assert len(set(values)) == 2_000


def test_templates_apply_with_or_without_the_mode() -> None:
    assert set(
        of_type("string", **{"string.template": ["a", "b"], "string.fake.mode": "TEMPLATE"})
    ) == {"a", "b"}
    assert set(of_type("tinyint", **{"tinyint.template": [20, 21]})) == {20, 21}
    assert set(of_type("double", **{"double.template": [40.0, 41.5]})) == {40.0, 41.5}
    dates = of_type(
        "date",
        **{"date.year.template": [1990], "date.month.template": [2], "date.day.template": [31]},
    )
    assert {d.isoformat() for d in dates} == {"1990-02-28"}
    assert {v.hour for v in of_type("time", **{"time.hour.template": [3, 4]})} == {3, 4}


def test_sizes_can_be_set() -> None:
    assert {len(v) for v in of_type("string", **{"string.length": 19})} == {19}
    assert {len(v) for v in of_type("array<string>", **{"array.size": 0})} == {0}
    assert {len(v) for v in of_type("map<string, string>", **{"map.size": 3})} == {3}
    assert {len(v) for v in of_type("bfloat16_vector", **{"vector.dimension": 6})} == {6}
    columns = [{"name": "x", "type": "string", "columnLength": 12}]
    assert {len(r["x"]) for r in all_rows(fake({"schema": {"columns": columns}}))} == {12}


def test_a_map_has_each_key_once() -> None:
    assert all(len(v) == len(dict(v)) for v in of_type("map<boolean, int>"))


def test_sequence_counts_up_from_min_over_batches() -> None:
    source = fake(
        {
            "row.num": 2_500,
            "bigint.fake.mode": "SEQUENCE",
            "bigint.min": 100,
            "schema": {"fields": {"id": "bigint"}},
        }
    )
    at = source.initial()
    ids: list[int] = []
    while not source.is_exhausted(at):
        end = source.latest(at, Limit(rows=999))
        ids += [r["id"] for r in read(source, at, end)["default.default.default"]]
        at = end
    assert ids == list(range(100, 2_600))


def test_auto_increment_counts_in_the_primary_key_only() -> None:
    schema = {
        "fields": {"n": "int", "id": "int"},
        "primaryKey": {"name": "pk", "columnNames": ["id"]},
    }
    rows = all_rows(
        fake(
            {
                "row.num": 5,
                "auto.increment.enabled": True,
                "auto.increment.start": 10,
                "schema": schema,
            }
        )
    )
    assert [r["id"] for r in rows] == [10, 11, 12, 13, 14]
    assert [r["n"] for r in rows] != [10, 11, 12, 13, 14]


def test_default_values_of_columns_are_used() -> None:
    columns = [
        {"name": "a", "type": "int", "defaultValue": 3},
        {"name": "b", "type": "bytes", "defaultValue": "raw"},
        {"name": "c", "type": "timestamp", "defaultValue": "CURRENT_TIMESTAMP"},
    ]
    source = fake({"row.num": 2, "schema": {"columns": columns}})
    start = source.initial()
    (rows,) = read(source, start, source.latest(start, Limit())).values()
    assert rows == [{"a": 3, "b": b"raw", "c": datetime.fromisoformat(start["now"])}] * 2


def test_fixed_rows_keep_order_kinds_and_every_type() -> None:
    fields = {
        "id": "int",
        "r": {"x": "decimal(10, 2)", "y": "array<string>"},
        "m": "map<string, int>",
        "b": "bytes",
        "t": "time",
    }
    rows = [
        {"kind": "INSERT", "fields": [1, ["1.5", ["a"]], {"k": 1}, "bWlJWmo=", "12:01:02"]},
        {"kind": "-U", "fields": [1, {"y": ["b"]}, {}, None, None]},
        {"kind": "UPDATE_AFTER", "fields": {"id": 1, "m": "{ k = 7 }"}},
    ]
    source = fake({"schema": {"table": "db.t", "fields": fields}, "rows": rows}, parallelism=2)
    (table,) = source.tables()
    assert (table.path, table.kinds) == ("db.t", True)
    made = all_rows(source)
    assert [r[ROW_KIND] for r in made] == [0, 1, 2, 0, 1, 2]
    assert made[0]["r"] == {"x": Decimal("1.50"), "y": ["a"]}
    assert (made[0]["m"], made[0]["b"], str(made[0]["t"])) == ([("k", 1)], b"miIZj", "12:01:02")
    assert made[2]["m"] == [("k", 7)]


def test_fixed_rows_of_only_inserts_have_no_kinds() -> None:
    source = fake({"schema": {"fields": {"i": "int"}}, "rows": [{"kind": "INSERT", "fields": [1]}]})
    assert not source.tables()[0].kinds
    assert all_rows(source) == [{"i": 1}]


def test_current_timestamp_of_a_fixed_row_is_the_first_start() -> None:
    source = fake(
        {
            "schema": {"fields": {"d": "date", "t": "timestamp"}},
            "rows": [{"kind": "INSERT", "fields": ["CURRENT_DATE", "current_timestamp"]}],
        }
    )
    start = source.initial() | {"now": "2001-02-03T04:05:06.000007"}
    (rows,) = read(source, start, source.latest(start, Limit())).values()
    assert [(str(r["d"]), str(r["t"])) for r in rows] == [
        ("2001-02-03", "2001-02-03 04:05:06.000007")
    ]


def test_tables_are_read_one_after_the_other() -> None:
    tables = [
        {"row.num": n, "schema": {"table": f"db.t{n}", "fields": {"i": "int"}}} for n in (3, 4)
    ]
    source = fake({"tables_configs": tables})
    start = source.initial()
    end = source.latest(start, Limit(rows=5))
    assert end["at"] == {"db.t3": 3, "db.t4": 2}
    assert {path: len(rows) for path, rows in read(source, start, end).items()} == {
        "db.t3": 3,
        "db.t4": 2,
    }
    assert not source.is_exhausted(end)
    assert source.progress(end).done == 5
    assert source.is_exhausted(source.latest(end, Limit()))


def test_byte_limit_applies_and_still_allows_progress() -> None:
    source = fake({"row.num": 1_000, "schema": {"fields": {"s": "string"}}})
    start = source.initial()
    assert 0 < source.latest(start, Limit(bytes=1_000))["at"]["default.default.default"] <= 200
    assert source.latest(start, Limit(bytes=1))["at"]["default.default.default"] == 1
    assert source.latest(start, Limit(rows=0))["at"]["default.default.default"] == 1


def test_streaming_source_never_ends_and_is_idle_after_its_rows() -> None:
    source = fake({"row.num": 3, "schema": {"fields": {"i": "int"}}}, mode=JobMode.STREAMING)
    start = source.initial()
    end = source.latest(start, Limit())
    assert end["at"] == {"default.default.default": 3}
    assert not source.bounded
    assert not source.is_exhausted(end)
    assert source.latest(end, Limit()) == end


def test_streaming_source_admits_one_split_of_every_reader_per_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(source_module.time, "monotonic", lambda: now_s[0])
    options = {
        "row.num": 10,
        "split.num": 5,
        "split.read-interval": 3000,
        "schema": {"fields": {"i": "int"}},
    }
    source = fake(options, mode=JobMode.STREAMING, parallelism=2)
    first = source.latest(source.initial(), Limit())
    assert first["at"] == {"default.default.default": 4}
    assert source.latest(first, Limit()) == first
    now_s[0] += 6.5
    assert source.latest(first, Limit())["at"] == {"default.default.default": 12}


def test_tasks_wait_between_splits_of_a_single_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(source_module.time, "sleep", slept.append)
    options = {
        "row.num": 10,
        "split.num": 5,
        "split.read-interval": 200,
        "bigint.fake.mode": "SEQUENCE",
        "schema": {"fields": {"i": "bigint"}},
    }
    source = fake(options, parallelism=2)
    start = source.initial()
    end = source.latest(start, Limit())
    splits = source.splits(start, end, 4)
    assert len(splits) == 2
    ids = [
        row["i"] for split in splits for batch in source.read(split) for row in batch.to_pylist()
    ]
    assert sorted(ids) == list(range(20))
    assert slept == [0.2] * 8


def test_plugin_output_names_the_table_if_the_schema_does_not() -> None:
    assert (
        fake({"plugin_output": "orders", "schema": {"fields": {"i": "int"}}}).tables()[0].path
        == "orders"
    )
    assert (
        fake({"result_table_name": "old", "schema": {"fields": {"i": "int"}}}).tables()[0].path
        == "old"
    )


def test_mode_without_template_is_a_warning_at_its_key() -> None:
    for key in ("string.fake.mode", "string.fake.template"):
        found = problems_of({"schema": {"fields": {"s": "string"}}, key: "TEMPLATE"})
        assert len(found) == 1
        assert "string.fake.mode = TEMPLATE without string.template" in found[0]


def test_nested_option_keys_are_accepted() -> None:
    assert len(all_rows(fake({"row": {"num": 9}, "schema": {"fields": {"i": "int"}}}))) == 9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of schema, tables_configs is missing"),
        ({"row.num": "many", "schema": {"fields": {"id": "bigin"}}}, "source[0].row.num"),
        ({"row.num": "many", "schema": {"fields": {"id": "bigin"}}}, "did you mean 'bigint'"),
        (
            {"schema": {"fields": {"i": "int"}}, "int.min": 5, "int.max": 1},
            "int.min = 5 is above int.max = 1",
        ),
        (
            {"schema": {"fields": {"i": "int"}}, "rows": [{"kind": "INSERT", "fields": ["x"]}]},
            'source[0].rows[0].fields: i: "x" is no int',
        ),
        (
            {"schema": {"fields": {"i": "int"}}, "rows": [{"kind": "UPSERT", "fields": [1]}]},
            "source[0].rows[0].kind: 'UPSERT' is not a row kind",
        ),
        (
            {"schema": {"fields": {"i": "int"}}, "rows": [{"kind": "INSERT", "fields": [1, 2]}]},
            "2 values for 1 columns",
        ),
        (
            {"schema": {"fields": {"i": "int"}}, "date.month.template": [13]},
            "source[0].date.month.template[0]: 13 is not between 1 and 12",
        ),
        (
            {"schema": {"fields": {"i": "int"}}, "int.fake.mode": "TEMPLATE"},
            "warning: source[0].int.fake.mode",
        ),
        (
            {"tables_configs": [{"schema": {"fields": {"i": "int"}}}] * 2},
            "the table default.default.default is declared twice",
        ),
        (
            {"tables_configs": [{"row.num": "x", "schema": {"fields": {"i": "int"}}}]},
            "source[0].tables_configs[0].row.num",
        ),
        ({"tables_configs": [{"row.num": 1}]}, "source[0].tables_configs[0]: schema is missing"),
        (
            {"schema": {"columns": [{"name": "i", "type": "int", "defaultValue": "x"}]}},
            'columns[0].defaultValue: "x" is no int',
        ),
    ],
)
def test_invalid_block_is_reported_with_its_location(options: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in problems_of(options)), problems_of(options)


def test_pickled_source_is_small() -> None:
    source = fake({"schema": {"fields": ALL_TYPES}})
    source.tables()
    assert len(pickle.dumps(source)) < 8_000


def test_batches_of_large_rows_are_small() -> None:
    source = fake(
        {"row.num": 100, "string.length": 1_000_000, "schema": {"fields": {"s": "string"}}}
    )
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, Limit()), 1)
    first = next(iter(source.read(split)))
    assert isinstance(first, pa.RecordBatch)
    assert first.nbytes < 10_000_000


def test_capabilities_follow_the_options() -> None:
    (connector,) = CONNECTORS
    plain, _ = OPTIONS.read(Block({"schema": {}}, lambda _: Location(""), ""))
    changes = plain | {"rows": [{"kind": "DELETE", "fields": []}]}
    tables = plain | {"tables_configs": [{"rows": [{"kind": "+I"}]}, {}]}
    found = [connector.capabilities_of(values) for values in (plain, changes, tables)]
    assert [(c.row_kinds, c.multi_table) for c in found] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_declarations_can_be_read_without_arrow() -> None:
    names = ["fake", "console", "assertion", "chaos"]
    script = (
        f"import sys; [__import__(f'tidegate.connectors.{{n}}.options') for n in {names}];"
        " sys.exit(bool({'pyarrow', 'numpy', 'pyspark'} & set(sys.modules)))"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_backlog_only_if_the_limit_ended_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_module.time, "monotonic", lambda: 100.0)
    options = {
        "row.num": 10,
        "split.num": 5,
        "split.read-interval": 3000,
        "schema": {"fields": {"i": "int"}},
    }
    source = fake(options, mode=JobMode.STREAMING, parallelism=2)
    part = source.latest(source.initial(), Limit(rows=3))
    assert source.has_backlog(part)
    assert not source.has_backlog(source.latest(part, Limit(rows=3)))
