"""One changed digit of one stored document of a stopped job, and then `--restore latest`: the right
rows, or a refusal by name; never doubled or lost rows.
"""

import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from tidegate.cli.state import state
from tidegate.connectors.chaos.sink import committed_ids
from tidegate.home import Home
from tidegate.model.errors import LineageMismatch, TidegateError
from tidegate.model.records import JobStatus
from tidegate.store.encoding import decode
from tidegate.store.errors import StoreDamaged
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.in_process import Ran, run_in_process
from tidegate.testing.plain_engine import PlainEngine

ROWS = 40
JOB = f"""
env {{ job.mode = "BATCH", job.name = "stored", checkpoint.interval = 10, batch.max-rows = 10
  job.retry.times = 0 }}
source {{
  FakeSource {{ plugin_output = "a", row.num = {ROWS}, seed = 3, bigint.fake.mode = "SEQUENCE",
    schema {{ fields {{ id = bigint }} }} }}
  Chaos {{ plugin_output = "b", row.num = {ROWS} }}
}}
sink {{
  LocalFile {{ plugin_input = "a", path = "files", file_format_type = "parquet" }}
  Chaos {{ plugin_input = "b", path = "chaos" }}
}}
"""
TRIALS = 100
SEED = 20


class StoppedJob:
    """A job that was stopped in the middle, and can be put back to that moment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "home")
        (root / "job.conf").write_text(JOB)
        assert self.run("auto", stop_at_rows=ROWS // 2).outcome.status is JobStatus.CANCELED
        for name in ("home", "files", "chaos"):
            shutil.copytree(root / name, root / "before" / name)

    def run(self, restore: str, stop_at_rows: int | None = None) -> Ran:
        return run_in_process(
            str(self.root / "job.conf"),
            self.home,
            PlainEngine(),
            restore=restore,
            stop_at_rows=stop_at_rows,
        )

    def put_back(self) -> None:
        for name in ("home", "files", "chaos"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            shutil.copytree(self.root / "before" / name, self.root / name)

    def documents(self) -> list[tuple[str, str, str]]:
        with closing(sqlite3.connect(self.home.root / "store" / "tidegate.db")) as db:
            return db.execute("select map, key, value from entries order by map, key").fetchall()

    def replace(self, map: str, key: str, text: str) -> None:
        with closing(sqlite3.connect(self.home.root / "store" / "tidegate.db")) as db, db:
            db.execute("pragma synchronous = off")
            db.execute("update entries set value = ? where map = ? and key = ?", (text, map, key))

    def forget_checksums(self) -> None:
        """As the first release has left them."""
        for map, key, text in self.documents():
            decode(map, key, text)
            self.replace(map, key, re.sub(r',?"~crc~":"[0-9a-f]{8}"}$', "}", text))

    def rows(self) -> tuple[list[int], list[int]]:
        files = (
            pyarrow.dataset.dataset(str(self.root / "files"), format="parquet")
            .to_table()["id"]
            .to_pylist()
        )
        return sorted(files), sorted(committed_ids(str(self.root / "chaos")))

    def outcome(self) -> str:
        """`right`, or the condition under which it was refused; anything else fails the test."""
        try:
            ran = self.run("latest")
        except TidegateError as error:
            return (
                "raw text"
                if re.search(r"Traceback|__init__|TypeError|ValueError|KeyError", str(error))
                else error.condition
            )
        assert ran.outcome.status in (JobStatus.FINISHED, JobStatus.FAILED), ran.outcome
        if ran.outcome.status is JobStatus.FAILED:
            return str(ran.outcome.failures[-1].condition)
        assert self.rows() == (list(range(ROWS)), list(range(ROWS)))
        return "right"


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoppedJob:
    monkeypatch.chdir(tmp_path)  # the paths of the job file are relative
    return StoppedJob(tmp_path)


def digits(
    documents: list[tuple[str, str, str]], pattern: str = r"[0-9]"
) -> list[tuple[str, str, int]]:
    return [
        (map, key, found.start())
        for map, key, text in documents
        for found in re.finditer(pattern, text)
    ]


def changed(text: str, place: int, chance: random.Random) -> str:
    other = chance.choice([digit for digit in "0123456789" if digit != text[place]])
    return text[:place] + other + text[place + 1 :]


def test_a_changed_digit_anywhere_in_the_store_never_doubles_or_loses_a_row(
    stopped: StoppedJob,
) -> None:
    chance, documents = random.Random(SEED), stopped.documents()
    texts = {(map, key): text for map, key, text in documents}
    assert len({map for map, _, _ in documents}) >= 5
    found: dict[str, int] = {}
    for map, key, place in chance.sample(digits(documents), TRIALS):
        stopped.replace(map, key, changed(texts[map, key], place, chance))
        outcome = stopped.outcome()
        assert outcome in ("right", "store-damaged"), (map, key, place, outcome)
        found[outcome] = found.get(outcome, 0) + 1
        stopped.replace(map, key, texts[map, key])
        if outcome == "right" or map == "installation":  # which only a driver reads
            stopped.put_back()
        else:
            assert stopped.documents() == documents, "a restore that is refused changes nothing"
    assert found["store-damaged"] > TRIALS // 2, found


def test_a_changed_digit_of_a_lineage_is_found_without_a_checksum(stopped: StoppedJob) -> None:
    stopped.forget_checksums()
    chance, documents = random.Random(SEED), stopped.documents()
    texts = {(map, key): text for map, key, text in documents}
    places = [
        (map, key, found.start(1) + n)
        for map, key, text in documents
        for found in re.finditer(r'"lineage":"([^"]*)"', text)
        for n, character in enumerate(found[1])
        if character.isdigit()
    ]
    assert {map for map, _, _ in places} >= {"running-pipeline-state", "finished-job-state"}
    for map, key, place in chance.sample(places, min(len(places), 40)):
        stopped.replace(map, key, changed(texts[map, key], place, chance))
        assert stopped.outcome() == "lineage-mismatch", (map, key, place)
        stopped.replace(map, key, texts[map, key])


def test_documents_of_the_first_release_are_read_and_the_job_is_resumed(
    stopped: StoppedJob,
) -> None:
    stopped.forget_checksums()
    assert stopped.outcome() == "right"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"version":1}', '{"version":"x"}', '{"version":1,"lineage":{}}'],
)
def test_a_document_that_is_none_is_refused_with_its_name_and_forgetting_the_job_helps(
    stopped: StoppedJob, text: str
) -> None:
    stopped.replace("running-pipeline-state", "7/1", text)
    with pytest.raises(TidegateError, match=r"running-pipeline-state/7/1|pipeline 7/1") as refused:
        stopped.run("latest")
    assert "__init__" not in str(refused.value)
    home = ["--home", str(stopped.home.root)]
    listed = CliRunner().invoke(state, ["verify", *home])
    assert (listed.exit_code, "running-pipeline-state/7/1" in listed.output) == (
        1,
        True,
    ), listed.output
    gone = CliRunner().invoke(state, ["forget", "7", *home])
    assert gone.exit_code == 0, gone.output
    assert CliRunner().invoke(state, ["verify", *home]).exit_code == 0
    assert stopped.outcome() == "right"


def test_two_documents_in_each_others_place_are_refused(stopped: StoppedJob) -> None:
    texts = {(map, key): text for map, key, text in stopped.documents()}
    stopped.replace("running-pipeline-state", "7/1", texts["running-pipeline-state", "7/2"])
    stopped.replace("running-pipeline-state", "7/2", texts["running-pipeline-state", "7/1"])
    with pytest.raises(StoreDamaged, match=r"running-pipeline-state/7/1 is damaged.*another key"):
        stopped.run("latest")


def test_a_job_and_a_pipeline_of_different_lineages_are_named_with_both(
    stopped: StoppedJob,
) -> None:
    stopped.forget_checksums()
    texts = {(map, key): text for map, key, text in stopped.documents()}
    stopped.replace(
        "running-pipeline-state",
        "7/2",
        texts["running-pipeline-state", "7/2"].replace('"lineage":"7-', '"lineage":"8-'),
    )
    with pytest.raises(
        LineageMismatch, match=r"disagree on its lineage .*pipeline 1 says '7-.*pipeline 2 says '8-"
    ):
        stopped.run("latest")


def test_sound_jobs_and_documents_are_not_forgotten(stopped: StoppedJob) -> None:
    home = ["--home", str(stopped.home.root)]
    for what, words in (
        ("7", "nothing of job 7 is damaged"),
        ("8", "has nothing of job 8"),
        ("job-names/stored", "is sound"),
        ("seven", "neither the id"),
    ):
        refused = CliRunner().invoke(state, ["forget", what, *home])
        assert (refused.exit_code, words in refused.output) == (2, True), refused.output
    stopped.replace("job-names", "stored", "{")
    assert (
        "belongs to job 7"
        in CliRunner().invoke(state, ["forget", "running-pipeline-state/7/1", *home]).output
    )
    assert CliRunner().invoke(state, ["forget", "job-names/stored", *home]).exit_code == 0


@pytest.mark.parametrize(
    ("place", "what", "damaged"),
    [
        ("job.forget.before", "7", ("running-pipeline-state", "7/1")),
        ("job.forget.middle", "7", ("running-pipeline-state", "7/1")),
        ("job.forget.after", "7", ("running-pipeline-state", "7/1")),
        ("document.forget.before", "job-names/stored", ("job-names", "stored")),
        ("document.forget.after", "job-names/stored", ("job-names", "stored")),
    ],
)
def test_a_kill_while_something_is_forgotten_loses_nothing(
    stopped: StoppedJob, place: str, what: str, damaged: tuple[str, str]
) -> None:
    stopped.replace(*damaged, "{")
    home = ("--home", str(stopped.home.root))
    with CrashRuns() as runs:
        request = RunRequest(
            home=home[1], file="", failpoints=place, command=("state", "forget", what, *home)
        )
        assert runs.run(request).code == KILLED
    CliRunner().invoke(state, ["forget", what, *home])
    assert CliRunner().invoke(state, ["verify", *home]).exit_code == 0
    assert stopped.outcome() == "right"
