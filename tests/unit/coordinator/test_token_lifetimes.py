"""How long a token lives: what is refused, and what becomes of records that an earlier release
could write.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main
from tidegate.clock import SystemClock
from tidegate.coordinator.tokens import (
    LIVES_S_MAX,
    BadLifetime,
    Tokens,
    TokenStatus,
    authenticate,
    lifetime_ms,
    status_of,
)
from tidegate.model.document import to_document
from tidegate.model.errors import UserError
from tidegate.model.records import TOKENS, Role
from tidegate.store.base import Put, Store
from tidegate.store.open import open_store

BAD = (
    *(
        "",
        " ",
        "\t",
        "0",
        "0d",
        "0s",
        "0ms",
        "00d",
        "0.0d",
        "-1",
        "-1d",
        "- 1d",
        "+0d",
        "1ms",
        "999",
        "0.5s",
    ),
    *(
        "99999999999d",
        "9999999d",
        "36601d",
        "9" * 30,
        "9" * 5000,
        "9" * 400 + "d",
        "1e5",
        "1e400d",
        "inf",
        "-inf",
        "nan",
        "NaNd",
    ),
    *(
        "never",
        "null",
        "None",
        "d",
        "1 day ago",
        "1d;",
        "1x",
        "٣d",
        "\uff11d",
        "1d\x00",
        "0x10",
        "true",
        "$TTL",
    ),
)


def invoke(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["token", "--home", str(home), *arguments])


def listed(home: Path) -> list[dict[str, Any]]:
    told = invoke(home, "list", "--json")
    assert told.exit_code == 0, told.output
    rows: list[dict[str, Any]] = json.loads(told.output)
    return rows


@pytest.mark.parametrize("span", BAD, ids=lambda span: repr(span[:20]))
def test_a_lifetime_that_makes_no_sense_is_refused(span: str) -> None:
    with pytest.raises(BadLifetime, match="1s"):
        lifetime_ms(span)


@pytest.mark.parametrize(
    ("span", "ms"),
    [
        ("1s", 1_000),
        (" 90d ", 7_776_000_000),
        ("12h", 43_200_000),
        ("1d12h", 129_600_000),
        ("36600d", LIVES_S_MAX * 1_000),
    ],
)
def test_a_span_of_time_is_a_lifetime(span: str, ms: int) -> None:
    assert lifetime_ms(span) == ms


def test_the_command_refuses_bad_lifetimes_and_stores_nothing(tmp_path: Path) -> None:
    for span in ("", "0d", "0s", "99999999999d", "nan", "-1d", "9" * 5000):
        told = invoke(tmp_path, "create", "x", "--role", "admin", "--expires", span)
        assert (told.exit_code, "Traceback" in told.output) == (2, False), told.output
        assert "--expires" in told.output
    for name in ("", "  ", "two\nlines", "bell\x07", "right\u202eleft", "x" * 101):
        assert invoke(tmp_path, "create", name).exit_code == 2
    assert invoke(tmp_path, "create", "x", "--role", "king").exit_code == 2
    assert listed(tmp_path) == []
    assert invoke(tmp_path, "create", "x").exit_code == 0
    assert [(row["name"], row["expires"], row["status"]) for row in listed(tmp_path)] == [
        ("x", None, "active")
    ]


@pytest.mark.parametrize("lives_ms", [0, -1, 1, 999, LIVES_S_MAX * 1_000 + 1, 2**63])
def test_nothing_is_stored_for_a_lifetime_out_of_bounds(lives_ms: int) -> None:
    store = open_store("memory:")
    with pytest.raises(UserError):
        Tokens(store, SystemClock()).create("x", Role.ADMIN, lives_ms)
    assert list(store.list(TOKENS, "")) == []


def damaged(store: Store, **changes: Any) -> tuple[str, str]:
    """A token whose record was changed; its id and its text."""
    tokens = Tokens(store, SystemClock())
    made, text = tokens.create("far", Role.ADMIN)
    store.transact([], [Put(TOKENS, made.id, to_document(replace(made, **changes)))])
    return made.id, text


IMPOSSIBLE: tuple[dict[str, Any], ...] = (
    {"expires_ms": 8_640_001_790_000_000_000},
    {"expires_ms": 10**30},
    {"expires_ms": -5},
    {"created_ms": 10**20},
    {"created_ms": -1},
    {"expires_ms": "tomorrow"},
)


@pytest.mark.parametrize("changes", IMPOSSIBLE, ids=str)
def test_a_token_with_impossible_dates_is_listed_and_revoked_and_lets_nobody_in(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert invoke(tmp_path, "create", "good").exit_code == 0
    (database,) = (path for path in tmp_path.rglob("*") if path.suffix in (".db", ".sqlite"))
    store = open_store(f"sqlite://{database}")
    token_id, text = damaged(store, **changes)
    found = {token.id: token for token in Tokens(store, SystemClock()).all()}
    assert authenticate(text, found.get, SystemClock().now_ms()) is None
    assert status_of(found[token_id], 0) is TokenStatus.DAMAGED
    store.close()
    assert sorted((row["name"], row["status"]) for row in listed(tmp_path)) == [
        ("far", "damaged"),
        ("good", "active"),
    ]
    assert invoke(tmp_path, "list").exit_code == 0
    assert invoke(tmp_path, "revoke", token_id).exit_code == 0
    assert [row["name"] for row in listed(tmp_path)] == ["good"]


def test_a_record_that_cannot_be_read_is_listed_by_its_id() -> None:
    store = open_store("memory:")
    store.transact(
        [],
        [
            Put(TOKENS, "0123456789ab", {"version": 1, "role": "king"}),
            Put(TOKENS, "0123456789ac", {"version": 99}),
        ],
    )
    tokens = Tokens(store, SystemClock())
    assert [(token.id, status_of(token, 0).value) for token in tokens.all()] == [
        ("0123456789ab", "damaged"),
        ("0123456789ac", "damaged"),
    ]
    tokens.revoke("0123456789ab")
    assert [token.id for token in tokens.all()] == ["0123456789ac"]
