"""Every route of both APIs and of the web UI: anonymous callers, viewers, invalid requests.

Routes are read from the route tables. Each request gets a clear 4xx and changes nothing.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount, Route

from tidegate.api.app import make_app
from tidegate.api.seatunnel.responses import BODY_BYTES_MAX
from tidegate.coordinator.cluster_cache import KINDS
from tidegate.coordinator.tokens import Tokens
from tidegate.model.engine import EngineSettings
from tidegate.model.records import TOKENS, Role
from tidegate.ui.app import routes as pages

# A value for each path parameter; a new parameter must be added here.
VALUES = {
    "job_id": "1",
    "state": "FAILED",
    "name": "tidegate.api",
    "path": "a.log",
    "pipeline": "1",
    "checkpoint": "1",
    "savepoint_id": "1700000000000",
    "quarantine_id": "q",
    "token_id": "0" * 12,
    "kind": "source",
}
FOR_ALL = {
    ("GET", "/ui/login"),
    ("POST", "/ui/login"),
    *(("GET", f"{root}/{name}") for root in ("", "/api/v1") for name in ("health", "ready")),
}
LOOKERS_MAY = {*FOR_ALL, ("POST", "/ui/logout")}
ENDLESS = ("GET", "/api/v1/events")  # a stream that does not end
NONSENSE = {
    "nothing": b"",
    "no JSON": b"{not json",
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "null": b"null",
    "a number": b"7",
    "other types": (
        b'{"jobId": {"a": [1]}, "text": 5, "name": [], "id": {}, "how": 1, "level": [], "stop":'
        b' "maybe", "restore": {}, "tags": 3}'
    ),
    "deep": b'{"a":' * 3_000,
    "a form": b"how=nonsense&id=..%2f..&restore=nowhere&text=%00&jobId=x",
}
STRANGE = (
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..%5cetc",
    "%00",
    "9" * 30,
    "x" * 4000,
    "%F0%9F%92%A5",
    "1%0a2",
)
NUMBERS = (
    "9" * 5000,
    "0" * 5000 + "1",
    str(2**63),
    str(2**64),
    "-1",
    "-" + "9" * 5000,
    "0",
    "+1",
    "1_0",
    "1e3",
    "0x1",
    "%D9%A3",
    "%EF%BC%91",
    "%20",
    "NaN",
)
COUNTED = ("page", "rows", "limit", "pipelineId", "pipeline", "jobId", "job", "cursor")


@dataclass(frozen=True)
class Place:
    """A method at a path with its parameters filled in."""

    method: str
    template: str

    @property
    def path(self) -> str:
        return re.sub(
            r"\{(\w+)(:\w+)?\}",
            lambda found: VALUES["path" if found[2] else found[1]],
            self.template,
        )

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"\{[^}]+\}", self.template)

    def with_value(self, parameter: str, value: str) -> str:
        return replace(self, template=self.template.replace(parameter, value)).path


def places(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[Place]:
    for route in routes:
        if isinstance(route, Mount) and isinstance(route.app, FastAPI):
            described = route.app.openapi()["paths"]
            yield from (
                Place(method.upper(), prefix + route.path + path)
                for path, methods in described.items()
                for method in methods
            )
            yield from places(
                [each for each in route.app.routes if isinstance(each, Route)], prefix + route.path
            )
        elif isinstance(route, Mount):
            yield from places(
                getattr(route.app, "routes", []), prefix + route.path
            )  # static files have none
        elif isinstance(route, Route):
            yield from (
                Place(method, prefix + route.path)
                for method in sorted(route.methods or ())
                if method != "HEAD"
            )


class Building:
    """The whole application of a server; records writes to its store."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.app = make_app(site.context, pages(site.context))
        self.places = sorted(
            set(places(self.app.routes)), key=lambda place: (place.template, place.method)
        )
        self.runner = asyncio.Runner()
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://localhost"
        )
        site.running(1)
        site.ended(2)
        site.context.catch_up()

    def ask(self, place: Place, path: str = "", **options: Any) -> httpx.Response:
        return self.runner.run(self.client.request(place.method, path or place.path, **options))

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()

    def holder(self, role: Role, lives_ms: int | None = None) -> dict[str, str]:
        _, text = Tokens(self.site.solid, self.site.clock).create(
            f"some {role.value}", role, lives_ms
        )
        self.site.context.catch_up()
        return {"Authorization": f"Bearer {text}"}

    def kept(self) -> dict[str, list[Any]]:
        return {
            map: [(entry.key, entry.version) for entry in self.site.solid.list(map)]
            for map in KINDS
        }


@pytest.fixture
def closed(make_site: Any) -> Iterator[Building]:
    settings = EngineSettings()
    made = Building(make_site(replace(settings, http=replace(settings.http, tokens=True))))
    yield made
    made.close()


@pytest.fixture
def open_house(site: Any) -> Iterator[Building]:
    made = Building(site)
    yield made
    made.close()


def test_routes_of_all_three_tables_are_tested(closed: Building) -> None:
    found = {(place.method, place.template) for place in closed.places}
    assert {
        ("POST", "/submit-job"),
        ("DELETE", "/api/v1/tokens/{token_id}"),
        ("GET", "/api/v1/events"),
        ("POST", "/ui/jobs/{job_id}/stop"),
    } <= found
    assert len(found) > 80


def test_anonymous_callers_are_rejected_everywhere(closed: Building) -> None:
    expired = closed.holder(Role.ADMIN, lives_ms=1_000)
    token_id = expired["Authorization"].split("_")[1]
    closed.site.clock.advance(2)
    closed.site.context.catch_up()
    wrong = [
        {},
        expired,
        {"Authorization": f"Bearer tg_{token_id}_{'x' * 43}"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Cookie": "tidegate_token=tg_x"},
    ]
    before = closed.kept()
    for place in closed.places:
        if (place.method, place.template) in FOR_ALL:
            continue
        for headers in wrong:
            answer = closed.ask(place, headers=headers)
            to_the_door = (
                answer.status_code == 303
                and answer.headers["location"].partition("?")[0] == "/ui/login"
            )
            page = place.method == "GET" and (
                place.template == "/" or place.template.startswith("/ui/")
            )
            assert to_the_door if page else answer.status_code == 401, (
                f"{place} {headers} {answer.status_code}"
            )
            assert "stream" not in answer.text  # the name of the job
    assert closed.kept() == before


def test_viewers_cannot_write(closed: Building) -> None:
    viewer = closed.holder(Role.VIEWER)
    before = closed.kept()
    for place in closed.places:
        if place.method != "GET" and (place.method, place.template) not in LOOKERS_MAY:
            answer = closed.ask(
                place,
                headers=viewer,
                json={"name": "x", "text": "x", "how": "cancel", "jobId": 1, "level": "INFO"},
            )
            allowed = place.template in ("/api/v1/validate",)  # validates a text, stores nothing
            assert answer.status_code == 403 or allowed, f"{place} {answer.status_code}"
    assert closed.kept() == before


@pytest.mark.parametrize("what", NONSENSE)
def test_an_invalid_body_causes_no_internal_error(open_house: Building, what: str) -> None:
    before = open_house.kept()
    types = ("application/json", "multipart/form-data; boundary=x", "multipart/form-data")
    for place in open_house.places:
        if (
            place.method in ("POST", "PUT")
            and place.template != "/api/v1/storage/collect"
            and not place.template.startswith("/ui/jobs/{job_id}/savepoint")
        ):
            for content_type in types:
                answer = open_house.ask(
                    place, content=NONSENSE[what], headers={"Content-Type": content_type}
                )
                assert answer.status_code < 500, (
                    f"{place} {content_type} {answer.status_code} {answer.text[:300]}"
                )
    after = open_house.kept()
    assert {map: rows for map, rows in after.items() if map != TOKENS} == {
        map: rows for map, rows in before.items() if map != TOKENS
    }


def test_a_body_that_is_too_large_is_rejected_everywhere(open_house: Building) -> None:
    before, large = open_house.kept(), b" " * (BODY_BYTES_MAX + 1)

    async def unannounced() -> Any:
        for _ in range(3):
            yield large[: BODY_BYTES_MAX // 2]

    for place in open_house.places:
        if place.method in ("POST", "PUT"):
            answer = open_house.ask(place, content=large)
            assert answer.status_code == 413, f"{place} {answer.status_code}"
    for path in ("/submit-job", "/api/v1/jobs", "/ui/submit"):
        answer = open_house.ask(
            Place("POST", path), content=unannounced(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (400, 413), f"{path} {answer.status_code}"
    assert open_house.kept() == before


def test_any_text_as_a_path_parameter_is_handled(
    open_house: Building,
) -> None:
    before = open_house.kept()
    for place in open_house.places:
        for parameter in place.parameters:
            for value in (*STRANGE, *NUMBERS):
                answer = open_house.ask(
                    place,
                    place.with_value(parameter, value),
                    **({} if place.method == "GET" else {"json": {}}),
                )
                assert answer.status_code < 500, (
                    f"{place} {value} {answer.status_code} {answer.text[:300]}"
                )
                assert "root:" not in answer.text
                if place.method != "GET" and "loggers" not in place.template:
                    assert answer.status_code >= 400, f"{place} {value} {answer.status_code}"
    assert open_house.kept() == before


def test_unusual_requests_cause_no_internal_error(open_house: Building) -> None:
    for place in open_house.places:
        if place.method == "GET" and (place.method, place.template) != ENDLESS:
            for query in (
                "?page=x&rows=-1&limit=0&cursor=%00&status=x&pipeline=x&format=x&type=x&plugin=x&file=..%2fx&name=%ff&how=x&restore=x",
                "?%",
                "?limit=9999999999",
            ):
                answer = open_house.ask(place, place.path + query)
                assert answer.status_code < 500, (
                    f"{place} {query} {answer.status_code} {answer.text[:300]}"
                )


@pytest.mark.parametrize("name", COUNTED)
def test_numbers_of_any_length_in_a_query_are_bad_input(open_house: Building, name: str) -> None:
    for place in open_house.places:
        if place.method == "GET" and (place.method, place.template) != ENDLESS:
            for value in ("9" * 5000, str(2**64), "-1", "%D9%A3", ""):
                answer = open_house.ask(place, f"{place.path}?{name}={value}")
                assert answer.status_code < 500, (
                    f"{place} {name} {value[:20]} {answer.status_code} {answer.text[:300]}"
                )
                assert len(answer.text) < 3_000 or answer.status_code == 200, (
                    "the number is not repeated whole"
                )


def test_numbers_of_any_length_are_answered_as_seatunnel_does(open_house: Building) -> None:
    for path in (
        "/job-info/{}",
        "/running-job/{}",
        "/jobs/checkpoints/{}",
        "/finished-jobs?page={}",
        "/running-jobs?page=1&rows={}",
        "/job-info/1/failures?limit={}",
    ):
        for value in ("9" * 5000, str(2**63), "-1", "%D9%A3"):
            answer = open_house.ask(Place("GET", path), path.format(value))
            assert (answer.status_code, answer.json()["status"]) == (400, "fail"), path
    for path in ("/ui/jobs/{}", "/ui/jobs/{}/logs", "/ui/jobs/{}/stop"):
        assert open_house.ask(Place("GET", path), path.format("9" * 5000)).status_code == 400


@pytest.mark.parametrize(
    "value",
    [
        *(
            "9" * 5000,
            "-1",
            "path:%00",
            "savepoint:%00",
            "path:" + "x" * 5000,
            "savepoint:" + "9" * 5000,
            "checkpoint:" + "9" * 5000,
        )
    ],
)
def test_a_submit_with_hostile_parameters_is_bad_input(open_house: Building, value: str) -> None:
    body = (
        b'{"env": {"job.mode": "BATCH"}, "source": [{"plugin_name": "FakeSource", "schema":'
        b' {"fields": {"id": "int"}}}], "sink": [{"plugin_name": "Console"}]}'
    )
    before = open_house.kept()
    for name in ("jobId", "restore", "restoreFrom", "restoreSourceJobId"):
        answer = open_house.ask(
            Place("POST", "/submit-job"),
            f"/submit-job?{name}={value}&restoreMode=CHECKPOINT",
            content=body,
        )
        assert 400 <= answer.status_code < 500, f"{name} {answer.status_code} {answer.text[:300]}"
    answer = open_house.ask(
        Place("POST", "/stop-job"),
        "/stop-job",
        content=f'{{"jobId": {value!r}}}'.replace("'", '"').encode(),
    )
    assert answer.status_code == 400
    assert open_house.kept() == before


@pytest.mark.parametrize("path", ["/job-info/1", "/api/v1/jobs/1", "/ui/jobs/1"])
def test_an_internal_error_has_a_request_id_and_no_details(
    open_house: Building,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("of hunter2")

    monkeypatch.setattr(open_house.site.context, "current", broken)
    transport = httpx.ASGITransport(open_house.app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    answer = open_house.runner.run(client.get(path))
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    found = re.search(
        r"Internal server error; see the server log, request id ([0-9a-f]{12})", answer.text
    )
    assert found is not None, answer.text
    lines = {
        record.__dict__["request"]: record
        for record in caplog.records
        if record.getMessage() == "request_failed"
    }
    assert lines[found[1]].exc_info is not None
