"""Finds the Java installation for Spark.

Callers: the runner before it starts a driver (it exports `home` as JAVA_HOME), `tidegate doctor`,
and the set-up of the repository (`python -m tidegate.runner.java`). It never installs or changes
Java, and must not import pyspark.

Version and modules are read from the `release` file of the Java home, which needs no JVM start.
Java is run only if its home has no such file.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.model.errors import UserError

JAVA_VERSION_MIN = 17  # the minimum of Spark 4
VERSION_TIMEOUT_S = 20  # a Java that takes longer to print its version is broken
SPARK_MODULE = (  # Spark adds it on the command line, and a JVM without it does not start
    "jdk.incubator.vector"
)
DRIVER_PACKAGES = ("pyspark", "pyarrow", "pandas")
SEARCH_PATHS = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/usr/local/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Java:
    """A Java that Spark can run on."""

    path: Path  # of the executable
    home: Path  # the JAVA_HOME for Spark
    version: str  # as reported, such as 17.0.15
    found_in: str  # "JAVA_HOME", "PATH" or the directory
    rejected: tuple[str, ...] = ()  # why the candidates before it were rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class _JavaInfo:
    """Version and modules that a Java reports."""

    version: str
    home: Path
    modules: str  # names separated by spaces; empty if unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unusable:
    """A candidate path without a Java that Spark can use."""

    why: str


class SparkMissing(UserError):
    """The Python packages that run jobs are not installed."""

    condition = "spark-missing"

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"no job can run here: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed. Install what is missing with "
            f"{sys.executable} -m pip install 'tidegate[spark]'"
        )


def check_spark() -> None:
    """Raise SparkMissing if a package that drivers need is not installed. Imports none of them."""
    missing = [name for name in DRIVER_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissing(missing)


class JavaMissing(UserError):
    """No Java on this host can run Spark."""

    condition = "java-missing"

    def __init__(self, rejected: tuple[str, ...]) -> None:
        details = f" Rejected: {'; '.join(rejected)}." if rejected else ""
        super().__init__(
            f"Java {JAVA_VERSION_MIN} or newer was not found.{details} Install it (Debian, Ubuntu:"
            " apt-get install openjdk-17-jre-headless; Fedora: dnf install"
            " java-21-openjdk-headless; macOS: brew install openjdk@17), or set JAVA_HOME to where"
            " it is."
        )
        self.rejected = rejected


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first usable Java of JAVA_HOME, PATH and SEARCH_PATHS, or raise JavaMissing."""
    rejected: list[str] = []
    for found_in, path in _candidates(environ):
        match _probe(path):
            case _Unusable(why=why):
                rejected.append(f"{found_in} ({path}) {why}")
            case _JavaInfo(version=version, home=home):
                return Java(
                    path=path,
                    home=home,
                    version=version,
                    found_in=found_in,
                    rejected=tuple(rejected),
                )
    raise JavaMissing(tuple(rejected))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the candidates in the order that users expect.

    Lazily, because most searches end at the first one.
    """
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    for pattern in SEARCH_PATHS:
        for directory in sorted(Path("/").glob(pattern.removeprefix("/"))):
            if (directory / "bin" / "java").exists():
                yield str(directory), directory / "bin" / "java"


def _probe(path: Path) -> _JavaInfo | _Unusable:
    """Return the version of the Java at this path, or why Spark cannot use it."""
    if not os.access(path, os.X_OK):
        return _Unusable(why="does not exist or is not executable")
    known = _read_release(path) or _run_java(path)
    if isinstance(known, _Unusable):
        return known
    if major_version(known.version) < JAVA_VERSION_MIN:
        return _Unusable(why=f"is Java {known.version}, too old")
    if known.modules and SPARK_MODULE not in known.modules.split():
        return _Unusable(why=f"is a reduced Java {known.version} without the module {SPARK_MODULE}")
    return known


def major_version(version: str) -> int:
    """Return 17 for "17.0.15", 8 for "1.8.0_392", and 0 for a text that is no version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    match numbers:
        case [1, second]:
            return second
        case [first, *_]:
            return first
        case _:
            return 0


def _read_release(path: Path) -> _JavaInfo | None:
    """Read the `release` file of a Java home, which has KEY="value" lines; None without one."""
    home = path.resolve().parent.parent
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    values: dict[str, str] = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, flags=re.MULTILINE))
    if "JAVA_VERSION" not in values:
        return None
    return _JavaInfo(version=values["JAVA_VERSION"], home=home, modules=values.get("MODULES", ""))


def _run_java(path: Path) -> _JavaInfo | _Unusable:
    """Run Java to get its properties.

    Needed for launchers of version managers, whose path says nothing about the Java home.
    """
    command = [str(path), "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Unusable(why=f"does not run: {error}")
    properties = dict(
        re.findall(r"^\s*([\w.]+) = (.*)$", result.stderr + result.stdout, flags=re.MULTILINE)
    )
    if "java.version" not in properties or "java.home" not in properties:
        return _Unusable(why="does not report its version")
    return _JavaInfo(
        version=properties["java.version"], home=Path(properties["java.home"]), modules=""
    )


def main() -> int:
    """Print the Java that would be used, or what to do; for the set-up of the repository."""
    try:
        java = find_java(os.environ)
    except JavaMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    print(f"Java {java.version} ({java.home})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
