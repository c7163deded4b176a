"""Tokens over the typed API: admins only, secrets shown once, every change audited."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tidegate.coordinator.tokens import Tokens
from tidegate.model.engine import EngineSettings
from tidegate.model.records import TOKENS, Role

PATH = "/api/v1/tokens"


@pytest.fixture
def closed(make_site: Any) -> Any:
    settings = EngineSettings()
    return make_site(replace(settings, http=replace(settings.http, tokens=True)))


def holder(site: Any, role: Role) -> dict[str, str]:
    _, text = Tokens(site.solid, site.clock).create(f"some {role.value}", role)
    site.context.catch_up()
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def audit() -> Iterator[list[logging.LogRecord]]:
    heard: list[logging.LogRecord] = []
    handler, log = logging.Handler(), logging.getLogger("tidegate.audit")
    handler.emit = heard.append  # type: ignore[method-assign]  # a handler that remembers
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield heard
    log.removeHandler(handler)
    log.setLevel(level)


def test_a_token_is_created_used_listed_and_revoked(
    closed: Any, audit: list[logging.LogRecord]
) -> None:
    admin = holder(closed, Role.ADMIN)
    answer = closed.http.post(
        PATH, json={"name": "ci", "role": "operator", "lifetime_s": 60}, headers=admin
    )
    made = answer.json()
    assert (answer.status_code, answer.headers["cache-control"], made["role"], made["name"]) == (
        201,
        "no-store",
        "operator",
        "ci",
    )
    theirs = {"Authorization": f"Bearer {made['token']}"}
    assert closed.http.get("/overview", headers=theirs).status_code == 200
    listed = closed.http.get(PATH, headers=admin)
    seen = sorted((each["name"], each["role"], each["expires"] is None) for each in listed.json())
    assert seen == [("ci", "operator", False), ("some admin", "admin", True)]
    secret = made["token"].split("_", 2)[2]
    assert secret not in listed.text
    assert closed.http.delete(f"{PATH}/{made['id']}", headers=admin).status_code == 204
    assert closed.http.get("/overview", headers=theirs).status_code == 401
    again = closed.http.delete(f"{PATH}/{made['id']}", headers=admin)
    assert (again.status_code, again.json()["condition"]) == (404, "unknown-token")
    lines = [
        (r.__dict__["by"], r.__dict__["what"]) for r in audit if r.getMessage() == "token_audited"
    ]
    assert lines == [
        ("some admin", f"created token {made['id']} 'ci', operator"),
        ("some admin", f"revoked token {made['id']}"),
    ]
    assert secret not in str([r.__dict__ for r in audit])


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.OPERATOR])
def test_only_admins_can_read_or_change_tokens(closed: Any, role: Role | None) -> None:
    admin, theirs = holder(closed, Role.ADMIN), holder(closed, role) if role else {}
    before = [entry.key for entry in closed.solid.list(TOKENS)]
    status = 403 if role else 401
    assert closed.http.get(PATH, headers=theirs).status_code == status
    assert (
        closed.http.post(PATH, json={"name": "me", "role": "admin"}, headers=theirs).status_code
        == status
    )
    for key in before:
        assert closed.http.delete(f"{PATH}/{key}", headers=theirs).status_code == status
    assert [entry.key for entry in closed.solid.list(TOKENS)] == before
    assert closed.http.get("/overview", headers=admin).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "x" * 101},
        {"name": 7},
        {"name": "x", "role": "king"},
        {"name": "x", "lifetime_s": 0},
        {"name": "x", "more": 1},
        [],
        "x",
    ],
)
def test_an_invalid_request_creates_no_token(site: Any, body: Any) -> None:
    answer = site.http.post(PATH, json=body)
    assert (answer.status_code, answer.json()["condition"]) == (422, "invalid-request")
    assert site.http.post(PATH, json={"name": "two\nlines"}).status_code == 400
    assert site.solid.list(TOKENS) == []


@pytest.mark.parametrize("word", ["x", "A" * 12, "0" * 11, "0" * 13])
def test_an_invalid_token_id_is_rejected(site: Any, word: str) -> None:
    assert site.http.delete(f"{PATH}/{word}").status_code in (404, 405, 422)


@pytest.mark.parametrize(
    "lives",
    [0, -1, "", "0d", "90d", 1.5, 10**12, 10**400, "9" * 5000, [], {}],
    ids=lambda lives: str(lives)[:20],
)
def test_an_invalid_lifetime_is_rejected(site: Any, lives: Any) -> None:
    answer = site.http.post(PATH, json={"name": "x", "role": "admin", "lifetime_s": lives})
    assert (answer.status_code, answer.json()["condition"]) == (422, "invalid-request")
    for text in ("NaN", "Infinity", "-Infinity", "1e400"):
        body = f'{{"name": "x", "role": "admin", "lifetime_s": {text}}}'.encode()
        assert (
            site.http.post(
                PATH, content=body, headers={"Content-Type": "application/json"}
            ).status_code
            == 422
        )
    assert list(site.solid.list(TOKENS)) == []


def test_a_record_with_an_impossible_date_breaks_neither_the_list_nor_authentication(
    closed: Any,
) -> None:
    admin = holder(closed, Role.ADMIN)
    far, text = Tokens(closed.solid, closed.clock).create("far", Role.ADMIN)
    closed.put(TOKENS, far.id, replace(far, expires_ms=8_640_001_790_000_000_000))
    closed.context.catch_up()
    assert (
        closed.http.get("/overview", headers={"Authorization": f"Bearer {text}"}).status_code == 401
    )
    listed = closed.http.get(PATH, headers=admin)
    assert listed.status_code == 200, listed.text
    assert {each["name"]: each["status"] for each in listed.json()} == {
        "some admin": "active",
        "far": "damaged",
    }
    assert closed.http.delete(f"{PATH}/{far.id}", headers=admin).status_code == 204
    assert [each["name"] for each in closed.http.get(PATH, headers=admin).json()] == ["some admin"]
