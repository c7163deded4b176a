"""The MySQL server of the tests is fetched once, by a fake apt-get.

It is fetched completely or not at all, by one process at a time.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.testing.servers import mysql_packages
from tidegate.testing.servers.database import ServerMissing

APT = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  indextargets*) echo http://packages.example/debian; echo http://packages.example/debian-security;;
  *install*) [ -e {fails} ] && echo "E: no such package" >&2 && exit 1
    for word in "$@"; do case "$word" in
      Dir::Cache::archives=*)
        touch "${{word#*=}}/mysql-server-core.deb" "${{word#*=}}/perl.deb";;
    esac; done;;
esac
"""
DPKG = (
    '#!/bin/sh\necho "unpack $2" >> {log}\nmkdir -p "$3/usr/sbin" && touch "$3/usr/sbin/mysqld"\n'
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with fake commands, which log their calls to `log`.

    They fail if the file `fails` exists.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
        (programs / name).write_text(text.format(log=tmp_path / "log", fails=tmp_path / "fails"))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mysql_packages.installation.cache_clear()
    yield tmp_path
    mysql_packages.installation.cache_clear()


def calls_of(machine: Path, word: str) -> int:
    return sum(word in line for line in (machine / "log").read_text().splitlines())


def test_server_is_fetched_once(machine: Path) -> None:
    root = mysql_packages.installation()
    mysql_packages.installation.cache_clear()
    assert mysql_packages.installation() == root
    assert (root / "usr/sbin/mysqld").exists()
    assert (
        calls_of(machine, " install "),
        calls_of(machine, "mysql-server-core.deb"),
        calls_of(machine, "perl.deb"),
    ) == (1, 1, 0)


def test_failed_fetch_is_reported_and_retried(machine: Path) -> None:
    (machine / "fails").touch()
    with pytest.raises(
        ServerMissing,
        match=(
            "there is no MySQL server for the tests: apt-get cannot fetch one: E: no such package"
        ),
    ):
        mysql_packages.installation()
    (machine / "fails").unlink()
    (mysql_packages.cache_directory() / "unpacking" / "half").mkdir(
        parents=True
    )  # of a process that was killed
    assert not (mysql_packages.installation() / "half").exists()


def test_two_processes_at_once_fetch_once(machine: Path) -> None:
    command = [sys.executable, "-m", "tidegate.testing.servers.mysql_packages"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[1] for process in both] == [b"", b""]
    assert [process.returncode for process in both] == [0, 0]
    assert calls_of(machine, " install ") == 1


def test_machine_without_apt_has_no_server(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine / "nothing"))
    with pytest.raises(ServerMissing, match="has no apt-get"):
        mysql_packages.installation()
