"""The pages in a real browser, against real servers with real jobs (on the plain engine, so that no
JVM is needed).
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_members import until
from playwright.sync_api import Browser, Page, expect, sync_playwright

TIMEOUT_S = 90
TIMEOUT_MS = TIMEOUT_S * 1000
PLAIN = """
import functools, tidegate.server as server, tidegate.cli.server as verbs
from tidegate.cli import main
verbs.ServerSettings = functools.partial(
    server.ServerSettings, driver_module="tidegate.testing.plain_driver"
)
main()
"""
STREAM = """env {{ job.mode = "STREAMING", job.name = "{name}", checkpoint.interval = 300
  spark.app.secret = "hunter2" }}
source {{ LocalFile {{ path = "{place}/in", file_format_type = "csv", discovery_mode = "continuous"
  plugin_output = "t", scan_interval = 200, schema {{ fields {{ id = bigint, name = string }}}}}}}}
sink {{ LocalFile {{ plugin_input = "t", path = "{place}/out-{name}"
  file_format_type = "parquet" }} }}
"""
CHROMIUM = (
    *(
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync"),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """A server with its worker, and a folder with rows."""

    def __init__(self, place: Path, *, engine: str = "", worker: bool = True) -> None:
        self.place = place
        self.home = place / "home"
        (place / "in").mkdir(exist_ok=True)
        (place / "in" / "a.csv").write_text("1,ann\n2,bob\n3,cid\n")
        self.config = place / "tidegate.yaml"
        self.config.write_text(f"tidegate:\n  http:\n    host: 127.0.0.1\n{engine}")
        self.started: list[subprocess.Popen[bytes]] = []
        self.port = self.start(worker=worker)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, *, worker: bool = True, port: int | None = None) -> int:
        port = port or free_port()
        command = [
            sys.executable,
            "-c",
            PLAIN,
            "server",
            "--home",
            str(self.home),
            "--http-port",
            str(port),
            "--config",
            str(self.config),
        ]
        with open(self.place / "server.txt", "ab") as log:
            process = subprocess.Popen(
                command + ([] if worker else ["--no-worker"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(os.environ),
            )
        self.started.append(process)
        until(f"a server at {port}", lambda: self.ask("/ui/static/live.js", port))
        return port

    def ask(self, path: str, port: int | None = None, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", body), timeout=10
        ) as answer:
            data: bytes = answer.read()
        return data

    def submit(self, name: str, job_id: int) -> None:
        text = STREAM.format(place=self.place, name=name).encode()
        until(
            f"job {name} taken in",
            lambda: self.ask(f"/submit-job?format=hocon&jobId={job_id}", body=text),
        )
        until(
            f"job {name} with a checkpoint",
            lambda: json.loads(self.ask(f"/job-info/{job_id}")).get("lastCheckpointId"),
        )

    def status(self, job_id: int) -> str:
        return str(json.loads(self.ask(f"/job-info/{job_id}")).get("jobStatus"))

    def close(self) -> None:
        """Jobs first: drivers outlive their servers."""
        try:
            for job in json.loads(self.ask("/running-jobs")):
                self.ask(
                    "/stop-job", body=json.dumps({"jobId": job["jobId"], "force": True}).encode()
                )
            until("all jobs ended", lambda: self.ask("/running-jobs") == b"[]")
        finally:
            for process in self.started:
                process.send_signal(signal.SIGTERM)
            for process in self.started:
                process.wait(TIMEOUT_S)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(CHROMIUM)
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("pages"))
    try:
        made.submit("orders", 11)
        yield made
    finally:
        made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a new browser context; every script error fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    visit, wrong = context.new_page(), []
    visit.on("pageerror", lambda error: wrong.append(str(error)))
    visit.on(
        "console",
        lambda message: (
            wrong.append(message.text)
            if message.type == "error"
            and "net::" not in message.text
            and "status of" not in message.text
            else None
        ),
    )
    yield visit
    context.close()
    assert wrong == []


def answer(page: Page) -> Any:
    return expect(page.locator("#answer"))


def test_the_root_redirects_to_the_overview_of_the_cluster(site: Site, page: Page) -> None:
    page.goto(site.url)
    assert page.url.endswith("/ui/")
    answer(page).to_contain_text(re.compile("well|attention"), timeout=TIMEOUT_MS)
    expect(page.get_by_role("navigation").get_by_role("link", name="Overview")).to_have_attribute(
        "aria-current", "page"
    )


def test_jobs_are_found_by_name_and_status_and_the_address_keeps_it(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/jobs")
    page.get_by_label("Name").fill("ord")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    assert "name=ord" in page.url
    page.goto(f"{site.url}/ui/jobs?name=nothing")
    answer(page).to_contain_text("0 jobs")


def test_a_job_shows_graph_timeline_and_age_and_no_secret(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/jobs/11")
    answer(page).to_contain_text("orders")
    expect(page.locator(".lead")).to_contain_text("Last checkpointed")
    expect(page.locator("svg.graph .node")).to_have_count(2)
    expect(page.locator("svg.timeline g").first).to_have_attribute(
        "aria-label", re.compile("checkpoint 1")
    )
    page.locator("svg.graph .node").first.focus()
    expect(page.locator("svg.graph .node").first).to_be_focused()
    page.get_by_text("Options").click()
    expect(page.get_by_text("checkpoint.interval")).to_be_visible()
    assert "hunter2" not in page.content()


def test_a_page_lives_without_being_loaded_again(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/jobs/11")
    page.evaluate("window.sameVisit = true")
    (site.place / "in" / "b.csv.tmp").write_text("4,dan\n5,eve\n")
    (site.place / "in" / "b.csv.tmp").rename(site.place / "in" / "b.csv")
    expect(page.locator(".figures")).to_contain_text("5", timeout=TIMEOUT_MS)
    assert page.evaluate("window.sameVisit") is True


def test_the_log_of_a_job_can_be_read(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/jobs/11/logs")
    expect(page.locator("#log")).to_contain_text("checkpoint_completed")


def test_a_job_file_is_checked_at_its_lines_then_submitted_and_stopped(
    site: Site, page: Page
) -> None:
    page.goto(f"{site.url}/ui/submit")
    text = STREAM.format(place=site.place, name="pasted")
    page.locator("#text").fill(text.replace("sink { LocalFile", "sink { LocalFle"))
    page.get_by_role("button", name="Check").click()
    answer(page).to_contain_text("1 problem")
    expect(page.locator(".problems")).to_contain_text("LocalFile")
    page.get_by_text("line 5").click()
    assert page.evaluate(
        "document.getSelection().toString() ||"
        " document.activeElement.value.slice(document.activeElement.selectionStart,"
        " document.activeElement.selectionEnd)"
    ).startswith("sink")
    page.locator("#text").fill(text)
    page.get_by_role("button", name="Check").click()
    answer(page).to_contain_text("is valid")
    expect(page.locator("svg.graph .node")).to_have_count(2)
    page.get_by_label("Id", exact=True).fill("21")
    page.get_by_role("button", name="Submit", exact=True).click()
    answer(page).to_contain_text("pasted")
    answer(page).to_contain_text("RUNNING", timeout=TIMEOUT_MS)
    page.get_by_role("link", name="Stop …", exact=True).click()
    expect(page.get_by_text("tidegate stop 21")).to_be_visible()
    page.get_by_role("button", name="Stop it at its next checkpoint").click()
    answer(page).to_contain_text("CANCELED", timeout=TIMEOUT_MS)


def test_a_file_is_uploaded_and_a_taken_id_is_refused(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/submit")
    file = {
        "name": "job.conf",
        "mimeType": "text/plain",
        "buffer": STREAM.format(place=site.place, name="uploaded").encode(),
    }
    page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]  # a payload
    page.get_by_label("Id", exact=True).fill("11")
    page.get_by_role("button", name="Submit", exact=True).click()
    answer(page).to_contain_text("rejected")
    expect(page.get_by_role("alert")).to_contain_text("job 11 is")
    assert "uploaded" in page.locator("#text").input_value()


def test_a_job_is_stopped_by_force(site: Site, page: Page) -> None:
    site.submit("failing", 31)
    page.goto(f"{site.url}/ui/jobs/31")
    page.get_by_role("link", name="Force …").click()
    expect(page.get_by_text("read again when it is resumed")).to_be_visible()
    page.get_by_role("button", name="Stop it by force").click()
    answer(page).to_contain_text("CANCELED", timeout=TIMEOUT_MS)


def test_a_job_is_saved_stopped_with_a_savepoint_and_resumed_by_its_plan(
    site: Site, page: Page
) -> None:
    site.submit("saved", 51)
    page.goto(f"{site.url}/ui/jobs/51/savepoint")
    page.get_by_role("button", name="Take savepoint").click()
    answer(page).to_contain_text("saved")
    page.goto(f"{site.url}/ui/jobs/51/stop?how=savepoint")
    page.get_by_role("button", name="Stop it with a savepoint").click()
    answer(page).to_contain_text("SAVEPOINT_DONE", timeout=TIMEOUT_MS)
    page.goto(f"{site.url}/ui/storage")
    expect(page.get_by_role("link", name="saved").first).to_be_visible()
    page.goto(f"{site.url}/ui/jobs/51")
    page.get_by_role("link", name="Resume …").click()
    answer(page).to_contain_text("Resume saved: ok")
    expect(page.get_by_role("table")).to_contain_text("checkpoint")
    page.get_by_role("button", name="Resume").click()
    answer(page).to_contain_text("RUNNING", timeout=TIMEOUT_MS)
    page.get_by_text("Restore report").click()
    expect(page.get_by_role("table", name="Restore plan")).to_contain_text("checkpoint")
    expect(page.locator(".events")).to_contain_text("RUNNING")
    expect(page.locator(".events")).to_contain_text("submitted by local")
    site.ask("/stop-job", body=json.dumps({"jobId": 51}).encode())
    answer(page).to_contain_text("CANCELED", timeout=TIMEOUT_MS)
    page.reload()
    expect(page.get_by_text("Restore report")).to_be_visible()


def test_a_savepoint_is_deleted_by_keyboard_after_a_question(site: Site, page: Page) -> None:
    site.submit("kept", 61)
    page.goto(f"{site.url}/ui/jobs/61/savepoint")
    page.get_by_role("button", name="Take savepoint").click()
    expect(page.locator(".events")).to_contain_text("done", timeout=TIMEOUT_MS)
    site.ask("/stop-job", body=json.dumps({"jobId": 61, "force": True}).encode())
    page.goto(f"{site.url}/ui/storage")
    delete = page.get_by_role("link", name=re.compile("Delete savepoint .* of kept"))
    expect(delete).to_have_count(1)
    delete.focus()
    page.keyboard.press("Enter")
    answer(page).to_contain_text("of kept?")
    expect(page.get_by_text("tidegate savepoints delete")).to_be_visible()
    page.get_by_role("link", name="Keep it").focus()
    page.keyboard.press("Enter")
    expect(delete).to_have_count(1)
    delete.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Delete it").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/storage")
    expect(page.get_by_role("heading", name="Savepoints")).to_be_visible()
    expect(delete).to_have_count(0)
    page.goto(f"{site.url}/ui/savepoints/61/1700000000000/delete")
    expect(page.get_by_role("alert")).to_contain_text("there is no savepoint")


def test_the_storage_is_looked_at_and_collected(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/storage")
    page.get_by_role("button", name="Inspect now").click()
    answer(page).to_contain_text("below the namespace")
    expect(page.get_by_role("table").first).to_contain_text("live")
    page.get_by_role("link", name="Collect orphans").click()
    answer(page).to_contain_text("There is nothing to collect")
    page.get_by_role("button", name="Run the collector").click()
    expect(page.get_by_text("Nothing is in quarantine")).to_be_visible()


def test_cluster_and_cleanup(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/cluster")
    answer(page).to_contain_text("1 worker")
    expect(page.get_by_role("table").first).to_contain_text("leader, answers this page")
    page.goto(f"{site.url}/ui/cleanup")
    answer(page).to_contain_text(re.compile("deleted"))


def test_what_is_not_there_is_said(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/ui/jobs/999")
    expect(page.get_by_role("alert")).to_contain_text("there is no job 999")
    page.goto(f"{site.url}/ui/nope")
    expect(page.get_by_role("alert")).to_contain_text("Not found: /ui/nope")


def test_an_id_is_copied_or_the_page_reports_the_failure(site: Site, page: Page) -> None:
    page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined }); document.execCommand"
        " = () => window.mayCopy === true;"
    )  # as on plain http
    page.goto(f"{site.url}/ui/jobs/11")
    page.get_by_role("button", name="11", exact=True).click()
    expect(page.locator("#connection")).to_contain_text("not copied")
    page.evaluate("window.mayCopy = true")
    page.get_by_role("button", name="11", exact=True).click()
    expect(page.locator("#connection")).to_have_text("copied 11")


def test_everything_can_be_reached_by_keyboard_and_read_without_scripts(
    site: Site, browser: Browser
) -> None:
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.goto(f"{site.url}/ui/jobs/11")
    assert page.locator("#answer").inner_text().startswith("orders")
    assert page.locator("svg.graph .node").count() == 2
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to content"
    dark = page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    assert dark == "rgb(18, 23, 30)"
    context.close()


def test_nothing_is_asked_of_anybody_else(site: Site, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    response = page.goto(f"{site.url}/ui/jobs/11")
    assert response is not None
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert all(url.startswith(site.url) for url in asked)


def test_the_page_survives_its_server(tmp_path: Path, page: Page) -> None:
    """A page survives a kill and restart of its server without a reload."""
    site = Site(tmp_path, worker=False)
    try:
        page.goto(f"{site.url}/ui/jobs")
        page.evaluate("window.sameVisit = true")
        site.started[0].kill()
        site.started[0].wait(TIMEOUT_S)
        expect(page.locator("#connection")).to_contain_text("does not answer", timeout=TIMEOUT_MS)
        site.start(worker=False, port=site.port)
        expect(page.locator("#connection")).to_have_text("", timeout=TIMEOUT_MS)
        text = STREAM.format(place=tmp_path, name="later").encode()
        until("taken in", lambda: site.ask("/submit-job?format=hocon&jobId=41", body=text))
        expect(page.get_by_role("link", name="later")).to_be_visible(timeout=TIMEOUT_MS)
        assert page.evaluate("window.sameVisit") is True
    finally:
        site.close()


def test_with_tokens_a_login_is_required(tmp_path: Path, page: Page) -> None:
    site = Site(tmp_path, engine="    enable-token-auth: true\n", worker=False)
    try:
        verb = [
            str(Path(sys.executable).parent / "tidegate"),
            "token",
            "--home",
            str(site.home),
            "--config",
            str(site.config),
        ]
        made = subprocess.run(
            [*verb, "create", "ann", "--role", "viewer"],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        ).stdout.strip()
        page.goto(f"{site.url}/ui/jobs?show=ended")
        answer(page).to_contain_text("Log in")
        page.get_by_label("Token").fill("tg_nonsense")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        deadline_s = time.monotonic() + TIMEOUT_S
        while (
            "login" in page.url or page.locator("#token").count()
        ):  # the server learns of the token when it refreshes its cache
            page.get_by_label("Token").fill(made)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_load_state()
            assert time.monotonic() < deadline_s
        assert page.url.endswith("/ui/jobs?show=ended"), "where one wanted to go"
        expect(page.get_by_text("ann (viewer)")).to_be_visible()
        page.goto(f"{site.url}/ui/submit")
        expect(page.get_by_role("alert")).to_contain_text("needs the role operator")
        page.get_by_role("button", name="Log out").click()
        answer(page).to_contain_text("Log in")
    finally:
        for process in site.started:
            process.send_signal(signal.SIGTERM)
        for process in site.started:
            process.wait(TIMEOUT_S)
