"""A real browser in front of a real server: it can log in with a password, its own forms work, and
pages of other origins cannot act.
"""

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_members import until
from playwright.sync_api import Browser, sync_playwright

TIMEOUT_S = 90
SERVER = [sys.executable, "-c", "from tidegate.cli import main; main()", "server", "--no-worker"]
CHROMIUM = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)
BASIC = (
    "    enable-basic-auth: true\n    basic-auth-username: ann\n    basic-auth-password:"
    " Öl-and-water\n"
)
EVIL = """<form id=f method=post enctype="text/plain" action="http://127.0.0.1:{port}/stop-job">
<input name='{{"jobId": 1, "x": "' value='"}}'></form>
<script>
fetch("http://127.0.0.1:{port}/stop-jobs", {{method: "POST", mode: "no-cors",
  headers: {{"Content-Type": "text/plain"}}, body: '[{{"jobId": 1}}]'}})
  .finally(() => document.getElementById("f").submit());
</script>"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """A server without a worker."""

    def __init__(self, place: Path, engine: str = "") -> None:
        self.home = place / "home"
        self.port = free_port()
        (place / "tidegate.yaml").write_text(f"tidegate:\n  http:\n    host: 127.0.0.1\n{engine}")
        command = [
            *SERVER,
            "--home",
            str(self.home),
            "--http-port",
            str(self.port),
            "--config",
            str(place / "tidegate.yaml"),
        ]
        with open(place / "server.txt", "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
            )
        until("the server", self._answers)

    def _answers(self) -> bool:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/ui/static/live.js", timeout=10
        ) as answer:
            return bool(answer.status == 200)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def log(self) -> str:
        return "".join(path.read_text() for path in (self.home / "logs").glob("server-*.log"))

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(TIMEOUT_S)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(CHROMIUM)
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("open"))
    yield site
    site.close()


def test_a_user_logs_in_with_user_and_password(browser: Browser, tmp_path: Path) -> None:
    site = Site(tmp_path, BASIC)
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(site.url("/overview"), timeout=10)
        with refused.value as answer:
            assert answer.headers.get_all("WWW-Authenticate") == [
                'Basic realm="Tidegate", charset="UTF-8"',
                'Bearer realm="Tidegate"',
            ]
        known = browser.new_context(
            http_credentials={"username": "ann", "password": "Öl-and-water"}
        )
        page = known.new_page()
        for path in ("/overview", "/ui/", "/ui/jobs"):
            answered = page.goto(site.url(path))
            assert answered is not None
            assert answered.status == 200, path
        known.close()
        wrong = browser.new_context(http_credentials={"username": "ann", "password": "wrong"})
        answered = wrong.new_page().goto(site.url("/overview"))
        assert answered is not None
        assert answered.status == 401
        wrong.close()
    finally:
        site.close()


def test_forms_of_our_own_pages_work(browser: Browser, open_site: Site) -> None:
    page = browser.new_page()
    page.goto(open_site.url("/ui/submit"))
    with page.expect_response(lambda answer: answer.request.method == "POST") as posted:
        page.locator("button[value=submit], button[type=submit]").last.click()
    assert posted.value.status in (200, 303), posted.value.status
    page.close()


def test_a_page_of_another_origin_can_neither_post_nor_rebind(
    browser: Browser, open_site: Site
) -> None:
    text = EVIL.format(port=open_site.port).encode()

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        for host in ("localhost", "127.0.0.1", "evil.example"):
            page = browser.new_page()
            statuses: dict[str, int] = {}
            page.on(
                "response",
                lambda answer, kept=statuses: kept.update(
                    {answer.request.method + answer.url.rpartition("/")[2]: answer.status}
                ),
            )
            page.goto(f"http://{host}:{elsewhere.server_address[1]}/")
            page.wait_for_url("**/stop-job")
            assert (statuses["POSTstop-jobs"], statuses["POSTstop-job"]) == (403, 403), host
            page.close()
        elsewhere.shutdown()
    page = browser.new_page()
    for path in ("/overview", "/ui/", "/api/v1/jobs"):
        rebound = page.goto(f"http://evil.example:{open_site.port}{path}")
        assert rebound is not None
        assert rebound.status == 421
    page.close()
    assert '"what": "POST /stop-job"' in open_site.log()
