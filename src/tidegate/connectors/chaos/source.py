"""The Chaos source: rows (id bigint, payload string) numbered from 0, with injected faults.

Called by the engine through plugin.contract. The offset is `{"at": rows read}`. Rows depend only on
their number, so that a repeated read returns the same rows after any fault.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.connectors.chaos import external
from tidegate.connectors.chaos.faults import FaultInjector
from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import (
    Limit,
    LogRetention,
    Offset,
    OperatorContext,
    Progress,
    Resource,
    ResourceRegistry,
    Source,
    Split,
)
from tidegate.plugin.option import Values

TABLE = Table(
    path="chaos",
    columns=(
        Column(name="id", type=DataType(TypeName.BIGINT), nullable=False),
        Column(name="payload", type=DataType(TypeName.STRING)),
    ),
    primary_key=("id",),
)
_BATCH_ROWS_MAX = 65_536
_SPLIT_ROWS_MIN = 100


class ChaosSource(Source):
    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self._since: tuple[int, float] | None = None  # offset and time of the first `latest`
        self._has_more = False  # whether the limit left rows that had arrived
        self._attempts = 0
        self._driver_token = secrets.token_hex(4)  # another driver is another attempt
        self._registry: ResourceRegistry | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_registry": None}

    def attach_resources(self, registry: ResourceRegistry) -> None:
        self._registry = registry

    def tables(self) -> tuple[Table, ...]:
        return (TABLE,)

    def initial(self) -> Offset:
        """Start at 0, and create the external resources.

        The slot is known from the options; the table is recorded here before it is created.
        """
        if self.values["outside.path"]:
            external.create(external.SLOT, self.values["outside.slot"], self.values["outside.path"])
            table = Resource(
                kind=external.TABLE,
                name=f"{self.values['outside.slot']}_{self.context.job_id}",
                location=self.values["outside.path"],
            )
            if self._registry is not None:
                self._registry.record(table)
            external.create(external.TABLE, table.name, table.location)
        return {"at": 0}

    def latest(self, start: Offset, limit: Limit) -> Offset:
        at: int = start["at"]
        end = available = min(self.values["row.num"], self._arrived(at))
        if limit.rows is not None:
            end = min(end, at + max(1, limit.rows))
        if limit.bytes is not None:
            end = min(end, at + max(1, limit.bytes // (16 + self.values["payload.length"])))
        self._has_more = end < available
        return {"at": max(at, end)}

    def _arrived(self, at: int) -> int:
        rate = self.values["rate"]
        if rate is None:
            return 1 << 62
        if self._since is None:
            self._since = (at, time.monotonic())
        first, since_s = self._since
        due = first + 1 + int((time.monotonic() - since_s) * rate)
        return max(due, at + 1) if self.bounded else due

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        first, last = start["at"], end["at"]
        if last <= first:
            return []
        self._attempts += 1
        parts = max(1, min(count, (last - first) // _SPLIT_ROWS_MIN))
        edges = [first + (last - first) * part // parts for part in range(parts + 1)]
        attempt = f"{self._driver_token}.{self._attempts}"
        return [
            Split(TABLE.path, {"first": a, "last": b, "attempt": attempt}, b - a)
            for a, b in pairwise(edges)
        ]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read the rows in a task, with faults after half of them: sinks see torn tasks."""
        first, last = split.payload["first"], split.payload["last"]
        middle = (first + last) // 2
        yield from self._rows(first, middle)
        FaultInjector.of(self.values).inject("read", first, split.payload["attempt"])
        yield from self._rows(middle, last)

    def _rows(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        schema = table_schema(TABLE)
        length = self.values["payload.length"]
        for at in range(first, last, _BATCH_ROWS_MAX):
            ids = np.arange(at, min(last, at + _BATCH_ROWS_MAX), dtype=np.int64)
            payload: list[Any] = [f"{n:x}".rjust(length, "p")[:length] for n in ids.tolist()]
            yield pa.RecordBatch.from_arrays(
                [pa.array(ids), pa.array(payload, type=pa.string())], schema=schema
            )

    def has_backlog(self, offset: Offset) -> bool:  # noqa: ARG002  # known from `latest`
        """Whether the limit left rows that had arrived."""
        return self._has_more

    def is_exhausted(self, offset: Offset) -> bool:
        return bool(self.bounded and offset["at"] >= self.values["row.num"])

    def log_retention(
        self,
        offset: Offset,  # noqa: ARG002  # the simulated server reports it for all offsets
    ) -> LogRetention:
        """Read the retention that the simulated server reports."""
        return (
            external.log_retention(self.values["outside.path"])
            if self.values["outside.path"]
            else LogRetention(True)
        )

    def progress(self, offset: Offset) -> Progress:
        return Progress(offset["at"], self.values["row.num"], "rows")
