"""Character sets that differ from Python's codecs, and bytes that are not text."""

import pytest

from tidegate.databases.mysql.binlog_charsets import MULTI, SINGLE, WITH_ASCII, codec_of, table_of

ASCII = bytes(range(128))


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("latin1", b"a\x80\x81", "a€\x81"),
        ("sjis", b"\x81\x5f\\", "\\\\"),
        ("cp866", b"\xfc\xfd", "ⁿ²"),
        ("koi8u", b"\x95", "•"),
        ("big5", b"\xa4\xa4a", "中a"),
        ("ujis", b"\x8f\xb0\xa1\x8e\xb1", "丂ｱ"),
        ("gb18030", b"\xa8\xbc\x81\x35\xf4\x37\x90\x30\x81\x30", "ḿ\ue7c7𐀀"),
        ("swe7", b"[\\]", "ÄÖÅ"),
        ("ascii", b"\x80", "?"),
        ("ucs2", b"\x4e\x2d", "中"),
    ],
)
def test_text_equals_the_text_of_the_server(charset: str, data: bytes, text: str) -> None:
    assert data.decode(codec_of(charset)) == text


@pytest.mark.parametrize(
    ("charset", "data"),
    [
        ("gbk", b"a\x81"),
        ("gbk", b"\x81 "),
        ("ujis", b"\x8f\xb0"),
        ("gb18030", b"\x81\x35\xf4"),
        ("ucs2", b"\xd8\x3d\xde\x00"),
        ("utf16", b"\xd8\x3d"),
    ],
)
def test_bytes_that_are_not_text_are_rejected(charset: str, data: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        data.decode(codec_of(charset))
    assert "\ufffd" in data.decode(codec_of(charset), "replace")


def test_ascii_compatible_sets_are_known() -> None:
    plain = {
        name for name in (*SINGLE, *MULTI) if ASCII.decode(codec_of(name)) == ASCII.decode("ascii")
    }
    assert plain == WITH_ASCII
    assert {len(table_of(name)) for name in SINGLE} == {256}
