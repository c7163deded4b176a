"""A connection over which the server sends its binary log.

Called by binlog_scan.py and binlog_reader.py, in drivers and tasks. pymysql logs in; then its
socket is read here, packet by packet, as nothing of the log may be buffered elsewhere. Flag 1 of
the request makes the server send EOF at the end of the log instead of waiting; server id 0 may be
connected any number of times.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pymysql

from tidegate.databases.mysql.binlog_errors import LogDamaged, LogRefused, LogUnreachable
from tidegate.databases.mysql.binlog_position import LogPosition

BUFFER_BYTES = 1 << 20
PACKET_BYTES_MAX = 0xFFFFFF
EVENT_BYTES_MAX = 1 << 30
_COMMAND_DUMP = 0x12
_UNTIL_END = 1
_EOF_BYTES_MAX = 9
_POSITION_MAX = 0xFFFFFFFF

Connect = Callable[[], "pymysql.connections.Connection[Any]"]


class LogStream:
    """The events after a position, as bytes without the header of the packet.

    `with LogStream(connect, position) as stream: for event in stream`.
    """

    def __init__(self, connect: Connect, start: LogPosition) -> None:
        self._start = start
        if start.pos > _POSITION_MAX:
            raise LogRefused(
                f"position {start} is beyond 4 GiB of its file, where the protocol cannot begin"
            )
        connection: Any = connect()
        self._connection = connection
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET @master_binlog_checksum='CRC32', @mariadb_slave_capability=4")
            request = (
                bytes([_COMMAND_DUMP])
                + struct.pack("<IHI", start.pos, _UNTIL_END, 0)
                + start.file.encode()
            )
            connection._sock.sendall(struct.pack("<I", len(request)) + request)
            self._file: BinaryIO = connection._sock.makefile("rb", buffering=BUFFER_BYTES)
        except (pymysql.err.Error, OSError) as error:
            connection._force_close()
            raise _translated(error) from error

    def __enter__(self) -> "LogStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._connection._force_close()

    def __iter__(self) -> Iterator[bytes]:
        try:
            while True:
                packet = self._packet()
                match packet[0]:
                    case 0x00:
                        yield packet[1:]
                    case 0xFE if len(packet) < _EOF_BYTES_MAX:
                        return
                    case 0xFF:
                        raise self._refusal(packet)
                    case other:
                        raise LogDamaged(f"the server sent a packet of kind {other:#x}")
        except (OSError, pymysql.err.Error) as error:
            raise _translated(error) from error

    def _packet(self) -> bytes:
        """Return one packet of the protocol; longer ones arrive in parts of 16 MB."""
        parts = []
        total = 0
        while True:
            header = self._exactly(4)
            size = int.from_bytes(header[:3], "little")
            parts.append(self._exactly(size))
            total += size
            if size < PACKET_BYTES_MAX:
                break
            if total > EVENT_BYTES_MAX:
                raise LogDamaged(f"an event is longer than {EVENT_BYTES_MAX >> 30} GiB")
        packet = parts[0] if len(parts) == 1 else b"".join(parts)
        if not packet:
            raise LogDamaged("the server sent an empty packet")
        return packet

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        if len(data) < size:
            raise LogUnreachable("the source closed the connection on which it sent its binary log")
        return data

    def _refusal(self, packet: bytes) -> LogRefused:
        code = int.from_bytes(packet[1:3], "little")
        text = packet[9:] if packet[3:4] == b"#" else packet[3:]
        return LogRefused(
            f"the source does not send its binary log from {self._start} on: {code}"
            f" {text.decode('utf-8', 'replace')}"
        )


def _translated(error: BaseException) -> Exception:
    return LogUnreachable(f"the binary log of the source cannot be read: {error}")
