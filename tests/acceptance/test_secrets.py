"""A job with passwords in every possible option, against a database that repeats them in its
errors: they are never shown.

Not in a log, an answer, a page, a bundle, or the list of processes. The store is left out: drivers
read their passwords there, so it is what must be guarded.
"""

import json
import os
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cluster_members import until

from tidegate.cli import main

TIMEOUT_S = 120
IN_OPTION, IN_URL, IN_MAP, IN_ENV, IN_SINK = (
    "Zebra-hunter2 Öl&Top",
    "Url-hunter3-Mid",
    "Prop-hunter4-Low",
    "Env-hunter5-Sun",
    "Sink-hunter6-Moon",
)
SECRETS = ("hunter2", "hunter3", "hunter4", "hunter5", "hunter6", "hunter7")
FORMS = {  # what is hidden although no connector calls it secret
    "spark.hadoop.fs.azure.sas.c.a": "sv=2022-11-02&ss=b&sig=Sas-hunter7",
    "spark.hadoop.fs.azure.account.key.a.dfs": "Account-hunter7",
    "spark.hadoop.fs.s3a.access.key": "Access-hunter7",
    "spark.hadoop.fs.s3a.session.token": "Session-hunter7",
    "spark.hadoop.some.header": "Authorization: Bearer Bearer-hunter7",
    "spark.app.note": "Authorization: Basic Basic-hunter7=",
    "spark.app.hook": "https://hooks.slack.com/services/T0/B0/Slack-hunter7",
    "spark.alert.address": "https://alerts.example/in/Path-hunter7",
    "spark.alert.user": "https://User-hunter7@alerts.example",
    "spark.alert.pair": "https://ann:Pair-hunter7@alerts.example/x",
    "spark.anything.at.all": "Unnamed-hunter7",
    "spark.executorEnv.DB": "Server=db;Uid=a;Pwd=Dsn-hunter7",
    "spark.kubernetes.driverEnv.X": "Env-hunter7-Too",
    "spark.redis.url": "redis://:Redis-hunter7@cache:6379/0",
    "spark.jars.repositories": "https://ann:Repo-hunter7@repo.example/m2",
    "spark.driver.defaultJavaOptions": "-Xmx1g -Dmy.thing=Jvm-hunter7",
    "spark.ssl.keyPassword": "Ssl-hunter7",
    "spark.sql.catalog.lake.credential": "id:Catalog-hunter7",
    "spark.sql.catalog.lake.header.X-Api": "Header-hunter7",
    "spark.hive.something": "Hive-hunter7",
    "spark.presigned": "https://s3.example/x?X-Amz-Signature=Signed-hunter7",
}
FREE = """custom_parameters { api_token = "Custom-hunter7"
  hook = "https://discord.com/api/webhooks/1/Discord-hunter7",
  nested { password = "Nested-hunter7", note = "Bearer Noted-hunter7" } }"""
PLAIN = """
import functools, tidegate.server as server, tidegate.cli.server as verbs
from tidegate.cli import main
verbs.ServerSettings = functools.partial(
    server.ServerSettings, driver_module="tidegate.testing.plain_driver"
)
main()
"""
JOB = """
env {{ job.mode = "BATCH", job.name = "{name}", job.retry.times = 1
  job.retry.interval.seconds = 1, spark.app.secret = "{env}",
  {forms} {free} }}
source {{ Jdbc {{ {source}, properties {{ sslpassword = "{map}" }}, table_path = "public.t",
  query = "select * from public.t", plugin_output = "t" }} }}
sink {{ Jdbc {{ plugin_input = "t"
  url = "jdbc:postgresql://127.0.0.1:{port}/shop?user=ann&password={sink}",
  database = "shop", table = "public.o", generate_sink_sql = true }} }}
"""


class Blab(socketserver.BaseRequestHandler):
    """Speaks just enough of PostgreSQL to ask for a password in clear text, and to repeat it while
    it refuses.
    """

    request: socket.socket

    def handle(self) -> None:
        length, code = struct.unpack("!ii", self._read(8))
        if code == 80877103:  # may we encrypt? No
            self.request.sendall(b"N")
            length, code = struct.unpack("!ii", self._read(8))
        self._read(length - 8)
        self.request.sendall(b"R" + struct.pack("!ii", 8, 3))
        _, length = struct.unpack("!ci", self._read(5))
        given = self._read(length - 4).rstrip(b"\0")
        fields = b"SFATAL\0VFATAL\0C28P01\0Mthe password " + given + b" is not that of ann\0\0"
        self.request.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.request.recv(count - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data


class BlabServer(socketserver.ThreadingTCPServer):
    """Its clients may hang up as they like."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def blabbing() -> Iterator[int]:
    """A database that repeats passwords; its port."""
    with BlabServer(("127.0.0.1", 0), Blab) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()


class Site:
    """One server with its worker."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            sys.executable,
            "-c",
            PLAIN,
            "server",
            "--home",
            str(self.home),
            "--http-port",
            str(self.port),
        ]
        with open(place / "server.txt", "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
            )
        until("the server", lambda: self.ask("/health"))

    def ask(self, path: str, body: str | None = None) -> str:
        """Return the answer of any status; a server that does not run raises OSError."""
        try:
            with urllib.request.urlopen(
                urllib.request.Request(
                    self.url + path, body.encode() if body is not None else None
                ),
                timeout=30,
            ) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def status(self, job_id: int) -> str:
        return str(json.loads(self.ask(f"/job-info/{job_id}")).get("jobStatus"))

    def processes(self) -> str:
        """The command lines of everything that runs for this home."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if (
                    str(self.home).encode()
                    in Path("/proc", pid, "environ").read_bytes()
                    + Path("/proc", pid, "cmdline").read_bytes()
                ):
                    found.append(
                        Path("/proc", pid, "cmdline").read_bytes().decode("utf-8", "replace")
                    )
            except OSError:
                continue
        return "\n".join(found)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def shows_no_secret(where: str, text: str) -> None:
    for secret in SECRETS:
        assert secret not in text, (
            f"{where}: ...{text[max(0, text.index(secret) - 200) : text.index(secret) + 40]}"
        )


def verbs_show_no_secret(site: Site, job: Path) -> None:
    """What judges a job file, at the command line and over the API."""
    for verb in ("validate", "explain", "restore-plan"):
        for more_words in ((), ("--json",)):
            result = CliRunner().invoke(
                main, [verb, str(job), *more_words], env={"TIDEGATE_HOME": str(site.home)}
            )
            shows_no_secret(verb, result.output)
    judged = json.dumps({"text": job.read_text().replace("BATCH", "NOPE"), "format": "hocon"})
    shows_no_secret("/api/v1/validate", site.ask("/api/v1/validate", judged))


def test_a_password_is_seen_in_no_log_answer_page_bundle_or_list_of_processes(
    site: Site, tmp_path: Path
) -> None:
    with blabbing() as port:
        base = f"jdbc:postgresql://127.0.0.1:{port}/shop"
        sources = {
            1: f'url = "{base}", user = "ann", password = "{IN_OPTION}"',
            2: f'url = "{base}?user=ann&password={IN_URL}"',
        }
        forms = "".join(f'"{key}" = "{value}"\n  ' for key, value in FORMS.items())
        more = {
            "map": IN_MAP,
            "env": IN_ENV,
            "sink": IN_SINK,
            "port": port,
            "forms": forms,
            "free": FREE,
        }
        for job_id, source in sources.items():
            text = JOB.format(name=f"job{job_id}", source=source, **more)
            (tmp_path / "job.conf").write_text(text)
            answered = site.ask(f"/submit-job?format=hocon&jobId={job_id}", text)
            assert json.loads(answered)["jobId"] == str(job_id), answered

        def ended() -> bool:
            shows_no_secret("the list of processes", site.processes())
            for path in (
                "/running-jobs",
                "/running-job/1",
                "/job-info/1",
                "/api/v1/jobs/1",
                "/ui/jobs/1",
            ):
                shows_no_secret(path, site.ask(path))
            return all(site.status(job_id) == "FAILED" for job_id in sources)

        until("the end of both jobs", ended)

    assert "is not that of ann" in site.ask(
        "/job-info/1/failures"
    )  # the database's own words are there, and the password is not
    repeated = "\n".join(FORMS.values())
    (site.home / "logs" / "1" / "spark.log").write_text(
        f"a JVM complains about {IN_OPTION} and {IN_MAP}\n{repeated}\n"
    )
    verbs_show_no_secret(site, tmp_path / "job.conf")
    assert json.loads(site.ask("/api/v1/jobs/1"))["env"]["spark.anything.at.all"] == "******"
    for job_id in sources:
        logs = [entry["logName"] for entry in json.loads(site.ask(f"/logs/{job_id}/?format=json"))]
        assert f"{job_id}/driver.log" in logs
        pages = [
            f"/ui/jobs/{job_id}",
            f"/ui/jobs/{job_id}/logs",
            f"/ui/jobs/{job_id}/resume",
            *(f"/logs/{name}" for name in logs),
        ]
        answers = [
            f"/job-info/{job_id}",
            f"/job-info/{job_id}/failures",
            f"/api/v1/jobs/{job_id}",
            f"/jobs/checkpoints/{job_id}",
        ]
        for path in (*pages, *answers):
            shows_no_secret(path, site.ask(path))
    assert "a JVM complains about ******" in site.ask("/logs/1/spark.log")
    for path in (
        "/finished-jobs",
        "/overview",
        "/metrics",
        "/openmetrics",
        "/thread-dump",
        "/pending-jobs",
        "/api/v1/jobs",
        "/ui/",
        "/ui/jobs",
    ):
        shows_no_secret(path, site.ask(path))
    (site.home / "logs" / "1" / "spark.log").unlink()  # ours; now everything that was written
    result = CliRunner().invoke(
        main, ["support-bundle", "1", "-o", str(tmp_path / "bundle.tar.gz"), "--server", site.url]
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        for name in bundle.getnames():
            file = bundle.extractfile(name)
            assert file is not None
            shows_no_secret(f"bundle: {name}", file.read().decode("utf-8", "replace"))
    for written in (tmp_path / "server.txt", *site.home.rglob("*")):
        if written.is_file() and "store" not in written.relative_to(tmp_path).parts:
            shows_no_secret(str(written), written.read_bytes().decode("utf-8", "replace"))
