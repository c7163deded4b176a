"""`tidegate doctor` on this machine, and on simulated ones with defects."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import namedtuple
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import doctor as module
from tidegate.cli.doctor import (
    CHECKS,
    SUPPORTED,
    DoctorEnvironment,
    DoctorFinding,
    Level,
    doctor,
    is_between,
    is_ready,
    run_checks,
)

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
Check = Callable[[DoctorEnvironment], Iterator[DoctorFinding]]
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def place(tmp_path: Path) -> DoctorEnvironment:
    return DoctorEnvironment(home=tmp_path / "home", environ=os.environ)


def one(check: Check, place: DoctorEnvironment, name: str) -> DoctorFinding:
    [finding] = [finding for finding in check(place) if finding.name == name]
    return finding


def fake_java(folder: Path, complaint: str = "") -> Path:
    (folder / "bin").mkdir(parents=True)
    executable = folder / "bin" / "java"
    executable.write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit {1 if complaint else 0}\n")
    executable.chmod(0o755)
    (folder / "release").write_text('JAVA_VERSION="17.0.9"\n')
    return folder


def test_every_finding_that_is_not_ok_says_how_to_repair_it(place: DoctorEnvironment) -> None:
    findings = run_checks(place)
    assert {finding.name for finding in findings} >= {
        "Python",
        "Java",
        "pyspark",
        "pyarrow",
        "pandas",
        "loopback",
        "home",
        "memory",
    }
    assert [
        finding for finding in findings if (finding.level is Level.OK) == bool(finding.repair)
    ] == []


def test_checks_leave_no_files(place: DoctorEnvironment, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    run_checks(place)
    assert sorted(tmp_path.rglob("*")) == before


def test_json_agrees_with_the_exit_code(tmp_path: Path) -> None:
    result = CliRunner().invoke(doctor, ["--json", "--home", str(tmp_path)])
    document = json.loads(result.output)
    assert document["version"] == 1
    assert document["ready"] is (result.exit_code == 0)
    assert set(document["findings"][0]) == {"name", "level", "found", "repair"}


def test_without_java_no_job_can_run_and_the_last_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.runner.java.SEARCH_PATHS", ())
    result = CliRunner().invoke(
        doctor, ["--home", str(tmp_path)], env={"JAVA_HOME": None, "PATH": str(tmp_path)}
    )
    assert result.exit_code == 1
    assert re.search(r"^missing +Java +not found$", result.output, flags=re.MULTILINE)
    assert "openjdk-17-jre-headless" in result.output
    assert result.output.splitlines()[-1] == "No job can run here: Java."


def test_a_java_that_does_not_start_is_missing_with_its_error(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", complaint="Module jdk.incubator.vector not found")
    finding = one(
        module.check_java,
        DoctorEnvironment(home=tmp_path, environ={"JAVA_HOME": str(home)}),
        "Java",
    )
    assert finding.level is Level.MISSING
    assert "Module jdk.incubator.vector not found" in finding.repair


def test_a_rejected_java_home_is_a_warning(tmp_path: Path) -> None:
    fit = fake_java(tmp_path / "java")
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(fit / "bin")}
    finding = one(module.check_java, DoctorEnvironment(home=tmp_path, environ=environ), "Java")
    assert finding.level is Level.WARNING
    assert str(tmp_path / "gone") in finding.repair


def test_a_missing_package_is_reported_with_its_install_command(
    place: DoctorEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUPPORTED", {"no-such-package-at-all": ("4.1", "4.4")})
    finding = one(module.check_packages, place, "no-such-package-at-all")
    assert finding.level is Level.MISSING
    assert finding.repair.endswith("-m pip install 'no-such-package-at-all>=4.1,<4.4'")


def test_a_package_outside_the_supported_range_is_a_warning(
    place: DoctorEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUPPORTED", {"click": ("900", None)})
    finding = one(module.check_packages, place, "click")
    assert (finding.level, finding.found) == (
        Level.WARNING,
        f"{metadata.version('click')}, not tested with it",
    )


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("4.1.0", True),
        ("4.2.1", True),
        ("4.3.0.dev1", True),
        ("4.10.0", False),
        ("4.0.9", False),
        ("4.4.0", False),
        ("5", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, fits: bool) -> None:
    assert is_between(version, "4.1", "4.4") is fits


def test_the_supported_versions_are_those_of_the_package() -> None:
    declared = {}
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    for requirement in project["dependencies"] + project["optional-dependencies"]["spark"]:
        name, oldest, first_unsupported = re.fullmatch(
            r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:,<([\d.]+))?", requirement
        ).groups()
        declared[name] = (oldest, first_unsupported)
    assert declared == SUPPORTED


def test_a_home_that_cannot_be_created_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = one(
        module.check_home, DoctorEnvironment(home=tmp_path / "file" / "home", environ={}), "home"
    )
    assert finding.level is Level.MISSING
    assert "--home" in finding.repair


@pytest.mark.parametrize(
    ("free_bytes", "level"),
    [(3 << 30, Level.OK), (1 << 30, Level.WARNING), (1 << 20, Level.MISSING)],
    ids=["plenty", "little", "none"],
)
def test_the_disk_check_depends_on_free_space(
    place: DoctorEnvironment, monkeypatch: pytest.MonkeyPatch, free_bytes: int, level: Level
) -> None:
    monkeypatch.setattr(
        module.shutil, "disk_usage", lambda _: Usage(total=4 << 30, used=0, free=free_bytes)
    )
    assert one(module.check_home, place, "disk of home").level is level


def test_a_slow_disk_is_a_warning(
    place: DoctorEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FSYNC_MS_GOOD", -1)
    assert one(module.check_home, place, "fsync").level is Level.WARNING


def test_the_limit_of_a_container_counts_without_the_file_cache(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.stat").write_text("anon 400000\nfile 500000\n")
    assert module._container_bytes(tmp_path) == 600000


def test_a_container_without_a_limit_has_none(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.stat").write_text("anon 400000\n")
    assert module._container_bytes(tmp_path) is None


def test_only_what_is_missing_stops_a_job() -> None:
    warning = DoctorFinding(name="fsync", level=Level.WARNING, found="80 ms", repair="wait")
    missing = DoctorFinding(name="Java", level=Level.MISSING, found="not found", repair="install")
    assert is_ready([warning])
    assert not is_ready([warning, missing])


def test_doctor_does_not_import_pyspark() -> None:
    code = (
        "import sys; from tidegate.cli.doctor import CHECKS; sys.exit(bool({'pyspark', 'py4j',"
        " 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        ).returncode
        == 0
    )
    assert len(CHECKS) == len(set(CHECKS))
