"""The examples on the oldest and on the newest Spark that pyproject.toml claims: the same rows as
on the locked one.

Each version has an environment of its own below build/, made once with plain pip: the locked
packages, and that Spark in place of the locked one.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "spark-versions"
OLDEST, NEWEST = "4.1.4", "4.3.0"
VERSIONS = (OLDEST, NEWEST)
SPARKS_OWN = {"pyspark", "py4j"}  # a version of Spark brings the py4j that it was made with
NOT_NEEDED = {
    "grimp",
    "import-linter",
    "mypy",
    "pyarrow-stubs",
    "ruff",
}  # judge the source, which is the same
SUITES = (
    "tests/spark",
    "tests/acceptance/test_examples.py",
)  # in this order: the examples use the session that the engine's tests opened
LEFT_OPEN = (
    "-W",
    "ignore::ResourceWarning",
    "-W",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)  # sockets, by pyspark 4.1 itself
SECONDS_MAX = 1800


def locked() -> list[str]:
    """The locked packages that a run needs, by name and version."""
    pins = re.findall(
        r"^(([a-z0-9-]+)==\S+(?: ;[^\\\n]*)?)",
        (ROOT / "requirements.lock").read_text(),
        flags=re.MULTILINE,
    )
    return [pin.strip() for pin, name in pins if name not in SPARKS_OWN | NOT_NEEDED]


def environment(version: str) -> Path:
    """The Python of an environment with this Spark; made anew where what is wanted has changed."""
    place = PLACE / version
    wanted, stamp, python = (
        "\n".join([*locked(), f"pyspark=={version}"]),
        place / "wanted.txt",
        place / "bin" / "python",
    )
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    builder = next(pin for pin in locked() if pin.startswith("setuptools=="))
    subprocess.run([*pip, builder], check=True)
    requirements = place / "requirements.txt"
    requirements.write_text(wanted)
    subprocess.run(
        [*pip, "--no-build-isolation", "-r", str(requirements)],
        check=True,
        env={**os.environ, "PIP_USE_PEP517": "1"},
    )
    requirements.rename(stamp)
    return python


def test_the_versions_that_are_tried_are_the_ends_of_what_is_claimed() -> None:
    claims = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["spark"]
    (claim,) = [text for text in claims if text.startswith("pyspark")]
    found = re.fullmatch(r"pyspark>=(\d+\.\d+),<(\d+)\.(\d+)", claim)
    assert found, claim
    assert OLDEST.rpartition(".")[0] == found[1]
    assert NEWEST.rpartition(".")[0] == f"{found[2]}.{int(found[3]) - 1}"


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS_MAX)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_examples_give_the_same_rows_on_the_ends_of_what_is_claimed(version: str) -> None:
    python = environment(version)
    output = subprocess.run(
        [str(python), "-c", "import pyspark; print(pyspark.__version__)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert output.strip() == version
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-m",
        "not soak",
        "-p",
        "no:cacheprovider",
        *LEFT_OPEN,
        *SUITES,
    ]
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {"SPARK_HOME", "PYSPARK_PYTHON", "VIRTUAL_ENV"}
    }
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-5_000:]
