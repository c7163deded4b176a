"""LZO: files of SeaTunnel's codec are read, written ones too, and damage is an error."""

import base64
import io
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.localfile.file_blocks import BadFile, FilePart, read_blocks
from tidegate.connectors.localfile.lzo import (
    BLOCK_BYTES,
    LzopStream,
    compress,
    decompress,
    decompressed_blocks,
)

# Written by the LZO codec of Spark's ORC library, which SeaTunnel uses too: the lines
# `<i>;tide;<i % 3>` for i = 0 to 11.
OF_JAVA = base64.b64decode(
    "iUxaTwANChoKEBAgUAlAAQUAAAAAAACBpGr5v7oAAAAAADQdBOEAAABuAAAATBswO3RpZGU7MAoxowExCjKjATIK"
    "M6MBMAo0owExCjWjATIKNqMBMAo3owExCjijATIKOaABATAKMTCkAQkxCjExO3RpZGU7MgoRAAAAAAAA"
)
LINES = b"".join(b"%d;tide;%d\n" % (i, i % 3) for i in range(12))


def packed(*parts: bytes) -> bytes:
    file = io.BytesIO()
    stream = LzopStream(file)
    for part in parts:
        stream.write(part)
    stream.close()
    return file.getvalue()


def test_file_of_seatunnels_codec_is_read() -> None:
    assert b"".join(decompressed_blocks(io.BytesIO(OF_JAVA))) == LINES


@given(st.lists(st.tuples(st.binary(max_size=80), st.integers(1, 60)), max_size=20))
def test_any_bytes_with_any_repetitions_come_back(pieces: list[tuple[bytes, int]]) -> None:
    data = b"".join(piece * times for piece, times in pieces)
    assert b"".join(decompressed_blocks(io.BytesIO(packed(data)))) == data
    if data:
        assert decompress(compress(data), len(data)) == data


def test_repetitions_near_and_far_are_found_and_files_of_many_blocks_come_back() -> None:
    rng = random.Random(5)
    far = rng.randbytes(300)
    data = b"".join(
        [
            far,
            rng.randbytes(1500),
            far,
            rng.randbytes(9000),
            far,
            rng.randbytes(40_000),
            far,
            b"x" * 90_000,
            LINES * 2000,
        ]
    )
    made = packed(data[:7], data[7:100_000], data[100_000:])
    assert len(data) > 3 * BLOCK_BYTES
    assert len(made) < len(data) // 3
    assert b"".join(decompressed_blocks(io.BytesIO(made))) == data
    assert len(compress(data[:BLOCK_BYTES])) < 54_000  # three of the four are found again


@given(st.integers(0, len(OF_JAVA) - 1), st.integers(1, 255))
def test_damage_is_a_value_error_or_harmless(place: int, change: int) -> None:
    damaged = bytearray(OF_JAVA)
    damaged[place] ^= change
    try:
        for _ in decompressed_blocks(io.BytesIO(damaged)):
            pass
    except ValueError as error:
        assert str(error)  # noqa: PT017  # that nothing else is raised is what is tested


def test_a_flipped_bit_in_our_own_files_is_found_by_its_checksum() -> None:
    made = bytearray(packed(b"0123456789"))
    made[-8] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        list(decompressed_blocks(io.BytesIO(made)))


@pytest.mark.parametrize("data", [b"", b"plain text, nothing more", OF_JAVA[:60], OF_JAVA[:-1]])
def test_incomplete_file_or_other_format_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f.lzo"
    path.write_bytes(data)
    with (
        path.open("rb") as file,
        pytest.raises(BadFile, match=r"f\.lzo: is not a complete lzo file"),
    ):
        list(read_blocks(file, FilePart(str(path), len(data), 0, 0, -1), "lzo"))
