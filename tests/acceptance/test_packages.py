"""The source archive and the wheel: built outside of the checkout, installed, and used.

Packages that we depend on come from the environment of the tests; nothing is fetched. Tidegate
itself comes from the wheel alone.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB = """
env {{ job.mode = "BATCH" }}
source {{ FakeSource {{ plugin_output = "t", row.num = 5, schema {{
  fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "json" }} }}
"""
WITHOUT_SPARK = """
import sys
for name in (
    "pyspark", "pyarrow", "pandas", "numpy", "connectorx", "pymysql", "adbc_driver_postgresql"
):
    sys.modules[name] = None
from tidegate.cli import main
main()
"""


def ran(*command: object, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def built(hook: str, source: Path, folder: Path) -> Path:
    """What a front end such as `python -m build` requests from the build back end."""
    program = f"import setuptools.build_meta as b; print(b.{hook}({str(folder)!r}))"
    made = ran(sys.executable, "-c", program, cwd=source)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / made.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive of the tracked files, and the wheel that is built from that archive."""
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "checkout"
    source.mkdir()
    files = ran("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).stdout.splitlines()
    for name in files:
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    archive = built("build_sdist", source, folder)
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return archive, built("build_wheel", unpacked, folder)


@pytest.fixture(scope="module")
def python(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("venv")
    assert ran(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder).returncode == 0
    home = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    # Of the packages there, but not of the .pth files: the checkout itself stays out of sight.
    Path(home, "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = ran(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"),
        *("--no-deps", "--no-index", "--force-reinstall", packages[1]),
        cwd=folder,
    )
    assert pip.returncode == 0, pip.stderr
    return folder / "bin" / "python"


def test_the_archive_holds_what_the_wheel_is_built_from(packages: tuple[Path, Path]) -> None:
    with tarfile.open(packages[0]) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    tracked = ran("git", "ls-files", "src", cwd=ROOT).stdout.splitlines()
    assert {name for name in tracked if (ROOT / name).is_file()} - names == set()
    with zipfile.ZipFile(packages[1]) as wheel:
        inside = set(wheel.namelist())
    packaged = {name.removeprefix("src/") for name in tracked if not name.endswith(".pyx")}
    assert {name for name in packaged if (ROOT / "src" / name).is_file()} - inside == set()
    assert [name for name in inside if name.startswith(("tests/", "benchmarks/"))] == []


def test_the_wheel_asks_for_the_control_plane_only(packages: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packages[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    plain = {r.split(">")[0] for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r}
    assert plain.isdisjoint({"pyspark", "pandas", "pyarrow", "pytest", "mypy", "ruff", "cython"})
    assert {"spark", "s3", "dev"} <= set(metadata.get_all("Provides-Extra", []))


def test_an_installed_wheel_runs_a_job_outside_of_the_checkout(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.conf").write_text(JOB.format(out=tmp_path / "out"))
    where = ran(python, "-c", "import tidegate; print(tidegate.__file__)", cwd=tmp_path)
    assert str(python.parents[1]) in where.stdout
    command = (python.parent / "tidegate", "run", "job.conf", "--home", tmp_path / "home")
    done = ran(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    files = (tmp_path / "out").glob("*.json")
    rows = [line for file in files for line in file.read_text().splitlines()]
    assert len(rows) == 5


def test_a_core_without_spark_validates_and_names_what_runs_jobs(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.conf").write_text(JOB.format(out=tmp_path / "out"))
    for verb in (["validate"], ["explain"]):
        done = ran(python, "-c", WITHOUT_SPARK, *verb, "job.conf", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    refused = ran(
        python, "-c", WITHOUT_SPARK, "run", "job.conf", "--home", tmp_path / "h", cwd=tmp_path
    )
    assert refused.returncode != 0
    assert "pip install 'tidegate[spark]'" in refused.stderr
    assert not (tmp_path / "h").exists()
