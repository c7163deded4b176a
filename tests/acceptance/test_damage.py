"""Checkpoints and commit records that were damaged between two runs: named, never used, and the sink's rows equal the source's all the same.

The first run is killed with -9 in a process of its own; the damage is done by hand; the second run goes on in this process. No Spark.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result

from tidegate.cli.checkpoints import checkpoints as checkpoints_command
from tidegate.coordinator.registry import Known, look
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
SIZES = (BATCHES * BATCH_ROWS, 30, 60)  # of the sources; where there are three, the second one is ready to close when the run is killed
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
    """A kind of job."""

    mode: str
    sources: int

    def text(self, out: Path) -> str:
        names = [f"t{number}" for number in range(self.sources)]
        sources = "\n".join(
            f'FakeSource {{ plugin_output = "{name}", row.num = {SIZES[number]}, seed = 3, bigint.fake.mode = "SEQUENCE", bigint.min = {number * 1000}, '
            "schema { fields { id = bigint } } }"
            for number, name in enumerate(names)
        )
        return f"""env {{ job.mode = "{self.mode}", job.name = "damage", checkpoint.interval = 10, batch.max-rows = {BATCH_ROWS}, checkpoint.max-retained = 3
  job.retry.times = 0 }}
source {{ {sources} }}
sink {{ LocalFile {{ plugin_input = [{", ".join(f'"{name}"' for name in names)}], path = "{out}", file_format_type = "parquet" }} }}"""

    def rows(self, batches: int) -> list[int]:
        """What is in the sink after so many batches."""
        return sorted(number * 1000 + row for number in range(self.sources) for row in range(min(SIZES[number], batches * BATCH_ROWS)))


SHAPES = [Shape(mode, sources) for mode in ("BATCH", "STREAMING") for sources in (1, 3)]


class World:
    """A killed run, and what is done to it."""

    def __init__(self, root: Path, shape: Shape, runs: CrashRuns) -> None:
        self.root, self.shape, self.runs = root, shape, runs
        self.home, self.out, self.file = Home(root / "home"), root / "out", root / "job.conf"
        self.file.write_text(shape.text(self.out))

    def killed(self, place: str) -> "World":
        result = self.runs.run(RunRequest(home=str(self.home.root), file=str(self.file), failpoints=place))
        assert result.code == KILLED, result.error
        assert tuple(ref.checkpoint for ref in self.state().retained) == RETAINED
        return self

    def resume(self, restore: str = "latest") -> Ran:
        """Go on until the end: of the rows, or, for a stream, after two more batches than the first run had."""
        engine = PlainEngine() if self.shape.mode == "BATCH" else PowerCut(self.next_id() + 1)
        ran = run_in_process(str(self.file), self.home, engine, restore=restore)
        assert ran.outcome.status is (JobStatus.FINISHED if self.shape.mode == "BATCH" else JobStatus.FAILED)
        return ran

    def expected(self, restored: int) -> list[int]:
        """What the sink holds after `resume` went on after this checkpoint. Batches are equally big, so checkpoint n is n batches far."""
        return self.shape.rows(BATCHES if self.shape.mode == "BATCH" else restored + 2)

    def next_id(self) -> int:
        return self.state().next_checkpoint

    def known(self) -> Known:
        store = open_store(self.home.store_url)
        try:
            return look(store, 7)
        finally:
            store.close()

    def state(self) -> PipelineState:
        return self.known().pipelines[0].value

    def directory(self, ref: CheckpointRef) -> Path:
        return self.home.checkpoints / ref.path

    def ids(self) -> list[int]:
        return sorted(pyarrow.dataset.dataset(str(self.out), format="parquet").to_table()["id"].to_pylist())

    def files(self) -> dict[str, bytes]:
        """Every byte of the sink and of the checkpoints."""
        return {str(p): p.read_bytes() for place in (self.out, self.home.checkpoints) for p in place.rglob("*") if p.is_file()}

    def tell(self, *arguments: str) -> Result:
        return CliRunner().invoke(checkpoints_command, ["--home", str(self.home.root), *arguments])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync costs nothing: the machine's disk is not what is tested."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidegate-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def runs() -> Iterator[CrashRuns]:
    with CrashRuns() as zygote:
        yield zygote


# -- the ways to damage a file, and the files that can be damaged ---------------------------------------------------------------------------------


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
        """The name by which the damage must be told."""
        victim = self.victim(directory)
        self.act(victim)
        if victim == directory:
            return "_manifest.json"
        return victim.relative_to(directory).as_posix() + ("" if victim.suffix or victim.name == "state-data" else "/state-data")


ACTS: dict[str, Callable[[Path], None]] = {"truncated": truncate, "empty": empty, "missing": Path.unlink, "flipped": flip}
VICTIMS = {"source-state": source_state, "sink-state": sink_state, "manifest": manifest}
DAMAGES = [Damage(f"{act}-{victim}", ACTS[act], VICTIMS[victim]) for act in ACTS for victim in VICTIMS]
DAMAGES += [
    Damage("missing-directory", shutil.rmtree, lambda directory: directory),
    Damage("missing-state-directory", shutil.rmtree, lambda directory: source_state(directory).parent),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.mode.lower()}-{s.sources}")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("killed_at", [NOTHING_PENDING, SINK_IS_AHEAD])
def test_damaged_checkpoints_are_named_and_the_next_older_one_is_used(place: Path, runs: CrashRuns, shape: Shape, count: int, killed_at: str) -> None:
    for damage in DAMAGES:
        root = place / damage.name
        root.mkdir()
        world = World(root, shape, runs).killed(killed_at)
        retained, first_new_id = world.state().retained, world.next_id()
        names = {world.directory(ref): damage.do(world.directory(ref)) for ref in retained[-count:]}

        ran = world.resume()

        told = "\n".join(ran.claim.notes)
        restored = RETAINED[-count - 1]
        assert ran.claim.restored == {1: restored}, damage.name
        for directory, name in names.items():
            assert f"checkpoint {directory} is damaged: {name} " in told, damage.name
        assert f"goes back to checkpoint {restored}: " in told
        assert world.ids() == world.expected(restored), damage.name
        after = [ref.checkpoint for pipeline in world.known().pipelines for ref in pipeline.value.retained]  # of a stream: a finished job has none
        assert all(checkpoint >= first_new_id for checkpoint in after if checkpoint > restored), "an id came twice"
