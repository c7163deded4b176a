"""How long sources hold what the oldest restore point needs: asked, kept with the figures, told
when it gets short.
"""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import SystemClock
from tidegate.driver.log_retention import LogRetentionMonitor
from tidegate.model.document import to_document
from tidegate.model.engine import DriverSpec
from tidegate.model.job import BlockKind, JobEnv
from tidegate.model.log_retention import (
    LogRetentionMetric,
    LogRetentionStatus,
    RunwayLevel,
    outlook,
)
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import PIPELINES, CheckpointRef, JobRecord, PipelineState
from tidegate.pipeline.progress import PipelineProgress
from tidegate.store.base import Put, Store
from tidegate.store.open import open_store

ORDER = DriverSpec(
    home="", job_id=7, generation=1, store_url="", checkpoints_root="", runway_warning_ms=60_000
)
SOURCE = "Source[0]-Chaos"


def job(place: Path, plugin: str = "Chaos") -> JobRecord:
    action = Action(
        operator=SOURCE,
        label=SOURCE,
        kind=BlockKind.SOURCE,
        plugin=plugin,
        options={"outside.path": str(place), "row.num": 5},
    )
    plan = Plan(job_name="j", env=JobEnv(), pipelines=(PipelinePlan(id=1, actions=(action,)),))
    return JobRecord(job_id=7, name="j", initialization_ms=1, lineage="l", plan=plan)


class World:
    """A driver with one source, and what the server says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = CheckpointStorage(place / "checkpoints")
        self.progress = PipelineProgress(1, 1)
        self.store: Store = open_store("memory:")
        self.put(
            PipelineState(
                job_id=7, pipeline=1, lineage="l", generation=1, initial={SOURCE: {"at": 0}}
            )
        )
        self.watch = LogRetentionMonitor(self.store, self.storage, ORDER, SystemClock())
        self.watch.find(job(place), [self.progress])

    def put(self, state: PipelineState) -> None:
        self.state = state
        self.store.transact([], [Put(PIPELINES, "7/1", to_document(state))])

    def retain(self, *checkpoints: int) -> None:
        refs = []
        for n in checkpoints:
            manifest = Manifest(
                job_id=7, pipeline=1, checkpoint=n, lineage="l", generation=1, begun_ms=1, files={}
            )
            path = self.storage.publish(
                manifest, {SOURCE: {"offset": {"at": n}}, "sink": {"state": None}}
            ).path
            refs.append(
                CheckpointRef(checkpoint=n, path=path, generation=1, begun_ms=1, completed_ms=1)
            )
        self.put(replace(self.state, retained=tuple(refs)))

    def says(self, **runway: object) -> list[LogRetentionMetric]:
        (self.place / "runway").write_text(json.dumps(runway))
        self.watch.step(self.watch.lanes[0])
        return list(self.progress.read().log_retention)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("told", "level"),
    [
        ({"held": True}, RunwayLevel.OK),
        ({"held": True, "seconds_left": 61.0, "bytes_left": 5}, RunwayLevel.OK),
        ({"held": True, "seconds_left": 59.0}, RunwayLevel.LOW),
        ({"held": True, "low": True}, RunwayLevel.LOW),
        ({"held": False, "reason": "purged"}, RunwayLevel.GONE),
    ],
)
def test_what_a_source_says_is_kept_with_the_figures(
    world: World, told: dict[str, object], level: RunwayLevel
) -> None:
    [figure] = world.says(**told)
    assert (figure.source, figure.level, figure.checkpoint, figure.reason) == (
        SOURCE,
        level,
        0,
        told.get("reason", ""),
    )
    assert (figure.seconds_left, figure.bytes_left) == (
        told.get("seconds_left"),
        told.get("bytes_left"),
    )


def test_the_oldest_restore_point_is_asked_for(world: World) -> None:
    world.retain(3, 4)
    assert [figure.checkpoint for figure in world.says(held=True)] == [3]
    world.retain(4, 5)
    assert [figure.checkpoint for figure in world.says(held=True)] == [4]


def test_it_is_said_once_when_it_gets_short_and_again_when_it_gets_worse(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="tidegate.driver"):
        for _ in range(3):
            world.says(held=True, seconds_left=5, reason="binlog.000007 is about to be purged")
        world.says(held=False, reason="binlog.000007 was purged")
    assert [record.message for record in caplog.records] == ["runway low", "runway gone"]
    assert (
        "will not hold its beginning for long: 5 s left, binlog.000007 is about to be purged"
        in vars(caplog.records[0])["why"]
    )


def test_a_source_that_cannot_answer_keeps_its_last_answer_and_harms_nothing(world: World) -> None:
    before = world.says(held=True, seconds_left=5)
    (world.place / "runway").write_text("{")
    world.watch.step(world.watch.lanes[0])
    assert list(world.progress.read().log_retention) == before


def test_a_storage_that_cannot_be_read_harms_nothing(world: World) -> None:
    world.retain(3)
    world.storage.delete("7/1/3", 1)
    assert world.says(held=True) == []


def test_sources_that_lose_nothing_are_not_asked(world: World) -> None:
    watch = LogRetentionMonitor(world.store, world.storage, ORDER, SystemClock())
    watch.find(job(world.place, "FakeSource"), [world.progress])
    assert watch.lanes == []


def test_a_job_is_as_good_as_its_worst_source() -> None:
    good, low = (
        LogRetentionMetric(source="a"),
        LogRetentionMetric(source="b", level=RunwayLevel.LOW, checkpoint=4, seconds_left=30),
    )
    lower, gone = (
        replace(low, source="c", seconds_left=3),
        replace(low, source="d", level=RunwayLevel.GONE, seconds_left=None, reason="purged"),
    )
    assert outlook([]) == outlook([good]) == LogRetentionStatus()
    assert outlook([good, low, lower]) == LogRetentionStatus(
        RunwayLevel.LOW, "c will not hold checkpoint 4 for long: 3 s left"
    )
    assert outlook([lower, gone, good]) == LogRetentionStatus(
        RunwayLevel.GONE, "d does not hold checkpoint 4 any more: purged"
    )
