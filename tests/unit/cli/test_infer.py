"""`tidegate infer`: prints a job that validates and runs, with types that are safe."""

import gzip
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import orc, parquet

from tidegate.cli import main
from tidegate.cli.exits import BAD_INPUT, FINISHED
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def types(path: Path, *more: str) -> dict[str, str]:
    """The fields that are printed, by name."""
    result = run("infer", str(path), *more)
    assert result.exit_code == 0, result.output
    inside = result.stdout.partition("fields {")[2]
    pairs = [line.strip().split(" = ") for line in inside.splitlines() if " = " in line]
    return {name: json.loads(kind) for name, kind in pairs}


CSV = (
    "id,amount,day,at,zip,ok,word\n1,1.50,2024-01-01,2024-01-01"
    " 10:00:00,00123,true,a\n2,,2024-01-02,2024-01-02T10:00:00.5,12,FALSE,\n"
)
JSON = (
    '{"id": 1, "d": 1.5, "tags": ["a"], "in": {"x": 1}, "day": "2024-01-01"}\n{"id": 2, "d": 2,'
    ' "tags": [], "in": null, "day": null}\n'
)
TABLE = pa.table({"id": [1, 2], "name": ["a", None], "big.name": [1.5, 2.5]})


def sample(folder: Path, kind: str) -> Path:
    path = folder / f"data.{kind}"
    texts = {
        "csv": CSV,
        "semicolon": CSV.replace(",", ";"),
        "tsv": CSV.replace(",", "\t"),
        "pipe": CSV.replace(",", "|"),
        "ctrl": CSV.replace(",", "\x01"),
        "single": CSV.replace(",a\n", ",'a,b'\n"),
        "quoted": CSV.replace(",a\n", ',"a,b\nc"\n'),
        "headless": CSV.partition("\n")[2],
        "json": JSON,
        "array": json.dumps([json.loads(line) for line in JSON.splitlines()], indent=2),
        "gaps": '{"a": 1, "r": {"x": 1}}\n{"b": 2, "r": {"y": 1}}\n',
        "names": "first name,a.b\n1,2\n",
        "one": "only\n1\n2\n",
        "nulls": "a,b\n1,\\N\n\\N,2\n",
    }
    if kind in texts:
        path.write_text(texts[kind])
    elif kind == "gz":
        path.write_bytes(gzip.compress(CSV.encode()))
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("data.csv", CSV)
    elif kind == "utf16":
        path.write_bytes(CSV.encode("utf-16"))
    elif kind == "bom":
        path.write_bytes(b"\xef\xbb\xbf" + CSV.encode())
    elif kind == "parquet":
        parquet.write_table(TABLE, path)
    elif kind == "orc":
        orc.write_table(TABLE, str(path))
    return path


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        *(
            (kind, 2)
            for kind in (
                "csv",
                "semicolon",
                "tsv",
                "pipe",
                "ctrl",
                "single",
                "quoted",
                "headless",
                "json",
                "array",
                "gaps",
            )
        ),
        *((kind, 2) for kind in ("one", "nulls", "gz", "zip", "utf16", "bom", "parquet", "orc")),
        ("names", 1),
    ],
)
def test_a_printed_job_validates_and_runs(tmp_path: Path, kind: str, rows: int) -> None:
    path = sample(tmp_path, kind)
    printed = run("infer", str(path), "--job")
    assert printed.exit_code == 0, printed.output
    job = tmp_path / "job.conf"
    job.write_text(printed.stdout)
    judged = run("validate", str(job), "--sample", "--strict")
    assert (judged.exit_code, judged.output) == (FINISHED, f"{job}: valid: no problems\n")
    ran = run_in_process(str(job), Home(tmp_path / "home"), PlainEngine())
    assert [failure.message for failure in ran.outcome.failures] == []
    assert (ran.outcome.status, ran.outcome.rows_read) == (JobStatus.FINISHED, rows)


@pytest.mark.parametrize(
    "kind", ["csv", "semicolon", "tsv", "pipe", "ctrl", "gz", "zip", "utf16", "bom"]
)
def test_types_are_detected_in_all_notations(tmp_path: Path, kind: str) -> None:
    expected = {
        "id": "bigint",
        "amount": "double",
        "day": "date",
        "at": "timestamp",
        "zip": "string",
        "ok": "boolean",
        "word": "string",
    }
    assert types(sample(tmp_path, kind)) == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], "bigint"),
        (["007", "12"], "string"),
        (["1", "9223372036854775808"], "string"),
        (["1", "x"], "string"),
        (["+1", "2"], "string"),
        (["0.1", "-2"], "double"),
        (["0.1234567890123456789"], "string"),
        (["1234567890123.123456"], "decimal(38,18)"),
        (["1.5e3"], "double"),
        (["1,5"], "string"),
        (["0", "1"], "bigint"),
        (["true", "1"], "string"),
        (["2024-01-01", "01/02/2024"], "string"),
        (["2024-13-01"], "string"),
        (["2024-01-01", "2024-01-01 00:00:00"], "string"),
        (["2024-01-01 00:00:00.1234567"], "string"),
        (["2024-01-01T00:00:00Z"], "timestamp_tz"),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"], "string"),
        (["10:00:00"], "time"),
        (["20240101"], "bigint"),
        (["", ""], "string"),
        (["nan", "1.5"], "string"),
    ],
)
def test_types_are_never_narrower_than_is_safe(
    tmp_path: Path, values: list[str], kind: str
) -> None:
    path = tmp_path / "f"
    path.write_text("".join(f"k|{value}\n" for value in values))
    assert types(path, "--no-header", "--delimiter", "|") == {
        "column_1": "string",
        "column_2": kind,
    }


def test_a_later_value_widens_its_column(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,n\n" + "".join(f"{i},{i}\n" for i in range(10_500)) + "x,1\n")
    assert types(path) == {"id": "string", "n": "bigint"}


def test_options_override_detection(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("n\u00e4me,b\n\u00fc,2\n".encode("latin-1"))
    refused = run("infer", str(path))
    assert (refused.exit_code, "set it with --encoding" in refused.output) == (
        BAD_INPUT,
        True,
    )
    assert '"b", type = "bigint"' in run("infer", str(path), "--encoding", "ISO-8859-1").stdout
    assert types(path, "--encoding", "ISO-8859-1", "--no-header") == {
        "column_1": "string",
        "column_2": "string",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has no rows"),
        (b"\n\n", "has no rows"),
        (b"a\0b\n\0" * 50, "contains zero bytes"),
        (b"PAR1 no", "cannot be read as parquet"),
        (None, "is not a file"),
    ],
)
def test_a_failed_inference_is_reported(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "f"
    if data is not None:
        path.write_bytes(data)
    result = run("infer", str(path))
    assert result.exit_code == BAD_INPUT
    assert message in result.output


def test_ragged_rows_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,name\n1,a\n2\n3,c\n")
    result = run("infer", str(path))
    assert "note: " in result.stderr
    assert "line 3: the row has 1 field instead of 2" in result.stderr
