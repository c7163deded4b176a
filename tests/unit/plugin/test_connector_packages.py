"""Third-party connector packages: a broken one is reported, and everything else works."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import main
from tidegate.cli.job_file import load
from tidegate.model.job import BlockKind
from tidegate.plugin import registry
from tidegate.plugin.connector import BrokenConnector

GOOD = """
from tidegate.model.job import BlockKind
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import OptionSet
CONNECTORS = (
    Connector(name="{name}", kind=BlockKind.SOURCE, summary="s", options=OptionSet(()),
        capabilities=Capabilities(), implementation="nowhere_at_all:Source"),
)
"""
JOB = "source {{ {source} {{ }} }}\nsink {{ Console {{ }} }}\n"
BROKEN = {
    "raises when it is imported": "raise RuntimeError('no licence')",
    "imports what is not there": "import no_such_module",
    "exits when it is imported": "raise SystemExit(3)",
    "has no CONNECTORS": "",
    "has a None for CONNECTORS": "CONNECTORS = None",
    "declares something else": "CONNECTORS = ('Countdown',)",
    "does not compile": "CONNECTORS = (",
    "takes a built-in name": GOOD.format(name="fakesource"),
}


class Site:
    """A folder of installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, code: str) -> None:
        (self.folder / f"{name}_options.py").write_text(code)
        information = self.folder / f"{name}-1.dist-info"
        information.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        (information / "METADATA").write_text(text)
        points = f"[tidegate.connectors]\n{name} = {name}_options\n"
        (information / "entry_points.txt").write_text(points)
        registry.loaded.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    registry.loaded.cache_clear()
    for name in [name for name in sys.modules if name.endswith("_options") and "." not in name]:
        del sys.modules[name]


@pytest.mark.parametrize("case", BROKEN)
def test_broken_package_is_reported_and_others_work(site: Site, case: str) -> None:
    site.install("badpack", BROKEN[case])
    site.install("goodpack", GOOD.format(name="Counter"))
    assert registry.find(BlockKind.SOURCE, "counter").name == "Counter"
    assert registry.find(BlockKind.SOURCE, "FakeSource").implementation.startswith("tidegate.")
    (broken,) = registry.broken_packages()
    assert broken.package == "badpack (badpack_options)"
    assert broken.reason
    listed = CliRunner().invoke(main, ["connectors", "list"])
    assert listed.exit_code == 0
    assert "Counter" in listed.stdout
    assert "package badpack (badpack_options) cannot be used" in listed.stderr


def test_unknown_connector_is_reported_with_the_broken_package(site: Site, tmp_path: Path) -> None:
    site.install("badpack", BROKEN["raises when it is imported"])
    (tmp_path / "job.conf").write_text(JOB.format(source="Badsource"))
    (problem,) = load(str(tmp_path / "job.conf"), variables={}, environ={}).errors
    assert "there is no source 'Badsource'" in problem.message
    assert "badpack (badpack_options) cannot be used: RuntimeError: no licence" in problem.message


def test_second_package_with_the_same_connector_name_is_rejected(site: Site) -> None:
    site.install("first", GOOD.format(name="Counter"))
    site.install("second", GOOD.format(name="COUNTER"))
    (broken,) = registry.broken_packages()
    assert broken.package.startswith("second")
    assert "already taken by Counter of nowhere_at_all" in broken.reason


def test_connector_whose_code_cannot_be_imported_fails_on_use(site: Site) -> None:
    site.install("goodpack", GOOD.format(name="Counter"))
    with pytest.raises(BrokenConnector, match=r"source Counter cannot be loaded: nowhere_at_all"):
        registry.find(BlockKind.SOURCE, "Counter").load()


def test_broken_package_does_not_affect_other_jobs(site: Site, tmp_path: Path) -> None:
    site.install("badpack", BROKEN["imports what is not there"])
    source = "FakeSource { schema { fields { id = bigint } } }"
    (tmp_path / "job.conf").write_text(f"source {{ {source} }}\nsink {{ Console {{ }} }}\n")
    program = "from tidegate.cli import main; main()"
    command = [sys.executable, "-c", program, "validate", str(tmp_path / "job.conf")]
    ran = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
