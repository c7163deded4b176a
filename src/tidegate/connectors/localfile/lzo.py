"""The lzop container and the LZO1X codec, which Arrow lacks.

Called by file_blocks.py (reading) and write_formats.py (writing), in tasks, for text, csv and json
files with compress_codec = lzo, as SeaTunnel has it. Only bytes go in and out; damage is a
ValueError with a message. Plain Python is slow: one core reads 11 to 13 MB/s and writes 2.6 to 3.7
MB/s of csv rows, where Arrow's LZ4 reads 6 GB/s and writes 550 to 960 MB/s.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

MAGIC = b"\x89LZO\x00\r\n\x1a\n"
BLOCK_BYTES = 64 * 1024
"""Size of written blocks: the default limit of readers in Java."""
_BLOCK_BYTES_MAX = 64 * 2**20
_ADLER32_D, _ADLER32_C, _CRC32_D, _CRC32_C, _EXTRA, _FILTER = 0x1, 0x2, 0x100, 0x200, 0x40, 0x800
_VERSION = 0x1010
_END = b"\x11\x00\x00"
_NEAR, _MIDDLE, _FAR = 2048, 16384, 49151
"""How far back the three kinds of copies reach."""


def decompressed_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the decompressed blocks of an lzop file."""
    flags = _read_header(file)
    while True:
        plain = _number(file, ">I")
        if plain == 0:
            return
        packed = _number(file, ">I")
        if max(plain, packed) > _BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {plain} bytes exceeds the maximum of lzop")
        sums = [_number(file, ">I") for flag in (_ADLER32_D, _CRC32_D) if flags & flag]
        if packed < plain:
            _skip(file, 4 * sum(bool(flags & flag) for flag in (_ADLER32_C, _CRC32_C)))
        data = _exactly(file, packed)
        block = data if packed == plain else decompress(data, plain)
        checks = [
            check(block)
            for flag, check in ((_ADLER32_D, zlib.adler32), (_CRC32_D, zlib.crc32))
            if flags & flag
        ]
        if checks != sums:
            raise ValueError("the checksum of a block is wrong")
        yield block


def _read_header(file: IO[bytes]) -> int:
    if _exactly(file, len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin with the lzop signature")
    version = _number(file, ">H")
    newer = version >= 0x940
    _skip(file, 4 if newer else 2)  # the library's version, the version that is needed
    _skip(file, 2 if newer else 1)  # method and level: all methods have the same code
    flags = _number(file, ">I")
    _skip(file, (4 if flags & _FILTER else 0) + (12 if newer else 8))  # filter, mode, times
    _skip(file, _number(file, ">B") + 4)  # the original name, the header's checksum
    if flags & _EXTRA:
        _skip(file, _number(file, ">I") + 4)
    return flags


def _number(file: IO[bytes], form: str) -> int:
    return int(struct.unpack(form, _exactly(file, struct.calcsize(form)))[0])


def _skip(file: IO[bytes], count: int) -> None:
    _exactly(file, count)


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("it ends too early")
    return data


def decompress(data: bytes, size: int) -> bytes:
    """Decompress one LZO1X block to `size` bytes."""
    try:
        made = _Decoder(data).run(size)
    except IndexError:
        raise ValueError("a block ends too early") from None
    if len(made) != size:
        raise ValueError(f"a block has {len(made)} bytes instead of {size}")
    return bytes(made)


class _Decoder:
    """Executes the instructions of a block.

    `literals` is how many bytes the last instruction copied from the input; 4 means more than 3.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.out = bytearray()
        self.literals = 0

    def run(self, size: int) -> bytearray:
        if self.data[0] > 17:
            self.at = 1
            self._copy_literals(self.data[0] - 17)
        while self._step():
            if len(self.out) > size:
                raise ValueError("a block is longer than it says")
        return self.out

    def _step(self) -> bool:
        code = self.data[self.at]
        self.at += 1
        if code >= 64:
            distance = (self._byte() << 3) + (code >> 2 & 7) + 1
            self._copy(distance, (code >> 5) + 1, code & 3)
        elif code >= 32:
            length = 2 + self._length(code & 31, 31)
            tail = self._pair()
            self._copy((tail >> 2) + 1, length, tail & 3)
        elif code >= 16:
            length = 2 + self._length(code & 7, 7)
            tail = self._pair()
            distance = 16384 + ((code & 8) << 11) + (tail >> 2)
            if distance == 16384:
                return False
            self._copy(distance, length, tail & 3)
        elif self.literals == 0:
            self._copy_literals(3 + self._length(code, 15))
        else:
            far = self.literals == 4
            distance = (self._byte() << 2) + (code >> 2) + (2049 if far else 1)
            self._copy(distance, 3 if far else 2, code & 3)
        return True

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _pair(self) -> int:
        return self._byte() | self._byte() << 8

    def _length(self, short: int, base: int) -> int:
        """Read a length from the instruction, or, if that is 0, from the bytes after it."""
        if short:
            return short
        while (more := self._byte()) == 0:
            base += 255
        return base + more

    def _copy_literals(self, count: int) -> None:
        if self.at + count > len(self.data):
            raise IndexError
        self.out += self.data[self.at : self.at + count]
        self.at += count
        self.literals = min(count, 4)

    def _copy(self, distance: int, length: int, literals: int) -> None:
        start = len(self.out) - distance
        if start < 0:
            raise ValueError("a block refers to bytes before its beginning")
        if distance >= length:
            self.out += self.out[start : start + length]
        else:  # the copy overlaps its own output
            self.out += (self.out[start:] * (length // distance + 1))[:length]
        self._copy_literals(literals)


def compress(data: bytes) -> bytes:
    """Compress at most one block to LZO1X.

    Greedy: the nearest earlier position with the same four bytes is used, and extended as far as
    possible.
    """
    code = _BlockEncoder()
    seen: dict[bytes, int] = {}
    at = written = 0
    last = len(data) - 4
    while at <= last:
        key = data[at : at + 4]
        earlier = seen.get(key)
        seen[key] = at
        if earlier is None or at - earlier > _FAR:
            at += 1 + (at - written >> 6)  # search less often if nothing repeats
            continue
        length = 4 + _common_length(data, earlier + 4, at + 4)
        code.literals(data[written:at])
        code.match(at - earlier, length)
        at = written = at + length
    code.literals(data[written:])
    return bytes(code.made) + _END


def _common_length(data: bytes, one: int, other: int) -> int:
    """Count the equal bytes from two positions on."""
    count, step, end = 0, 16, len(data)
    while other + count < end:
        step = min(step, end - other - count)
        if data[one + count : one + count + step] == data[other + count : other + count + step]:
            count += step
            step *= 2
        elif step == 1:
            break
        else:
            step = max(1, step // 2)
    return count


class _BlockEncoder:
    """Instructions of one block.

    `tail` is the index of the byte of the last copy that says how many literals follow it; -1
    before the first copy.
    """

    def __init__(self) -> None:
        self.made = bytearray()
        self.tail = -1

    def literals(self, data: bytes) -> None:
        count = len(data)
        if not self.made and 0 < count <= 238:
            self.made.append(17 + count)
        elif self.tail >= 0 and count <= 3:
            self.made[self.tail] |= count
        elif count:
            self._length(0, count - 3, 15)
        self.made += data

    def match(self, distance: int, length: int) -> None:
        if length <= 8 and distance <= _NEAR:
            self.tail = len(self.made)
            self.made += bytes((length - 1 << 5 | (distance - 1 & 7) << 2, distance - 1 >> 3))
            return
        if distance <= _MIDDLE:
            self._length(32, length - 2, 31)
            offset = distance - 1
        else:
            offset = distance - _MIDDLE
            self._length(16 | offset >> 11 & 8, length - 2, 7)
        self.tail = len(self.made)
        self.made += struct.pack("<H", (offset & 0x3FFF) << 2)

    def _length(self, code: int, length: int, most: int) -> None:
        if length <= most:
            self.made.append(code | length)
            return
        zeros, rest = divmod(length - most - 1, 255)
        self.made.append(code)
        self.made += bytes(zeros) + bytes((rest + 1,))


class LzopStream:
    """Writes an lzop file into an open one, which stays open."""

    def __init__(self, file: Any) -> None:
        self._write: Callable[[bytes], object] = file.write
        self._rest = bytearray()
        fields = struct.pack(">HHHBBIIIIB", _VERSION, 0x2080, 0x940, 1, 5, _ADLER32_D, 0, 0, 0, 0)
        self._write(MAGIC + fields + struct.pack(">I", zlib.adler32(fields)))

    def write(self, data: Any) -> None:
        """Write bytes, or an Arrow buffer."""
        self._rest += memoryview(data)
        while len(self._rest) >= BLOCK_BYTES:
            self._block(bytes(self._rest[:BLOCK_BYTES]))
            del self._rest[:BLOCK_BYTES]

    def _block(self, block: bytes) -> None:
        packed = compress(block)
        data = packed if len(packed) < len(block) else block
        self._write(struct.pack(">III", len(block), len(data), zlib.adler32(block)) + data)

    def close(self) -> None:
        """Write the last block and the end of the container."""
        if self._rest:
            self._block(bytes(self._rest))
        self._write(struct.pack(">I", 0))
