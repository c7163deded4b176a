"""A PostgreSQL server for tests: its own data directory, a port on the loopback, everything gone at
the end.

Used as `with PostgresServer() as server: ... server.url ...`. It is as durable as a real one (fsync
is on), so that crash tests mean something. It ends with the thread that started it, also when that
is killed: start it in the main thread. Clusters of the machine are never touched.
"""

import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tidegate.testing.servers.database import START_TIMEOUT_S, DatabaseServer, ServerMissing


def find_binaries() -> Path:
    """The folder with initdb and postgres, the newest first."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(
            found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.parent.name)]
        )
    initdb = shutil.which("initdb")
    if initdb is None:
        raise ServerMissing(
            "no PostgreSQL server was found; `make setup` installs one (Debian, Ubuntu: apt-get"
            " install postgresql)"
        )
    return Path(initdb).resolve().parent


class PostgresServer(DatabaseServer):
    called = "PostgreSQL"
    stops_at = signal.SIGINT
    refuses = psycopg.OperationalError

    def __init__(self, *, settings: dict[str, str] | None = None) -> None:
        # Shared memory in the data directory: what a kill -9 leaves behind goes with it.
        own = {
            "listen_addresses": "127.0.0.1",
            "max_connections": "60",
            "fsync": "on",
            "jit": "off",
            "dynamic_shared_memory_type": "mmap",
        }
        self._settings = {**own, **(settings or {})}
        self._binaries = find_binaries()
        super().__init__(Path(tempfile.mkdtemp(prefix="tidegate-postgres-")))

    @property
    def url(self) -> str:
        """The address of its database, for `open_store` and psycopg."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def command(self) -> list[str]:
        """The server in the foreground."""
        settings = [
            part
            for name, value in {**self._settings, "port": str(self.port)}.items()
            for part in ("-c", f"{name}={value}")
        ]
        return [
            *self._as_server(),
            str(self._binaries / "postgres"),
            "-D",
            str(self._data),
            "-k",
            str(self._base),
            *settings,
        ]

    def probe(self) -> None:
        psycopg.connect(self.url, connect_timeout=5).close()

    def kill(self) -> None:
        """kill -9 the server and all its processes, as the end of a container would."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)  # so that it starts no more of them meanwhile
        with watched([self._process.pid, *self._children()]) as processes:
            for handle in processes.values():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            for pid, handle in processes.items():
                if pid != self._process.pid:
                    _wait_for_end(handle)
        self._process.wait()
        self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP all its processes: packets are still acknowledged, and nothing is answered."""
        assert self._process is not None, "the server does not run"
        with watched([self._process.pid, *self._children()]) as processes:
            try:
                for handle in processes.values():
                    signal.pidfd_send_signal(handle, signal.SIGSTOP)
                yield
            finally:
                for handle in processes.values():
                    signal.pidfd_send_signal(handle, signal.SIGCONT)

    def make(self) -> None:
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self._base, owner.pw_uid, owner.pw_gid)
        command = [
            *self._as_server(),
            str(self._binaries / "initdb"),
            "-D",
            str(self._data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        done = subprocess.run(command, cwd=self._base, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr or done.stdout}")

    def _as_server(self) -> list[str]:
        """The server refuses to be root, and must not outlive the tests."""
        user = (
            ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        )
        return ["setpriv", "--pdeathsig", "QUIT", *user]

    def _children(self) -> list[int]:
        """All of them: the kernel's own list of children leaves some out while others end."""
        assert self._process is not None
        return [
            pid
            for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
            if _parent(pid) == self._process.pid
        ]


@contextmanager
def watched(pids: list[int]) -> Iterator[dict[int, int]]:
    """A handle of each process that is there: a handle never means another process that was given
    the same number later.
    """
    handles: dict[int, int] = {}
    try:
        for pid in pids:
            try:
                handles[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
        yield handles
    finally:
        for handle in handles.values():
            os.close(handle)


def _parent(pid: int) -> int:
    """The parent of a process; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _wait_for_end(handle: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(START_TIMEOUT_S * 1000):
        raise RuntimeError("a process of the PostgreSQL server does not end")
