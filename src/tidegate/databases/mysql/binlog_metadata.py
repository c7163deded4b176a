"""Optional metadata of table maps: names, signs, character sets, labels and key.

Pure; called by binlog_events.py. Nullability is always in the log, the rest depends on
binlog_row_metadata: MINIMAL has signs and character sets of texts; FULL adds names, labels, their
character sets and the primary key. None stands for what the server did not write.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SIGNS, CHARSET_DEFAULT, CHARSETS, NAMES, SET_LABELS, ENUM_LABELS = 1, 2, 3, 4, 5, 6
SIMPLE_KEY, KEY_WITH_PREFIX, LABEL_CHARSET_DEFAULT, LABEL_CHARSETS = 8, 9, 10, 11
_SIGNED_TYPES = {0, 1, 2, 3, 4, 5, 8, 9, 13, 246}
_STRING, _ENUM, _SET = 254, 247, 248
_TEXT_TYPES = {15, 140, 141, 242, 249, 250, 251, 252, 253, _STRING}
_YEAR = 13
Number = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableMetadata:
    """Metadata by column, in the order of the table.

    `collations` are the numbers of the server, `key` the indexes of the columns of the primary key.
    """

    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None
    names: tuple[str, ...] | None
    collations: tuple[int | None, ...]
    labels: tuple[tuple[bytes, ...] | None, ...]
    key: tuple[int, ...] | None


def column_type(kind: int, meta: int) -> int:
    """Return the type of a column; ENUM and SET are encoded in the parameter of a string."""
    return meta >> 8 if kind == _STRING and meta >> 8 in (_ENUM, _SET) else kind


def read_metadata(
    types: bytes,
    metas: tuple[int, ...],
    nulls: bytes,
    extra: Mapping[int, bytes],
    number: Callable[[bytes, int], Number],
) -> TableMetadata:
    """Parse the fields of a table map.

    `number` parses a length-encoded number. Raises ValueError or IndexError on damaged bytes.
    """
    real = [column_type(kind, meta) for kind, meta in zip(types, metas, strict=True)]
    collations: dict[int, int] = {}
    texts = [n for n, kind in enumerate(real) if kind in _TEXT_TYPES]
    labelled = [n for n, kind in enumerate(real) if kind in (_ENUM, _SET)]
    for columns, default, each in (
        (texts, CHARSET_DEFAULT, CHARSETS),
        (labelled, LABEL_CHARSET_DEFAULT, LABEL_CHARSETS),
    ):
        collations |= _collations(columns, extra.get(default), extra.get(each), number)
    labels: dict[int, tuple[bytes, ...]] = {}
    for kind, field in ((_ENUM, ENUM_LABELS), (_SET, SET_LABELS)):
        if field in extra:
            labels |= zip(
                [n for n, k in enumerate(real) if k == kind],
                _labels(extra[field], number),
                strict=False,
            )
    return TableMetadata(
        nullable=tuple(bool(nulls[n // 8] >> n % 8 & 1) for n in range(len(types))),
        unsigned=_signs(types, extra[SIGNS]) if SIGNS in extra else None,
        names=(
            tuple(text.decode("utf-8") for text in _texts(extra[NAMES], number))
            if NAMES in extra
            else None
        ),
        collations=tuple(collations.get(n) for n in range(len(types))),
        labels=tuple(labels.get(n) for n in range(len(types))),
        key=_key(extra, number),
    )


def _signs(types: bytes, bits: bytes) -> tuple[bool, ...]:
    """Return for each column whether it is unsigned.

    MariaDB counts years among the numbers and MySQL does not. The length does not show which, so
    the sign of a year, which is always set, does.
    """
    counted = [n for n, kind in enumerate(types) if kind in _SIGNED_TYPES]
    flags = {
        n: bool(bits[at // 8] & 0x80 >> at % 8)
        for at, n in enumerate(counted)
        if at // 8 < len(bits)
    }
    if len(flags) < len(counted) or not all(flags[n] for n in counted if types[n] == _YEAR):
        without = [n for n in counted if types[n] != _YEAR]
        flags = {n: bool(bits[at // 8] & 0x80 >> at % 8) for at, n in enumerate(without)}
    return tuple(flags.get(n, False) for n in range(len(types)))


def _collations(
    columns: list[int],
    default: bytes | None,
    each: bytes | None,
    number: Callable[[bytes, int], Number],
) -> dict[int, int]:
    """Return collations by column.

    They are written as a default and the columns that differ, or as one for each column.
    """
    if each is not None:
        found = _numbers(each, number)
        # An unknown type may have a collation too: then the columns are not certain.
        return dict(zip(columns, found, strict=True)) if len(found) == len(columns) else {}
    if default is None:
        return {}
    usual, *others = _numbers(default, number)
    differing = dict(zip(others[::2], others[1::2], strict=True))
    return {column: differing.get(at, usual) for at, column in enumerate(columns)}


def _key(
    extra: Mapping[int, bytes], number: Callable[[bytes, int], Number]
) -> tuple[int, ...] | None:
    """Return the primary key.

    Only FULL writes it, and only FULL writes names: with names and without a key, the table has
    none.
    """
    if SIMPLE_KEY in extra:
        return tuple(_numbers(extra[SIMPLE_KEY], number))
    if KEY_WITH_PREFIX in extra:
        return tuple(_numbers(extra[KEY_WITH_PREFIX], number)[::2])
    return () if NAMES in extra else None


def _numbers(data: bytes, number: Callable[[bytes, int], Number]) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = number(data, at)
        found.append(value)
    return found


def _texts(data: bytes, number: Callable[[bytes, int], Number]) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = number(data, at)
        found.append(data[at : at + size])
        at += size
    return found


def _labels(data: bytes, number: Callable[[bytes, int], Number]) -> list[tuple[bytes, ...]]:
    columns, at = [], 0
    while at < len(data):
        count, at = number(data, at)
        found = []
        for _ in range(min(count, len(data))):
            size, at = number(data, at)
            found.append(data[at : at + size])
            at += size
        columns.append(tuple(found))
    return columns


_FIXED_BYTES = {
    0: 4,
    1: 8,
    3: 4,
    4: 6,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
    128: 3,
    129: 8,
    130: 2,
}
_SQL_MODE, _CHARSET, _TIME_ZONE, _CATALOG = 1, 4, 5, 6


def status_variables(data: bytes) -> tuple[int, int | None]:
    """Return the SQL mode and the collation of the client.

    They are among the variables before the text of a statement; parsing ends at the first unknown
    one.
    """
    mode, collation, at = 0, None, 0
    while at < len(data):
        code = data[at]
        at += 1
        if code in (_TIME_ZONE, _CATALOG):
            at += 1 + data[at]
            continue
        size = _FIXED_BYTES.get(code)
        if size is None:
            break
        if code == _SQL_MODE:
            (mode,) = struct.unpack_from("<Q", data, at)
        elif code == _CHARSET:
            (collation,) = struct.unpack_from("<H", data, at)
        at += size
    return mode, collation
