"""DES against a published test vector and OpenSSL, and texts that are not encrypted."""

import pytest

from tidegate.connectors.sql import des
from tidegate.model.errors import TerminalError


def test_block_matches_the_published_test_vector() -> None:
    assert (
        des._block(
            bytes.fromhex("0123456789ABCDEF"), des._round_keys(bytes.fromhex("133457799BBCDFF1"))
        ).hex()
        == "85e813540f0ab405"
    )


@pytest.mark.parametrize("text", ["", "Joy Ding", "12345678", "東京", "x" * 100])
def test_decryption_returns_the_encrypted_text(text: str) -> None:
    assert des.decrypt("1234567890", des.encrypt("1234567890", text)) == text


def test_result_equals_that_of_openssl() -> None:
    assert des.encrypt("1234567890", "Joy Ding") == "+jXI7ngL1UzB8yoBYEVgoQ=="


@pytest.mark.parametrize("text", ["not base64!", "aGVsbG8=", ""])
def test_text_that_is_not_encrypted_is_returned_unchanged(text: str) -> None:
    assert des.decrypt("1234567890", text) == text


def test_null_stays_null_and_a_short_password_is_an_error() -> None:
    assert des.encrypt("1234567890", None) is None
    assert des.decrypt("1234567890", None) is None
    with pytest.raises(TerminalError, match="8 characters"):
        des.encrypt("short", "x")
