"""Requests generated from both OpenAPI documents: no server error, no undocumented response."""

import re
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from tidegate.api.seatunnel.openapi import OPERATIONS
from tidegate.coordinator.tokens import Tokens
from tidegate.model.engine import EngineSettings
from tidegate.model.records import CheckpointHealth, Failure, JobStatus, Role

NOW_MS = 1_790_000_000_000
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture
def site(make_site: Any) -> Any:
    """A server that accepts the host name that schemathesis uses."""
    settings = EngineSettings()
    return make_site(replace(settings, http=replace(settings.http, allowed_hosts=("testserver",))))


def furnished(site: Any) -> Any:
    site.leader()
    site.worker("w1", slots=2, holds=(1,))
    site.running(
        1,
        health=CheckpointHealth.LATE,
        failures=(Failure(at_ms=NOW_MS, generation=1, message="it broke"),),
    )
    site.pipeline(1, checkpoint=3, checkpoints=3)
    site.running(2, JobStatus.PENDING, reason="no slot")
    site.ended(3)
    site.ended(
        4, JobStatus.FAILED, failures=(Failure(at_ms=NOW_MS, generation=1, message="it broke"),)
    )
    site.context.catch_up()
    return site


def ask_everything(site: Any, path: str, examples: int) -> set[str]:
    """Send `cases` requests to each operation; return the tested operations."""
    schema, asked = schemathesis.openapi.from_asgi(path, app=site.app), set()
    for result in schema.get_all_operations():
        operation = result.ok()
        asked.add(operation.label)

        @settings(
            max_examples=examples,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def once(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        given(case=operation.as_strategy())(once)()
    return asked


def test_every_route_is_described_and_every_description_is_a_route(site) -> None:
    described = {(operation.method.upper(), operation.path) for operation in OPERATIONS}
    routes = {
        (method, re.sub(r":path", "", route.path))
        for route in site.app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert routes - described == {
        ("GET", "/openapi.json"),
        ("GET", "/job-info"),
        ("GET", "/running-job"),
    }
    assert described <= routes


@pytest.mark.parametrize("path", ["/openapi.json", "/api/v1/openapi.json"])
def test_no_documented_request_causes_a_server_error(site, path: str) -> None:
    assert len(ask_everything(furnished(site), path, 5)) >= 12


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", ["/openapi.json", "/api/v1/openapi.json"])
def test_many_documented_requests_cause_no_server_error(site, path: str) -> None:
    ask_everything(furnished(site), path, 300)


def role_holders(site: Any) -> dict[Role, dict[str, str]]:
    """Return the Authorization header of a caller with this role."""
    tokens = Tokens(site.solid, site.clock)
    holders = {
        role: {"Authorization": f"Bearer {tokens.create(role.value, role)[1]}"} for role in Role
    }
    site.context.catch_up()
    return holders


@pytest.mark.parametrize(
    ("path", "prefix"), [("/openapi.json", ""), ("/api/v1/openapi.json", "/api/v1")]
)
def test_the_documented_role_is_the_one_that_the_route_needs(
    make_site: Any, path: str, prefix: str
) -> None:
    default = EngineSettings()
    site = furnished(make_site(replace(default, http=replace(default.http, tokens=True))))
    holders = role_holders(site)
    described = site.http.get(path, headers=holders[Role.VIEWER]).json()["paths"]
    operations = [
        (method, where, Role(each["x-role"]))
        for where, methods in described.items()
        for method, each in methods.items()
    ]
    assert (
        {Role.VIEWER, Role.OPERATOR, Role.ADMIN}
        >= {role for _, _, role in operations}
        >= {Role.VIEWER, Role.OPERATOR}
    )
    for method, where, needed in operations:
        if method == "put":  # as its POST
            assert needed is Role.ADMIN
            continue
        place = prefix + re.sub(r"\{\w+\}", "1", where)
        for role in Role:
            answer = getattr(site.http, method)(
                place, headers=holders[role], **({"json": {}} if method == "post" else {})
            )
            assert (answer.status_code == 403) is not role.may(needed), (
                f"{method} {place} as {role}"
            )


def test_the_description_says_where_the_api_is(make_site: Any) -> None:
    default = EngineSettings()
    site = make_site(replace(default, http=replace(default.http, context_path="/flow")))
    assert site.http.get("/flow/openapi.json").json()["servers"] == [{"url": "/flow"}]
