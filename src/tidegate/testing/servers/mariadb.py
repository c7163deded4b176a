"""A MariaDB server for tests: its own data directory, a port on the loopback, a binary log by rows,
everything gone at the end.

Used as `with MariaDbServer() as server: ... server.url ...`. Its data directory is a copy of a
template that is made once for each process. It ends with the thread that started it, also when that
is killed: start it in the main thread. Servers of the machine are never touched.
"""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tidegate.testing.servers.binlog import BinlogServer, as_root
from tidegate.testing.servers.database import ServerMissing

SYSTEM_TABLES = ("system_tables", "performance_tables", "system_tables_data")
SMALL = ("--innodb-log-file-size=8M", "--innodb-data-file-path=ibdata1:4M:autoextend")


def find_server() -> str:
    found = shutil.which("mariadbd") or shutil.which(
        "mariadbd", path="/usr/sbin:/usr/local/sbin:/usr/libexec"
    )
    if found is None:
        raise ServerMissing(
            "no MariaDB server was found; `make setup` installs one (Debian, Ubuntu: apt-get"
            " install mariadb-server-core)"
        )
    return found


@cache
def _template() -> Path:
    """A fresh data directory, made once for each process; it goes with the last server of the
    process.

    Made as mariadb-install-db does it, but without that script: it needs a program of the client's
    package.
    """
    data = _scratch() / "template"
    data.mkdir()
    statements = [
        "create database if not exists mysql;",
        "use mysql;",
        "set @auth_root_socket=null;",
    ]
    for name in SYSTEM_TABLES:
        found = next(
            (path for word in ("mysql", "mariadb") for path in _share().glob(f"{word}_{name}.sql")),
            None,
        )
        if found is None:
            raise ServerMissing(
                f"{_share()} has no file for {name}; it comes with the package mariadb-server-core"
            )
        statements.append(found.read_text(encoding="utf-8"))
    command = [
        find_server(),
        "--no-defaults",
        *as_root(),
        "--bootstrap",
        f"--datadir={data}",
        "--log-warnings=0",
        "--enforce-storage-engine=",
    ]
    command += ["--max_allowed_packet=8M", "--net_buffer_length=16K", *SMALL]
    done = subprocess.run(
        command, input="\n".join(statements), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"mariadbd --bootstrap failed: {done.stderr or done.stdout}")
    return data


def _share() -> Path:
    """Where the server's own SQL files are."""
    prefix = Path(find_server()).resolve().parent.parent
    return next(
        (
            prefix / "share" / name
            for name in ("mysql", "mariadb")
            if (prefix / "share" / name).is_dir()
        ),
        prefix / "share",
    )


@cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="tidegate-mariadb-"))


_alive: set["MariaDbServer"] = set()


class MariaDbServer(BinlogServer):
    called = "MariaDB"

    def __init__(self, *, settings: dict[str, str] | None = None) -> None:
        own = {
            "log-bin": "binlog",
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "binlog-row-metadata": "FULL",
            "server-id": "1",
        }
        self._settings = {
            **own,
            "gtid-strict-mode": "1",
            "local-infile": "1",
            "performance-schema": "0",
            **(settings or {}),
        }
        self._program = find_server()
        super().__init__(Path(tempfile.mkdtemp(prefix="server-", dir=_scratch())))
        _alive.add(self)

    def make(self) -> None:
        """A copy of the template."""
        shutil.copytree(_template(), self._data)

    def command(self) -> list[str]:
        """The server in the foreground."""
        places = {
            "datadir": self._data,
            "socket": self._base / "s",
            "pid-file": self._base / "pid",
            "log-error": self._base / "log",
        }
        settings = [f"--{name}={value}" for name, value in {**places, **self._settings}.items()]
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            self._program,
            "--no-defaults",
            *as_root(),
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
        ]
        return [*command, "--skip-name-resolve", *SMALL, *settings]

    def remove(self) -> None:
        """End it at once and remove its data; with the last server of the process the template goes
        too.
        """
        super().remove()
        _alive.discard(self)
        if not _alive:
            shutil.rmtree(_scratch(), ignore_errors=True)
            _scratch.cache_clear()
            _template.cache_clear()
