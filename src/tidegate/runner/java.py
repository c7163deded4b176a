"""Finds the Java that Spark will run on.

Callers: the runner before it starts a driver (it exports `home` as JAVA_HOME), `tidegate doctor`,
and the set-up of the repository (`python -m tidegate.runner.java`). Java is only looked for, never
installed and never changed; no pyspark here.

What a Java can do is read from the `release` file of its home, which costs no JVM start; only a
home without one is asked by running it.
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

JAVA_VERSION_MIN = 17  # what Spark 4 asks for
ANSWER_S_MAX = 20  # a Java that has not said its version by then is broken
SPARK_MODULE = (  # Spark adds it on the command line, and a JVM without it does not start
    "jdk.incubator.vector"
)
DRIVER_PACKAGES = ("pyspark", "pyarrow", "pandas")
KNOWN_PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/usr/local/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Java:
    """A Java that Spark can run on."""

    path: Path  # the executable
    home: Path  # what JAVA_HOME must be for Spark to take it
    version: str  # as it says itself: 17.0.15
    found_in: str  # "JAVA_HOME", "PATH" or the directory
    passed_over: tuple[str, ...] = ()  # why those looked at before were not taken, one phrase each


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What a Java says of itself."""

    version: str
    home: Path
    modules: str  # names separated by spaces; empty where it does not tell


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unfit:
    """A place where a Java was expected and is not one for Spark."""

    why: str


class SparkMissing(UserError):
    """The packages that run jobs are not installed."""

    condition = "spark-missing"

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"no job can run here: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed. Install what runs jobs with "
            f"{sys.executable} -m pip install 'tidegate[spark]'"
        )


def check_spark() -> None:
    """SparkMissing where the packages that a driver imports are not installed. Imports none."""
    missing = [name for name in DRIVER_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissing(missing)


class JavaMissing(UserError):
    """No Java that Spark can run on."""

    condition = "java-missing"

    def __init__(self, passed_over: tuple[str, ...]) -> None:
        seen = f" Looked at and not taken: {'; '.join(passed_over)}." if passed_over else ""
        super().__init__(
            f"Java {JAVA_VERSION_MIN} or newer was not found.{seen} Install it (Debian, Ubuntu:"
            " apt-get install openjdk-17-jre-headless; Fedora: dnf install"
            " java-21-openjdk-headless; macOS: brew install openjdk@17), or set JAVA_HOME to where"
            " it is."
        )
        self.passed_over = passed_over


def find_java(environ: Mapping[str, str]) -> Java:
    """The first fit Java of JAVA_HOME, PATH and the usual places; JavaMissing where there is none."""
    passed_over: list[str] = []
    for found_in, path in _candidates(environ):
        match _probe(path):
            case _Unfit(why=why):
                passed_over.append(f"{found_in} ({path}) {why}")
            case _Known(version=version, home=home):
                return Java(
                    path=path,
                    home=home,
                    version=version,
                    found_in=found_in,
                    passed_over=tuple(passed_over),
                )
    raise JavaMissing(tuple(passed_over))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where to look, in the order in which a person would expect it; lazily, as most searches end
    at the first.
    """
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    for pattern in KNOWN_PLACES:
        for place in sorted(Path("/").glob(pattern.removeprefix("/"))):
            if (place / "bin" / "java").exists():
                yield str(place), place / "bin" / "java"


def _probe(path: Path) -> _Known | _Unfit:
    """What the Java at this path says of itself, if Spark can run on it."""
    if not os.access(path, os.X_OK):
        return _Unfit(why="is not there or may not be run")
    known = _read_release(path) or _ask(path)
    if isinstance(known, _Unfit):
        return known
    if major_version(known.version) < JAVA_VERSION_MIN:
        return _Unfit(why=f"is Java {known.version}, too old")
    if known.modules and SPARK_MODULE not in known.modules.split():
        return _Unfit(why=f"is a reduced Java {known.version} without the module {SPARK_MODULE}")
    return known


def major_version(version: str) -> int:
    """17 of "17.0.15"; 8 of "1.8.0_392"; 0 of what is no version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    match numbers:
        case [1, second]:
            return second
        case [first, *_]:
            return first
        case _:
            return 0


def _read_release(path: Path) -> _Known | None:
    """From the KEY="value" lines of the file that describes a Java; None where there is none."""
    home = path.resolve().parent.parent
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    values: dict[str, str] = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, flags=re.MULTILINE))
    if "JAVA_VERSION" not in values:
        return None
    return _Known(version=values["JAVA_VERSION"], home=home, modules=values.get("MODULES", ""))


def _ask(path: Path) -> _Known | _Unfit:
    """Run it. Needed for launchers of version managers, whose place says nothing about the home of
    the Java behind them.
    """
    command = [str(path), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=ANSWER_S_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Unfit(why=f"does not run: {error}")
    said = dict(
        re.findall(r"^\s*([\w.]+) = (.*)$", answer.stderr + answer.stdout, flags=re.MULTILINE)
    )
    if "java.version" not in said or "java.home" not in said:
        return _Unfit(why="does not say its version")
    return _Known(version=said["java.version"], home=Path(said["java.home"]), modules="")


def main() -> int:
    """For the set-up: the Java that would be taken, or what to do."""
    try:
        java = find_java(os.environ)
    except JavaMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    print(f"Java {java.version} ({java.home})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
