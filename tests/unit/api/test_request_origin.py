"""Host and Origin checks: accepted names and pages, and clients other than browsers."""

import logging
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tidegate.api.request_origin import RequestCheck
from tidegate.config.engine.settings import read_engine
from tidegate.model.engine import EngineSettings, HttpSettings
from tidegate.model.problem import Severity
from tidegate.model.url_authority import parse_authority, parse_origin

LOOPBACK = (
    "localhost",
    "localhost:8080",
    "LocalHost:1",
    "localhost.",
    "localhost.:8080",
    "localhost:",
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.9.8.7:65535",
    "[::1]",
    "[::1]:8080",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]:9",
)
FOREIGN = (
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil-localhost",
    "notlocalhost:8080",
    "0.0.0.0:8080",
    "[::]:8080",
    "192.168.1.7",
    "169.254.169.254",
    "[2001:db8::1]",
    "2130706433",
    "0x7f000001",
    "127.1",
)
MALFORMED = (
    "",
    " ",
    ".",
    "localhost..",
    "local host",
    "user@localhost",
    "localhost@evil.example",
    "localhost:port",
    "localhost:0",
    "localhost:99999",
    "localhost:80:80",
    "localhost/path",
    "localhost?x",
    "localhost#x",
    "localhost,evil.example",
    "::1",
    "[::1",
    "[localhost]",
    "[::1%25lo]",
    "a" * 300,
    "*",
    "١٢٧.0.0.1",
)


def status(site: Any, method: str, path: str, headers: Any) -> int:
    """Return the response to a request with exactly these headers."""
    request = httpx.Request(
        method, f"http://localhost{path}", headers=headers, content=b'{"jobId": 1}'
    )
    return int(site.http._runner.run(site.http._client.send(request)).status_code)


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_names_are_accepted_in_every_spelling(site, host: str) -> None:
    site.context.catch_up()
    for method, path in (("GET", "/overview"), ("POST", "/stop-job"), ("GET", "/api/v1/overview")):
        assert status(site, method, path, {"Host": host}) == 200, (method, path)


@pytest.mark.parametrize("host", FOREIGN)
def test_other_host_names_are_rejected_for_every_method(site, host: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE"):
        assert status(site, method, "/overview", {"Host": host}) == 421, method
    for path in (
        "/",
        "/ui/",
        "/ui/login",
        "/ui/static/live.js",
        "/api/v1/events",
        "/api/v1/jobs",
        "/metrics",
        "/nowhere",
    ):
        assert (
            status(
                site,
                "GET",
                path,
                {"Host": host, "X-Forwarded-Host": "localhost", "Forwarded": "host=localhost"},
            )
            == 421
        ), path


@pytest.mark.parametrize("host", MALFORMED)
def test_a_host_that_no_browser_sends_is_bad_input(site, host: str) -> None:
    assert status(site, "GET", "/overview", [(b"Host", host.encode())]) == 400


def test_a_rejected_host_name_mentions_the_option_that_allows_it(site) -> None:
    answer = site.http.get("/overview", headers={"Host": "etl.example"})
    assert (answer.status_code, answer.json()["status"]) == (421, "fail")
    assert "'etl.example'" in answer.json()["message"]
    assert "http.allowed-hosts" in answer.json()["message"]


def refused(check: RequestCheck, headers: list[tuple[str, str]], **scope: Any) -> int:
    from starlette.datastructures import Headers

    given = Headers(raw=[(name.lower().encode(), value.encode()) for name, value in headers])
    found = check.refusal(
        {"path": "/x", "method": "POST", "server": ("10.0.0.5", 8080), **scope}, given
    )
    return found.status if found else 0


def test_missing_and_repeated_hosts_and_foreign_targets_are_bad_input() -> None:
    check = RequestCheck(HttpSettings(), "http://127.0.0.1:8080")
    assert refused(check, []) == 400
    assert refused(check, [("Host", "localhost"), ("Host", "localhost")]) == 400
    assert refused(check, [("Host", "localhost"), ("Host", "evil.example")]) == 400
    for target in ("http://evil.example/stop-job", "http://localhost/stop-job", "*", ""):
        assert refused(check, [("Host", "localhost")], path=target) == 400


def test_a_reachable_server_accepts_its_names_and_addresses() -> None:
    http = HttpSettings(
        host="0.0.0.0", allowed_hosts=("etl.example", "tidegate.ns.svc:8080", "Ünused")
    )
    check = RequestCheck(http, "http://node-1:8080")
    for host in (
        "node-1:8080",
        "NODE-1.",
        "etl.example",
        "etl.example:7",
        "tidegate.ns.svc:8080",
        "10.0.0.5:8080",
        "localhost:8080",
    ):
        assert refused(check, [("Host", host)]) == 0, host
    for host in (
        "tidegate.ns.svc",
        "tidegate.ns.svc:81",
        "10.0.0.6:8080",
        "other.example",
        "sub.etl.example",
    ):
        assert refused(check, [("Host", host)]) == 421, host
    bound = RequestCheck(HttpSettings(host="2001:db8::5"), "http://[2001:db8::5]:8080")
    assert refused(bound, [("Host", "[2001:DB8:0::5]:8080")]) == 0
    assert refused(bound, [("Host", "[2001:db8::6]")], server=("2001:db8::6%eth0", 80)) == 0
    local = RequestCheck(HttpSettings(), "http://127.0.0.1:8080")
    assert refused(local, [("Host", "10.0.0.5:8080")]) == 421, (
        "bound to loopback: only loopback names"
    )


UNSAFE = (
    *(
        ("POST", path)
        for path in (
            "/submit-job",
            "/submit-jobs",
            "/submit-job/upload",
            "/stop-job",
            "/stop-jobs",
            "/encrypt-config",
            "/update-tags",
        )
    ),
    ("POST", "/api/v1/jobs"),
    ("POST", "/api/v1/jobs/1/stop"),
    ("POST", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/000000000000"),
    ("PUT", "/loggers/tidegate.api"),
    ("POST", "/ui/login"),
    ("POST", "/ui/logout"),
    ("POST", "/ui/submit"),
    ("POST", "/ui/jobs/1/stop"),
    ("PATCH", "/nowhere"),
)
FOREIGN_PAGES: tuple[dict[str, str], ...] = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:9999"},
    {"Origin": "https://localhost:8080"},
    {"Origin": "http://localhost:8080.evil.example"},
    {"Origin": "http://localhost:8080@evil.example"},
    {"Origin": "http://127.0.0.1:8080"},
    {"Origin": "localhost:8080"},
    {"Origin": "http://localhost:8080/"},
    {"Origin": "http://localhost:8080, http://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "Cross-Site"},
    {"Sec-Fetch-Site": "SAME-SITE"},
    {"Sec-Fetch-Site": "same-site "},
    {"Sec-Fetch-Site": "anything"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8080"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
    {"Referer": "http://evil.example/page"},
    {"Referer": "http://localhost:9999/page"},
)


@pytest.mark.parametrize("headers", FOREIGN_PAGES, ids=str)
def test_a_page_of_another_origin_changes_nothing(site, headers: dict[str, str]) -> None:
    for method, path in UNSAFE:
        for kind in (
            "application/json",
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
        ):
            given = {"Host": "localhost:8080", "Content-Type": kind, **headers}
            assert status(site, method, path, given) == 403, (method, path, kind)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost:8080"},
        {"Origin": "HTTP://LOCALHOST:8080"},
        {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "Same-Origin"},
        {"Sec-Fetch-Site": "none"},
        {"Referer": "http://localhost:8080/ui/jobs/1/stop"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
    ],
    ids=str,
)
def test_own_pages_and_plain_clients_may_act(site, headers: dict[str, str]) -> None:
    assert status(site, "POST", "/stop-job", {"Host": "localhost:8080", **headers}) == 200


def test_no_answer_lets_another_origin_read_it(site) -> None:
    for method in ("GET", "OPTIONS", "POST"):
        request = httpx.Request(
            method,
            "http://localhost/overview",
            headers={"Origin": "http://localhost", "Access-Control-Request-Method": "POST"},
        )
        answer = site.http._runner.run(site.http._client.send(request))
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_proxy_needs_its_address_in_the_settings(make_site: Any) -> None:
    settings = EngineSettings()
    site = make_site(
        replace(settings, http=replace(settings.http, external_url="https://etl.example/"))
    )
    behind = {
        "Host": "127.0.0.1:8080",
        "Origin": "https://etl.example",
        "Sec-Fetch-Site": "same-origin",
    }
    assert status(site, "POST", "/stop-job", behind) == 200, "the proxy sets its own Host"
    assert status(site, "POST", "/stop-job", {**behind, "Host": "etl.example"}) == 200
    assert status(site, "POST", "/stop-job", {**behind, "Origin": "http://etl.example"}) == 403
    assert status(site, "POST", "/stop-job", {**behind, "Origin": "https://etl.example:444"}) == 403


def test_default_ports_need_not_be_written() -> None:
    assert parse_origin("https://etl.example:443") == parse_origin("https://etl.example")
    assert parse_origin("http://[::1]:80") == parse_origin("http://[0::1]")
    assert parse_origin("ftp://etl.example") is None
    assert parse_authority("Etl.Example.:8080") == parse_authority("etl.example:8080")


def test_rejected_origins_are_in_the_audit_log(site, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tidegate.audit")
    log.addHandler(caplog.handler)
    log.setLevel(logging.INFO)
    try:
        status(
            site, "POST", "/stop-job", {"Host": "localhost:8080", "Origin": "http://evil.example"}
        )
    finally:
        log.removeHandler(caplog.handler)
        log.setLevel(logging.NOTSET)
    (line,) = [record.__dict__ for record in caplog.records if record.name == "tidegate.audit"][:1]
    assert (line["what"], line["answer"], line["by"], line["role"]) == (
        "POST /stop-job",
        403,
        "",
        "",
    )


@pytest.mark.parametrize(
    "name", ["https://etl.example", "*.example", "a b", "etl.example/x", "user@etl.example"]
)
def test_a_name_that_is_no_host_is_an_error_of_the_engine_file(name: str) -> None:
    _, _, problems = read_engine(
        f"tidegate:\n  http:\n    allowed-hosts: ['{name}']\n", "tidegate.yaml", {}
    )
    assert [problem.path for problem in problems if problem.severity is Severity.ERROR] == [
        "tidegate.http.allowed-hosts"
    ]


@pytest.mark.parametrize(
    "url",
    ["etl.example", "ftp://etl.example", "https://user:pw@etl.example", "https://etl.example/path"],
)
def test_an_external_url_that_is_none_is_an_error_of_the_engine_file(url: str) -> None:
    _, _, problems = read_engine(
        f"tidegate:\n  http:\n    external-url: {url}\n", "tidegate.yaml", {}
    )
    assert [problem.path for problem in problems if problem.severity is Severity.ERROR] == [
        "tidegate.http.external-url"
    ]


def test_names_of_the_engine_file_become_settings() -> None:
    text = (
        "tidegate:\n  http:\n    allowed-hosts: [etl.example, 'tidegate:8080']\n    external-url:"
        " https://etl.example\n"
    )
    settings, _, problems = read_engine(text, "tidegate.yaml", {})
    assert settings.http.allowed_hosts == ("etl.example", "tidegate:8080")
    assert settings.http.external_url == "https://etl.example"
    assert not problems
