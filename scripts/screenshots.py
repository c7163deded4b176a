"""Screenshots of the web pages for the docs (`make screenshots`): a server in a temporary home,
some jobs, and Debian's Chromium.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SCREENSHOTS = ROOT / "docs" / "pictures"
TIDEGATE = str(Path(sys.executable).parent / "tidegate")
TIMEOUT_S = 180
STREAM = """env {{ job.mode = "STREAMING", job.name = "orders", checkpoint.interval = 1000 }}
source {{ LocalFile {{ path = "{place}/in", file_format_type = "csv", plugin_output = "t"
  discovery_mode = "continuous", scan_interval = 500
  schema {{ fields {{ id = bigint, name = string }} }} }} }}
transform {{ Sql {{ plugin_input = "t", plugin_output = "u"
  query = "select id, upper(name) as name from t where id > 0" }} }}
sink {{ LocalFile {{ plugin_input = "u", path = "{place}/out", file_format_type = "parquet" }} }}
"""
BATCH = """env { job.mode = "BATCH", job.name = "import of people" }
source { FakeSource { plugin_output = "t", row.num = 20000
  schema { fields { id = bigint, name = string } } } }
sink { Console { plugin_input = "t" } }
"""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def ask(url: str, body: bytes | None = None) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=10) as answer:
        return json.loads(answer.read())


def until(look: Any) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        try:
            if look():
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise SystemExit("the jobs did not get on in time")


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    SCREENSHOTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="tidegate-pictures-", ignore_cleanup_errors=True
    ) as folder:
        place = Path(folder)
        (place / "in").mkdir()
        command = [TIDEGATE, "server", "--home", str(place / "home"), "--http-port", str(port)]
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ)
        )
        try:
            until(lambda: ask(f"{base}/overview"))
            ask(f"{base}/submit-job?format=hocon&jobId=1001", STREAM.format(place=place).encode())
            ask(f"{base}/submit-job?format=hocon&jobId=1002", BATCH.encode())
            for number in range(12):
                (place / "next").write_text(
                    "".join(f"{number * 500 + i},name {i}\n" for i in range(500))
                )
                (place / "next").rename(place / "in" / f"f{number:03}.csv")
                until(
                    lambda n=number: (
                        int(ask(f"{base}/job-info/1001").get("lastCheckpointId") or 0) > n
                    )
                )
            until(lambda: ask(f"{base}/job-info/1002")["jobStatus"] == "FINISHED")
            take(base)
        finally:  # drivers outlive their server
            for job_id in (1001, 1002):
                ask(f"{base}/stop-job", json.dumps({"jobId": job_id, "force": True}).encode())
            until(lambda: ask(f"{base}/running-jobs") == [])
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def take(base: str) -> None:
    pages = {
        "overview": "/ui/",
        "jobs": "/ui/jobs",
        "job": "/ui/jobs/1001",
        "stop": "/ui/jobs/1001/stop?how=savepoint",
        "submit": "/ui/submit",
        "cluster": "/ui/cluster",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(FLAGS))
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 1200, "height": 760}, color_scheme=scheme
            )
            page = context.new_page()
            for name, path in pages.items():
                if scheme == "dark" and name != "job":
                    continue
                page.goto(base + path)
                page.wait_for_timeout(400)
                page.screenshot(
                    path=str(SCREENSHOTS / f"{name}{'-dark' if scheme == 'dark' else ''}.png"),
                    full_page=name == "job",
                )
        browser.close()


if __name__ == "__main__":
    main()
