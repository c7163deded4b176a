"""Decide which rows of the log belong to which chunk, in the order of the database.

Called by source.py, in tasks. Numbers, dates, timestamps and bytes have one order everywhere and
are compared in Arrow. Strings have the order of their collation (case, accents, trailing spaces)
and are compared by the database, in statements of constants only: no table is read for it.
"""

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.databases.cdc.keys import KeyChunk, SplitKey
from tidegate.databases.chunks import Bound, as_bound
from tidegate.databases.session import Session

KEYS_PER_QUERY_MAX = 1000
"""Keys in one statement."""
QUERY_CHARS_MAX = 1 << 20
"""Characters of keys in one statement: servers limit its length, and the bound is repeated for each
key.
"""


class KeyOrder(ABC):
    """The order of a table's keys: `with order_of(...) as order`."""

    def __init__(self, column: str) -> None:
        self._column = column

    @abstractmethod
    def _upto(self, keys: Any, bound: Bound) -> Any:
        """Return for each key whether it is at or below a bound; null for null."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection that comparisons opened."""

    def __enter__(self) -> "KeyOrder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def upto(self, batch: pa.RecordBatch, bound: Bound) -> Any:
        """Return for each row whether its key is at or below a bound. Null is below all others."""
        return pc.fill_null(self._upto(batch.column(self._column), bound), True)

    def inside(self, batch: pa.RecordBatch, chunk: KeyChunk) -> Any:
        """Return for each row whether its key is in a chunk."""
        every: Any = pa.array([True] * batch.num_rows)
        below = every if chunk.high is None else self.upto(batch, chunk.high)
        return (
            below if chunk.low is None else pc.and_(below, pc.invert(self.upto(batch, chunk.low)))
        )


class ArrowOrder(KeyOrder):
    def _upto(self, keys: Any, bound: Bound) -> Any:
        return pc.less_equal(keys, scalar(keys.type, bound))

    def close(self) -> None:
        pass


class DatabaseOrder(KeyOrder):
    """Compares keys in the database, over one connection that is opened when it is needed."""

    def __init__(self, key: SplitKey, connect: Callable[[], Session]) -> None:
        super().__init__(key.column.name)
        self._key = key
        self._connect = connect
        self._session: Session | None = None

    def _upto(self, keys: Any, bound: Bound) -> Any:
        below = [
            value
            for part in self._parts(pc.unique(keys.drop_null()).to_pylist())
            for value in self._query(part, bound)
        ]
        found: Any = pc.is_in(keys, value_set=pa.array(below, keys.type))
        return pc.if_else(pc.is_valid(keys), found, pa.scalar(None, pa.bool_()))

    def _parts(self, values: list[Any]) -> Iterator[list[tuple[Any, str]]]:
        """Yield values with their SQL constants, as many as fit one statement."""
        part: list[tuple[Any, str]] = []
        size = 0
        for value in values:
            constant = self._key.constant(as_bound(value))
            if part and (len(part) >= KEYS_PER_QUERY_MAX or size + len(constant) > QUERY_CHARS_MAX):
                yield part
                part, size = [], 0
            part.append((value, constant))
            size += len(constant)
        if part:
            yield part

    def _query(self, part: list[tuple[Any, str]], bound: Bound) -> list[Any]:
        if self._session is None:
            self._session = self._connect()
        edge = self._key.constant(bound)
        (answers,) = self._session.query(
            f"select {', '.join(f'{constant} <= {edge}' for _, constant in part)}"
        )
        return [value for (value, _), below in zip(part, answers, strict=True) if below]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def order_of(key: SplitKey, connect: Callable[[], Session]) -> KeyOrder:
    return DatabaseOrder(key, connect) if key.compared_by_database else ArrowOrder(key.column.name)


def scalar(kind: Any, bound: Bound) -> Any:
    """Return a bound as an Arrow value of the type of the keys."""
    if pa.types.is_integer(kind):
        low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
        return pa.scalar(min(max(int(bound), low), high), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(
            Decimal(bound["number"] if isinstance(bound, dict) else bound),
            pa.decimal128(38, kind.scale),
        ).cast(kind)
    if pa.types.is_date(kind):
        return pa.scalar(datetime.date.fromisoformat(bound), kind)
    if pa.types.is_timestamp(kind):
        moment = datetime.datetime.fromisoformat(bound)
        return pa.scalar(
            moment.replace(tzinfo=datetime.UTC) if kind.tz and moment.tzinfo is None else moment,
            kind,
        )
    return pa.scalar(bytes.fromhex(bound["bytes"]), kind)
