"""FakeSource: rows by number.

Called by the engine through plugin.contract. The offset is `{"seed", "now", "at": {table: rows}}`;
the first two are set once, in `initial`. Rows are arranged in rounds, one split (`split.num`) of
every reader each, so that `split.read-interval` is a pause between rounds. With limited or endless
batches, only the rounds that are due are admitted; in a single unlimited batch the tasks wait.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tidegate.connectors.fake.generate import Generator, current
from tidegate.connectors.fake.settings import TableSettings, read_settings, row_kind
from tidegate.model.job import JobMode
from tidegate.model.types import ROW_KIND, DataType, Table, TypeName
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Limit, Offset, OperatorContext, Progress, Source, Split
from tidegate.plugin.literal import row_literal
from tidegate.plugin.option import Values

_BATCH_ROWS_MAX = 65_536
_BATCH_BYTES_MAX = 8 << 20
_SPLIT_ROWS_MIN = 1_000
_PAUSE_S_MIN = 0.01  # the default of 1 ms means: no pause
_WIDTHS = {
    TypeName.BOOLEAN: 1,
    TypeName.TINYINT: 1,
    TypeName.SMALLINT: 2,
    TypeName.INT: 4,
    TypeName.FLOAT: 4,
    TypeName.DATE: 4,
    TypeName.NULL: 0,
    TypeName.DECIMAL: 16,
}


class FakeSource(Source):
    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self._schedule: _RoundSchedule | None = None
        self._waits = False  # whether the tasks wait between rounds
        self._has_more = False  # whether the limit left rows that were due

    def __getstate__(self) -> dict[str, Any]:
        return {
            "values": self.values,
            "context": self.context,
            "_schedule": None,
            "_waits": False,
            "_has_more": False,
        }

    @cached_property
    def _settings(self) -> dict[str, TableSettings]:
        return {s.table.path: s for s in read_settings(self.values)}

    def tables(self) -> tuple[Table, ...]:
        return tuple(s.table for s in self._settings.values())

    def initial(self) -> Offset:
        """Draw the seed, and the time for CURRENT_DATE and the year of dates."""
        seed = self.values["seed"] if self.values["seed"] is not None else secrets.randbits(53)
        # Called once per lineage and stored in the offset: a repeated read uses the same time.
        now = datetime.now(UTC).replace(tzinfo=None)  # noqa: TID251  # CURRENT_DATE is wall clock
        return {
            "seed": seed,
            "now": now.isoformat(timespec="microseconds"),
            "at": dict.fromkeys(self._settings, 0),
        }

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """Admit as many rows as the limit and the interval allow, table by table."""
        unlimited = limit.rows is None and limit.bytes is None
        self._waits = unlimited and self.context.mode is JobMode.BATCH
        rounds_due = None if self._waits else self._rounds_due(start)
        at: dict[str, int] = dict(start["at"])
        budget = _Budget(limit)
        self._has_more = False
        for path, settings in self._settings.items():
            done = at.get(path, 0)
            end = self._total(settings)
            if rounds_due is not None:
                end = min(end, rounds_due[path] * self._round(settings))
            at[path] = done + budget.take(max(0, end - done), _row_bytes(settings))
            self._has_more = self._has_more or at[path] < end
        return {**start, "at": at}

    def _rounds_due(self, start: Offset) -> dict[str, int]:
        if self._schedule is None:
            begun = {p: start["at"].get(p, 0) // self._round(s) for p, s in self._settings.items()}
            self._schedule = _RoundSchedule(begun, self._interval_s(), time.monotonic())
        due = self._schedule.due(time.monotonic())
        if self.bounded:  # a bounded source always makes progress
            due = {
                p: max(n, start["at"].get(p, 0) // self._round(self._settings[p]) + 1)
                for p, n in due.items()
            }
        return due

    def _interval_s(self) -> float:
        """The shortest interval of all tables, as in SeaTunnel."""
        return min(int(s.values["split.read-interval"]) for s in self._settings.values()) / 1000

    def _total(self, settings: TableSettings) -> int:
        return settings.rows_each() * self.context.parallelism

    def _round(self, settings: TableSettings) -> int:
        return settings.rows_per_split() * self.context.parallelism

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """Ranges of row numbers; fixed rows of a table are one split, as their order may matter."""
        found: list[Split] = []
        for path, settings in self._settings.items():
            first, last = start["at"].get(path, 0), end["at"].get(path, 0)
            if last <= first:
                continue
            whole = {"seed": start["seed"], "now": start["now"], "first": first, "last": last}
            if settings.rows is not None:
                found.append(Split(path, whole, last - first))
            elif (
                self._waits
                and self._interval_s() >= _PAUSE_S_MIN
                and last - first > self._round(settings)
            ):
                lanes = self.context.parallelism
                found += [
                    Split(
                        path,
                        {**whole, "lane": lane, "pause_s": self._interval_s()},
                        (last - first) // lanes,
                    )
                    for lane in range(lanes)
                ]
            else:
                found += _cut(path, whole, count)
        return found

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Generate, in a task, the rows of a range, or of one reader with its pauses."""
        settings, plan = self._settings[split.table], split.payload
        schema = table_schema(settings.table)
        now = datetime.fromisoformat(plan["now"])
        if settings.rows is not None:
            yield _fixed(settings, plan["first"], plan["last"], now, schema)
            return
        generator = Generator(settings, plan["seed"], now)
        step = max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES_MAX // _row_bytes(settings)))
        for index, (first, last) in enumerate(self._ranges(settings, plan)):
            if index and "pause_s" in plan:
                time.sleep(plan["pause_s"])
            for at in range(first, last, step):
                yield generator.batch(at, min(step, last - at), schema)

    def _ranges(self, settings: TableSettings, plan: Any) -> Iterator[tuple[int, int]]:
        if "lane" not in plan:
            yield plan["first"], plan["last"]
            return
        size, piece = self._round(settings), settings.rows_per_split()
        for start in range(plan["first"] // size * size, plan["last"], size):
            first, last = start + plan["lane"] * piece, start + (plan["lane"] + 1) * piece
            first, last = max(first, plan["first"]), min(last, plan["last"])
            if first < last:
                yield first, last

    def is_exhausted(self, offset: Offset) -> bool:
        return self.bounded and all(
            offset["at"].get(p, 0) >= self._total(s) for p, s in self._settings.items()
        )

    def has_backlog(self, offset: Offset) -> bool:  # noqa: ARG002  # known from `latest`
        """Whether the limit left rows that were due."""
        return self._has_more

    def progress(self, offset: Offset) -> Progress:
        done = sum(min(offset["at"].get(p, 0), self._total(s)) for p, s in self._settings.items())
        return Progress(done, sum(map(self._total, self._settings.values())), "rows")


class _RoundSchedule:
    """Counts the rounds of each table that are due: one immediately, then one per interval."""

    def __init__(self, begun: dict[str, int], interval_s: float, now_s: float) -> None:
        self._begun = begun
        self._interval_s = interval_s
        self._since_s = now_s

    def due(self, now_s: float) -> dict[str, int]:
        passed = (
            int((now_s - self._since_s) / self._interval_s)
            if self._interval_s >= _PAUSE_S_MIN
            else 1 << 62
        )
        return {path: rounds + 1 + passed for path, rounds in self._begun.items()}


class _Budget:
    """The rest of a limit; one row is always granted, so that a source makes progress."""

    def __init__(self, limit: Limit) -> None:
        self._rows = limit.rows
        self._bytes = limit.bytes
        self._taken = 0

    def take(self, rows: int, row_bytes: int) -> int:
        if self._rows is not None:
            rows = min(rows, max(self._rows, 1 - self._taken))
        if self._bytes is not None:
            rows = min(rows, max(self._bytes // row_bytes, 1 - self._taken))
        rows = max(rows, 0)
        if self._rows is not None:
            self._rows -= rows
        if self._bytes is not None:
            self._bytes -= rows * row_bytes
        self._taken += rows
        return rows


def _cut(path: str, whole: dict[str, Any], count: int) -> list[Split]:
    first, last = whole["first"], whole["last"]
    parts = max(1, min(count, (last - first) // _SPLIT_ROWS_MIN))
    edges = [first + (last - first) * part // parts for part in range(parts + 1)]
    return [Split(path, {**whole, "first": a, "last": b}, b - a) for a, b in pairwise(edges)]


def _fixed(
    settings: TableSettings, first: int, last: int, now: datetime, schema: pa.Schema
) -> pa.RecordBatch:
    """Repeat the fixed rows for every reader."""
    assert settings.rows is not None
    table = settings.table
    made = []
    for row in settings.rows:
        values = row_literal(table.columns, _dated(table, row["fields"], now))
        made.append({**values, ROW_KIND: row_kind(row).code} if table.kinds else values)
    chosen = [made[n % len(made)] for n in range(first, last)]
    return pa.RecordBatch.from_pylist(chosen, schema=schema)


def _dated(table: Table, fields: Any, now: datetime) -> Any:
    if isinstance(fields, list):
        return [current(c.type, raw, now) for c, raw in zip(table.columns, fields, strict=False)]
    named: dict[str, DataType] = {c.name: c.type for c in table.columns}
    return {k: current(named[k], raw, now) if k in named else raw for k, raw in fields.items()}


def _row_bytes(settings: TableSettings) -> int:
    """The approximate size of a row in bytes."""
    return 1 + sum(
        _width(c.type, settings, settings.lengths.get(c.name)) for c in settings.table.columns
    )


def _width(kind: DataType, settings: TableSettings, length: int | None) -> int:
    values = settings.values
    match kind.name:
        case TypeName.STRING:
            return 4 + (length or int(values["string.length"]))
        case TypeName.BYTES:
            return 4 + int(values["bytes.length"])
        case TypeName.ARRAY:
            return 4 + int(values["array.size"]) * _width(kind.children[0], settings, length)
        case TypeName.MAP:
            return 4 + int(values["map.size"]) * sum(
                _width(k, settings, length) for k in kind.children
            )
        case TypeName.ROW:
            return sum(_width(c.type, settings, length) for c in kind.columns)
        case name if name.value.endswith("_vector"):
            return 4 + 8 * int(values["vector.dimension"])
        case name:
            return _WIDTHS.get(name, 8)
