"""The server's character sets as Python's codecs. Called by columns.py."""

import codecs
from typing import Any

from tidegate.model.errors import Unsupported

_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "tis620": "tis-620",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
    "big5": "big5",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
_LATIN1 = "tidegate-latin1"
WITH_ASCII = frozenset(
    {"latin1", "latin2", "latin5", "latin7", "greek", "hebrew", "koi8r", "koi8u", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866"}
)
"""Character sets in which the bytes below 128 are ASCII and stand for themselves."""


def codec_of(charset: str) -> str:
    """The codec of a character set; Unsupported where there is none."""
    name = charset.lower()
    if name == "latin1":
        return _LATIN1
    if name not in _CODECS:
        raise Unsupported(f"text in the character set {charset} cannot be read from the log; convert the column to utf8mb4")
    return _CODECS[name]


def _decode_latin1(data: Any, errors: str = "strict", /) -> tuple[str, int]:
    """The server's latin1 is Windows-1252, where the five bytes without a character stand for themselves."""
    del errors
    try:
        return bytes(data).decode("cp1252"), len(data)
    except UnicodeDecodeError:
        return "".join(bytes([b]).decode("cp1252" if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else "latin-1") for b in bytes(data)), len(data)


def _find(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _LATIN1:
        return None
    return codecs.CodecInfo(lambda text, errors="strict": codecs.lookup("cp1252").encode(text, errors), _decode_latin1, name=_LATIN1)


codecs.register(_find)
