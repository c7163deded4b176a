"""Split a table or a query into ranges of one column.

Many tasks can read it then, and a killed read resumes at a range. Called in drivers.

A chunk is `low <= key < high`, None where it is open. The ranges do not overlap and cover all rows:
the first has no lower bound, the last no upper bound. The caller decides which range has the rows
with a null key. Evenly distributed numbers, dates and times are split by arithmetic, all other keys
at existing values.

Only the database compares keys, and always in one ordering: a boundary is selected with `order by
key`, and the next one is `key > boundary`, so that boundaries rise in the ordering in which the
ranges are read (Dialect.key_expression makes it the same in every connection). Python never
compares texts.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice, pairwise
from typing import Any, NamedTuple

from tidegate.databases.dialect import Dialect, is_number
from tidegate.databases.session import Session
from tidegate.databases.url import System
from tidegate.model.types import DataType, TypeName

WHOLE_NUMBERS = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
MOMENTS = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ)
Bound = Any
"""A bound of a range as JSON: number, text, {"number": "1.5"}, {"bytes": "0a"}; None if open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkStrategy:
    """How to split a table.

    `rows` is the estimated row count; a factor is the width of the key range divided by the rows.
    """

    rows_each: int
    rows: int
    factor_min: float = 0.05
    factor_max: float = 100.0
    sample_above: int = 1000
    sample_rate: int = 1000
    chunks_max: int = 2000


@dataclass(frozen=True, slots=True)
class Chunk:
    """One range and its estimated row count."""

    low: Bound
    high: Bound
    rows: int


@dataclass(frozen=True, slots=True)
class KeyScale:
    """Converts keys to whole numbers and back, to split them by arithmetic.

    `units` is the number of whole numbers in one unit of the key range's width.
    """

    number: Callable[[Any], int]
    bound: Callable[[int], Bound]
    units: int = 1


def splittable(kind: DataType) -> bool:
    """Whether a table can be split by a column of this type."""
    return kind.name in (
        *WHOLE_NUMBERS,
        *MOMENTS,
        TypeName.DECIMAL,
        TypeName.STRING,
        TypeName.DATE,
        TypeName.BYTES,
    )


def range_condition(dialect: Dialect, key: str, low: Bound, high: Bound, *, nulls: bool) -> str:
    """SQL condition for the rows of a range, with null keys if `nulls`; empty for all rows."""
    parts = [f"{key} >= {bound_literal(dialect, low)}"] if low is not None else []
    parts += [f"{key} < {bound_literal(dialect, high)}"] if high is not None else []
    if not parts:
        return "" if nulls else f"{key} is not null"
    text = " and ".join(parts)
    return f"({text} or {key} is null)" if nulls else f"({text})"


def bound_literal(dialect: Dialect, bound: Bound) -> str:
    """Write a bound as an SQL literal."""
    if isinstance(bound, dict):
        if "number" in bound:
            assert is_number(bound["number"]), "a number stored as text"
            return str(bound["number"])
        return dialect.bytes_literal(bytes.fromhex(bound["bytes"]))
    return dialect.literal(bound)


def as_bound(value: Any) -> Bound:
    """Convert a value from a database driver to a bound."""
    match value:
        case None | bool() | int() | str():
            return value
        case Decimal() | float():
            return (
                {"number": format(value, "f")}
                if isinstance(value, Decimal)
                else {"number": repr(value)}
            )
        case bytes() | bytearray() | memoryview():
            return {"bytes": bytes(value).hex()}
        case datetime.datetime():
            return value.isoformat(" ")
        case _:
            return str(value)


def split_into_chunks(
    session: Session, dialect: Dialect, relation: str, key: str, kind: DataType, how: ChunkStrategy
) -> list[Chunk]:
    """Split a relation (a quoted table, or a query in parentheses with an alias) by one column.

    `key` is the column's Dialect.key_expression.
    """
    if how.rows <= how.rows_each:
        return [Chunk(None, None, how.rows)]
    scale = key_scale(kind, dialect)
    if scale is not None:
        low, high = session.query(
            f"select {dialect.key_value(f'min({key})')}, {dialect.key_value(f'max({key})')} from"
            f" {relation}"
        )[0]
        if low is None:
            return [Chunk(None, None, how.rows)]
        found = _split_evenly(scale, low, high, how)
        if found:
            return found
    value = key if kind.name in WHOLE_NUMBERS else dialect.key_value(key)
    keys = KeyColumn(relation, key, value, lambda bound: bound_literal(dialect, bound))
    return _chunks_between(list(_boundary_keys(session, keys, how)), how)


class KeyColumn(NamedTuple):
    """The column to split by.

    `key` is the expression to compare, `value` the one to select, `constant` writes a bound to
    compare with, and `only` restricts the keys that can be boundaries.
    """

    relation: str
    key: str
    value: str
    constant: Callable[[Bound], str]
    only: str = ""


def key_scale(kind: DataType, dialect: Dialect) -> KeyScale | None:
    """The scale for keys of a type; None if they cannot be split by arithmetic."""
    if kind.name in WHOLE_NUMBERS:
        return KeyScale(int, int)
    # SQLite compares decimals as texts.
    if kind.name is TypeName.DECIMAL and dialect.system is not System.SQLITE:
        return KeyScale(
            lambda v: int(Decimal(v).scaleb(kind.scale)),
            lambda n: as_bound(Decimal(n).scaleb(-kind.scale)),
            10**kind.scale,
        )
    if kind.name is TypeName.DATE:
        return KeyScale(
            lambda v: _date(v).toordinal(), lambda n: datetime.date.fromordinal(n).isoformat()
        )
    if kind.name in MOMENTS:
        zone = (
            datetime.UTC
            if kind.name is TypeName.TIMESTAMP_TZ and dialect.system is System.POSTGRES
            else None
        )
        begin = datetime.datetime(1970, 1, 1, tzinfo=zone)
        return KeyScale(
            lambda v: (_moment(v, zone) - begin) // datetime.timedelta(seconds=1),
            lambda n: (begin + datetime.timedelta(seconds=n)).isoformat(" "),
        )
    return None


def _date(value: Any) -> datetime.date:
    return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)


def _moment(value: Any, zone: datetime.tzinfo | None) -> datetime.datetime:
    found = (
        value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
    )
    return found if (found.tzinfo is None) == (zone is None) else found.replace(tzinfo=zone)


def _split_evenly(scale: KeyScale, low: Any, high: Any, how: ChunkStrategy) -> list[Chunk]:
    """Ranges of the same width; empty if keys are not evenly distributed or not finite.

    Zero dates and infinity cannot be converted to numbers.
    """
    try:
        first, last = scale.number(low), scale.number(high)
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        return []
    factor = ((last - first) / scale.units + 1) / how.rows
    if not how.factor_min <= factor <= how.factor_max:
        return []
    return [
        Chunk(_bound(scale, chunk.low), _bound(scale, chunk.high), chunk.rows)
        for chunk in even_chunks(first, last, how)
    ]


def _bound(scale: KeyScale, number: int | None) -> Bound:
    return None if number is None else scale.bound(number)


def even_chunks(low: int, high: int, how: ChunkStrategy) -> Iterator[Chunk]:
    """Ranges of the same width."""
    count = min(how.chunks_max, -(-how.rows // how.rows_each), high - low + 1)
    edges = sorted({low + (high - low + 1) * i // count for i in range(1, count)} - {low})
    yield from _chunks_between(edges, how)


def _chunks_between(edges: Sequence[Bound], how: ChunkStrategy) -> list[Chunk]:
    rows = -(-how.rows // (len(edges) + 1))
    return [Chunk(low, high, rows) for low, high in pairwise([None, *edges, None])]


def _boundary_keys(session: Session, keys: KeyColumn, how: ChunkStrategy) -> Iterator[Bound]:
    """Existing keys at about equal distances.

    Walks the index step by step, or samples every n-th row of a large table in one query.
    """
    each = max(how.rows_each, -(-how.rows // how.chunks_max))
    if how.rows // how.rows_each >= how.sample_above:
        yield from _sampled(session, keys, each, how)
    else:
        yield from islice(walk_keys(session, keys, each, ahead=each), how.chunks_max)


def walk_keys(
    session: Session, keys: KeyColumn, each: int, *, ahead: int, after: Bound = None
) -> Iterator[Bound]:
    """Yield the key `ahead` rows above `after`, then every `each`-th key, by the index.

    Duplicate keys count as one step.
    """
    last = after
    while True:
        parts = [
            f"{keys.key} is not null",
            *([keys.only] if keys.only else []),
            *([f"{keys.key} > {keys.constant(last)}"] if last is not None else []),
        ]
        # `as edge`: if the selected expression had the key's name, PostgreSQL would order by the
        # expression, which may be a text.
        sql = (
            f"select {keys.value} as edge from {keys.relation} where {' and '.join(parts)} order by"
            f" {keys.key} limit 1 offset {ahead}"
        )
        found = session.query(sql)
        if not found or as_bound(found[0][0]) == last:  # a rounded value can be its own successor
            return
        last, ahead = as_bound(found[0][0]), each - 1
        yield last


def _sampled(session: Session, keys: KeyColumn, each: int, how: ChunkStrategy) -> Iterator[Bound]:
    relation, key, value = keys.relation, keys.key, keys.value
    step = max(1, min(each, how.sample_rate))
    numbered = (
        f"select {value} as edge, row_number() over (order by {key}) as n from {relation} where"
        f" {key} is not null"
    )
    sample = [
        as_bound(found)
        for (found,) in session.query(
            f"select edge from ({numbered}) s where n % {step} = 0 order by n"
        )
    ]
    last: Bound = None
    for bound in sample[:: max(1, each // step)]:
        if bound != last:
            yield bound
        last = bound
