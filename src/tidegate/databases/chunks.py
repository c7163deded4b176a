"""A table or a query cut into ranges of one column, so that many tasks can read it and a killed
read goes on at a range. Called in drivers.

A chunk is `low <= key < high`, None where it is open. The ranges do not overlap and leave no row
out: the first has no lower end, the last no upper one. Rows without a value belong to whoever says
so. Numbers, days and times that are spread evenly are cut by arithmetic, everything else at values
that are there.

Only the database compares keys, and always in one ordering: an edge is asked for with `order by
key`, and the next one is `key > edge`, so that the edges rise in the ordering in which the ranges
are read (Dialect.key_expression sees to it that it is the same in every connection). Python
compares no texts.
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
"""An end of a range as JSON: a number, a text, {"number": "1.5"}, {"bytes": "0a"}, or None where it
is open.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkStrategy:
    """How a table is to be cut.

    `rows` is about how many it has; a factor is the width of the keys divided by the rows.
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
    """One range and about how many rows it has."""

    low: Bound
    high: Bound
    rows: int


@dataclass(frozen=True, slots=True)
class KeyScale:
    """Keys as whole numbers and back: how they can be cut by arithmetic.

    `units` is how many of them make up one in the width of the keys.
    """

    number: Callable[[Any], int]
    bound: Callable[[int], Bound]
    units: int = 1


def splittable(kind: DataType) -> bool:
    """Whether ranges of such a column can be asked for."""
    return kind.name in (
        *WHOLE_NUMBERS,
        *MOMENTS,
        TypeName.DECIMAL,
        TypeName.STRING,
        TypeName.DATE,
        TypeName.BYTES,
    )


def range_condition(dialect: Dialect, key: str, low: Bound, high: Bound, *, nulls: bool) -> str:
    """The rows of a range, as a condition; `nulls` where rows without a value belong to it too.
    Empty for all rows.
    """
    parts = [f"{key} >= {bound_literal(dialect, low)}"] if low is not None else []
    parts += [f"{key} < {bound_literal(dialect, high)}"] if high is not None else []
    if not parts:
        return "" if nulls else f"{key} is not null"
    text = " and ".join(parts)
    return f"({text} or {key} is null)" if nulls else f"({text})"


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
    """The chunks of a relation (a quoted table, or a query in brackets with a name), by one column:
    `key` is its Dialect.key_expression.
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
    """Where keys are, how they are compared, what to select of them, how an end of a range is
    written beside them, and which of them may be one.
    """

    relation: str
    key: str
    value: str
    constant: Callable[[Bound], str]
    only: str = ""


def key_scale(kind: DataType, dialect: Dialect) -> KeyScale | None:
    """How keys of a type are numbers; None where they are not."""
    if kind.name in WHOLE_NUMBERS:
        return KeyScale(int, int)
    if (
        kind.name is TypeName.DECIMAL and dialect.system is not System.SQLITE
    ):  # which compares them as texts
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
    """Ranges of the same width; none where the keys are spread otherwise, or are no numbers after
    all (zero dates, infinity).
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
    """Values at about equal distances: by walking the index step by step, or by one look at every
    so manieth row of a large table.
    """
    each = max(how.rows_each, -(-how.rows // how.chunks_max))
    if how.rows // how.rows_each >= how.sample_above:
        yield from _sampled(session, keys, each, how)
    else:
        yield from islice(walk_keys(session, keys, each, ahead=each), how.chunks_max)


def walk_keys(
    session: Session, keys: KeyColumn, each: int, *, ahead: int, after: Bound = None
) -> Iterator[Bound]:
    """The key that has `ahead` others between it and `after`, then every key that is `each`
    further, by the index. A key that repeats is one step.
    """
    last = after
    while True:
        parts = [
            f"{keys.key} is not null",
            *([keys.only] if keys.only else []),
            *([f"{keys.key} > {keys.constant(last)}"] if last is not None else []),
        ]
        # `as edge`: where what is selected has the name of the key, PostgreSQL orders by it, and it
        # may be a text
        sql = (
            f"select {keys.value} as edge from {keys.relation} where {' and '.join(parts)} order by"
            f" {keys.key} limit 1 offset {ahead}"
        )
        found = session.query(sql)
        if not found or as_bound(found[0][0]) == last:  # a rounded value that is not above itself
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
