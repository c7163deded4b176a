"""Secrets in a plan: secret options, and addresses that contain a password."""

import json

import pytest

from tidegate.plugin.option import Option, OptionKind, OptionSet
from tidegate.plugin.secret import packed, unpacked
from tidegate.redact import MASK, address_secrets, mask_address

OPTIONS = OptionSet(
    (
        Option("url", OptionKind.TEXT, "x"),
        Option("query", OptionKind.TEXT, "x"),
        Option("password", OptionKind.TEXT, "x", secret=True),
    )
)
HELD = {
    "jdbc:mysql://root:geheim@host:3306/shop": "jdbc:mysql://root:******@host:3306/shop",
    "jdbc:postgresql://host/shop?user=u&password=geheim&ssl=true": (
        "jdbc:postgresql://host/shop?user=u&password=******&ssl=true"
    ),
    "jdbc:sqlserver://host;databaseName=shop;Password=geheim;encrypt=true": (
        "jdbc:sqlserver://host;databaseName=shop;Password=******;encrypt=true"
    ),
    "jdbc:oracle:thin:scott/geheim@//host:1521/x": "jdbc:oracle:thin:scott/******@//host:1521/x",
    "jdbc:h2:mem:x;PWD=geheim": "jdbc:h2:mem:x;PWD=******",
    "https://user:geheim@host/path?access_token=geheim": (
        "https://user:******@host/path?access_token=******"
    ),
}


@pytest.mark.parametrize("address", HELD)
def test_address_with_a_password_is_packed_and_masked(address: str) -> None:
    values = packed({"url": address, "query": "select 1", "password": "p"}, OPTIONS)
    assert "geheim" not in json.dumps(values)
    assert unpacked(values) == {"url": address, "query": "select 1", "password": "p"}
    assert set(address_secrets(address)) == {"geheim"}
    assert mask_address(address) == HELD[address]
    assert MASK in mask_address(address)


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:mysql://host:3306/shop?useSSL=true",
        "jdbc:postgresql://user@host:5432/shop",
        "jdbc:oracle:thin:@//host:1521/x",
        "jdbc:sqlite:/data/password=x.db",
        "s3a://bucket/path",
        "select * from users where a = 1; update t set password=x",
        "",
    ],
)
def test_text_without_a_password_stays_readable(text: str) -> None:
    assert packed({"url": text, "query": text}, OPTIONS) == {"url": text, "query": text}
    assert mask_address(text) == text or text.startswith("select")
