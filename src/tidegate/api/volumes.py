"""What has passed a job's sources and sinks, in the words of the reference: bytes, and rows by table. All of it is committed. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.model.job import BlockKind
from tidegate.model.plan import Plan
from tidegate.model.records import PipelineState
from tidegate.model.volume import Tables, Volume, Volumes, together, total


def metrics(plan: Plan | None, volumes: Volumes, elapsed_ms: int) -> dict[str, Any]:
    """The keys with `Bytes`, and those with `Table` where there are several, for a job that has run so long. Of a single table the totals tell all."""
    seconds = max(elapsed_ms, 1) / 1000
    read, written = (_of_kind(plan, volumes, kind) for kind in (BlockKind.SOURCE, BlockKind.SINK))
    figures: dict[str, Any] = {}
    for name, tables in (("SourceReceived", read), ("SinkWrite", written), ("SinkCommitted", written)):
        figures |= {f"{name}{what}": text for what, text in _texts(total(tables), seconds).items() if what.startswith("Bytes")}
        if len(read.keys() | written.keys()) <= 1:
            continue
        by_table = {table: _texts(volume, seconds) for table, volume in tables.items()}
        figures |= {f"Table{name}{what}": {table: texts[what] for table, texts in by_table.items()} for what in _texts(Volume(), 1)}
    return figures


def byte_counts(plan: Plan | None, volumes: Volumes) -> tuple[int, int]:
    """Bytes that were read and written."""
    read, written = (total(_of_kind(plan, volumes, kind)).bytes for kind in (BlockKind.SOURCE, BlockKind.SINK))
    return read, written


def merged(pipelines: Iterable[PipelineState]) -> Volumes:
    """What all pipelines of a job have counted: an operator is in one of them only."""
    return {operator: tables for each in pipelines for operator, tables in each.volumes.items()}


def _of_kind(plan: Plan | None, volumes: Volumes, kind: BlockKind) -> Tables:
    operators = [action.operator for part in plan.pipelines for action in part.of_kind(kind)] if plan else []
    return together(volumes.get(operator, {}) for operator in operators)


def _texts(volume: Volume, seconds: float) -> Mapping[str, str]:
    return {
        "Count": str(volume.rows),
        "QPS": decimal(volume.rows / seconds),
        "Bytes": str(volume.bytes),
        "BytesPerSeconds": decimal(volume.bytes / seconds),
    }


def decimal(value: float) -> str:
    """Plain decimal text, never with an exponent."""
    return f"{value:.3f}".rstrip("0").rstrip(".") if value == value and abs(value) != float("inf") else "0"
