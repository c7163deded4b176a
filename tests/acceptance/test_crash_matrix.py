"""Every failpoint, killed -9 for real: before, in the middle and after each durable write, and once
more during recovery.

Sinks must equal sources, checkpoint ids must only grow, nothing may be left without an owner. The
plain engine runs the protocol; processes and kills are real. Set TIDEGATE_TEST_SEED to repeat a
failure.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pyarrow.dataset
import pytest

from tidegate.checkpoints.savepoints import Savepoints
from tidegate.connectors.chaos.sink import committed_ids
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.external_resources import RESOURCES
from tidegate.model.job import BlockKind
from tidegate.model.records import PENDING_CLEANUPS, JobStatus
from tidegate.model.throughput import total_volume
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import HUNG, KILLED, CrashRuns, RunRequest, RunResult
from tidegate.testing.failpoints import failpoint_names

ROWS = 60
ROUNDS_MAX = 12
MANY = 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job, and the ids that must be in each of its outputs, once."""

    name: str
    text: Callable[[Path], str]
    expected: Callable[[Path], dict[Path, list[int]]]
    stop_at_rows: int | None = None
    restore: str = "auto"
    prepare: str | None = None  # kill a first run here, before the run under test
    meanwhile: Callable[[Path], None] = lambda _root: None  # what happens between the two runs
    at_least_once: bool = False
    only: str | tuple[str, ...] = ""  # the areas of failpoints that this scenario is for
    save: bool = False  # the run ends with a savepoint, where there is none yet


def fake(output: str, rows: int, first: int = 0) -> str:
    return (
        f'FakeSource {{ plugin_output = "{output}", row.num = {rows}, seed = 3, bigint.fake.mode ='
        f' "SEQUENCE", bigint.min = {first}, schema {{ fields {{ id = bigint, name = string }}'
        " } }"
    )


def files(path: Path, inputs: str, more: str = "") -> str:
    return (
        f'LocalFile {{ plugin_input = {inputs}, path = "{path}", file_format_type ='
        f' "parquet"{more} }}'
    )


def one_source(root: Path) -> str:
    return f"""env {{ job.mode = "BATCH", job.name = "m", checkpoint.interval = 10
  batch.max-rows = 10, checkpoint.max-retained = 2 }}
source {{ {fake("t", ROWS)} }}
sink {{ {files(root / "out", '"t"', ', data_save_mode = "DROP_DATA"')} }}"""


def three_sources(root: Path) -> str:
    return f"""env {{ job.mode = "BATCH", job.name = "m", checkpoint.interval = 10
  batch.max-rows = 12 }}
source {{ {fake("a", 8)}, {fake("b", 20, 100)}, {fake("c", 40, 200)} }}
sink {{ {files(root / "out", '["a", "b", "c"]')}, {files(root / "second", '["a", "b", "c"]')} }}"""


def two_pipelines(root: Path) -> str:
    return f"""env {{ job.mode = "BATCH", job.name = "m", checkpoint.interval = 10
  batch.max-rows = 10 }}
source {{ {fake("a", ROWS)}, {fake("b", len(FEW), 100)} }}
sink {{ {files(root / "out", '"a"')}, {files(root / "second", '"b"')} }}"""


def streaming(root: Path) -> str:
    return (
        one_source(root).replace("BATCH", "STREAMING").replace(', data_save_mode = "DROP_DATA"', "")
    )


def without_transactions(root: Path) -> str:
    return three_sources(root).replace(
        'file_format_type = "parquet"',
        'file_format_type = "parquet", is_enable_transaction = false',
    )


def lose_the_records(root: Path) -> None:
    shutil.rmtree(root / "out" / ".tidegate", ignore_errors=True)


def lose_the_store(root: Path) -> None:
    shutil.rmtree(root / "home" / "store")


def damage_the_newest(root: Path) -> None:
    for path in Home(root / "home").checkpoints.glob("7/1/[34]/_manifest.json"):
        path.write_bytes(b"")


def three_retained(root: Path) -> str:
    return three_sources(root).replace(
        "batch.max-rows = 12", "batch.max-rows = 8, checkpoint.max-retained = 3"
    )


def chaos_sink(root: Path) -> str:
    return (
        one_source(root).split("sink {")[0]
        + f'sink {{ Chaos {{ plugin_input = "t", path = "{root / "chaos"}" }} }}'
    )


def database(root: Path) -> str:
    return (
        one_source(root).split("sink {")[0]
        + f'sink {{ Jdbc {{ plugin_input = "t", url = "jdbc:sqlite:{root}/out.db", table = "rows",'
        " generate_sink_sql = true } }"
    )


def something_outside(root: Path) -> str:
    """A source with a slot and a table on a server, which must not outlive the job."""
    source = (
        f'Chaos {{ plugin_output = "t", row.num = {ROWS}, outside.path = "{root / "server"}" }}'
    )
    return f"""env {{ job.mode = "BATCH", job.name = "m", checkpoint.interval = 10
  batch.max-rows = 20 }}
source {{ {source} }}
sink {{ {files(root / "out", '"t"')} }}"""


def ids_in(directory: Path) -> list[int]:
    if directory.suffix == ".db":
        return ids_in_database(directory)
    if directory.name == "chaos":
        return sorted(committed_ids(directory))
    return (
        sorted(
            pyarrow.dataset.dataset(str(directory), format="parquet").to_table()["id"].to_pylist()
        )
        if directory.exists()
        else []
    )


def ids_in_database(file: Path) -> list[int]:
    """Its rows; and nothing else may be there once the job has ended."""
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as connection:
        tables = [
            name
            for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        ]
        assert [name for name in tables if name.startswith("tidegate_s_")] == [], (
            "staging tables are left"
        )
        return (
            sorted(number for (number,) in connection.execute('select id from "rows"'))
            if "rows" in tables
            else []
        )


ALL = list(range(ROWS))
FEW = list(range(100, 112))
SAVING = ("ledger.save.", "savepoint.")
AHEAD = (
    "ledger.repeat.",
    "restore.",
    "filesink.fence.",
    "batch.commit.",
    "checkpoint.publish.",
    "claim.restore.",
)
UNION = sorted([*range(8), *range(100, 120), *range(200, 240)])
SCENARIOS = [
    Scenario("one-source", one_source, lambda root: {root / "out": ALL}),
    Scenario(
        "three-sources-two-sinks",
        three_sources,
        lambda root: {root / "out": UNION, root / "second": UNION},
    ),
    Scenario("streaming", streaming, lambda root: {root / "out": ALL}, stop_at_rows=ROWS),
    Scenario(
        "going-back",
        one_source,
        lambda root: {root / "out": ALL},
        restore="checkpoint:3",
        prepare="ledger.complete.after@4",
    ),
    Scenario(
        "chaos-sink",
        chaos_sink,
        lambda root: {root / "chaos": ALL},
        restore="checkpoint:3",
        prepare="ledger.complete.after@4",
        only="chaos.",
    ),
    Scenario(
        "no-transactions",
        without_transactions,
        lambda root: {root / "out": UNION, root / "second": UNION},
        at_least_once=True,
        only="filesink.",
    ),
    Scenario(
        "records-lost",
        one_source,
        lambda root: {root / "out": ALL},
        restore="checkpoint:3",
        prepare="ledger.complete.after@4",
        meanwhile=lose_the_records,
        only="filesink.",
    ),
    Scenario(
        "store-lost",
        three_retained,
        lambda root: {root / "out": UNION, root / "second": UNION},
        prepare="batch.commit.middle@7",
        meanwhile=lose_the_store,
        only=AHEAD,
    ),
    Scenario(
        "newest-damaged",
        three_retained,
        lambda root: {root / "out": UNION, root / "second": UNION},
        prepare="batch.commit.middle@9",
        meanwhile=damage_the_newest,
        only=AHEAD,
    ),
    Scenario(
        "savepoint",
        one_source,
        lambda root: {root / "out": ALL},
        prepare="ledger.complete.after@3",
        save=True,
        only=SAVING,
    ),
    Scenario(
        "savepoint-at-once",
        two_pipelines,
        lambda root: {root / "out": ALL, root / "second": FEW},
        save=True,
        only=SAVING,
    ),
    Scenario("database", database, lambda root: {root / "out.db": ALL}, only="jdbcsink."),
    Scenario(
        "something-outside", something_outside, lambda root: {root / "out": ALL}, only="resource."
    ),
    Scenario(
        "starting-over",
        one_source,
        lambda root: {root / "out": ALL},
        restore="fresh",
        prepare="filesink.record.after@2",
        only="filesink.",
    ),
]
# In processes that this matrix does not run: who starts drivers (killed in test_embedded_run.py),
# workers, servers. On a storage that this matrix does not have: one without a rename (killed in
# test_publish_in_place.py). What users do with savepoints (broken off in test_savepoint_files.py).
# The collector (killed in test_collector_kills.py). Slots of databases and chunks of a first read
# (killed in tests/databases/test_cdc_jobs.py). Another job's state (killed in
# test_restore_crashes.py). Tokens (killed in test_token_kills.py). Batches that are given up
# (killed in test_file_source_faults.py). Another run's files that a save mode removes (broken off
# in test_sink_fences.py). Tables behind a JDBC driver (tests/spark/test_engine_foreign_commit.py).
# Damaged documents that are taken out of the store (test_store_documents.py).
PEOPLES = (
    "claim.source.",
    "collector.",
    "savepoint.delete.",
    "savepoint.export.",
    "savepoint.import.",
    "savepoint.overtake.",
    "postgrescdc.",
    "token.",
)
SERVERS = ("server.", "worker.", "lease.", "command.", "transition.", "history.")
ELSEWHERE = (
    *(
        *PEOPLES,
        *SERVERS,
        "ledger.give_up.",
        "filesink.dropped.",
        "capture.",
        "checkpoint.manifest.",
    ),
    *(
        "driver.launch.",
        "driver.handover.",
        "zombie.",
        "foreignsink.",
        "job.forget.",
        "document.forget.",
    ),
)


def known_of(home: Path) -> JobSnapshot:
    store = open_store(Home(home).store_url)
    try:
        return read_job(store, 7)
    finally:
        store.close()


def ended(home: Path) -> bool:
    """Whether the job is recorded as ended, so that nobody would run it again."""
    state = known_of(home).state if (home / "store").exists() else None
    return state is not None and state.value.status is JobStatus.FINISHED


def next_ids(home: Path) -> list[int]:
    return (
        [p.value.next_checkpoint for p in known_of(home).pipelines]
        if (home / "store").exists()
        else []
    )


class ScenarioRun:
    """One scenario in one directory, run after run."""

    def __init__(self, runs: CrashRuns, scenario: Scenario, root: Path) -> None:
        self.runs = runs
        self.scenario = scenario
        self.root = root
        self.home = root / "home"
        self.file = root / "job.conf"
        root.mkdir(parents=True)
        self.file.write_text(scenario.text(root))
        self.ids: list[int] = []
        self.prepared = scenario.prepare is None
        self.last: RunResult | None = None

    def run(
        self, failpoints: str = "", restore: str = "auto", stop_at_rows: int | None = None
    ) -> RunResult:
        request = RunRequest(
            home=str(self.home),
            file=str(self.file),
            failpoints=failpoints,
            restore=restore,
            stop_at_rows=stop_at_rows,
            compaction_threshold=15,
            save=self.scenario.save and self.prepared,
        )
        result = self.last = self.runs.run(request)
        assert result.code != HUNG, "a run hangs"
        now = next_ids(self.home)
        if restore == "fresh":
            self.ids = []  # a new lineage counts from 1
        assert not now or all(a >= b for a, b in zip(now, self.ids, strict=False)), (
            "checkpoint ids went back"
        )
        self.ids = now
        return result

    def run_killed(self, name: str, hit: int, again: str) -> bool:
        """Kill, kill again during recovery, let it end; whether the first kill happened."""
        restore = "auto"
        if self.scenario.prepare is not None:
            assert self.run(self.scenario.prepare).code == KILLED
            self.scenario.meanwhile(self.root)
            self.ids = next_ids(self.home)
            self.prepared = True
            restore = self.scenario.restore
        first = self.run(f"{name}@{hit}", restore, self.scenario.stop_at_rows)
        if first.code == KILLED and not ended(self.home):
            self.run(again, "auto", self.scenario.stop_at_rows)
        for _ in range(ROUNDS_MAX):
            if ended(self.home) or self.complete():
                break
            last = self.run("", "auto", self.scenario.stop_at_rows)
            assert last.code == 0, last.error
        self.check()
        return first.code == KILLED

    def complete(self) -> bool:
        """A streaming job is done when it was stopped with all its rows."""
        state = known_of(self.home).state if (self.home / "store").exists() else None
        return (
            self.scenario.stop_at_rows is not None
            and state is not None
            and state.value.status is JobStatus.CANCELED
        )

    def check(self) -> None:
        for directory, expected in self.scenario.expected(self.root).items():
            found = ids_in(directory)
            assert (sorted(set(found)) if self.scenario.at_least_once else found) == expected
            assert not ended(self.home) or not (directory / ".tidegate").exists(), (
                "bookkeeping of a finished job is left"
            )
        known = known_of(self.home)
        self.check_counts(known)
        retained = {r.path for p in known.pipelines for r in p.value.retained}
        pending_deletion = {r.path for p in known.pipelines for r in p.value.pending_deletion}
        root = Home(self.home).checkpoints
        on_disk = {p.relative_to(root).as_posix() for p in root.glob("[0-9]*/*/*")}
        # The state of a finished job goes with its checkpoints, by a cleanup that may have been
        # killed in the middle; the next one ends it.
        assert retained <= on_disk or (ended(self.home) and cleanup_is_due(self.home))
        assert on_disk <= retained | pending_deletion or cleanup_is_due(self.home)
        outside = {path.name for path in (self.root / "server").glob("*")}
        assert not outside or resources_are_recorded(self.home), (
            "something outside is left, and nobody knows of it"
        )
        savepoints = Savepoints(root)
        assert [savepoints.read(found.path).id for found in savepoints.list()] == [
            found.id for found in savepoints.list()
        ]
        assert not self.scenario.save or len(savepoints.list()) == 1
        # Whose they are is lost with the store: then they are the collector's.
        if (
            self.last is not None
            and self.last.code == 0
            and self.scenario.meanwhile is not lose_the_store
        ):
            assert not list((self.home / "work").glob("*/*")), "scratch files are left"

    def check_counts(self, snapshot: JobSnapshot) -> None:
        """The metrics match the rows: each batch counts once, however often it was tried.

        The metrics are lost with the store.
        """
        outcome = snapshot.outcome
        if outcome is None or outcome.plan is None or self.scenario.meanwhile is lose_the_store:
            return
        counted = {
            kind: sum(
                total_volume(outcome.volumes.get(action.operator, {})).rows
                for pipeline in outcome.plan.pipelines
                for action in pipeline.of_kind(kind)
            )
            for kind in (BlockKind.SOURCE, BlockKind.SINK)
        }
        written = sum(map(len, self.scenario.expected(self.root).values()))
        assert counted == {
            BlockKind.SOURCE: outcome.rows_read,
            BlockKind.SINK: outcome.rows_written,
        }
        assert outcome.rows_written == written


def resources_are_recorded(home: Path) -> bool:
    store = open_store(Home(home).store_url)
    try:
        return bool(store.list(RESOURCES))
    finally:
        store.close()


def cleanup_is_due(home: Path) -> bool:
    store = open_store(Home(home).store_url)
    try:
        return bool(store.list(PENDING_CLEANUPS))
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a scenario's first run dies, and where the one that recovers does."""

    scenario: Scenario
    name: str
    hit: int
    again: str


def is_for(scenario: Scenario, name: str) -> bool:
    """Whether a scenario may reach this failpoint: those for everything have no database."""
    return name.startswith(scenario.only) if scenario.only else not name.startswith("jdbcsink.")


def drawn(names: Sequence[str], rng: random.Random, share: float) -> list[Kill]:
    """All failpoints of the scenarios that are for few; of those that are for many, a share."""
    kills = []
    for scenario in SCENARIOS:
        meant = [name for name in names if is_for(scenario, name)]
        for name in (
            meant if len(meant) < MANY else [name for name in meant if rng.random() < share]
        ):
            kills.append(
                Kill(scenario, name, rng.randint(1, 3), f"{rng.choice(names)}@{rng.randint(1, 2)}")
            )
    return kills


def run_kills(zygotes: Sequence[CrashRuns], disk: Path, kills: Sequence[Kill]) -> set[str]:
    """Run these kills, as many at a time as there are zygotes; the failpoints at which a first
    run died.
    """
    free: SimpleQueue[CrashRuns] = SimpleQueue()
    for zygote in zygotes:
        free.put(zygote)

    def run_kill(kill: Kill) -> str | None:
        zygote = free.get()
        try:
            return (
                kill.name
                if ScenarioRun(
                    zygote, kill.scenario, disk / kill.scenario.name / kill.name
                ).run_killed(kill.name, kill.hit, kill.again)
                else None
            )
        except Exception as error:
            raise AssertionError(
                f"{kill.scenario.name}: killed at {kill.name}@{kill.hit}, then at {kill.again}:"
                f" {error}"
            ) from error
        finally:
            free.put(zygote)

    with ThreadPoolExecutor(len(zygotes)) as pool:
        try:
            return {name for name in pool.map(run_kill, kills) if name is not None}
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, no further run begins


def kill_everywhere(zygotes: Sequence[CrashRuns], disk: Path, seed: int, share: float) -> None:
    """Every failpoint in every scenario that is for it; in those that are for many, a share of
    them. Each must have been hit somewhere.
    """
    names = [name for name in failpoint_names() if not name.startswith(ELSEWHERE)]
    print(f"seed {seed}")  # shown with a failure
    missing = set(names) - run_kills(zygotes, disk, drawn(names, random.Random(seed), share))
    # what was drawn passed them by, or died too late: at their first passage, in any scenario that
    # has it
    for scenario in SCENARIOS:
        missing -= run_kills(
            zygotes,
            disk / "once",
            [Kill(scenario, name, 1, "") for name in sorted(missing) if is_for(scenario, name)],
        )
    assert missing == set(), (
        "failpoints that no scenario reaches: give one to them, or name the test that kills there"
        " in ELSEWHERE"
    )


@pytest.fixture(scope="module")
def zygotes(runs: CrashRuns) -> Iterator[list[CrashRuns]]:
    """Two, as small machines have two cores."""
    with CrashRuns() as second:
        yield [runs, second]


@pytest.mark.timeout(900)
def test_a_kill_at_any_failpoint_loses_and_doubles_nothing(
    zygotes: list[CrashRuns], memory_disk: Path
) -> None:
    kill_everywhere(
        zygotes, memory_disk, 7, 0.35
    )  # always the same kills here; the soak draws its own


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_kill_at_any_failpoint_in_any_scenario_loses_and_doubles_nothing(
    zygotes: list[CrashRuns], memory_disk: Path, seed: int
) -> None:
    kill_everywhere(zygotes, memory_disk, seed, 1.0)
