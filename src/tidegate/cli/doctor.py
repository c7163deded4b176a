"""`tidegate doctor`: checks whether jobs can run on this machine, and says how to repair it.

It changes nothing: it creates no directory, and removes the small file with which it measures the
disk. It does not import pyspark (versions come from the packages' metadata), so no Spark JVM
starts.
"""

import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from tidegate.cli.findings import DoctorFinding, Level
from tidegate.cli.job_file import values_of
from tidegate.home import Home
from tidegate.plugin import registry
from tidegate.runner.java import (
    SPARK_MODULE,
    VERSION_TIMEOUT_S,
    JavaMissing,
    find_java,
    major_version,
)

PYTHON_MIN = (3, 11)
# package: the oldest supported version and the first unsupported one; a test compares them with
# pyproject.toml
SUPPORTED = {
    "pyspark": ("4.1", "4.4"),
    "pyarrow": ("18", None),
    "pandas": ("2.2", "3"),
    "sqlglot": ("27", None),
    "click": ("8.1", None),
    "rich": ("13", None),
    "psycopg": ("3.2", None),
    "adbc-driver-postgresql": ("1.8", None),
    "pymysql": ("1.1", None),
    "connectorx": ("0.4.4", None),
    "fsspec": ("2025.1", None),
    "pyyaml": ("6", None),
    "starlette": ("0.41", None),
    "fastapi": ("0.115", None),
    "jinja2": ("3.1", None),
    "uvicorn": ("0.30", None),
}
JAVA_VERSION_TRIED = 17  # the version of the tests; newer ones should work
GIB = 1 << 30
DISK_BYTES_MIN = GIB // 4
DISK_BYTES_GOOD = 2 * GIB
MEMORY_BYTES_MIN = GIB  # Python 120 MB, the JVM 400, its workers 60 each, and the rows
MEMORY_BYTES_GOOD = 2 * GIB
FSYNC_MS_GOOD = 50
FSYNC_ROUNDS = 5
OPEN_FILES_GOOD = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorEnvironment:
    """What the checks inspect; a test can pass another environment."""

    home: Path
    environ: Mapping[str, str]


def check_python(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check the version of the running interpreter."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= PYTHON_MIN:
        yield DoctorFinding(name="Python", level=Level.OK, found=found)
    else:
        yield DoctorFinding(
            name="Python",
            level=Level.MISSING,
            found=found,
            repair="Install Python 3.11 or newer and tidegate in it.",
        )


def check_system(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check for /proc, through which processes are supervised and ended."""
    found = f"{platform.system()} {platform.release()}"
    if Path("/proc/self/stat").exists():
        yield DoctorFinding(name="system", level=Level.OK, found=found)
    else:
        repair = (
            "Run it on Linux, or in a Linux container: without /proc, leftovers of a killed run"
            " cannot be found."
        )
        yield DoctorFinding(name="system", level=Level.WARNING, found=found, repair=repair)


def check_java(environment: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check that Java exists, is new enough, and starts with the module that Spark needs."""
    try:
        java = find_java(environment.environ)
    except JavaMissing as missing:
        yield DoctorFinding(
            name="Java", level=Level.MISSING, found="not found", repair=str(missing)
        )
        return
    found = f"{java.version} from {java.found_in} ({java.home})"
    if complaint := _start_java(java.path):
        repair = (
            f"It does not start: {complaint}. Install another (Debian, Ubuntu: apt-get install"
            " openjdk-17-jre-headless) and set JAVA_HOME."
        )
        yield DoctorFinding(name="Java", level=Level.MISSING, found=found, repair=repair)
    elif java.rejected:
        repair = f"Set JAVA_HOME to this one, or unset it; rejected: {'; '.join(java.rejected)}."
        yield DoctorFinding(name="Java", level=Level.WARNING, found=found, repair=repair)
    else:
        tried = (
            ""
            if major_version(java.version) == JAVA_VERSION_TRIED
            else f"; tested with {JAVA_VERSION_TRIED}"
        )
        yield DoctorFinding(name="Java", level=Level.OK, found=found + tried)


def _start_java(path: Path) -> str:
    """Start Java; return the last line of its error, or "" if it started."""
    try:
        command = [str(path), f"--add-modules={SPARK_MODULE}", "-Xmx64m", "-version"]
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        ""
        if answer.returncode == 0
        else (answer.stdout + answer.stderr).strip().rsplit("\n", 1)[-1]
    )


def check_packages(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check that the packages are installed in supported versions."""
    for package, (oldest, first_unsupported) in SUPPORTED.items():
        wanted = f"{package}>={oldest}" + (f",<{first_unsupported}" if first_unsupported else "")
        install = f"{sys.executable} -m pip install '{wanted}'"
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield DoctorFinding(
                name=package, level=Level.MISSING, found="not installed", repair=install
            )
            continue
        if is_between(version, oldest, first_unsupported):
            yield DoctorFinding(name=package, level=Level.OK, found=version)
        else:
            yield DoctorFinding(
                name=package,
                level=Level.WARNING,
                found=f"{version}, not tested with it",
                repair=install,
            )


def check_connectors(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Report installed connector packages that cannot be used."""
    for package in registry.broken_packages():
        repair = f"repair or uninstall {package.package.partition(' ')[0]}"
        yield DoctorFinding(
            name="connectors", level=Level.WARNING, found=str(package), repair=repair
        )


def is_between(version: str, oldest: str, first_unsupported: str | None) -> bool:
    """Compare versions by their leading numbers, which is all that SUPPORTED uses."""
    numbers = _numbers(version)
    return _numbers(oldest) <= numbers and (
        first_unsupported is None or numbers < _numbers(first_unsupported)
    )


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def check_sockets(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check the loopback interface, over which Python and the JVM communicate."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield DoctorFinding(
                name="loopback",
                level=Level.OK,
                found=f"a free port on 127.0.0.1 ({server.getsockname()[1]})",
            )
    except OSError as error:
        repair = (
            "Bring up the interface lo (ip link set lo up), or let this user open ports on"
            " 127.0.0.1."
        )
        yield DoctorFinding(
            name="loopback",
            level=Level.MISSING,
            found=f"no port on 127.0.0.1: {error}",
            repair=repair,
        )


def check_home(environment: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check the home directory: store, checkpoints, scratch files and logs."""
    folder = environment.home
    while not folder.exists():
        folder = folder.parent
    found = (
        str(environment.home)
        if folder == environment.home
        else f"{environment.home}, to be created in {folder}"
    )
    try:
        fsync_ms = _measure_fsync_ms(folder)
    except OSError as error:
        repair = (
            "Make it writable for this user, or choose another with --home DIR or TIDEGATE_HOME."
        )
        yield DoctorFinding(
            name="home", level=Level.MISSING, found=f"{found}: {error.strerror}", repair=repair
        )
        return
    yield DoctorFinding(name="home", level=Level.OK, found=found)
    yield _fsync_finding(fsync_ms)
    yield _disk_finding("disk of home", folder)
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        repair = (
            "Choose a home on a file system without noexec: Java unpacks its compression libraries"
            " there."
        )
        yield DoctorFinding(
            name="noexec", level=Level.WARNING, found=f"{folder} is mounted noexec", repair=repair
        )


def _measure_fsync_ms(folder: Path) -> float:
    """Measure the median time of a small durable write."""
    times_ms = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tidegate-doctor-") as file:
        for _ in range(FSYNC_ROUNDS):
            start = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - start) * 1000)
    return statistics.median(times_ms)


def _fsync_finding(fsync_ms: float) -> DoctorFinding:
    if fsync_ms <= FSYNC_MS_GOOD:
        return DoctorFinding(name="fsync", level=Level.OK, found=f"{fsync_ms:.1f} ms")
    repair = (
        "Every checkpoint waits for several of them: use a longer checkpoint.interval, or a home on"
        " a faster disk."
    )
    return DoctorFinding(
        name="fsync", level=Level.WARNING, found=f"{fsync_ms:.0f} ms", repair=repair
    )


def _disk_finding(name: str, folder: Path) -> DoctorFinding:
    usage = shutil.disk_usage(folder)
    found = f"{_gib(usage.free)} free of {_gib(usage.total)} ({folder})"
    return _amount_finding(
        name,
        found,
        usage.free,
        DISK_BYTES_MIN,
        DISK_BYTES_GOOD,
        f"Free some space; {_gib(DISK_BYTES_GOOD)} is recommended.",
    )


def _amount_finding(
    name: str, found: str, amount: int, least: int, good: int, repair: str
) -> DoctorFinding:
    if amount >= good:
        return DoctorFinding(name=name, level=Level.OK, found=found)
    return DoctorFinding(
        name=name,
        level=Level.WARNING if amount >= least else Level.MISSING,
        found=found,
        repair=repair,
    )


def check_temporary(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check the directory for temporary files of Python and the JVM."""
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        yield DoctorFinding(
            name="temp dir",
            level=Level.MISSING,
            found=str(error),
            repair="Set TMPDIR to a directory that this user may write.",
        )
        return
    yield _disk_finding("temp dir", folder)


def check_memory(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check the available memory of the machine or of the container, whichever is less."""
    limits = [limit for limit in (_available_bytes(), _container_bytes()) if limit is not None]
    if not limits:
        yield DoctorFinding(name="memory", level=Level.OK, found="unknown")
        return
    repair = f"A driver takes about 0.7 GiB and its rows; {_gib(MEMORY_BYTES_GOOD)} is recommended."
    yield _amount_finding(
        "memory",
        f"{_gib(min(limits))} available",
        min(limits),
        MEMORY_BYTES_MIN,
        MEMORY_BYTES_GOOD,
        repair,
    )


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None
    )


def _container_bytes(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the control group's limit leaves, or None without a limit.

    The file cache does not count, because the kernel can drop it.
    """
    try:
        limit = int((group / "memory.max").read_text())
        statistic = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - int(statistic["anon"])
    except (OSError, ValueError, KeyError):  # no such group, or "max"
        return None


def check_processors(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Count the processors that this process may use."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    yield DoctorFinding(name="processors", level=Level.OK, found=str(count))


def check_limits(_: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check the limit of open files; every jar, socket and data file counts."""
    import resource  # not available on every platform

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= OPEN_FILES_GOOD or soft == resource.RLIM_INFINITY:
        yield DoctorFinding(name="open files", level=Level.OK, found=str(soft))
    else:
        yield DoctorFinding(
            name="open files",
            level=Level.WARNING,
            found=str(soft),
            repair="Allow more: ulimit -n 4096.",
        )


def check_rights(environment: DoctorEnvironment) -> Iterator[DoctorFinding]:
    """Check that other users cannot read files with secrets."""
    try:
        from tidegate.cli.rights import exposed_files_of  # needs packages that may be missing here
        from tidegate.model.errors import UserError
    except ImportError:
        return
    try:
        found = exposed_files_of(environment.home, environment.environ)
    except UserError as error:
        yield DoctorFinding(
            name="file rights", level=Level.WARNING, found="not checked", repair=str(error)
        )
        return
    for each in found:
        repair = f"Restrict the access: {each.repair}"
        yield DoctorFinding(
            name="file rights",
            level=Level.WARNING,
            found=f"{each.path} ({each.what}): other users can access it",
            repair=repair,
        )
    if not found:
        yield DoctorFinding(
            name="file rights",
            level=Level.OK,
            found="only their owner can access files with secrets",
        )


CHECKS: tuple[Callable[[DoctorEnvironment], Iterator[DoctorFinding]], ...] = (
    *(check_python, check_system, check_java, check_packages, check_connectors, check_sockets),
    *(check_home, check_temporary, check_memory, check_processors, check_limits, check_rights),
)


def run_checks(environment: DoctorEnvironment) -> list[DoctorFinding]:
    """Run all checks; the findings are in the order in which to repair them."""
    return [finding for check in CHECKS for finding in check(environment)]


def is_ready(findings: list[DoctorFinding]) -> bool:
    return all(finding.level is not Level.MISSING for finding in findings)


def _gib(amount: int) -> str:
    return f"{amount / GIB:.1f} GiB"


_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.MISSING: "red"}


def _show(findings: list[DoctorFinding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        click.echo(
            f"{click.style(f'{finding.level:<8}', fg=_COLOURS[finding.level])}"
            f" {finding.name:<{width}}  {finding.found}"
        )
        if finding.repair:
            click.echo(f"{'':<{width + 11}}{finding.repair}")
    missing = [finding.name for finding in findings if finding.level is Level.MISSING]
    click.echo(f"No job can run here: {', '.join(missing)}." if missing else "A job can run here.")


@click.command("doctor")
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "-i",
    "--variable",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for ${NAME} in the job files; may be repeated.",
)
@click.option("--home", help="The installation to check (TIDEGATE_HOME).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(
    files: tuple[str, ...], variable: tuple[str, ...], home: str | None, as_json: bool
) -> None:
    """Check whether jobs can run on this machine, and show how to install what is missing.

    With job files, also connect to their sources and check permissions, settings and tables.

    Exit code 0 means that jobs can run, 1 that something is missing.

    \b
    Examples:
      tidegate doctor
      tidegate doctor orders.conf
    """
    findings = run_checks(
        DoctorEnvironment(home=Home.find(home, os.environ).root, environ=os.environ)
    )
    if files:
        from tidegate.cli.doctor_sources import (
            check_sources,
        )  # Arrow, which the other checks do without

        findings += [
            finding for file in files for finding in check_sources(file, values_of(variable))
        ]
    if as_json:
        document = {
            "version": 1,
            "ready": is_ready(findings),
            "findings": [asdict(finding) for finding in findings],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _show(findings)
    raise SystemExit(0 if is_ready(findings) else 1)
