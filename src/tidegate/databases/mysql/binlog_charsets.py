"""Character sets of MariaDB and MySQL as Python codecs, from the tables of the servers.

Called by binlog_columns.py and binlog_lexer.py. Python's codecs of the same names differ from the
server's in some characters, and some sets have none. The tables in binlog_charsets.xz were read
from servers by scripts/make_charsets.py, which also documents their layout. Bytes without a
character are "?", as the server sends them to its clients; bytes that the server would not store
raise UnicodeDecodeError.
"""

import codecs
import lzma
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tidegate.model.errors import Unsupported

TABLES = Path(__file__).with_name("binlog_charsets.xz")
_SINGLE = """armscii8 ascii cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 dec8 geostd8 greek
hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce macroman swe7 tis620"""
SINGLE = tuple(_SINGLE.split())
"""Character sets with one byte per character."""
MULTI = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis")
"""Sets in which a byte from 128 on may begin a character of two bytes, of three (0x8F), or of four.
"""
TRIPLE = ("eucjpms", "ujis")
_UNICODE = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
WITH_ASCII = frozenset({*SINGLE, *MULTI} - {"swe7"})
"""Character sets in which bytes below 128 are ASCII."""
BEYOND_BMP = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
"""Character sets with characters beyond U+FFFF."""
SINGLE_CELLS, DOUBLE_CELLS, TRIPLE_CELLS = 256, 128 * 256, 128 * 128
_PREFIX = "tidegate-mysql-"
_UNASSIGNED = "?"
_PRIVATE_GB18030 = {b"\x81\x35\xf4\x37": "\ue7c7"}
"""Sequences of four bytes for which Python's codec has another character."""


def codec_of(charset: str) -> str:
    """Return the codec of a character set; raise Unsupported if there is none."""
    name = charset.lower()
    if name in _UNICODE:
        return _UNICODE[name]
    if name in SINGLE or name in MULTI or name == "ucs2":
        return _PREFIX + name
    raise Unsupported(
        f"text in the character set {charset} cannot be read from the log; convert the column to"
        " utf8mb4"
    )


@cache
def _cells() -> str:
    """Return all tables as one string; NUL stands for bytes without a character."""
    data = lzma.decompress(TABLES.read_bytes())
    half = len(data) // 2
    units = bytearray(len(data))
    units[::2] = data[:half]
    units[1::2] = data[half:]
    return units.decode("utf-16-le")


@cache
def table_of(charset: str) -> dict[bytes, str]:
    """Return the characters of a set by their bytes, without sequences of four bytes."""
    cells, at = _cells(), 0
    for name in (*SINGLE, *MULTI):
        sizes = [
            SINGLE_CELLS,
            *([DOUBLE_CELLS] if name in MULTI else []),
            *([TRIPLE_CELLS] if name in TRIPLE else []),
        ]
        if name == charset:
            break
        at += sum(sizes)
    keys = [bytes([byte]) for byte in range(256)]
    if charset in MULTI:
        keys += [bytes([lead, byte]) for lead in range(128, 256) for byte in range(256)]
    if charset in TRIPLE:
        keys += [
            bytes([0x8F, second, third]) for second in range(128, 256) for third in range(128, 256)
        ]
    return {
        key: cells[at + n] for n, key in enumerate(keys) if cells[at + n] != "\0" or key == b"\0"
    }


class _FourBytes(dict[bytes, str]):
    """The table of gb18030, which computes sequences of four bytes."""

    def __missing__(self, key: bytes) -> str:
        if len(key) != 4:
            raise KeyError(key)
        if key in _PRIVATE_GB18030:
            return _PRIVATE_GB18030[key]
        try:
            return key.decode("gb18030")
        except UnicodeDecodeError:
            return _UNASSIGNED


def _decoder(charset: str) -> Callable[[bytes], str]:
    """Return the decoder of one set; it raises KeyError or ValueError for invalid bytes."""
    if charset == "ucs2":
        return _ucs2
    table = table_of(charset)
    if charset in SINGLE:
        characters = "".join(table[bytes([byte])] for byte in range(256))
        return lambda data: codecs.charmap_decode(data, "strict", characters)[0]
    leads = bytes(
        sorted(
            {key[0] for key in table if len(key) == 2} - {key[0] for key in table if len(key) == 1}
        )
    )
    kinds = [b"\x8f[\x80-\xff]{2}"] if charset in TRIPLE else []
    if charset == "gb18030":
        kinds, table = [b"[\x81-\xfe][0-9][\x81-\xfe][0-9]"], _FourBytes(table)
    pieces = re.compile(
        b"|".join([*kinds, b"[" + re.escape(leads) + b"].", b"."]), re.DOTALL
    ).findall
    return lambda data: "".join([table[piece] for piece in pieces(data)])


def _ucs2(data: bytes) -> str:
    text = data.decode("utf-16-be")
    if len(text) * 2 != len(data):
        raise ValueError("surrogates are not characters")
    return text


def _find(name: str) -> codecs.CodecInfo | None:
    name = name.replace("_", "-")
    if not name.startswith(_PREFIX):
        return None
    decode = _decoder(name.removeprefix(_PREFIX))

    def decoded(data: Any, errors: str = "strict", /) -> tuple[str, int]:
        found = bytes(data)
        try:
            return decode(found), len(found)
        except (KeyError, ValueError):
            if errors == "strict":
                raise UnicodeDecodeError(
                    name, found, 0, len(found), "no text in this character set"
                ) from None
            return "\ufffd" * len(found), len(found)

    return codecs.CodecInfo(_only_reads, decoded, name=name)


def _only_reads(text: str, errors: str = "strict", /) -> tuple[bytes, int]:
    raise UnicodeEncodeError(
        "tidegate", text, 0, len(text), f"this character set is only decoded ({errors})"
    )


codecs.register(_find)
