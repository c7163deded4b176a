"""Packed transactions of MySQL (binlog_transaction_compression): the events inside. Called by
scan.py.

The event is a list of fields, type, length and value, and the packed bytes after them. The events
inside have headers and no checksums.
"""

from collections.abc import Iterator

import pyarrow as pa

from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_events import EventReader, LogEvent, length_encoded, parsed

_END, _SIZE, _ALGORITHM, _UNPACKED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255
_BYTES_MAX = 1 << 30
_SIZE_AT, _SIZE_BYTES = 9, 4


def payload_events(body: bytes) -> Iterator[LogEvent]:
    """The events of a packed transaction."""
    data = parsed(_unpacked, body, "a packed transaction")
    reader, at = EventReader(), 0
    while at < len(data):
        size = int.from_bytes(data[at + _SIZE_AT : at + _SIZE_AT + _SIZE_BYTES], "little")
        if size < 1 or at + size > len(data):
            raise LogDamaged("a packed transaction ends within an event")
        yield reader.event(data[at : at + size])
        at += size


def _unpacked(body: bytes) -> bytes:
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
            f"packed by the algorithm {fields[_ALGORITHM]}, {size} bytes after decompression"
        )
    try:
        return bytes(pa.Codec("zstd").decompress(body[at:], decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
