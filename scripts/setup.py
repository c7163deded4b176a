"""Makes everything that `make demo`, `make test` and the rest need: .venv with the locked packages
and `tidegate` in it, Java, and the tests' servers.

Called by the Makefile with any python3, so it uses the standard library only and words that an old
Python understands. It may be run at any time: what is there is left as it is, what was interrupted
is gone on with. Where packages come from is the business of the user's pip.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".set-up"
LOCK = ROOT / "requirements.lock"
LOG = ROOT / "build" / "setup.log"
PYTHON_MIN = (3, 11)
JAVA_PACKAGES = (
    "openjdk-17-jre-headless",
    "openjdk-21-jre-headless",
    "default-jre-headless",
)  # a release of Debian or Ubuntu has some of them
# What tests start for themselves: name, a file of it, a command of it, and its packages.
SERVERS = (
    ("PostgreSQL", "usr/lib/postgresql/*/bin/initdb", "initdb", ("postgresql",)),
    ("etcd", "usr/bin/etcd", "etcd", ("etcd-server", "etcd")),
    ("MariaDB", "usr/sbin/mariadbd", "mariadbd", ("mariadb-server-core", "mariadb-server")),
    ("Chromium", "usr/bin/chromium", "chromium", ("chromium",)),
    ("OpenSSL", "usr/bin/openssl", "openssl", ("openssl",)),
)
SERVICE_POLICY = Path("/usr/sbin/policy-rc.d")  # Debian asks it before a package starts its service


class SetUpError(Exception):
    """Why the set-up cannot continue, as one sentence."""


def say(text):
    print("setup: " + text, file=sys.stderr, flush=True)


def run(what, command, **environ):
    """Run a command with its output in the log; SetUpError with its last complaint."""
    with open(LOG, "a") as log:
        log.write("\n$ " + " ".join(map(str, command)) + "\n")
        log.flush()
        begin = log.tell()
        everything = dict(os.environ, **environ)
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=everything,
        )
    if result.returncode:
        raise SetUpError(
            f"could not {what}: {last_complaint(begin)} (all of it: {LOG.relative_to(ROOT)})"
        )


def last_complaint(begin):
    """The line of the log that most likely says why: pip and apt begin it with a word."""
    with open(LOG, errors="replace") as log:
        log.seek(begin)
        lines = [line.strip() for line in log if line.strip()]
    complaints = [line for line in lines if re.match(r"(ERROR|E|Error)\b:?", line)]
    return (complaints or lines or ["it said nothing"])[-1][:300]


def become_new_enough():
    """Continue in a newer Python if this one is too old."""
    if sys.version_info >= PYTHON_MIN:
        return
    for minor in range(19, PYTHON_MIN[1] - 1, -1):
        better = shutil.which(f"python3.{minor}")
        if better:
            os.execv(better, [better, *sys.argv])
    raise SetUpError(
        f"Python 3.11 or newer is needed and this is {sys.version.split()[0]}; install one, or say"
        " where it is: make PYTHON=/path/to/python3.12 setup"
    )


def wanted_stamp():
    """Changes with the locked packages, with our own metadata, and when the tree is moved (a venv
    holds absolute paths).
    """
    digest = hashlib.sha256()
    for part in (LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), str(VENV).encode()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def is_done(stamp):
    return (
        VENV_PYTHON.exists()
        and (VENV / "bin" / "tidegate").exists()
        and STAMP.exists()
        and STAMP.read_text() == stamp
    )


def install_with_apt(what, packages):
    """Install the first of these packages that the machine's apt has; only as root, as no one wants
    to be asked for a password here.
    """
    noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
    run("update the list of packages", ["apt-get", "update"], **noninteractive)
    for package in packages:
        say(f"installing {package} ({what})")
        try:
            return run(
                f"install {package}",
                ["apt-get", "install", "-y", "--no-install-recommends", package],
                **noninteractive,
            )
        except SetUpError as error:
            failure = error
    raise failure


def can_install():
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def has_venv():
    """Debian keeps venv and ensurepip in a package of their own."""
    return (
        subprocess.run(
            [sys.executable, "-c", "import venv, ensurepip; ensurepip.version()"],
            stderr=subprocess.DEVNULL,
        ).returncode
        == 0
    )


def need_venv_module():
    if has_venv():
        return
    package = f"python3.{sys.version_info.minor}-venv"
    if can_install() and sysconfig.get_config_var("base") == "/usr":
        install_with_apt("Python's venv module", (package, "python3-venv"))
    if not has_venv():
        raise SetUpError(
            f"{sys.executable} has no venv module; install it (Debian, Ubuntu, as root: apt-get"
            f" install {package}) and run make again"
        )


def is_usable_venv():
    """A venv made here (not moved or copied here) whose pip runs."""
    pip = VENV / "bin" / "pip"
    if (
        not VENV_PYTHON.exists()
        or not pip.exists()
        or str(VENV_PYTHON.parent) not in pip.read_text().split("\n")[0]
    ):
        return False
    check = [str(VENV_PYTHON), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0


def make_venv():
    if is_usable_venv():
        return
    become_new_enough()
    need_venv_module()
    say(f"making .venv with Python {sys.version.split()[0]}")
    run("make .venv", [sys.executable, "-m", "venv", "--clear", VENV])


def locked(package):
    """The lines of one package in the lock."""
    found = re.search(rf"^{package}==.*\n(?:    .*\n)*", LOCK.read_text(), re.MULTILINE)
    if not found:
        raise SetUpError(f"{LOCK.name} has no {package}; run make lock")
    return found.group(0)


def install_packages():
    """What builds first, then all, so that nothing is fetched whose hash is not in the lock."""
    say(
        f"installing the locked packages (some minutes the first time; {LOG.relative_to(ROOT)}"
        " tells)"
    )
    pip = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    builder = LOG.parent / "setup-builder.lock"
    builder.write_text(locked("setuptools"))
    run("install setuptools", [*pip, "--require-hashes", "-r", builder])
    run(
        "install the locked packages",
        [*pip, "--no-build-isolation", "--require-hashes", "-r", LOCK],
        PIP_USE_PEP517="1",
    )
    run("install tidegate itself", [*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT])


def find_java():
    """The product's own search; its sentence says what to do where there is none."""
    command = [str(VENV_PYTHON), "-m", "tidegate.runner.java"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def need_java():
    found = find_java()
    if found.returncode and can_install():
        install_with_apt("Spark runs on it", JAVA_PACKAGES)
        found = find_java()
    if found.returncode:
        raise SetUpError((found.stderr.strip() or "the search for Java failed").split("\n")[-1])


def missing_servers():
    return [
        server
        for server in SERVERS
        if not any(Path("/").glob(server[1])) and shutil.which(server[2]) is None
    ]


@contextlib.contextmanager
def services_kept_off():
    """Debian starts what it installs; the tests want the programs only.

    A policy that the machine has already is left as it is.
    """
    try:
        with open(SERVICE_POLICY, "x") as policy:
            policy.write("#!/bin/sh\nexit 101\n")
    except (FileExistsError, FileNotFoundError):
        yield
        return
    try:
        SERVICE_POLICY.chmod(0o755)
        yield
    finally:
        SERVICE_POLICY.unlink()


def need_servers():
    missing = missing_servers()
    if missing and can_install():
        with services_kept_off():
            for name, _, _, packages in missing:
                install_with_apt(f"the tests start a {name} of their own", packages)
        missing = missing_servers()
    if missing:
        names, packages = (
            " and ".join(server[0] for server in missing),
            " ".join(server[3][0] for server in missing),
        )
        raise SetUpError(
            f"the tests start servers of their own, and there is no {names}; install (Debian,"
            f" Ubuntu, as root: apt-get install {packages}) and run make again"
        )


def fetch_mysql():
    """A MySQL server for the tests, which few distributions have.

    Tests that need it are skipped where it cannot be had.
    """
    try:
        run(
            "fetch a MySQL server for the tests",
            [VENV_PYTHON, "-m", "tidegate.testing.servers.mysql_packages"],
        )
    except SetUpError as error:
        say(f"{error}; its tests are skipped")


def warm_up():
    """Let Spark's JVM write down its classes once: every later start is twice as quick.

    Nothing depends on it.
    """
    if not (VENV / "share" / "tidegate" / "cds").is_dir():
        say("prepare quick starts of Spark (once)")
    try:
        run("prepare quick starts", [VENV_PYTHON, "-m", "tidegate.spark.startup_cache"])
    except SetUpError as error:
        say(f"{error}; Spark starts slower without")


def set_up(arguments):
    LOG.parent.mkdir(exist_ok=True)
    with open(LOG.parent / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once: the second waits and finds it done
        stamp = wanted_stamp()
        if not is_done(stamp):
            LOG.write_text("")
            make_venv()
            install_packages()
            STAMP.write_text(stamp)
        if "--without-java" not in arguments:
            need_java()
            warm_up()
        if "--with-servers" in arguments:
            need_servers()
            fetch_mysql()


def main():
    try:
        set_up(sys.argv[1:])
    except SetUpError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a disk that is full, a folder that belongs to someone else
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; the next make continues from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
