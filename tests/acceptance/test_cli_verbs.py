"""The verbs that talk to servers, against two real servers without workers: jobs wait, so that no
JVM is needed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import main
from tidegate.redact import mask_text

JOB = """
env { job.mode = "BATCH", job.name = "waiting", job.retry.times = 0 }
source { FakeSource { plugin_output = "t", row.num = ${rows}, schema { fields { id = bigint } } } }
sink { Console { plugin_input = "t" } }
"""
WITHIN_S = 60
TIDEGATE = str(Path(sys.executable).parent / "tidegate")


class Pair:
    """Two servers on one home; the first can be killed."""

    def __init__(self, folder: Path, engine: str = "") -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = folder / "tidegate.yaml"
        self.config.write_text(f"tidegate:\n  http:\n    host: 127.0.0.1\n{engine}")
        self.ports = [free_port(), free_port()]
        self.servers = [self.start(port) for port in self.ports]
        try:
            for port in self.ports:
                until_up(port)
        except BaseException:
            self.close()
            raise

    def start(self, port: int) -> subprocess.Popen[bytes]:
        command = [
            TIDEGATE,
            "server",
            "--home",
            str(self.home),
            "--http-port",
            str(port),
            "--no-worker",
            "--config",
            str(self.config),
        ]
        with open(self.folder / f"server-{port}.txt", "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def say(self, *words: str, code: int = 0, environ: dict[str, str] | None = None) -> str:
        """Run a verb; its output."""
        servers = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)
        variables = {**os.environ, "TIDEGATE_SERVER": servers, **(environ or {})}
        done = subprocess.run(
            [TIDEGATE, *words],
            env=variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def close(self) -> None:
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
        for server in self.servers:
            server.wait(WITHIN_S)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until_up(port: int) -> None:
    end = time.monotonic() + WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except urllib.error.HTTPError as answer:
            answer.close()
            if answer.code == 401:
                return
        except OSError:
            pass
        assert time.monotonic() < end, f"no server at {port}"
        time.sleep(0.2)  # poll interval for another process


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("verbs")
    made = Pair(folder)
    (folder / "job.conf").write_text(JOB)
    yield made
    made.close()


def words(text: str) -> Sequence[str]:
    return text.split()


def test_a_job_is_submitted_listed_shown_and_stopped(pair: Pair) -> None:
    taken = json.loads(pair.say(*words("submit job.conf -i rows=5 --job-id 11 --json")))
    assert taken == {"jobId": "11", "jobName": "waiting"}
    listed = pair.say("jobs")
    assert "waiting" in listed
    assert "11" in listed
    assert json.loads(pair.say("show", "waiting", "--json"))["jobId"] == "11"
    assert "job 11 'waiting'" in pair.say("show", "11")
    assert "CANCELED" in pair.say(*words("stop 11 --wait"))
    assert [
        job["jobId"] for job in json.loads(pair.say(*words("jobs --state canceled --json")))
    ] == ["11"]
    assert json.loads(pair.say(*words("jobs --state running --json"))) == []


def test_a_command_without_effect_reports_it_and_exits_with_3(pair: Pair) -> None:
    pair.say(*words("submit job.conf -i rows=5 --job-id 12 --name ended"))
    pair.say(*words("cancel 12 --wait"))
    pair.say(*words("submit job.conf -i rows=5 --job-id 13 --name waits"))
    for verb in (
        "stop 12",
        "stop ended --force",
        "stop 12 --savepoint",
        "stop 12 --wait",
        "cancel 12",
        "seatunnel -can 12",
        "seatunnel -f 12",
        "seatunnel -s 12",
    ):
        assert "job 12 'ended' has already ended as CANCELED: there is nothing to stop" in pair.say(
            *words(verb), code=3
        )
    home = ("--home", str(pair.home))
    assert "has ended as CANCELED" in pair.say("savepoint", "12", *home, code=3)
    for verb in (
        "stop 404",
        "cancel 404",
        "show 404",
        "logs 404",
        "seatunnel -can 404",
        "stop nobody",
    ):
        assert "there is no job" in pair.say(*words(verb), code=3)
    assert "there is no job" in pair.say("savepoint", "404", *home, code=3)
    assert "no such checkpoint" in pair.say("checkpoints", *home, "verify", "12", code=3)
    assert "there is no savepoint of job" in pair.say("savepoints", "verify", "12", *home, code=3)
    assert "there is no job" in pair.say(*words("stop 13 404"), code=3)  # none of them is stopped
    assert json.loads(pair.say(*words("show 13 --json")))["jobStatus"] != "CANCELED"
    assert "stop requested for job 13 'waits'" in pair.say(*words("stop 13"))


def test_a_state_that_there_is_not_is_refused_with_those_that_there_are(pair: Pair) -> None:
    output = pair.say(*words("jobs --state BLAH"), code=2)
    assert "BLAH" in output
    assert "SAVEPOINT_DONE" in output


def test_errors_are_sentences_with_their_exit_code(pair: Pair) -> None:
    assert "rows" in pair.say("submit", "job.conf", code=2)
    assert "does not exist" in pair.say("submit", "none.conf", code=2)
    assert "exclude each other" in pair.say(*words("stop 1 --force --savepoint"), code=2)
    assert "--server" in pair.say("jobs", "--server", f"http://127.0.0.1:{free_port()}", code=1)


def test_seatunnels_own_options(pair: Pair) -> None:
    assert "is valid" in pair.say(*words("seatunnel -c job.conf -i rows=5 --check"))
    assert (
        pair.say(*words("seatunnel -c job.conf -i rows=5 --set-job-id 21 --async -n mine"))
        == "Job id: 21\n"
    )
    state = json.loads(pair.say(*words("seatunnel -j 21")))
    assert (state["jobId"], state["jobName"], state["errorMessage"]) == ("21", "mine", None)
    assert json.loads(pair.say(*words("seatunnel -j 22"))) == {"err": "jobId : 22 not found"}
    assert "Job ID" in pair.say("seatunnel", "-l")
    assert "SourceReceivedCount" in pair.say(*words("seatunnel --metrics 21"))
    pair.say(*words("seatunnel -can 21"))
    end = time.monotonic() + WITHIN_S
    while json.loads(pair.say(*words("seatunnel -j 21")))["jobStatus"] != "CANCELED":
        assert time.monotonic() < end
    assert "no action given" in pair.say("seatunnel", code=2)


def test_secrets_of_a_job_file_are_shaded_and_shown(pair: Pair) -> None:
    (pair.folder / "shaded.json").write_text(
        json.dumps(
            {
                "env": {
                    "job.mode": "BATCH",
                    "shade.identifier": "base64",
                    "shade.options": ["row.num"],
                },
                "source": [
                    {
                        "plugin_name": "FakeSource",
                        "plugin_output": "t",
                        "row.num": "NQ==",
                        "schema": {"fields": {"id": "bigint"}},
                    }
                ],
                "sink": [{"plugin_name": "Console", "plugin_input": "t"}],
            }
        )
    )
    assert (
        json.loads(pair.say(*words("seatunnel -c shaded.json --decrypt")))["source"][0]["row.num"]
        == "5"
    )


def test_a_server_is_killed_and_the_verbs_go_on(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        (tmp_path / "job.conf").write_text(JOB)
        pair.say(*words("submit job.conf -i rows=5 --job-id 31"))
        pair.servers[0].kill()
        pair.servers[0].wait(WITHIN_S)
        pair.say(*words("submit job.conf -i rows=5 --job-id 32 --name other"))
        assert {job["jobId"] for job in json.loads(pair.say("jobs", "--json"))} == {"31", "32"}
    finally:
        pair.close()


def test_where_tokens_are_asked_for_only_their_holders_come_in(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "    enable-token-auth: true\n")
    try:
        place = ("token", "--home", str(pair.home), "--config", str(pair.config))
        text = pair.say(*place, "create", "ci", "--role", "viewer").strip()
        assert "Authentication required" in pair.say("jobs", code=3)
        end = time.monotonic() + WITHIN_S
        (tmp_path / "token").write_text(f"{text}\n")
        while True:  # servers learn of it when they refresh their caches
            done = subprocess.run(
                [TIDEGATE, "jobs", "--json", "--server", f"http://127.0.0.1:{pair.ports[0]}"],
                env={**os.environ, "TIDEGATE_TOKEN_FILE": str(tmp_path / "token")},
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < end, done.stderr
        assert json.loads(done.stdout) == []
        (tmp_path / "job.conf").write_text(JOB)
        assert "viewer" in pair.say(
            *words("submit job.conf -i rows=5"), code=3, environ={"TIDEGATE_TOKEN": text}
        )
        listed = json.loads(pair.say(*place, "list", "--json"))
        assert [(each["name"], each["role"]) for each in listed] == [("ci", "viewer")]
        pair.say(*place, "revoke", listed[0]["id"])
        assert json.loads(pair.say(*place, "list", "--json")) == []
        tokens_from_afar(pair, pair.say(*place, "create", "chief", "--role", "admin").strip())
        log = "".join(path.read_text() for path in (pair.home / "logs").rglob("*.log"))
        assert text not in log
    finally:
        pair.close()


def tokens_from_afar(pair: Pair, admin: str) -> None:
    """The same verbs at a server, as an admin who cannot reach the store."""
    away, end = ("--server", f"http://127.0.0.1:{pair.ports[1]}"), time.monotonic() + WITHIN_S
    runner = CliRunner(env={"TIDEGATE_TOKEN": admin, "TIDEGATE_HOME": str(pair.folder / "nowhere")})
    while (
        made := runner.invoke(main, ["token", "create", "far", "--expires", "90d", "--json", *away])
    ).exit_code:  # until that server knows the admin
        assert time.monotonic() < end, made.output
    new = json.loads(made.stdout)
    listed = json.loads(runner.invoke(main, ["token", "list", "--json", *away]).stdout)
    assert sorted((each["name"], each["role"], each["expires"] is None) for each in listed) == [
        ("chief", "admin", True),
        ("far", "viewer", False),
    ]
    assert "far" in runner.invoke(main, ["token", "list", *away]).stdout
    refused = CliRunner(env={"TIDEGATE_TOKEN": new["token"]}).invoke(
        main, ["token", "create", "more", "--role", "admin", *away]
    )
    assert (refused.exit_code, "needs the role admin" in refused.stderr) == (3, True)
    assert (
        runner.invoke(main, ["token", "revoke", new["id"], *away]).stdout
        == f"token {new['id']} is revoked\n"
    )
    again = runner.invoke(main, ["token", "revoke", new["id"], *away])
    assert (again.exit_code, "there is no token" in again.stderr) == (2, True)
    assert not (pair.folder / "nowhere").exists()


def test_a_support_bundle_has_everything_and_no_secret(pair: Pair) -> None:
    pair.say(*words("submit job.conf -i rows=5 --job-id 51 --name bundled"))
    assert "files" in pair.say(*words("support-bundle 51 -o bundle.tar.gz"))
    with tarfile.open(pair.folder / "bundle.tar.gz") as bundle:
        names = {name.removeprefix("job-51/") for name in bundle.getnames()}
    assert {
        "job.json",
        "failures.json",
        "checkpoints.json",
        "pending.json",
        "metrics.txt",
        "threads.json",
    } <= names
    assert any(name.startswith("logs/server-") for name in names)
    assert "exists already" in pair.say(*words("support-bundle 51 -o bundle.tar.gz"), code=2)


def test_what_looks_like_a_secret_is_masked() -> None:
    text = (
        'password = "hunter2", url = "postgresql://ann:hunter2@host/db", "access_key": "hunter2",'
        " checkpoint.interval = 5"
    )
    assert "hunter2" not in mask_text(text)
    assert "checkpoint.interval = 5" in mask_text(text)
