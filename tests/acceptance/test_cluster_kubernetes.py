"""A job whose executors are pods. There is no Kubernetes here: a stand-in for its API server takes
what Spark's own scheduler posts, and runs each pod's container as a process, by the entry point of
the image that `tidegate spark-conf` describes. So everything between a job file and a pod is real
but the image, the network between pods, volumes and rights.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet
import pytest

import tidegate
from tidegate.runner.process import kill_session, process_ref
from tidegate.spark.deployment import DeploymentRequest, plan_deployment
from tidegate.testing.servers.spark_cluster import LOOPBACK, quick_java_options, until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

TIMEOUT_S = 150
TOKEN = "hush-hush"


class Pods:
    """The pods that were posted, each a process that leads a session of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.documents: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.requests: list[str] = []
        self.tokens: set[str] = set()
        self.over = threading.Event()

    def start(self, pod: dict[str, Any]) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        known = {"status.podIP": LOOPBACK, "metadata.name": name}
        environ = {
            e["name"]: (
                e["value"] if "value" in e else known[e["valueFrom"]["fieldRef"]["fieldPath"]]
            )
            for e in container["env"]
        }
        work = self.place / name
        work.mkdir()
        environ |= {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(tidegate.__file__).parent.parent),
            "SPARK_LOCAL_DIRS": str(work),
        }
        with (work / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tidegate.spark.executor", *container["args"]],
                cwd=work,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.documents[name] = pod

    def list(self) -> list[dict[str, Any]]:
        return [
            {**pod, "status": self._status(self.processes[name].poll())}
            for name, pod in list(self.documents.items())
        ]

    def _status(self, code: int | None) -> dict[str, Any]:
        if code is None:
            return {"phase": "Running"}
        ended = {
            "name": "spark-kubernetes-executor",
            "state": {"terminated": {"exitCode": code if code >= 0 else 128 - code}},
        }
        return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}

    def end(self) -> None:
        self.over.set()
        for process in self.processes.values():
            if process.poll() is None:
                kill_session(process_ref(process.pid))
            process.wait()


class Api(BaseHTTPRequestHandler):
    """As much of the API as Spark uses."""

    protocol_version = "HTTP/1.1"
    pods: Pods

    def log_message(self, *_: object) -> None:
        self.pods.requests.append(f"{self.command} {urlsplit(self.path).path}")
        self.pods.tokens.add(self.headers.get("Authorization", ""))

    def answer(self, code: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def do_GET(self) -> None:
        if "watch=true" not in self.path:
            items = self.pods.list() if "/pods" in self.path else []
            self.answer(
                200,
                {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": "1"},
                    "items": items,
                },
            )
        elif self.headers.get("Upgrade"):
            self.answer(200, {})  # no web sockets here: the client asks again without
        else:  # nothing ever happens: Spark polls the list as well
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.pods.over.wait(TIMEOUT_S)
            self.close_connection = True

    def do_POST(self) -> None:
        document = self.body()
        document["metadata"] |= {"uid": f"uid-{len(self.pods.requests)}", "resourceVersion": "1"}
        if urlsplit(self.path).path.endswith("/pods"):
            self.pods.start(document)
        self.answer(201, document)

    def do_PATCH(self) -> None:
        self.answer(200, self.body())

    def do_DELETE(self) -> None:
        self.body()
        self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[str, Pods]]:
    place = tmp_path / "pods"
    place.mkdir()
    pods = Pods(place)
    server = ThreadingHTTPServer((LOOPBACK, 0), type("BoundApi", (Api,), {"pods": pods}))
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"k8s://http://{LOOPBACK}:{server.server_port}", pods
    finally:
        pods.end()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_job_runs_in_pods_and_a_killed_pod_loses_and_doubles_nothing(
    tmp_path: Path, api: tuple[str, Pods]
) -> None:
    master, pods = api
    made = plan_deployment(
        DeploymentRequest(
            master=master,
            executors=1,
            cores=1,
            memory="512m",
            image="tidegate:test",
            driver_host=LOOPBACK,
            python=sys.executable,
        )
    )
    more = {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.extraJavaOptions": quick_java_options(),
        "spark.kubernetes.executor.apiPollingInterval": "1s",
        "spark.tidegate.noExecutorTimeout": "120s",  # on a busy machine JVMs start slowly
        "spark.kubernetes.authenticate.oauthToken": TOKEN,
    }
    settings = "\n".join(f'  {key} = "{value}"' for key, value in {**made.conf, **more}.items())
    job, out = tmp_path / "job.conf", tmp_path / "out"
    job.write_text(
        f"""env {{ job.name = "pods", job.mode = "BATCH", job.retry.times = 0
  checkpoint.interval = 2000, checkpoint.timeout = 120000, batch.max-rows = 50
{settings} }}
source {{ Chaos {{ row.num = 400, plugin_output = "a" }} }}
sink {{ Chaos {{ plugin_input = "a", places = ["write"], slow_ms = 300 }}
LocalFile {{ plugin_input = "a", path = "{out}", file_format_type = "parquet" }} }}"""
    )
    command = [
        sys.executable,
        "-c",
        "from tidegate.cli import main; main()",
        "run",
        str(job),
        "--home",
        str(tmp_path / "home"),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            until(
                lambda: bool(rows(out)) or run.poll() is not None, lambda: "no row yet", TIMEOUT_S
            )
            assert run.poll() is None, run.stdout.read() if run.stdout else ""
            command_lines = [
                path.read_bytes()
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if _readable(path)
            ]
            [first] = pods.processes.values()
            os.kill(first.pid, signal.SIGKILL)
            output = run.communicate(timeout=TIMEOUT_S)[0]
        finally:
            run.kill()
    assert run.returncode == 0, output
    assert rows(out) == list(range(400))
    assert len(pods.processes) >= 2
    assert "DELETE /api/v1/namespaces/default/pods" in pods.requests
    assert pods.tokens == {f"Bearer {TOKEN}"}
    assert not any(TOKEN.encode() in line for line in command_lines)
    container = next(iter(pods.documents.values()))["spec"]["containers"][0]
    assert container["image"] == "tidegate:test"
    assert container["resources"]["limits"]["memory"] == "2560Mi"


def rows(out: Path) -> list[int]:
    files = [path for path in out.glob("*.parquet")] if out.exists() else []
    return sorted(
        number for file in files for number in pyarrow.parquet.read_table(file)["id"].to_pylist()
    )


def _readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False
