"""Committed bytes, and rows by table, of a job's sources and sinks, with SeaTunnel's keys. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidegate.model.job import BlockKind
from tidegate.model.plan import PipelinePlan, Plan
from tidegate.model.records import PipelineState
from tidegate.model.throughput import (
    PipelineRates,
    Rate,
    Tables,
    Volume,
    Volumes,
    merge_tables,
    total_volume,
)


def metrics(plan: Plan | None, volumes: Volumes, rates: PipelineRates | None) -> dict[str, Any]:
    """Return the `...Bytes...` keys, and the `Table...` keys if there are several tables."""
    speed = rates.operators if rates else {}
    read, written = (_of_kind(plan, volumes, kind) for kind in (BlockKind.SOURCE, BlockKind.SINK))
    read_rates, written_rates = (
        _rates_of_kind(plan, speed, kind) for kind in (BlockKind.SOURCE, BlockKind.SINK)
    )
    figures: dict[str, Any] = {}
    for name, tables, fast in (
        ("SourceReceived", read, read_rates),
        ("SinkWrite", written, written_rates),
        ("SinkCommitted", written, written_rates),
    ):
        whole = _texts(total_volume(tables), sum(fast.values(), Rate()))
        figures |= {
            f"{name}{what}": text for what, text in whole.items() if what.startswith("Bytes")
        }
        if len(read.keys() | written.keys()) <= 1:
            continue
        by_table = {
            table: _texts(volume, fast.get(table, Rate())) for table, volume in tables.items()
        }
        figures |= {
            f"Table{name}{what}": {table: texts[what] for table, texts in by_table.items()}
            for what in _texts(Volume(), Rate())
        }
    return figures


def byte_counts(plan: Plan | None, volumes: Volumes) -> tuple[int, int]:
    """Return the bytes read and the bytes written."""
    read, written = (
        total_volume(_of_kind(plan, volumes, kind)).bytes
        for kind in (BlockKind.SOURCE, BlockKind.SINK)
    )
    return read, written


def with_zeros(
    parts: Sequence[PipelinePlan], volumes: Volumes, rows_read: int, rows_written: int
) -> Volumes:
    """Add zeros for sources and sinks through which nothing has passed.

    Only if all rows are accounted for: otherwise it is unknown what has passed the others.
    """
    result = dict(volumes)
    for kind, rows in ((BlockKind.SOURCE, rows_read), (BlockKind.SINK, rows_written)):
        operators = [action.operator for part in parts for action in part.of_kind(kind)]
        if sum(total_volume(volumes.get(operator, {})).rows for operator in operators) == rows:
            result |= {operator: {} for operator in operators if operator not in volumes}
    return result


def merged(pipelines: Iterable[PipelineState]) -> Volumes:
    """Merge the volumes of all pipelines of a job: an operator is in one of them only."""
    return {operator: tables for each in pipelines for operator, tables in each.volumes.items()}


def byte_rates(plan: Plan | None, rates: PipelineRates) -> tuple[float, float]:
    """Return the bytes read and written per second."""
    read, written = (
        sum(_rates_of_kind(plan, rates.operators, kind).values(), Rate()).bytes
        for kind in (BlockKind.SOURCE, BlockKind.SINK)
    )
    return read, written


def _of_kind(plan: Plan | None, volumes: Volumes, kind: BlockKind) -> Tables:
    return merge_tables(volumes.get(operator, {}) for operator in _operators(plan, kind))


def _rates_of_kind(
    plan: Plan | None, rates: Mapping[str, Mapping[str, Rate]], kind: BlockKind
) -> Mapping[str, Rate]:
    result: dict[str, Rate] = {}
    for operator in _operators(plan, kind):
        for table, rate in rates.get(operator, {}).items():
            result[table] = result.get(table, Rate()) + rate
    return result


def _operators(plan: Plan | None, kind: BlockKind) -> list[str]:
    return (
        [action.operator for part in plan.pipelines for action in part.of_kind(kind)]
        if plan
        else []
    )


def _texts(volume: Volume, rate: Rate) -> Mapping[str, str]:
    return {
        "Count": str(volume.rows),
        "QPS": decimal(rate.rows),
        "Bytes": str(volume.bytes),
        "BytesPerSeconds": decimal(rate.bytes),
    }


def decimal(value: float) -> str:
    """Format a number as plain decimal text, never with an exponent."""
    if not math.isfinite(value):
        return "0"
    return f"{value:.3f}".rstrip("0").rstrip(".")
