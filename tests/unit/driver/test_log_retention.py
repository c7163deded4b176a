"""How long sources keep the log that the oldest restore point needs.

It is queried, becomes part of the metrics, and is logged when it becomes short.
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
    RetentionLevel,
    log_retention_status,
)
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import PIPELINES, CheckpointRef, JobRecord, PipelineState
from tidegate.pipeline.progress import PipelineProgress
from tidegate.store.base import Put, Store
from tidegate.store.open import open_store

SPEC = DriverSpec(
    home="",
    job_id=7,
    generation=1,
    store_url="",
    checkpoints_root="",
    log_retention_warning_ms=60_000,
)
SOURCE = "Source[0]-Chaos"


def job(directory: Path, plugin: str = "Chaos") -> JobRecord:
    action = Action(
        operator=SOURCE,
        label=SOURCE,
        kind=BlockKind.SOURCE,
        plugin=plugin,
        options={"outside.path": str(directory), "row.num": 5},
    )
    plan = Plan(job_name="j", env=JobEnv(), pipelines=(PipelinePlan(id=1, actions=(action,)),))
    return JobRecord(job_id=7, name="j", initialization_ms=1, lineage="l", plan=plan)


class Scenario:
    """A driver with one source, whose answers the test writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = CheckpointStorage(directory / "checkpoints")
        self.progress = PipelineProgress(1, 1)
        self.store: Store = open_store("memory:")
        self.put(
            PipelineState(
                job_id=7, pipeline=1, lineage="l", generation=1, initial={SOURCE: {"at": 0}}
            )
        )
        self.monitor = LogRetentionMonitor(self.store, self.storage, SPEC, SystemClock())
        self.monitor.find(job(directory), [self.progress])

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

    def answer(self, **retention: object) -> list[LogRetentionMetric]:
        (self.directory / "runway").write_text(json.dumps(retention))
        self.monitor.step(self.monitor.pipelines[0])
        return list(self.progress.read().log_retention)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ({"held": True}, RetentionLevel.OK),
        ({"held": True, "seconds_left": 61.0, "bytes_left": 5}, RetentionLevel.OK),
        ({"held": True, "seconds_left": 59.0}, RetentionLevel.LOW),
        ({"held": True, "low": True}, RetentionLevel.LOW),
        ({"held": False, "reason": "purged"}, RetentionLevel.GONE),
    ],
)
def test_the_answer_of_a_source_becomes_a_metric(
    scenario: Scenario, answer: dict[str, object], level: RetentionLevel
) -> None:
    [metric] = scenario.answer(**answer)
    assert (metric.source, metric.level, metric.checkpoint, metric.reason) == (
        SOURCE,
        level,
        0,
        answer.get("reason", ""),
    )
    assert (metric.seconds_left, metric.bytes_left) == (
        answer.get("seconds_left"),
        answer.get("bytes_left"),
    )


def test_the_oldest_restore_point_is_checked(scenario: Scenario) -> None:
    scenario.retain(3, 4)
    assert [metric.checkpoint for metric in scenario.answer(held=True)] == [3]
    scenario.retain(4, 5)
    assert [metric.checkpoint for metric in scenario.answer(held=True)] == [4]


def test_a_worse_level_is_logged_once(scenario: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tidegate.driver"):
        for _ in range(3):
            scenario.answer(held=True, seconds_left=5, reason="binlog.000007 is about to be purged")
        scenario.answer(held=False, reason="binlog.000007 was purged")
    assert [record.message for record in caplog.records] == [
        "log_retention_low",
        "log_retention_lost",
    ]
    assert (
        "will not hold its beginning for long: 5 s left, binlog.000007 is about to be purged"
        in vars(caplog.records[0])["why"]
    )


def test_a_failed_query_keeps_the_last_answer(scenario: Scenario) -> None:
    before = scenario.answer(held=True, seconds_left=5)
    (scenario.directory / "runway").write_text("{")
    scenario.monitor.step(scenario.monitor.pipelines[0])
    assert list(scenario.progress.read().log_retention) == before


def test_an_unreadable_storage_is_ignored(scenario: Scenario) -> None:
    scenario.retain(3)
    scenario.storage.delete("7/1/3", 1)
    assert scenario.answer(held=True) == []


def test_sources_that_lose_nothing_are_not_queried(scenario: Scenario) -> None:
    monitor = LogRetentionMonitor(scenario.store, scenario.storage, SPEC, SystemClock())
    monitor.find(job(scenario.directory, "FakeSource"), [scenario.progress])
    assert monitor.pipelines == []


def test_the_status_of_a_job_is_that_of_its_worst_source() -> None:
    good, low = (
        LogRetentionMetric(source="a"),
        LogRetentionMetric(source="b", level=RetentionLevel.LOW, checkpoint=4, seconds_left=30),
    )
    lower, gone = (
        replace(low, source="c", seconds_left=3),
        replace(low, source="d", level=RetentionLevel.GONE, seconds_left=None, reason="purged"),
    )
    assert log_retention_status([]) == log_retention_status([good]) == LogRetentionStatus()
    assert log_retention_status([good, low, lower]) == LogRetentionStatus(
        RetentionLevel.LOW, "c will not hold checkpoint 4 for long: 3 s left"
    )
    assert log_retention_status([lower, gone, good]) == LogRetentionStatus(
        RetentionLevel.GONE, "d does not hold checkpoint 4 any more: purged"
    )
