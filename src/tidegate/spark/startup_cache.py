"""What makes the next start of a JVM quicker: an archive of loaded classes (CDS), and the command
line that Spark's launcher would work out again.

Called by session.py (find, command, options), by the driver of a run that lasts
(`build_in_background`) and by the set-up of a repository. An entry belongs to one Java and one set
of Spark's jars: its directory is named by both, so that a changed one is never used. Entries are
made whole and renamed into place; the JVM itself ignores an archive that does not fit.

    <cache>/cds/<key>/classes.jsa     -XX:SharedArchiveFile
    <cache>/cds/<key>/command.json    {"version": 2, "command": [...]} with places for options and memory
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.model.errors import TidegateError
from tidegate.runner.java import Java, find_java
from tidegate.spark import gateway

VERSION = 2  # of what is in an entry: a new typical job needs other classes
OPTIONS_HERE = "-Dtidegate.options.here=true"
MEMORY_HERE = "1234m"
ENTRIES_MAX = 2  # an archive is 150 MB
BUILD_S_MAX = 600
LAUNCHER_OWN = (
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.defaultJavaOptions",
    "spark.driver.defaultExtraClassPath",
)
ENVIRON_OWN = (
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_PREPEND_CLASSES",
    "PYSPARK_SUBMIT_ARGS",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached:
    """An entry that fits this Java and this Spark."""

    archive: Path
    command: tuple[str, ...]


def key_of(java: Java, spark_home: Path) -> str:
    """The name of the entry for this Java and these jars."""
    digest = hashlib.sha256(f"{VERSION} {java.home} {java.version} {spark_home}".encode())
    for jar in sorted((spark_home / "jars").iterdir()):
        stat = jar.stat()
        digest.update(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def installed() -> Path:
    """The cache of this Python environment, which `make setup` fills: it serves every home."""
    return Path(sys.prefix) / "share" / "tidegate"


def place(home_cache: Path) -> Path:
    """Where to look for an entry: in this environment, else in the home."""
    return installed() if (installed() / "cds").is_dir() else home_cache


def find(cache: Path, java: Java, spark_home: Path) -> Cached | None:
    """The entry for this Java and Spark, if there is one that can be read."""
    entry = cache / "cds" / key_of(java, spark_home)
    try:
        document = json.loads((entry / "command.json").read_text(encoding="utf-8"))
        if document["version"] != VERSION or not (entry / "classes.jsa").is_file():
            return None
        os.utime(entry)  # the oldest unused entry goes first
        return Cached(archive=entry / "classes.jsa", command=tuple(map(str, document["command"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def options(cached: Cached) -> list[str]:
    """JVM options that use the archive, and do without where it does not fit."""
    return [f"-XX:SharedArchiveFile={cached.archive}", "-Xshare:auto"]


def command(cached: Cached, conf: Mapping[str, str]) -> list[str]:
    """The command line of the JVM itself; by Spark's launcher where settings are used that only
    that one understands.
    """
    if (
        any(conf.get(key) for key in LAUNCHER_OWN)
        or any(os.environ.get(key) for key in ENVIRON_OWN)
        or _configured(gateway.spark_home() / "conf")
    ):
        return gateway.submit_command(conf)
    filled: list[str] = []
    for part in cached.command:
        if part == OPTIONS_HERE:
            filled += conf["spark.driver.extraJavaOptions"].split()
        else:
            filled.append(part.replace(MEMORY_HERE, conf["spark.driver.memory"]))
    return filled + gateway.submit_arguments(conf)


def _configured(place: Path) -> bool:
    """Whether this Spark has files of settings, which the launcher reads."""
    return any((place / name).exists() for name in ("spark-defaults.conf", "spark-env.sh"))


def build_in_background(cache: Path) -> None:
    """Make the entry for the next start, in a process of its own that outlives this one and stays
    out of everyone's way. Nothing is done where it is there.
    """
    java = find_java(os.environ)
    if find(cache, java, gateway.spark_home()) is not None:
        return
    subprocess.Popen(
        [sys.executable, "-m", "tidegate.spark.startup_cache", str(cache)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def build(cache: Path) -> Path:
    """The entry for this Java and Spark; made here unless it is there.

    One builder at a time: others wait for it.
    """
    java, home = find_java(os.environ), gateway.spark_home()
    entry = cache / "cds" / key_of(java, home)
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find(cache, java, home) is None:
            _remove_leftovers(entry.parent)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=entry.parent))
            try:
                _archive(draft)
                document = {"version": VERSION, "command": launcher_command(java, home)}
                (draft / "command.json").write_text(json.dumps(document), encoding="utf-8")
                shutil.rmtree(entry, ignore_errors=True)
                draft.rename(entry)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return entry


def _remove_leftovers(place: Path) -> None:
    """Drafts of builders that were killed, and all but the newest entries."""
    for draft in place.glob(".draft-*"):
        shutil.rmtree(draft, ignore_errors=True)
    entries = sorted(
        (path for path in place.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    for old in entries[: max(0, len(entries) - ENTRIES_MAX + 1)]:
        shutil.rmtree(old, ignore_errors=True)


def _archive(draft: Path) -> None:
    """Run a typical small job in a process of its own and let its JVM write down the classes that
    it loaded.
    """
    work = draft / "work"
    subprocess.run(
        [sys.executable, "-m", "tidegate.spark.startup_job", str(work), str(draft / "classes.jsa")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=BUILD_S_MAX,
        check=True,
    )
    shutil.rmtree(work, ignore_errors=True)
    if not (draft / "classes.jsa").is_file():
        raise FileNotFoundError("the JVM wrote no archive of its classes")


def launcher_command(java: Java, home: Path) -> list[str]:
    """What Spark's launcher makes of a start, with places for options and memory; without the
    arguments of SparkSubmit.
    """
    asked = [
        "--conf",
        f"spark.driver.extraJavaOptions={OPTIONS_HERE}",
        "--conf",
        f"spark.driver.memory={MEMORY_HERE}",
        "pyspark-shell",
    ]
    launcher = [
        str(java.path),
        "-Xmx128m",
        "-cp",
        f"{home}/jars/*",
        "org.apache.spark.launcher.Main",
        "org.apache.spark.deploy.SparkSubmit",
    ]
    environ = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java.home),
        "SPARK_SCALA_VERSION": gateway.SCALA_VERSION,
    }
    said = subprocess.run(
        [*launcher, *asked], capture_output=True, env=environ, timeout=BUILD_S_MAX, check=True
    ).stdout
    parts = [part for part in said.partition(b"\0")[2].lstrip(b"\n").decode().split("\0") if part]
    return parts[: parts.index("org.apache.spark.deploy.SparkSubmit") + 1]


if __name__ == "__main__":
    os.nice(19)
    try:
        build(Path(sys.argv[1]) if len(sys.argv) > 1 else installed())
    except (OSError, subprocess.SubprocessError, TidegateError) as error:
        sys.exit(f"no start-up cache was made: {error}")
