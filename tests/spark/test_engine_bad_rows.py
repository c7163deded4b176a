"""Bad rows of files: the same error fused and as DataFrame, with file, line and column."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyarrow import table as arrow_table

from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.spark.engine import SparkEngine
from tidegate.testing.in_process import Shared, run_in_process
from tidegate.testing.plain_engine import PlainEngine

FIELDS = {"id": "int", "amount": "decimal(10,2)"}
CASES: list[tuple[str, str | bytes | None, dict[str, Any], str]] = [
    (
        "csv",
        "key;label\n1;2\n",
        {"csv_use_header_line": True},
        "line 1: the header has no column 'id', 'amount'",
    ),
    (
        "csv",
        "1,1.23456\n2,x\n",
        {},
        "line 1: column amount: '1.23456' has more decimal places than decimal(10,2)",
    ),
    ("csv", '1,1\n2,"3\n4,5\n', {}, 'line 2: quote: the quote " is not closed'),
    ("csv", "1,1\n2\n", {}, "line 2: the row has 1 field instead of 2"),
    ("csv", "id,amount\n".encode("utf-16"), {}, 'set encoding = "UTF-16LE"'),
    ("json", '{"id":1,"amount":1}\n{"id":2}\n', {}, "line 2: column amount: the key is missing"),
    ("parquet", None, {}, "row 2: column id: '1099511627776' (int64) does not fit into int"),
]


def failed(tmp_path: Path, job: dict[str, Any], engine: Any, name: str) -> str:
    file = tmp_path / f"{name}.conf"
    file.write_text(json.dumps(job))
    outcome = run_in_process(str(file), Home(tmp_path / name), engine).outcome
    assert outcome.status is JobStatus.FAILED
    return outcome.failures[-1].message


@pytest.mark.parametrize(("form", "data", "options", "message"), CASES)
def test_fused_and_dataframe_batches_fail_with_the_same_error(
    engine: SparkEngine,
    tmp_path: Path,
    form: str,
    data: str | bytes | None,
    options: dict[str, Any],
    message: str,
) -> None:
    path = tmp_path / "data"
    if data is None:
        parquet.write_table(arrow_table({"id": [1, 2**40], "amount": [1, 2]}), path)
    else:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    job: dict[str, Any] = {
        "env": {"job.mode": "BATCH", "job.retry.times": 0},
        "source": [
            {
                "plugin_name": "LocalFile",
                "path": str(path),
                "file_format_type": form,
                "schema": {"fields": FIELDS},
                **options,
            }
        ],
        "sink": [{"plugin_name": "Console", "log.print.data": False}],
    }
    texts = [
        failed(tmp_path, job, PlainEngine(), "plain"),
        failed(tmp_path, job, Shared(engine), "fused"),
    ]
    job["transform"] = [{"plugin_name": "Sql", "query": "select id, amount from dual"}]
    texts.append(failed(tmp_path, job, Shared(engine), "frame"))
    assert message in texts[0]
    assert texts[0].startswith(f"batch 1: {path}: ")
    assert texts == [texts[0]] * 3
