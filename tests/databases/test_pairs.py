"""Every source with every sink, while sources change and processes are killed randomly.

Driver, worker, leader and databases are killed or restarted. Servers, workers and databases are
real; drivers run on the plain engine, in the soak on Spark too. `make test` runs each pair briefly,
`PAIR_SECONDS=600 TIDEGATE_TEST_SEED=3 make soak ARGS="-k pairs"` as long as requested.

One job has a pipeline for each pair of a log and a database, and one from a log to change files;
another copies tables without keys, where a row that is delivered twice appears twice.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pairs_kit import Observer, Writer
from pairs_sides import COLUMNS, Side
from pairs_sinks import RATE, Copy, adds_up, replayed

sys.path.append(str(Path(__file__).parents[1] / "acceptance"))  # the kit of clusters
from cluster_kit import Cluster, Job
from cluster_stores import quick_disk

from tidegate.model.records import JobStatus
from tidegate.runner.process import kill_session
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

PATIENCE_S = 600.0
# A machine that is busy with other things is no reason to take a driver for stalled, and what we do
# is not the job's fault.
PATIENT = "checkpoint.timeout = 600000, job.retry.times = 1000, job.retry.interval.seconds = 1"
ENV = f"parallelism = 2, checkpoint.interval = 100, checkpoint.max-retained = 2, {PATIENT}"
KINDS = ("maria", "postgres")
Servers = dict[str, MariaDbServer | PostgresServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    """One of each, to be killed.

    A killed process loses nothing that it gave to the kernel, so that nobody has to wait for a
    disk.
    """
    settings = {
        "wal_level": "logical",
        "max_replication_slots": "20",
        "max_wal_senders": "20",
        "fsync": "off",
        "max_connections": "100",
    }
    with (
        MariaDbServer(settings={"innodb-flush-method": "nosync", "sync-binlog": "0"}) as maria,
        PostgresServer(settings=settings) as postgres,
    ):
        yield {"maria": maria, "postgres": postgres}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with quick_disk() as root:
        made = Cluster(root, spark=request.param == "spark")
        try:
            yield made
            assert made.observer.violations == []
        finally:
            made.close()


class World:
    """Two sources that are changed, the targets of all pairs, and who changes and watches them."""

    def __init__(self, servers: Servers, files: Path, chance: random.Random) -> None:
        self.files = files
        self.sources = {kind: Side(servers[kind], "source_db") for kind in KINDS}
        self.targets = {
            (source, target): Side(servers[target], f"from_{source}")
            for source in KINDS
            for target in KINDS
        }
        self.copies = [
            Copy(self.sources[source], self.targets[source, target])
            for source, target in (KINDS, KINDS[::-1])
        ]
        for side in (*self.sources.values(), *self.targets.values()):
            side.create()
        for side in self.sources.values():
            side.create_tables()
        for copy in self.copies:
            copy.fill()
        self.writers = {
            kind: Writer(side, random.Random(chance.random()))
            for kind, side in self.sources.items()
        }
        self.observers = {
            pair: Observer(side, self.writers[pair[0]]) for pair, side in self.targets.items()
        }

    def start(self) -> None:
        for thread in (*self.writers.values(), *self.observers.values()):
            thread.start()

    @property
    def violations(self) -> list[str]:
        troubled = [
            f"the writer of {kind}: {writer.trouble!r}"
            for kind, writer in self.writers.items()
            if writer.trouble is not None
        ]
        return [
            *troubled,
            *(
                f"{pair}: {text}"
                for pair, observer in self.observers.items()
                for text in observer.violations
            ),
        ]

    def seen(self) -> int:
        """The number of commits that have arrived in all targets."""
        return min(observer.number for observer in self.observers.values())

    def arrived(self) -> bool:
        """Whether everything that was ever written is in all targets; the writers have stopped."""
        return all(
            observer.whole and observer.number == self.writers[pair[0]].last
            for pair, observer in self.observers.items()
        )

    def stop(self) -> None:
        for thread in (*self.writers.values(), *self.observers.values()):
            thread.stop()

    def changes(self) -> str:
        """The job of the logs."""
        blocks = [
            (
                f"{source}_{target}",
                source,
                self._database(self.targets[source, target], f"{source}_{target}"),
            )
            for source, target in self.targets
        ]
        blocks.append(("history", "postgres", self._files()))
        sources = "\n".join(reader(self.sources[source], name) for name, source, _ in blocks)
        return f"""env {{ job.mode = "STREAMING", batch.max-rows = 2000, {ENV} }}
source {{ {sources} }}
transform {{ RowKindExtractor {{ plugin_input = "history", plugin_output = "changes", custom_field_name = "change" }} }}
sink {{ {" ".join(sink for _, _, sink in blocks)} }}"""

    def _database(self, side: Side, name: str) -> str:
        table = "${table_name}" if side.is_maria else "public.${table_name}"
        return (
            f'Jdbc {{ plugin_input = "{name}", {side.login}, generate_sink_sql = true, table ='
            f' "{table}", primary_keys = ["${{primary_key}}"] }}\n'
        )

    def _files(self) -> str:
        path = self.files / "${table_name}"
        return (
            f'LocalFile {{ plugin_input = "changes", path = "{path}", file_format_type = "parquet"'
            " }\n"
        )

    def check(self) -> None:
        """Source and target are equal, row by row; so is what the files of changes add up to."""
        for kind, writer in self.writers.items():
            wanted, _ = self.sources[kind].rows()
            assert wanted == writer.rows, "the writer does not know what it wrote"
            for target in KINDS:
                found, _ = self.targets[kind, target].rows()
                assert found == wanted, f"{kind} to {target}"
        assert replayed(self.files) == self.writers["postgres"].rows


def reader(side: Side, name: str) -> str:
    """A source block, by names or by a pattern."""
    if side.is_maria:
        tables = ", ".join(f'"{side.name}.{table}"' for table in COLUMNS)
        return (
            f'MySQL-CDC {{ plugin_output = "{name}", {side.login}, table-names = [{tables}],'
            " snapshot.split.size = 60 }"
        )
    pattern = rf"{side.name}\\.public\\.({'|'.join(COLUMNS)})"
    return (
        f'Postgres-CDC {{ plugin_output = "{name}", {side.login}, table-pattern = "{pattern}",'
        f' slot.name = "{name}", snapshot.split.size = 60 }}'
    )


class Demon:
    """Kills one thing after the other; each kind in every round, in an order by chance."""

    def __init__(
        self, cluster: Cluster, world: World, jobs: list[Job], chance: random.Random
    ) -> None:
        self.cluster = cluster
        self.world = world
        self.jobs = jobs
        self.chance = chance
        self.log: list[str] = []

    def round(self) -> None:
        """Everything.

        After one blow the world may recover until rows arrive again, the next one comes before
        anybody has noticed.
        """
        acts: list[Callable[[], str]] = [
            self._kill_driver,
            self._kill_driver,
            self._kill_worker,
            self._kill_leader,
        ]
        acts += [lambda side=side: self._restart(side) for side in self.world.sources.values()]
        self.chance.shuffle(acts)
        for act in acts:
            if self.chance.random() < 0.5:
                before = self.world.seen()
                self.jobs[0].until(
                    "rows",
                    lambda before=before: self.world.violations or self.world.seen() > before,
                    PATIENCE_S,
                )
            # How far the job gets in between is part of the seed.
            time.sleep(self.chance.choice([0.1, 0.5, 1.0]))  # see above
            self.log.append(act())
            self.cluster.complete(servers=2, workers=1)

    def _kill_driver(self) -> str:
        drivers = [job.known().driver for job in self.jobs]
        there = [
            driver.value for driver in drivers if driver is not None and driver.value.end is None
        ]
        if there:
            kill_session(self.chance.choice(there).process)
        return "driver" if there else "no driver"

    def _kill_worker(self) -> str:
        self.cluster.workers[0].kill()
        return "worker"

    def _kill_leader(self) -> str:
        self.cluster.leader().kill()
        return "leader"

    def _restart(self, side: Side) -> str:
        """A server ends with the thread that started it: this one."""
        killed = self.chance.random() < 0.7
        side.server.kill() if killed else side.server.stop()
        time.sleep(self.chance.choice([0, 0, 2.0]))  # how long nobody answers is part of the chance
        side.server.start()
        return f"{'MariaDB' if side.is_maria else 'PostgreSQL'} {'killed' if killed else 'stopped'}"


def holds(cluster: Cluster, servers: Servers, seed: int, seconds: float) -> None:
    """Kill processes for a while, then wait until all rows have arrived."""
    print(
        f"seed {seed}; again with: PAIR_SECONDS={seconds:g} TIDEGATE_TEST_SEED={seed} make soak"
        ' ARGS="-k pairs"'
    )  # shown where it fails
    chance = random.Random(f"pairs {seed}")
    world = World(servers, cluster.root / "files", chance)
    cluster.complete(servers=2, workers=1)
    world.start()
    try:
        changes = cluster.submit(world.changes())
        copies = cluster.submit(
            f'env {{ job.mode = "BATCH", batch.max-rows = 100, read_limit.rows_per_second = {RATE},'
            f" {ENV} }}\n{Copy.text(world.copies)}"
        )
        demon = Demon(cluster, world, [changes, copies], chance)
        end_s = time.monotonic() + seconds
        while True:
            demon.round()
            if time.monotonic() >= end_s or world.violations:
                break
        for writer in world.writers.values():
            writer.stop()
        print(
            "acts:",
            dict(Counter(demon.log)),
            "commits:",
            [w.last for w in world.writers.values()],
            "looks:",
            [o.looks for o in world.observers.values()],
        )
        changes.until(
            "the last commit in all targets",
            lambda: world.violations or world.arrived(),
            PATIENCE_S,
        )
    finally:
        world.stop()
        print(
            "arrived:",
            {
                pair: (o.number, "whole" if o.whole else "in part")
                for pair, o in world.observers.items()
            },
        )
    assert world.violations == [], world.violations
    copies.ends(JobStatus.FINISHED)
    for copy in world.copies:
        copy.check()
    changes.until(
        "the last change in the files", lambda: adds_up(world.files, world.writers["postgres"].rows)
    )
    changes.stop()
    changes.has_no_process()
    world.check()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cluster", ["plain"], indirect=True)
def test_every_pair_survives_kills_briefly(cluster: Cluster, servers: Servers, seed: int) -> None:
    holds(cluster, servers, seed, 0)


@pytest.mark.soak
@pytest.mark.parametrize("cluster", ["plain", "spark"], indirect=True)
def test_every_pair_survives_kills(cluster: Cluster, servers: Servers, seed: int) -> None:
    holds(cluster, servers, seed, float(os.environ.get("PAIR_SECONDS") or 120))
