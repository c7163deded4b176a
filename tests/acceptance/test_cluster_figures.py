"""Real processes: what a server reports of a job whose driver is killed, that is idle, forks, is
stopped by force and resumed, or is led by `tidegate run`.
"""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from cluster_jobs import SINK, fake, flow
from cluster_kit import Cluster, Job
from cluster_members import until
from cluster_stores import on

RATE = 500
FORK = f"""env {{ job.mode = "STREAMING", checkpoint.interval = 200
  read_limit.rows_per_second = {RATE}, job.retry.interval.seconds = 0, job.retry.times = 9 }}
source {{ {fake(1_000_000)} }}
transform {{ FilterRowKind {{ plugin_input = "t", plugin_output = "none"
  include_kinds = ["DELETE"] }} }}
sink {{
  {SINK}
  Console {{ name = "nobody", plugin_input = "none", log.print.data = false }}
}}"""
IDLE = flow(rate=100).replace("row.num = 1000000", "row.num = 40")
# The driver of `tidegate run` is the test kit's; everything else is the product's.
EMBEDDED = """
import dataclasses, tidegate.cli.run as run
PROGRAM = run.Program
from tidegate.cli import main
run.Program = lambda environ, module: dataclasses.replace(
    PROGRAM(environ=environ), module="tidegate.testing.plain_driver"
)
main()
"""


def details(cluster: Cluster, job: Job) -> dict[str, Any]:
    """As the typed API of a server has it."""
    found: dict[str, Any] = cluster.servers[0].get(f"/api/v1/jobs/{job.id}")
    return found


def page_of(cluster: Cluster, job: Job) -> str:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{cluster.servers[0].port}/ui/jobs/{job.id}", timeout=30
    ) as answer:
        text: str = answer.read().decode()
    return text


def rates(cluster: Cluster, job: Job) -> list[float]:
    """All rates that are shown of a job, wherever."""
    v1, v2 = details(cluster, job), cluster.servers[0].get(f"/job-info/{job.id}")["metrics"]
    found = [
        v1["metrics"]["rows_read_per_second"],
        v2["SourceReceivedQPS"],
        *(vertex["rows_per_second"] for vertex in v1["graph"]),
    ]
    return [float(each) for each in found if each is not None]


@on("sqlite-plain")
def test_a_killed_driver_changes_no_figure_but_the_restarts(cluster: Cluster) -> None:
    idle, job = cluster.submit(IDLE), cluster.submit(FORK)
    seen: list[float] = []

    def makes_progress(checkpoints: int) -> None:
        wanted = job.checkpoint() + checkpoints

        def found() -> bool:
            seen.extend(rates(cluster, job))
            return job.checkpoint() >= wanted

        job.until("more checkpoints", found)

    for _ in range(3):
        makes_progress(4)
        job.kill_driver()
    makes_progress(4)
    assert 0 < max(seen) <= RATE * 1.2, (
        f"the source gives {RATE} rows a second at most: {max(seen)}"
    )
    found = details(cluster, job)
    assert found["restarts"] == 3
    assert [
        ("driver died" in event["reason"], "signal 9" in event["reason"])
        for event in found["events"]
        if event["kind"] == "restart"
    ] == [(True, True)] * 3
    passed = {vertex["operator"]: vertex["rows"] for vertex in found["graph"]}
    assert (passed["nobody"], passed["Source[0]-FakeSource"] > 0) == (0, True)
    assert ">0 rows</text>" in page_of(cluster, job)
    job.stop(force=True)
    ended = details(cluster, job)
    assert [(pipeline["status"], pipeline["pending"]) for pipeline in ended["pipelines"]] == [
        ("CANCELED", None)
    ]
    assert '<h2>Pipeline 1 <span class="status quiet">' in page_of(cluster, job)
    cluster.submit(FORK, job_id=job.id, query="&restore=latest")
    makes_progress(2)
    resumed = details(cluster, job)
    assert resumed["events"][-len(ended["events"]) :] == ended["events"], "lines are only appended"
    assert (
        resumed["restarts"],
        [event["kind"] for event in resumed["events"]].count("restart"),
    ) == (0, 3)
    job.until("an idle job at rest", lambda: set(rates(cluster, idle)) == {0.0})
    assert details(cluster, idle)["metrics"]["rows_committed"] == 40


@on("sqlite-plain")
def test_a_server_shows_the_rate_of_a_job_that_tidegate_run_leads(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "flow.conf"
    file.write_text(flow(rate=RATE).replace("{out}", str(tmp_path / "out")))
    command = [
        sys.executable,
        "-c",
        EMBEDDED,
        "run",
        str(file),
        "--job-id",
        "77",
        "--json",
        "--home",
        str(cluster.home.root),
        "--config",
        str(cluster.config),
    ]
    shown = tmp_path / "shown.jsonl"
    with shown.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(os.environ),
            start_new_session=True,
        )
    try:
        job = Job(cluster, 77)
        until("a rate", lambda: any(rates(cluster, job)), describe=shown.read_text)
        assert max(rates(cluster, job)) <= RATE * 1.2
        until(
            "the same in the display",
            lambda: re.search(r'"rows_per_second": [1-9]', shown.read_text()),
            describe=shown.read_text,
        )
        os.kill(process.pid, signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    ended = until(
        "an ended job", lambda: (found := details(cluster, job))["status"] == "CANCELED" and found
    )
    assert ([p["status"] for p in ended["pipelines"]], ended["events"][0]["what"]) == (
        ["CANCELED"],
        "CANCELED",
    )
