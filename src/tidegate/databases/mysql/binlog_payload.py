"""Unpack the events of a compressed transaction (binlog_transaction_compression of MySQL).

Called by binlog_scan.py. The event is a list of fields (type, length, value) followed by the
compressed bytes. The events inside have headers and no checksums.
"""

from collections.abc import Iterator

import pyarrow as pa

from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_events import (
    EventReader,
    LogEvent,
    length_encoded,
    parse_or_damaged,
)

_END, _SIZE, _ALGORITHM, _UNPACKED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255
_BYTES_MAX = 1 << 30
_SIZE_AT, _SIZE_BYTES = 9, 4


def payload_events(body: bytes) -> Iterator[LogEvent]:
    """Yield the events of a compressed transaction."""
    data = parse_or_damaged(_decompressed, body, "a compressed transaction")
    reader, at = EventReader(), 0
    while at < len(data):
        size = int.from_bytes(data[at + _SIZE_AT : at + _SIZE_AT + _SIZE_BYTES], "little")
        if size < 1 or at + size > len(data):
            raise LogDamaged("a compressed transaction ends within an event")
        yield reader.event(data[at : at + size])
        at += size


def _decompressed(body: bytes) -> bytes:
    fields, at = {}, 0
    while True:
        kind, at = length_encoded(body, at)
        if kind == _END:
            break
        width, at = length_encoded(body, at)
        fields[kind], _ = length_encoded(body[at : at + width], 0)
        at += width
    if fields.get(_ALGORITHM, _NONE) == _NONE:
        return body[at:]
    size = fields.get(_UNPACKED_SIZE, 0)
    if fields[_ALGORITHM] != _ZSTD or size > _BYTES_MAX:
        raise ValueError(
            f"compressed with the algorithm {fields[_ALGORITHM]}, {size} bytes after decompression"
        )
    try:
        return bytes(pa.Codec("zstd").decompress(body[at:], decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
