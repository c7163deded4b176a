"""Reads the options of column transforms and constructs the transforms."""

from typing import Any

from tidegate.connectors.columns.options import CONNECTORS
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import Column, Table, parse_type
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.option import Block, Values

CONTEXT = OperatorContext(
    job_id=1, job_name="j", pipeline=1, operator="t", mode=JobMode.BATCH, parallelism=1
)
BY_NAME = {c.name: c for c in CONNECTORS}
TABLE = Table(
    path="db.t",
    columns=tuple(
        Column(name=n, type=parse_type(k))
        for n, k in {"id": "bigint", "name": "string", "d": "double", "row_kind": "string"}.items()
    ),
    primary_key=("id",),
    partition_keys=("name",),
)


def read(name: str, options: dict[str, Any]) -> tuple[Values, list[str]]:
    connector = BY_NAME[name]
    block = Block(options, lambda _: Location("job.conf", 1), "transform[0]")
    values, problems = connector.options.read(block)
    assert connector.check is not None
    found = [*problems, *connector.check(block, values)]
    return values, [p.message + (f" -> {p.suggestion}" if p.suggestion else "") for p in found]


def made(name: str, **options: Any) -> Any:
    values, problems = read(name, options)
    assert problems == []
    return BY_NAME[name].load()(values, CONTEXT)
