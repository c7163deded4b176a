"""Helpers for tests of bad rows: read rows of files, or return the error."""

from pathlib import Path
from typing import Any

import pytest

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
    values, problems = SOURCE_OPTIONS.read(
        Block(given, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    context = OperatorContext(
        job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
    )
    source = LocalFileSource(values, context)
    source.piece_bytes_min = 1
    return source


def read(
    path: Path, form: str, schema: Any, splits: int = 1, **options: Any
) -> list[dict[str, Any]]:
    source = make(path, form, schema, **options)
    start = source.initial()
    end = source.latest(start, Limit())
    return [
        row
        for split in source.splits(start, end, splits)
        for batch in source.read(split)
        for row in batch.to_pylist()
    ]


def error(path: Path, form: str, schema: Any, splits: int = 1, **options: Any) -> str:
    with pytest.raises(BadFile) as raised:
        read(path, form, schema, splits, **options)
    text = str(raised.value)
    assert text.startswith(f"{raised.value.path}: ")
    return text.removeprefix(f"{raised.value.path}: ").partition(". Repair it and restart")[0]
