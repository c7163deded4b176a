"""A table or a query cut into ranges of one column, so that many tasks can read it and a killed read goes on at a range. Called in drivers.

A chunk is (low, high]-like: `low <= column < high`, None where it is open. The ranges do not overlap and leave no row out: the first has no lower end, the
last no upper one, and rows without a value are in the first. Numbers that are spread evenly are cut by arithmetic; everything else at values that are there.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from tidegate.databases.dialect import Dialect, is_number
from tidegate.databases.session import Session
from tidegate.model.types import DataType, TypeName

WHOLE_NUMBERS = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
Bound = Any
"""An end of a range as JSON: a number, a text, {"number": "1.5"}, {"bytes": "0a"}, or None where it is open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How a table is to be cut. `rows` is about how many it has; a factor is the width of the keys divided by the rows."""

    rows_each: int
    rows: int
    factor_min: float = 0.05
    factor_max: float = 100.0
    sample_above: int = 1000
    sample_rate: int = 1000
    chunks_max: int = 2000


@dataclass(frozen=True, slots=True)
class Chunk:
    """One range and about how many rows it has."""

    low: Bound
    high: Bound
    rows: int


def splittable(kind: DataType) -> bool:
    """Whether ranges of such a column can be asked for."""
    return kind.name in (*WHOLE_NUMBERS, TypeName.DECIMAL, TypeName.STRING, TypeName.DATE, TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ, TypeName.BYTES)


def condition(dialect: Dialect, column: str, low: Bound, high: Bound, *, nulls: bool) -> str:
    """The rows of a range, as a condition; `nulls` where rows without a value belong to it too. Empty for all rows."""
    name = dialect.quote(column)
    parts = [f"{name} >= {bound_literal(dialect, low)}"] if low is not None else []
    parts += [f"{name} < {bound_literal(dialect, high)}"] if high is not None else []
    if not parts:
        return ""
    text = " and ".join(parts)
    return f"({text} or {name} is null)" if nulls else f"({text})"


def bound_literal(dialect: Dialect, bound: Bound) -> str:
    """An end of a range in a statement."""
    if isinstance(bound, dict):
        if "number" in bound:
            assert is_number(bound["number"]), "a number that was kept as text"
            return str(bound["number"])
        return dialect.bytes_literal(bytes.fromhex(bound["bytes"]))
    return dialect.literal(bound)


def as_bound(value: Any) -> Bound:
    """A value of a driver as an end of a range."""
    match value:
        case None | bool() | int() | str():
            return value
        case Decimal() | float():
            return {"number": str(value)}
        case bytes() | bytearray() | memoryview():
            return {"bytes": bytes(value).hex()}
        case datetime.datetime():
            return value.isoformat(" ")
        case _:
            return str(value)


def cut(session: Session, dialect: Dialect, relation: str, column: str, kind: DataType, how: Cut) -> list[Chunk]:
    """The chunks of a relation (a quoted table, or a query in brackets with a name), by one column."""
    if how.rows <= how.rows_each:
        return [Chunk(None, None, how.rows)]
    name = dialect.quote(column)
    if kind.name in WHOLE_NUMBERS:
        low, high = session.query(f"select min({name}), max({name}) from {relation}")[0]
        if low is None:
            return [Chunk(None, None, how.rows)]
        factor = (int(high) - int(low) + 1) / how.rows
        if how.factor_min <= factor <= how.factor_max:
            return list(even(int(low), int(high), how))
    return _between([as_bound(value) for value in _cutting_values(session, relation, name, how)], how)


def even(low: int, high: int, how: Cut) -> Iterator[Chunk]:
    """Ranges of the same width."""
    count = min(how.chunks_max, -(-how.rows // how.rows_each), high - low + 1)
    edges = sorted({low + (high - low + 1) * i // count for i in range(1, count)} - {low})
    yield from _between(edges, how)


def _between(edges: Sequence[Bound], how: Cut) -> list[Chunk]:
    rows = -(-how.rows // (len(edges) + 1))
    return [Chunk(low, high, rows) for low, high in pairwise([None, *edges, None])]


def _cutting_values(session: Session, relation: str, name: str, how: Cut) -> Iterator[Any]:
    """Values at about equal distances: by walking the index step by step, or by one look at every so manieth row of a large table."""
    each = max(how.rows_each, -(-how.rows // how.chunks_max))
    if how.rows // how.rows_each >= how.sample_above:
        yield from _sampled(session, relation, name, each, how)
        return
    last: Any = None
    for _ in range(how.chunks_max):
        where, given = (f"where {name} >= %s", (last,)) if last is not None else (f"where {name} is not null", ())
        found = session.query(f"select {name} from {relation} {where} order by {name} limit 1 offset {each}", given)
        if not found:
            return
        if found[0][0] == last:  # more rows with one value than a chunk holds
            found = session.query(f"select min({name}) from {relation} where {name} > %s", (last,))
            if found[0][0] is None:
                return
        last = found[0][0]
        yield last


def _sampled(session: Session, relation: str, name: str, each: int, how: Cut) -> Iterator[Any]:
    step = max(1, min(each, how.sample_rate))
    numbered = f"select {name} as k, row_number() over (order by {name}) as n from {relation} where {name} is not null"
    sample = [value for (value,) in session.query(f"select k from ({numbered}) s where n % {step} = 0 order by k")]
    last: Any = None
    for value in sample[:: max(1, each // step)]:
        if last is None or value != last:
            yield value
        last = value
