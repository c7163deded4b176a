"""Authentication and roles: every route with every kind of caller."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tidegate.coordinator.tokens import Tokens, UnknownToken, authenticate
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import UserError
from tidegate.model.records import TOKENS, Role

READS = (
    *(
        "/openapi.json",
        "/overview",
        "/running-jobs",
        "/running-jobs/summary",
        "/pending-jobs",
        "/job-info/1",
        "/job-info/1/failures",
        "/running-job/1",
        "/finished-jobs",
    ),
    *(
        "/finished-jobs/FAILED",
        "/jobs/checkpoints/1",
        "/jobs/checkpoints/history/1",
        "/system-monitoring-information",
        "/thread-dump",
        "/running-threads",
    ),
    *(
        "/logs",
        "/logs/a.log",
        "/log",
        "/log/a.log",
        "/get-all-log-name",
        "/option-rules",
        "/metrics",
        "/openmetrics",
        "/loggers",
        "/loggers/x",
    ),
)
PROBES = ("/health", "/ready")  # tests/unit/api/test_api_outage.py
COMMANDS = (
    "/submit-job",
    "/submit-job/upload",
    "/submit-jobs",
    "/stop-job",
    "/stop-jobs",
    "/encrypt-config",
)
ADMINS = ("/update-tags", "/loggers/tidegate.api")


@pytest.fixture
def closed(make_site: Any) -> Any:
    settings = EngineSettings()
    return make_site(replace(settings, http=replace(settings.http, tokens=True)))


def holder(site: Any, role: Role, lives_ms: int | None = None) -> dict[str, str]:
    _, text = Tokens(site.solid, site.clock).create(f"some {role.value}", role, lives_ms)
    site.context.catch_up()
    return {"Authorization": f"Bearer {text}"}


def test_every_route_is_in_one_of_the_lists(closed) -> None:
    paths = {getattr(route, "path", "") for route in closed.app.routes}
    known = {
        path.replace("{job_id}", "1")
        .replace("{state}", "FAILED")
        .replace("{name:path}", "a.log")
        .replace("{name}", "x")
        for path in paths
    }
    assert known - {"/job-info", "/running-job", "/loggers/x", "/api/v1"} == {
        *READS,
        *PROBES,
        *COMMANDS,
        "/update-tags",
    } - {"/loggers/x"}


@pytest.mark.parametrize("path", READS)
def test_anonymous_callers_cannot_read(closed, path: str) -> None:
    _, text = Tokens(closed.solid, closed.clock).create("x", Role.ADMIN)
    closed.context.catch_up()
    wrong = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {text[:-1]}x"},
        {"Authorization": f"Basic {text}"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
    ]
    for headers in wrong:
        answer = closed.http.get(path, headers=headers)
        assert (answer.status_code, "WWW-Authenticate" in answer.headers) == (401, True)


@pytest.mark.parametrize("path", [*COMMANDS, *ADMINS])
def test_anonymous_callers_and_viewers_cannot_write(closed, path: str) -> None:
    assert closed.http.post(path, json={}).status_code == 401
    assert closed.http.post(path, json={}, headers=holder(closed, Role.VIEWER)).status_code == 403


def test_each_role_can_use_its_routes(closed) -> None:
    viewer, operator, admin = (holder(closed, role) for role in Role)
    assert closed.http.get("/overview", headers=viewer).status_code == 200
    assert closed.http.post("/stop-job", json={"jobId": 1}, headers=operator).status_code == 200
    for path in ADMINS:
        assert closed.http.post(path, json={"level": "INFO"}, headers=operator).status_code == 403
    assert closed.http.post("/loggers/tidegate.api?level=INFO", headers=admin).status_code == 200
    logging.getLogger("tidegate.api").setLevel(logging.NOTSET)


def test_a_token_expires_or_is_revoked(closed) -> None:
    brief, lasting = holder(closed, Role.VIEWER, lives_ms=60_000), holder(closed, Role.VIEWER)
    closed.clock.advance(59)
    closed.context.catch_up()
    assert closed.http.get("/overview", headers=brief).status_code == 200
    closed.clock.advance(1)
    closed.context.catch_up()
    assert closed.http.get("/overview", headers=brief).status_code == 401
    tokens = Tokens(closed.solid, closed.clock)
    tokens.revoke(lasting["Authorization"].split("_")[1])
    closed.context.catch_up()
    assert closed.http.get("/overview", headers=lasting).status_code == 401
    with pytest.raises(UnknownToken):
        tokens.revoke("000000000000")


def test_the_store_does_not_contain_the_secret(closed) -> None:
    token, text = Tokens(closed.solid, closed.clock).create("ci", Role.OPERATOR)
    kept = str(closed.solid.get(TOKENS, token.id).value)
    assert text.split("_", 2)[2] not in kept
    assert authenticate(text, {token.id: token}.get, 0) == token
    assert authenticate(text.upper(), {token.id: token}.get, 0) is None


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "two\nlines"])
def test_a_token_needs_a_name(closed, name: str) -> None:
    with pytest.raises(UserError, match="name"):
        Tokens(closed.solid, closed.clock).create(name, Role.VIEWER)


def test_a_reachable_address_requires_a_token_by_default(make_site: Any) -> None:
    settings = EngineSettings()
    site = make_site(replace(settings, http=replace(settings.http, host="0.0.0.0")))
    assert site.http.get("/overview").status_code == 401
    assert site.http.get("/overview", headers=holder(site, Role.VIEWER)).status_code == 200


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def audit() -> Iterator[list[logging.LogRecord]]:
    handler, log = Heard(), logging.getLogger("tidegate.audit")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.records
    log.removeHandler(handler)
    log.setLevel(level)


def test_every_write_is_audited_without_secrets(closed, audit: list[logging.LogRecord]) -> None:
    operator = holder(closed, Role.OPERATOR)
    closed.http.post("/stop-job", json={"jobId": 1}, headers=operator)
    closed.http.post("/submit-job?jobId=7", content=b"password = hunter2", headers=operator)
    closed.http.get("/overview", headers=operator)
    lines = [
        (r.__dict__["by"], r.__dict__["what"], r.__dict__["answer"], r.__dict__["asked"])
        for r in audit
    ]
    stopped = {"jobId": "1", "action": "cancel"}
    assert lines == [
        ("some operator", "POST /stop-job", 200, stopped),
        ("some operator", "POST /submit-job", 400, {"jobId": "7"}),
    ]
    assert "hunter2" not in str([r.__dict__ for r in audit])
