"""A MySQL server for tests, beside the one of MariaDB: a private directory, a port on the loopback,
a binary log by rows.

Used as `with MySqlServer() as server: ... server.url ...`. The programs come from
mysql_packages.py, and are run by the loader and libraries that came with them. The data directory
is a copy of a template that is made once for each user.
"""

import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import ClassVar

import pymysql

from tidegate.testing.servers.binlog import BinlogServer, as_root
from tidegate.testing.servers.database import ServerMissing
from tidegate.testing.servers.mysql_packages import installation, locked

SMALL = (
    "--innodb-redo-log-capacity=8M",
    "--innodb-data-file-path=ibdata1:5M:autoextend",
    "--innodb-buffer-pool-size=64M",
)
USERS = "".join(
    f"create user {name} identified by '{password}';\ngrant all on *.* to {name} with grant"
    " option;\n"
    for name, password in (
        ("root@'127.0.0.1'", ""),
        (f"{BinlogServer.user}@'%'", BinlogServer.password),
    )
)


def program() -> list[str]:
    """The command that runs mysqld; ServerMissing where there is none for this machine."""
    root = installation()
    libraries = next(root.glob("usr/lib/*-linux-gnu"), None)
    loader = next(libraries.glob("ld-linux*.so.*"), None) if libraries else None
    if libraries is None or loader is None:
        raise ServerMissing(
            f"there is no MySQL server for the tests: {root} has no loader of programs"
        )
    command = [
        str(loader),
        "--library-path",
        f"{libraries}:{root}/usr/lib",
        str(root / "usr/sbin/mysqld"),
        "--no-defaults",
        *as_root(),
    ]
    return [
        *command,
        f"--basedir={root}/usr",
        f"--lc-messages-dir={root}/usr/share/mysql",
        f"--character-sets-dir={root}/usr/share/mysql/charsets",
    ]


def _template() -> Path:
    """A fresh data directory, made once and kept beside the programs."""
    command = program()
    with locked("template") as directory:
        template, making = (
            directory / f"template-{zlib.crc32(USERS.encode()):08x}",
            directory / "making",
        )
        if not template.is_dir():
            shutil.rmtree(making, ignore_errors=True)
            statements = directory / "template.sql"
            statements.write_text(USERS)
            command += [
                "--initialize-insecure",
                f"--datadir={making}",
                f"--init-file={statements}",
                "--skip-log-bin",
                *SMALL,
            ]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            if done.returncode:
                shutil.rmtree(making, ignore_errors=True)
                raise RuntimeError(
                    f"the MySQL server cannot make its data directory: {done.stderr.strip()[-500:]}"
                )
            (making / "auto.cnf").unlink()  # every server has an id of its own
            making.rename(template)
    return template


class MySqlServer(BinlogServer):
    called = "MySQL"
    own: ClassVar[dict[str, str]] = {
        "log-bin": "binlog",
        "server-id": "3",
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "binlog-row-metadata": "FULL",
        "local-infile": "1",
        "mysqlx": "OFF",
        "performance-schema": "OFF",
        "secure-file-priv": "",
        "sync-binlog": "0",
        "innodb-flush-log-at-trx-commit": "0",
        "innodb-doublewrite": "OFF",
        "innodb-flush-method": "nosync",
        "log-error-verbosity": "1",
    }

    def __init__(self, *, settings: dict[str, str] | None = None) -> None:
        self._settings = {**self.own, **(settings or {})}
        self._program = program()
        super().__init__(Path(tempfile.mkdtemp(prefix="tidegate-mysql-")))

    def make(self) -> None:
        """A copy of the template."""
        subprocess.run(
            ["cp", "-r", "--sparse=always", str(_template()), str(self._data)], check=True
        )

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
            *self._program,
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
        ]
        return [*command, "--skip-name-resolve", *SMALL, *settings]

    def begin(self) -> None:
        """The template has the user of the tests."""

    def probe(self) -> None:
        """Connect once; log in by the socket, after which the server takes the password over
        connections that are not encrypted too.
        """
        super().probe()
        pymysql.connect(
            unix_socket=str(self._base / "s"),
            user=self.user,
            password=self.password.encode(),
            ssl_disabled=True,
        ).close()
