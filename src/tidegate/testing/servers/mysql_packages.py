"""The programs of a MySQL server for tests, from the packages of Debian's development suite.

No stable release of Debian has MySQL. The packages are fetched by the machine's own apt, from the
site that it uses already and checked by its keys, and unpacked into a cache directory of the user:
nothing of the machine changes. They are fetched once; what was interrupted is resumed, and of two
processes one waits. Run as a program by scripts/setup.py, so that tests need not fetch.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tidegate.testing.servers.database import ServerMissing

SUITE = "sid"
PACKAGE = "mysql-server-core"
FETCH_TIMEOUT_S = 600.0
_NOT_NEEDED = ("perl", "libperl", "openssl-provider-legacy")


def cache_directory() -> Path:
    """Where fetched servers are kept, outside of every checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidegate-test-servers" / "mysql"


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """The cache directory, for one process at a time."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


@cache
def installation() -> Path:
    """The directory with the unpacked packages; ServerMissing where they cannot be had."""
    root = cache_directory() / "root"
    if root.is_dir():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ServerMissing(
            "there is no MySQL server for the tests: this machine has no apt-get to fetch one with"
        )
    with locked("fetch") as directory:
        if not root.is_dir():
            _unpack(_fetched(directory), directory / "unpacking", root)
    return root


def _fetched(directory: Path) -> list[Path]:
    """The packages, in a directory in which apt resumes what was interrupted."""
    place = directory / "apt"
    for name in ("lists/partial", "archives/partial"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()  # nothing is installed: all packages that are needed are fetched
    (place / "sources.list").write_text(f"deb {_site()} {SUITE} main\n")
    apt = [
        "apt-get",
        "-qq",
        *(word for pair in _settings(place).items() for word in ("-o", "=".join(pair))),
    ]
    _run([*apt, "update"])
    _run([*apt, "--yes", "--no-install-recommends", "--download-only", "install", PACKAGE])
    return sorted(
        path for path in (place / "archives").glob("*.deb") if not path.name.startswith(_NOT_NEEDED)
    )


def _settings(place: Path) -> dict[str, str]:
    return {
        "Dir::Etc::SourceList": str(place / "sources.list"),
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State::Lists": str(place / "lists"),
        "Dir::State::status": str(place / "status"),
        "Dir::Cache::archives": str(place / "archives"),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Acquire::Check-Valid-Until": "false",  # a mirror may be some days old
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Acquire::http::Timeout": "30",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",  # the lock of the cache directory is held
    }


def _site() -> str:
    """The site of packages that apt uses."""
    sites = _run(["apt-get", "indextargets", "--format", "$(SITE)"]).split()
    found = sorted({site for site in sites if "security" not in site})
    if not found:
        raise ServerMissing(
            "there is no MySQL server for the tests: apt-get knows no site to fetch one from"
        )
    return found[0]


def _unpack(packages: list[Path], into: Path, root: Path) -> None:
    shutil.rmtree(into, ignore_errors=True)
    for package in packages:
        _run(["dpkg-deb", "-x", str(package), str(into)])
    for name in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(into / name, ignore_errors=True)
    into.rename(root)  # whole, or not there
    shutil.rmtree(packages[0].parents[1], ignore_errors=True)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=FETCH_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerMissing(f"there is no MySQL server for the tests: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise ServerMissing(
            f"there is no MySQL server for the tests: {command[0]} cannot fetch one:"
            f" {said[-1][:300]}"
        )
    return done.stdout


def main() -> int:
    """Fetch the packages; 1 with a sentence where they cannot be had."""
    try:
        installation()
    except (ServerMissing, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
