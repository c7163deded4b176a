"""Validation of LocalFile blocks, which imports neither Arrow nor Spark."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile.option_syntax import fraction_digits, to_strptime, unescape
from tidegate.connectors.localfile.options import CONNECTORS
from tidegate.model.plan import Delivery
from tidegate.model.problem import Location, Severity
from tidegate.plugin.connector import GoBack
from tidegate.plugin.option import Block

SOURCE, SINK = CONNECTORS


def problems(connector: Any, **options: Any) -> list[str]:
    block = Block(options, lambda _: Location("job.conf", 3), "b[0]")
    values, found = connector.options.read(block)
    return [
        f"{p.severity} {p.path}: {p.message}" for p in [*found, *connector.check(block, values)]
    ]


def test_validation_imports_neither_arrow_nor_spark() -> None:
    code = (
        "import sys, tidegate.connectors.localfile.options; print([m for m in sys.modules if m in"
        " ('pyarrow', 'pyspark', 'pandas', 'numpy')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": "src"},
        ).stdout.strip()
        == "[]"
    )


def test_a_good_block_has_no_problems(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    assert (
        problems(
            SOURCE,
            path=str(tmp_path),
            file_format_type="CSV",
            schema={"fields": {"a": "int"}},
            read_columns=["a"],
        )
        == []
    )
    assert (
        problems(SOURCE, path=f"{tmp_path}/*", file_format_type="parquet", schema={"table": "t"})
        == []
    )
    assert (
        problems(SINK, path=str(tmp_path), file_format_type="parquet", compress_codec="snappy")
        == []
    )


def test_all_problems_of_a_source_come_at_once(tmp_path: Path) -> None:
    found = problems(
        SOURCE,
        path=f"{tmp_path}/none",
        file_format_type="csv",
        schema={"fields": {"a": "itn"}},
        read_columns=["z"],
        file_filter_pattern="(",
        date_format="QQ",
        encoding="utf-99",
        compress_codec="snappy",
        field_delimiter="||",
        file_filter_modified_start="yesterday",
    )
    for part in (
        "none does not exist",
        "unknown type 'itn'; did you mean 'int'?",
        "read_columns names 'z'",
        "'(' is not a regular expression",
        "'QQ' in the time pattern",
        "unknown encoding 'utf-99'",
        "compressed with snappy cannot be read",
        "field_delimiter of a csv file must be a single ASCII character",
        "'yesterday' is not a time",
    ):
        assert any(part in p for p in found), part


def test_a_missing_path_and_an_empty_one_are_warnings(tmp_path: Path) -> None:
    absent = ["warning b[0].path: /no/such does not exist on this host"]
    assert problems(SOURCE, path="/no/such", file_format_type="text") == absent
    assert problems(SOURCE, path=str(tmp_path), file_format_type="text") == [
        f"warning b[0].path: there is no file to read in {tmp_path} yet"
    ]
    assert problems(SOURCE, path=f"{tmp_path}/*.csv", file_format_type="text")[0].startswith(
        Severity.WARNING
    )


def test_pattern_is_checked_by_java_rules_and_an_unclosed_set_is_a_problem(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text("1\n")
    found = problems(
        SOURCE, path=str(tmp_path), file_format_type="text", file_filter_pattern="[[]x"
    )
    assert [p.partition(", at character")[0] for p in found] == [
        "error b[0].file_filter_pattern: '[[]x' is not a regular expression: a set is not closed"
        " with ]"
    ]
    assert (
        problems(
            SOURCE,
            path=str(tmp_path),
            file_format_type="text",
            file_filter_pattern=r"[\w-\.&&[^x]]++",
        )
        == []
    )
    assert (
        "not a regular expression"
        in problems(SOURCE, path=str(tmp_path), file_format_type="text", file_filter_pattern="[[")[
            0
        ]
    )


def test_empty_json_schema_is_accepted_if_there_is_nothing_to_read(tmp_path: Path) -> None:
    empty = [f"warning b[0].path: there is no file to read in {tmp_path} yet"]
    assert problems(SOURCE, path=str(tmp_path), file_format_type="json", schema={}) == empty
    assert "schema is missing" in problems(SOURCE, path=str(tmp_path), file_format_type="json")[0]
    assert (
        "schema is missing"
        in problems(
            SOURCE,
            path=str(tmp_path),
            file_format_type="json",
            schema={},
            discovery_mode="continuous",
        )[0]
    )
    (tmp_path / "f").write_text("{}\n")
    assert (
        "schema is missing"
        in problems(SOURCE, path=str(tmp_path), file_format_type="json", schema={})[0]
    )


@pytest.mark.parametrize("form", ["excel", "xml", "binary"])
def test_unsupported_formats_are_refused_by_name(tmp_path: Path, form: str) -> None:
    assert f"error b[0].file_format_type: {form} files are not supported" in problems(
        SOURCE, path=str(tmp_path), file_format_type=form
    )
    assert f"error b[0].file_format_type: {form} files are not supported" in problems(
        SINK, path=str(tmp_path), file_format_type=form
    )


def test_every_entry_of_tables_configs_is_checked(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    good = {
        "path": str(tmp_path),
        "file_format_type": "text",
        "schema": {"table": "t", "fields": {"a": "int"}},
    }
    found = problems(
        SOURCE,
        tables_configs=[good, good, {"path": "/no/such", "file_format_type": "json", "pth": 1}, 7],
    )
    assert found == [
        "error b[0].tables_configs[1].schema.table: the table 't' is defined twice",
        "warning b[0].tables_configs[2].pth: unknown option pth",
        (
            "error b[0].tables_configs[2]: schema is missing: json files do not declare their"
            " columns"
        ),
        "warning b[0].tables_configs[2].path: /no/such does not exist on this host",
        "error b[0].tables_configs[3]: an entry of tables_configs is a block { path = ... }",
    ]
    assert problems(SOURCE)[0] == "error b[0]: one of path, tables_configs is missing"


def test_sink_reports_conflicting_options(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    found = problems(
        SINK,
        path=str(tmp_path / "f"),
        file_format_type="orc",
        compress_codec="gzip",
        have_partition=True,
        filename_time_format="qq",
    )
    assert len(found) == 4
    assert problems(SINK) == ["error b[0]: path is missing: " + SINK.options.options[0].description]


def test_sink_without_transactions_is_at_least_once() -> None:
    values, _ = SINK.options.read(Block({"path": "/x"}, lambda _: Location(""), ""))
    assert SINK.capabilities_of(values).delivery is Delivery.EXACTLY_ONCE
    less = SINK.capabilities_of({**values, "is_enable_transaction": False})
    assert (less.delivery, less.go_back) == (Delivery.AT_LEAST_ONCE, GoBack.DUPLICATE)


def test_delimiters_and_time_patterns_have_seatunnels_syntax() -> None:
    assert [unescape(t) for t in (r"\t", r"\001", r"\u0001", r"\|", "||", "\x01")] == [
        "\t",
        "\x01",
        "\x01",
        "|",
        "||",
        "\x01",
    ]
    assert to_strptime("yyyy-MM-dd'T'HH:mm:ss.SSS") == "%Y-%m-%dT%H:%M:%S"
    assert to_strptime("yyyy.MM.dd 100%") == "%Y.%m.%d 100%%"
    assert fraction_digits("HH:mm:ss.SSS") == 3
    assert fraction_digits("HH:mm:ss") == 0
