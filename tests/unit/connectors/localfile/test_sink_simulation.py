"""Random generations that crash, are superseded, or revive as zombies; hundreds of seeds."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.errors import Fenced

RUNS = 200
ROWS = 5
PLACES = [
    f"filesink.{step}.{place}"
    for step in ("stage", "record", "publish", "fence", "retain")
    for place in ("before", "middle", "after")
]


class World:
    """A store that lets only the newest generation write, and drivers that fail at random."""

    def __init__(
        self,
        kit: Any,
        root: Path,
        chance: random.Random,
        at: Callable[[str, Callable[[], Any]], None],
    ) -> None:
        self.kit = kit
        self.root = root
        self.chance = chance
        self.at = at
        self.done = 0
        self.newest = 0
        self.depth = 0
        self.pending: int | None = None
        self.goal = chance.randint(2, 5)
        self.zombies: list[tuple[Any, int, list[Any]]] = []

    def run(self) -> None:
        while self.done < self.goal:
            self.generation()
            self.wake()
        self.wake()
        self.kit.Generation(self.root, self.newest + 1).open(self.done)

    def generation(self) -> None:
        """Run one driver until it finishes or fails."""
        self.newest += 1
        driver = self.kit.Generation(self.root, self.newest, batch_size=2)
        if self.chance.random() < 0.6:
            self.at(self.chance.choice(PLACES), self.trouble)
        try:
            driver.open(self.done, self.pending)
            while self.done < self.goal and self.batch(driver):
                pass
        except (self.kit.Crash, Fenced):
            return

    def batch(self, driver: Any) -> bool:
        """Run one batch; False if the driver exits without a report."""
        checkpoint = self.done + 1
        self.store_write(driver)
        self.pending = checkpoint
        ids = [checkpoint * 10 + i for i in range(ROWS)]
        cut = self.chance.randint(0, ROWS)
        messages = driver.stage(checkpoint, ids[:cut], ids[cut:])
        # A zombie: considered dead, but its commit may come at any later time.
        if self.chance.random() < 0.2:
            self.zombies.append((driver, checkpoint, messages))
            return False
        driver.commit(checkpoint, messages)
        if self.chance.random() < 0.2:
            return False
        self.store_write(driver)
        self.done = checkpoint
        self.pending = None
        driver.committer.retain(checkpoint)
        return True

    def store_write(self, driver: Any) -> None:
        if driver.number != self.newest:
            raise Fenced("the job", driver.number, self.newest)

    def trouble(self) -> None:
        """At a failpoint, crash, let a zombie commit, or run the next generation."""
        event = self.chance.choice([self.kit.crash, self.wake, self.overtake])
        event()

    def overtake(self) -> None:
        if self.depth < 3:
            self.depth += 1
            self.generation()
            self.depth -= 1

    def wake(self) -> None:
        self.chance.shuffle(self.zombies)
        for driver, checkpoint, messages in self.zombies[
            : self.chance.randint(0, len(self.zombies))
        ]:
            try:
                driver.commit(checkpoint, messages)
            except (self.kit.Crash, Fenced):
                continue


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync: no power failure is simulated, and hundreds of runs need not wait."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("quick_disk")
def test_random_crashes_and_zombies_write_every_batch_exactly_once(
    kit: Any, tmp_path: Path, at: Any, seed: int
) -> None:
    for run in range(RUNS):
        root = tmp_path / str(run)
        root.mkdir()
        world = World(kit, root, random.Random(seed + run), at)
        world.run()
        assert kit.rows(root) == [
            n * 10 + i for n in range(1, world.done + 1) for i in range(ROWS)
        ], f"seed {seed + run}"
        assert kit.staged(root) == [], f"seed {seed + run}"
