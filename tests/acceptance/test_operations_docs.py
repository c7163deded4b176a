"""Every command that docs/operations shows is run, page by page and in order; drivers use the
plain engine.

The `sh` blocks of a page are its commands, on an installation where job 7 (`orders`, its file in
the working directory) was cancelled after six checkpoints and job 9 (`left`) was forgotten by the
history.
"""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import main, run
from tidegate.coordinator.history_expiry import expire
from tidegate.home import Home
from tidegate.store.open import open_store
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "operations"
PAGES = [
    "README.md",
    "state-storage.md",
    "restore-cookbook.md",
    "capacity-planning.md",
    "faults.md",
    "troubleshooting.md",
]
MAY_FAIL = ("tidegate doctor",)  # it judges the machine
JOB = """env {{ job.mode = "STREAMING", job.name = "{name}", checkpoint.interval = 10
  batch.max-rows = 10 }}
source {{ FakeSource {{ plugin_output = "t", row.num = 60, seed = 3, schema {{
  fields {{ id = bigint, name = string }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "json" }} }}
"""


def commands(page: str) -> list[str]:
    """The commands of a page, in order. A backslash at a line's end continues it."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (FOLDER / page).read_text(), flags=re.MULTILINE | re.DOTALL
    )
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with an installation, a job file and the command on its path."""
    home = Home(tmp_path / "home")
    for job_id, name in ((7, "orders"), (9, "left")):
        file = tmp_path / f"{name}.conf"
        file.write_text(JOB.format(name=name, out=tmp_path / f"out-{name}"))
        run_in_process(str(file), home, PlainEngine(), job_id=job_id, stop_at_rows=60)
    store = open_store(home.store_url)
    try:
        assert expire(store, 9, 2**53, 1_000)
    finally:
        store.close()
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_of_a_page_do_what_it_describes(
    page: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = run.RunOptions
    monkeypatch.setattr(
        run,
        "RunOptions",
        lambda **options: original(**options, driver_module="tidegate.testing.plain_driver"),
    )
    monkeypatch.chdir(place)
    for line in commands(page):
        program, *words = shlex.split(line)
        assert program == "tidegate", f"{page}: a test cannot run {line}"
        # Not through `main`: click caches the first help text that it renders.
        verb = main.get_command(None, words[0])  # type: ignore[arg-type]  # click allows None
        done = CliRunner().invoke(verb, words[1:], env={"TIDEGATE_HOME": str(place / "home")})
        assert done.exit_code == 0 or line.startswith(MAY_FAIL), (
            f"{page}: {line}\n{done.output}{done.exception!r}"
        )


def test_every_command_in_the_text_is_one_that_there_is() -> None:
    """Commands within a sentence or a table are not run, but they and their options must exist."""
    unknown = []
    for page in PAGES:
        for command in re.findall(r"`tidegate ([^`]+)`", (FOLDER / page).read_text()):
            words, here = command.split(), main
            while (
                words
                and hasattr(here, "get_command")
                and (found := here.get_command(None, words[0])) is not None
            ):  # type: ignore[arg-type]  # click asks for nothing else
                here, words = found, words[1:]
            options = {name for parameter in here.params for name in parameter.opts}
            asked = {word.partition("=")[0] for word in words if word.startswith("-")}
            if here is main or asked - options:
                unknown.append(f"{page}: tidegate {command}")
    assert unknown == []


def test_every_page_is_run_by_a_test_and_in_the_list_of_pages() -> None:
    elsewhere = {
        "savepoints.md",  # its commands need a job: test_savepoints.py
        "what-stops-a-job.md",  # the same: test_accept_change_command.py
        "log-events.md",  # a table without commands
    }
    assert {path.name for path in FOLDER.glob("*.md")} == {*PAGES, *elsewhere}
    assert [
        page for page in PAGES[1:] if f"]({page})" not in (FOLDER / "README.md").read_text()
    ] == []
