"""How `tidegate validate` checks input data, with and without `--sample`, compared with `run`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import job_file, main
from tidegate.cli.exits import BAD_INPUT, FINISHED


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def job(folder: Path, **options: Any) -> str:
    given = {
        "path": str(folder / "data"),
        "file_format_type": "csv",
        "schema": {"fields": {"id": "int", "name": "string"}},
        **options,
    }
    file = folder / "job.conf"
    file.write_text(
        json.dumps(
            {
                "env": {"job.mode": "BATCH"},
                "source": [{"plugin_name": "LocalFile", **given}],
                "sink": [{"plugin_name": "Console"}],
            }
        )
    )
    return str(file)


def judged(file: str, *more: str) -> list[tuple[str, str, str]]:
    """Severity, kind and message of each problem."""
    result = run("validate", "--json", file, *more)
    [document] = json.loads(result.output)
    assert result.exit_code == (FINISHED if document["ok"] else BAD_INPUT)
    return [(p["severity"], p["kind"], p["message"]) for p in document["problems"]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "id;name\n1;a\n",
            {"csv_use_header_line": True},
            (
                "line 1: the header has no column 'id', 'name'; it is: 'id;name'. The header has"
                " one column: it contains ';' once"
            ),
        ),
        (
            "key,label\n1,a\n",
            {"csv_use_header_line": True},
            "line 1: the header has no column 'id', 'name'",
        ),
        (
            "1;a\n",
            {},
            (
                "line 1: the row has 1 field instead of 2: '1;a'; it contains ';' once, set"
                " field_delimiter"
            ),
        ),
        ("id,name\n1,a\n", {}, "line 1: this row contains the names of the columns"),
        (
            "name,id\na,1\n",
            {"skip_header_row_number": 1},
            "line 1: the header line that is skipped names the columns in another order",
        ),
        ("1,a,b\n", {}, "line 1: the row has 3 fields instead of 2"),
    ],
)
def test_the_first_lines_of_a_file_are_compared_with_the_schema(
    tmp_path: Path, text: str, options: Any, message: str
) -> None:
    (tmp_path / "data").write_text(text)
    [(severity, kind, found)] = judged(job(tmp_path, **options))
    assert (severity, kind) == ("error", "data")
    assert found.startswith(f"{tmp_path}/data: {message}")


def test_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes("id,name\n1,a\n".encode("utf-16"))
    [(_, _, found)] = judged(job(tmp_path, csv_use_header_line=True))
    assert 'set encoding = "UTF-16LE"' in found
    assert judged(job(tmp_path, csv_use_header_line=True, encoding="UTF-16LE")) == []


def test_the_first_files_of_a_directory_are_compared(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,name\n1,a\n")
    (tmp_path / "data" / "b.csv").write_text("id,nam\n1,a\n")
    [(_, _, found)] = judged(job(tmp_path, csv_use_header_line=True))
    assert found.startswith(f"{tmp_path}/data/b.csv: line 1: the header has no column 'name'")


def test_rows_are_read_only_with_sample(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1,a\n2,b\nx,c\ny,d\n")
    file = job(tmp_path)
    assert judged(file) == []
    [(severity, kind, found)] = judged(file, "--sample")
    assert (severity, kind) == ("error", "data")
    assert [line.partition(":")[0] for line in found.splitlines()[1:]] == ["  line 3", "  line 4"]
    (tmp_path / "data").write_text("1,a\n")
    assert judged(file, "--sample") == []


def test_sample_reads_each_file_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, text in (("a.csv", "1,a\n"), ("b.csv", "1,a\nx,b\n"), ("c.csv", '1,a\n2,"open\n')):
        (tmp_path / "data" / name).write_text(text)
    found = judged(job(tmp_path), "--sample")
    assert [text.partition(": quote")[0].partition(": column")[0] for _, _, text in found] == [
        f"{tmp_path}/data/b.csv: line 2",
        f"{tmp_path}/data/c.csv: line 2",
    ]


def test_validation_without_sample_does_not_load_arrow(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1,a\n")
    code = f"""
import sys
from tidegate.cli.job_file import load
assert load({job(tmp_path)!r}, variables={{}}, environ={{}}).problems == []
print([m for m in ("pyarrow", "numpy", "pyspark") if m in sys.modules])
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_missing_path_is_a_warning_for_validate_and_an_error_for_run(
    tmp_path: Path,
) -> None:
    file = job(tmp_path)
    absent = f"{tmp_path}/data does not exist on this host"
    assert judged(file) == [("warning", "path", absent)]
    assert judged(file, "--sample") == judged(file)
    result = run("run", file, "--home", str(tmp_path / "home"))
    assert result.exit_code == BAD_INPUT
    assert f"{absent}\n" in result.output
    assert "nothing was started" in result.output


def test_a_bad_header_does_not_prevent_planning(tmp_path: Path) -> None:
    """A person who leaves a bad file out of a batch must be able to start the job."""
    (tmp_path / "data").write_text("key,label\n1,a\n")
    assert (
        job_file.load_plan(
            job(tmp_path, csv_use_header_line=True), (), strict=False, here=True
        ).job_name
        == "job"
    )
