"""Checkpoints and commit records that were damaged between two runs: named, never used, and the
sink's rows equal the source's all the same.

The first run is killed with -9 in a process of its own; the damage is done by hand; the second run
continues in this process. No Spark.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result

from tidegate.cli.checkpoints import checkpoints as checkpoints_command
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.errors import TerminalError, UserError
from tidegate.model.records import CheckpointRef, JobStatus, PipelineState
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.in_process import Ran, run_in_process
from tidegate.testing.plain_engine import PlainEngine

BATCH_ROWS = 10
BATCHES = 8
SIZES = (
    BATCHES * BATCH_ROWS,
    30,
    60,
)  # of the sources; where there are three, the second one is ready to close when the run is killed
RETAINED = (2, 3, 4)
NOTHING_PENDING = "ledger.complete.after@4"
SINK_IS_AHEAD = "batch.commit.after@5"  # batch 5 is visible, and no checkpoint of it exists


class PowerCut(PlainEngine):
    """Ends a stream: the batch after `last` fails for good."""

    def __init__(self, last: int) -> None:
        self.last = last

    def run(self, graph: Graph, batch: Batch) -> Written:
        if batch.checkpoint > self.last:
            raise TerminalError("the power is cut")
        return super().run(graph, batch)


@dataclass(frozen=True, slots=True)
class Shape:
    mode: str
    sources: int

    def text(self, out: Path) -> str:
        names = [f"t{number}" for number in range(self.sources)]
        sources = "\n".join(
            f'FakeSource {{ plugin_output = "{name}", row.num = {SIZES[number]}, seed = 3,'
            f' bigint.fake.mode = "SEQUENCE", bigint.min = {number * 1000}, schema {{ fields {{ id'
            " = bigint } } }"
            for number, name in enumerate(names)
        )
        return f"""env {{ job.mode = "{self.mode}", job.name = "damage", checkpoint.interval = 10
  batch.max-rows = {BATCH_ROWS}, checkpoint.max-retained = 3
  job.retry.times = 0 }}
source {{ {sources} }}
sink {{ LocalFile {{ plugin_input = [{", ".join(f'"{name}"' for name in names)}], path = "{out}"
  file_format_type = "parquet" }} }}"""

    def rows(self, batches: int) -> list[int]:
        """What is in the sink after so many batches."""
        return sorted(
            number * 1000 + row
            for number in range(self.sources)
            for row in range(min(SIZES[number], batches * BATCH_ROWS))
        )


SHAPES = [Shape(mode, sources) for mode in ("BATCH", "STREAMING") for sources in (1, 3)]


class Scenario:
    """A killed run, and what is done to it."""

    def __init__(self, root: Path, shape: Shape, runs: CrashRuns) -> None:
        self.root = root
        self.shape = shape
        self.runs = runs
        self.home = Home(root / "home")
        self.out = root / "out"
        self.file = root / "job.conf"
        root.mkdir(exist_ok=True)
        self.file.write_text(shape.text(self.out))

    def killed(self, place: str) -> "Scenario":
        result = self.runs.run(
            RunRequest(home=str(self.home.root), file=str(self.file), failpoints=place)
        )
        assert result.code == KILLED, result.error
        assert tuple(ref.checkpoint for ref in self.state().retained) == RETAINED
        return self

    def resume(self, restore: str = "latest") -> Ran:
        """Continue until all rows are read, or a stream has two batches more than its first run."""
        engine = PlainEngine() if self.shape.mode == "BATCH" else PowerCut(self.next_id() + 1)
        ran = run_in_process(str(self.file), self.home, engine, restore=restore)
        assert ran.outcome.status is (
            JobStatus.FINISHED if self.shape.mode == "BATCH" else JobStatus.FAILED
        )
        return ran

    def expected(self, first_new_id: int) -> list[int]:
        """What the sink holds after `resume`, which made this batch and the next one anew.

        Batches are equally big, so checkpoint n is n batches far.
        """
        return self.shape.rows(BATCHES if self.shape.mode == "BATCH" else first_new_id + 1)

    def next_id(self) -> int:
        return self.state().next_checkpoint

    def known(self) -> JobSnapshot:
        store = open_store(self.home.store_url)
        try:
            return read_job(store, 7)
        finally:
            store.close()

    def state(self) -> PipelineState:
        return self.known().pipelines[0].value

    def directory(self, ref: CheckpointRef) -> Path:
        return self.home.checkpoints / ref.path

    def ids(self) -> list[int]:
        return sorted(
            pyarrow.dataset.dataset(str(self.out), format="parquet").to_table()["id"].to_pylist()
        )

    def files(self) -> dict[str, bytes]:
        """Every byte of the sink and of the checkpoints."""
        return {
            str(p): p.read_bytes()
            for place in (self.out, self.home.checkpoints)
            for p in place.rglob("*")
            if p.is_file()
        }

    def invoke(self, *arguments: str) -> Result:
        return CliRunner().invoke(checkpoints_command, ["--home", str(self.home.root), *arguments])


@pytest.fixture
def place(memory_disk: Path) -> Path:
    return memory_disk


# -- the ways to damage a file, and the files that can be damaged
# ---------------------------------------------------------------------------------


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    """One bit, in a digit: what is left is good JSON."""
    data = bytearray(file.read_bytes())
    place = next(i for i in reversed(range(len(data))) if chr(data[i]).isdigit())
    data[place] ^= 1
    file.write_bytes(bytes(data))


def source_state(directory: Path) -> Path:
    return min(directory.glob("Source*/state-data"))


def sink_state(directory: Path) -> Path:
    return min(directory.glob("Sink*/state-data"))


def manifest(directory: Path) -> Path:
    return directory / "_manifest.json"


@dataclass(frozen=True, slots=True)
class Damage:
    """Something done to one file of a checkpoint, or to its directory."""

    name: str
    act: Callable[[Path], None]
    victim: Callable[[Path], Path]

    def do(self, directory: Path) -> str:
        """The name by which the damage is reported."""
        victim = self.victim(directory)
        self.act(victim)
        if victim == directory:
            return "_manifest.json"
        return victim.relative_to(directory).as_posix() + (
            "" if victim.suffix or victim.name == "state-data" else "/state-data"
        )


ACTS: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "empty": empty,
    "missing": Path.unlink,
    "flipped": flip,
}
VICTIMS = {"source-state": source_state, "sink-state": sink_state, "manifest": manifest}
DAMAGES = [
    Damage(f"{act}-{victim}", ACTS[act], VICTIMS[victim]) for act in ACTS for victim in VICTIMS
]
DAMAGES += [
    Damage("missing-directory", shutil.rmtree, lambda directory: directory),
    Damage(
        "missing-state-directory", shutil.rmtree, lambda directory: source_state(directory).parent
    ),
]


CASES = [(count, killed_at) for count in (1, 2) for killed_at in (NOTHING_PENDING, SINK_IS_AHEAD)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damaged_checkpoints_are_named_and_the_next_older_one_is_used(
    place: Path, runs: CrashRuns, damage: Damage
) -> None:
    for number, (count, killed_at) in enumerate(CASES):
        shape = SHAPES[
            (number + DAMAGES.index(damage)) % len(SHAPES)
        ]  # every damage meets every shape, and every case does
        case = f"{shape} killed at {killed_at}, {count} damaged"
        scenario = Scenario(place / str(number), shape, runs).killed(killed_at)
        retained, first_new_id = scenario.state().retained, scenario.next_id()
        names = {
            scenario.directory(ref): damage.do(scenario.directory(ref)) for ref in retained[-count:]
        }

        ran = scenario.resume()

        notes = "\n".join(ran.claim.notes)
        restored = RETAINED[-count - 1]
        assert ran.claim.restored == {1: restored}, case
        for directory, name in names.items():
            assert f"checkpoint {directory} is damaged: {name} " in notes, case
        assert f"goes back to checkpoint {restored}: " in notes
        assert scenario.ids() == scenario.expected(first_new_id), case
        after = [
            ref.checkpoint
            for pipeline in scenario.known().pipelines
            for ref in pipeline.value.retained
        ]  # of a stream: a finished job has none
        assert after in (
            [],
            [first_new_id - 1, first_new_id, first_new_id + 1],
        ), f"what the sink had was not repeated under its old ids: {case}"


def test_a_damaged_older_checkpoint_does_not_stand_in_the_way(place: Path, runs: CrashRuns) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(SINK_IS_AHEAD)
    for ref in scenario.state().retained[:-1]:
        empty(manifest(scenario.directory(ref)))
    assert scenario.resume().claim.restored == {1: 4}
    assert scenario.ids() == scenario.shape.rows(BATCHES)


def test_a_damaged_checkpoint_that_is_wanted_by_its_id_is_refused_with_those_that_are_sound(
    place: Path, runs: CrashRuns
) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(NOTHING_PENDING)
    flip(source_state(scenario.directory(scenario.state().retained[1])))
    before = scenario.files()
    with pytest.raises(
        UserError,
        match=(
            r"/3 is damaged: .*state-data does not match its checksum\. Sound checkpoints of"
            r" pipeline 1: 2, 4"
        ),
    ):
        scenario.resume("checkpoint:3")
    assert scenario.files() == before


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.mode.lower()}-{shape.sources}")
def test_where_all_are_damaged_the_run_is_refused_with_their_names_and_nothing_is_changed(
    place: Path, runs: CrashRuns, shape: Shape
) -> None:
    scenario = Scenario(place, shape, runs).killed(SINK_IS_AHEAD)
    acts = [truncate, Path.unlink, flip]
    names = [
        (
            ref,
            Damage("", act, manifest if act is flip else source_state).do(scenario.directory(ref)),
        )
        for ref, act in zip(scenario.state().retained, acts, strict=True)
    ]
    before, known = scenario.files(), scenario.known()

    for restore in ("latest", "auto"):
        with pytest.raises(UserError) as refused:
            scenario.resume(restore)
        for ref, name in names:
            assert f"checkpoint {scenario.directory(ref)} is damaged: {name} " in str(refused.value)
        assert "--restore fresh" in str(refused.value)
    assert scenario.files() == before
    assert scenario.known() == known


# -- what `tidegate checkpoints` says
# --------------------------------------------------------------------------------------------------


def test_verify_names_every_damaged_checkpoint_and_ends_with_1(
    place: Path, runs: CrashRuns
) -> None:
    scenario = Scenario(place, SHAPES[1], runs).killed(NOTHING_PENDING)
    sound = scenario.invoke("verify")
    assert (sound.exit_code, sound.output.count(": sound")) == (0, 3)

    truncate(sink_state(scenario.directory(scenario.state().retained[1])))
    shutil.rmtree(scenario.directory(scenario.state().retained[2]))
    verified = scenario.invoke("verify", "damage")
    assert verified.exit_code == 1
    first, second, third = verified.output.splitlines()
    assert first.endswith("checkpoint 2: sound")
    assert "checkpoint 3: " in second
    assert "Sink[0]-LocalFile/state-data has " in second
    assert "checkpoint 4: " in third
    assert "is missing, with its whole directory" in third
    assert scenario.invoke("verify", "7", "2").exit_code == 0
    assert scenario.invoke("verify", "7", "3").exit_code == 1


def test_show_refuses_a_damaged_checkpoint_by_name_and_shows_a_sound_one(
    place: Path, runs: CrashRuns
) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(NOTHING_PENDING)
    flip(manifest(scenario.directory(scenario.state().retained[-1])))
    damaged = scenario.invoke("show", "7")
    assert damaged.exit_code != 0
    assert "/7/1/4 is damaged: _manifest.json does not match its checksum" in damaged.output
    sound = scenario.invoke("show", "7", "3")
    assert sound.exit_code == 0
    assert json.loads(sound.output)[0]["manifest"]["checkpoint"] == 3


def test_list_shows_which_checkpoints_are_damaged(place: Path, runs: CrashRuns) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(NOTHING_PENDING)
    empty(manifest(scenario.directory(scenario.state().retained[-1])))
    listing = scenario.invoke("list")
    assert listing.exit_code == 0
    assert ["damaged" in line for line in listing.output.splitlines()[1:]] == [False, False, True]


# -- the sink's own records
# --------------------------------------------------------------------------------------------------


def record_of(scenario: Scenario, checkpoint: int) -> Path:
    (found,) = (scenario.out / ".tidegate").rglob(f"commits/{checkpoint}.json")
    return found


def data_of(scenario: Scenario) -> dict[str, bytes]:
    """What a reader of the output sees."""
    return {
        str(p): p.read_bytes()
        for p in scenario.out.rglob("*.parquet")
        if ".tidegate" not in p.parts
    }


def refused(scenario: Scenario) -> str:
    """The failure of a run that must not get anywhere."""
    ran = run_in_process(str(scenario.file), scenario.home, PlainEngine(), restore="latest")
    assert ran.outcome.status is JobStatus.FAILED
    return ran.outcome.failures[-1].message


@pytest.mark.parametrize("act", [truncate, empty], ids=["truncated", "empty"])
@pytest.mark.parametrize("newest", [False, True], ids=["repeated-batch", "batch-to-take-back"])
def test_a_damaged_record_of_the_file_sink_fails_the_job_by_name_and_changes_no_row(
    place: Path, runs: CrashRuns, act: Callable[[Path], None], newest: bool
) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(SINK_IS_AHEAD)
    if newest:  # then batches 4 and 5 are to be taken back, else 5 is to be recognised
        empty(manifest(scenario.directory(scenario.state().retained[-1])))
    victim, before = record_of(scenario, 5), data_of(scenario)
    whole = victim.read_bytes()
    act(victim)

    message = refused(scenario)

    assert str(victim) in message
    assert "damaged" in message
    assert data_of(scenario) == before

    victim.write_bytes(whole)
    scenario.resume()
    assert scenario.ids() == scenario.shape.rows(BATCHES)


def test_one_changed_bit_in_a_record_of_the_file_sink_is_found(
    place: Path, runs: CrashRuns
) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(SINK_IS_AHEAD)
    empty(manifest(scenario.directory(scenario.state().retained[-1])))
    victim, before = record_of(scenario, 5), data_of(scenario)
    data = victim.read_bytes()
    at = data.index(b".parquet") - 1
    victim.write_bytes(
        data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    )  # the name of the file that is to be taken back

    assert str(victim) in refused(scenario)
    assert data_of(scenario) == before


@pytest.mark.parametrize("newest", [False, True], ids=["repeated-batch", "batch-to-take-back"])
def test_a_lost_record_of_the_file_sink_doubles_nothing(
    place: Path, runs: CrashRuns, newest: bool
) -> None:
    scenario = Scenario(place, SHAPES[0], runs).killed(SINK_IS_AHEAD)
    if newest:
        empty(manifest(scenario.directory(scenario.state().retained[-1])))
    record_of(scenario, 5).unlink()
    ran = run_in_process(str(scenario.file), scenario.home, PlainEngine(), restore="latest")
    if ran.outcome.status is JobStatus.FINISHED:
        assert scenario.ids() == scenario.shape.rows(BATCHES)
    else:
        assert scenario.ids() == scenario.shape.rows(5)
        assert "5.json" in ran.outcome.failures[-1].message
