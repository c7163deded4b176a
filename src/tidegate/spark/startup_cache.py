"""Cache what makes the next start of a JVM faster: a class archive (CDS) and Spark's command line.

Called by session.py (find, command, options), by the driver of a continuous run
(`build_in_background`) and by the set-up of a repository. An entry belongs to one Java and one set
of Spark's jars, which its directory name identifies. Entries are written to a temporary directory
and renamed; the JVM ignores an archive that does not fit.

    <cache>/cds/<key>/classes.jsa     -XX:SharedArchiveFile
    <cache>/cds/<key>/command.json    {"version": 2, "command": [...]} with placeholders
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

VERSION = 2  # of the format of an entry, and of the typical job
OPTIONS_PLACEHOLDER = "-Dtidegate.options.here=true"
MEMORY_PLACEHOLDER = "1234m"
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
class StartupArchive:
    """A cache entry for this Java and this Spark."""

    archive: Path
    command: tuple[str, ...]


def key_of(java: Java, spark_home: Path) -> str:
    """Return the name of the entry for this Java and these jars."""
    digest = hashlib.sha256(f"{VERSION} {java.home} {java.version} {spark_home}".encode())
    for jar in sorted((spark_home / "jars").iterdir()):
        stat = jar.stat()
        digest.update(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def installed() -> Path:
    """Return the cache of this Python environment, which `make setup` fills for all homes."""
    return Path(sys.prefix) / "share" / "tidegate"


def locate(home_cache: Path) -> Path:
    """Return the cache to use: of this environment if it exists, else of the home."""
    return installed() if (installed() / "cds").is_dir() else home_cache


def find(cache: Path, java: Java, spark_home: Path) -> StartupArchive | None:
    """Return the entry for this Java and Spark, if it exists and is readable."""
    entry = cache / "cds" / key_of(java, spark_home)
    try:
        document = json.loads((entry / "command.json").read_text(encoding="utf-8"))
        if document["version"] != VERSION or not (entry / "classes.jsa").is_file():
            return None
        os.utime(entry)  # the oldest unused entry goes first
        return StartupArchive(
            archive=entry / "classes.jsa", command=tuple(map(str, document["command"]))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def options(cached: StartupArchive) -> list[str]:
    """Return JVM options that use the archive if it fits."""
    return [f"-XX:SharedArchiveFile={cached.archive}", "-Xshare:auto"]


def command(cached: StartupArchive, conf: Mapping[str, str]) -> list[str]:
    """Return the command line of the JVM, or Spark's launcher if a setting needs it."""
    if (
        any(conf.get(key) for key in LAUNCHER_OWN)
        or any(os.environ.get(key) for key in ENVIRON_OWN)
        or _configured(gateway.spark_home() / "conf")
    ):
        return gateway.submit_command(conf)
    filled: list[str] = []
    for part in cached.command:
        if part == OPTIONS_PLACEHOLDER:
            filled += conf["spark.driver.extraJavaOptions"].split()
        else:
            filled.append(part.replace(MEMORY_PLACEHOLDER, conf["spark.driver.memory"]))
    return filled + gateway.submit_arguments(conf)


def _configured(place: Path) -> bool:
    """Whether this Spark has configuration files, which only the launcher reads."""
    return any((place / name).exists() for name in ("spark-defaults.conf", "spark-env.sh"))


def build_in_background(cache: Path) -> None:
    """Build the entry for the next start in a separate process, unless it exists.

    The process has the lowest priority and outlives this one.
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
    """Build the entry for this Java and Spark unless it exists; one builder at a time."""
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
    """Remove drafts of killed builders, and all but the newest entries."""
    for draft in place.glob(".draft-*"):
        shutil.rmtree(draft, ignore_errors=True)
    entries = sorted(
        (path for path in place.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    for old in entries[: max(0, len(entries) - ENTRIES_MAX + 1)]:
        shutil.rmtree(old, ignore_errors=True)


def _archive(draft: Path) -> None:
    """Run a typical small job whose JVM records the classes that it loads."""
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
    """Run Spark's launcher and return its command line, with placeholders.

    The arguments of SparkSubmit are left out.
    """
    asked = [
        "--conf",
        f"spark.driver.extraJavaOptions={OPTIONS_PLACEHOLDER}",
        "--conf",
        f"spark.driver.memory={MEMORY_PLACEHOLDER}",
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
        sys.exit(f"the start-up cache was not built: {error}")
