"""Every benchmark runs, with tiny numbers: so that none is found broken on the day it is needed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def figures(place: Path, *arguments: str, within_s: int = 240) -> dict[str, dict[str, Any]]:
    """What a run of the benchmarks measured, by name."""
    found = place / "figures.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--repeats",
        "1",
        "--cache",
        str(place / "cache"),
        "--json",
        str(found),
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=within_s, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {figure["name"]: figure for figure in json.loads(found.read_text())["figures"]}


def test_a_store_is_measured_after_a_thousand_updates_and_after_all(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "growth", "--stores", "tmpfs", "--updates", "1500")
    sizes = {name: figure for name, figure in found.items() if "updates of" in name}
    assert len(sizes) == 2
    assert all(figure["value"] > 0 for figure in sizes.values())
    assert [figure["met"] for figure in sizes.values()] == [None, True]


@pytest.mark.soak
def test_jobs_are_submitted_listed_and_taken_over_by_another_server(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "serve", "--stores", "sqlite", "--jobs", "20")
    assert found["sqlite: submits, 16 at a time"]["value"] > 0
    assert found["sqlite: server at rest, CPU for 100 jobs"]["value"] > 0
    assert (
        found["sqlite: kill -9 of the leader -> all jobs looked at"]["value"] > 1
    )  # a lease has to pass first


@pytest.mark.soak
def test_a_driver_that_waits_has_its_first_row_sooner_than_one_that_is_started(
    tmp_path: Path,
) -> None:
    found = figures(tmp_path, "--only", "warm")
    warm, cold = (
        found["submit -> first row, a driver waits (driver.warm: 1)"],
        found["submit -> first row, a driver is started"],
    )
    assert warm["value"] < cold["value"]


@pytest.mark.soak
def test_publishing_and_restoring_is_measured_on_local_files_and_on_s3(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "storage")
    assert {name.partition(":")[0] for name in found} == {"local files", "S3"}
    assert all(figure["value"] > 0 for figure in found.values())


@pytest.mark.soak
def test_the_api_is_asked_by_many_and_listened_to(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "api", "--jobs", "20")
    asked = [figure for name, figure in found.items() if "at a time" in name]
    assert len(asked) == 22
    assert all(figure["value"] > 0 for figure in asked)
    assert found["a job is submitted -> all 200 of the listeners know"]["value"] > 0


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_tables_are_copied_and_changes_followed_without_others_to_compare_with(
    tmp_path: Path,
) -> None:
    found = figures(tmp_path, "--only", "databases", "--quick", within_s=1000)
    for source in ("MariaDB", "PostgreSQL"):
        assert any(
            name.startswith(f"{source} -> PostgreSQL, 20,000 rows: tidegate") for name in found
        )
        assert any(
            name.startswith(f"{source}, 10,000 changes: tidegate, whole job") for name in found
        )
        assert any(
            name.startswith(f"{source} -> PostgreSQL") and name.endswith("visible, p99")
            for name in found
        )
    assert all(figure["value"] > 0 for figure in found.values())
