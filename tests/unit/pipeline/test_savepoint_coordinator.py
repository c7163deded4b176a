"""A driver's part in savepoints: choosing, copying and sealing, and what is kept for them."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.savepoints import Savepoints
from tidegate.clock import SystemClock
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import Fenced
from tidegate.model.job import BlockKind, JobEnv
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import (
    PIPELINES,
    SAVEPOINTS,
    CheckpointRef,
    JobRecord,
    PipelineState,
    PipelineStatus,
    SavepointRequest,
    SavepointStatus,
)
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.saved_plan import operators_digest, plan_document
from tidegate.pipeline.savepoints import SavepointCoordinator
from tidegate.store.base import Put
from tidegate.store.open import open_store

SOURCE = "Source[0]-FakeSource"


def plan_of(**options: object) -> Plan:
    action = Action(
        operator=SOURCE, label=SOURCE, kind=BlockKind.SOURCE, plugin="FakeSource", options=options
    )
    return Plan(
        job_name="j",
        env=JobEnv(),
        pipelines=(PipelinePlan(id=1, actions=(action,)), PipelinePlan(id=2, actions=(action,))),
    )


JOB = JobRecord(job_id=7, name="j", initialization_ms=5, lineage="7-a", plan=plan_of())


class Pipelines:
    """Two pipelines of a job that run in one driver, on a disk of their own."""

    def __init__(self, root: Path) -> None:
        self.store = open_store("memory:")
        self.savepoints = Savepoints(root)
        self.coordinator = SavepointCoordinator(self.store, JOB, self.savepoints, SystemClock())
        self.ledgers = {}
        for number in (1, 2):
            self.put(PipelineState(job_id=7, pipeline=number, lineage="7-a", generation=1))
            self.ledgers[number] = self.ledger(number)

    def ledger(self, pipeline: int, generation: int = 1) -> Ledger:
        ledger = Ledger(
            self.store, 7, pipeline, generation, clock=SystemClock(), abandon=threading.Event()
        )
        ledger.load()
        return ledger

    def put(self, state: PipelineState) -> None:
        self.store.transact([], [Put(PIPELINES, f"7/{state.pipeline}", to_document(state))])

    def state(self, pipeline: int) -> PipelineState:
        entry = self.store.get(PIPELINES, f"7/{pipeline}")
        assert entry is not None
        return from_document(PipelineState, entry.value)

    def checkpoint(
        self, pipeline: int, number: int, status: PipelineStatus = PipelineStatus.RUNNING
    ) -> CheckpointRef:
        """One more, the only one that is retained."""
        manifest = Manifest(
            job_id=7,
            pipeline=pipeline,
            checkpoint=number,
            lineage="7-a",
            generation=1,
            begun_ms=1,
            files={},
        )
        path = self.savepoints.storage.publish(
            manifest, {SOURCE: {"offset": number}, "Sink[0]": {"state": None}}
        ).path
        ref = CheckpointRef(checkpoint=number, path=path, generation=1, begun_ms=1, completed_ms=2)
        self.put(
            replace(
                self.state(pipeline), retained=(ref,), next_checkpoint=number + 1, status=status
            )
        )
        self.ledgers[pipeline].load()
        return ref

    def ask(self, *, stop: bool = False, initialization_ms: int = 5, id: str = "100") -> None:
        request = SavepointRequest(
            job_id=7, initialization_ms=initialization_ms, id=id, stop=stop, asked_ms=100
        )
        self.store.transact([], [Put(SAVEPOINTS, "7", to_document(request))])
        self.coordinator.step()

    def request(self) -> SavepointRequest:
        entry = self.store.get(SAVEPOINTS, "7")
        assert entry is not None
        return from_document(SavepointRequest, entry.value)


@pytest.fixture
def two(tmp_path: Path) -> Pipelines:
    return Pipelines(tmp_path)


def test_the_last_part_seals_the_savepoint(two: Pipelines) -> None:
    two.checkpoint(1, 3)
    two.checkpoint(2, 8)
    two.ask()
    two.coordinator.serve(two.ledgers[2])
    assert (
        two.request().status,
        two.savepoints.list(),
        two.coordinator.part_missing(two.state(1)),
    ) == (
        SavepointStatus.WANTED,
        (),
        True,
    )
    two.coordinator.serve(two.ledgers[1])
    assert (two.request().status, two.request().path) == (SavepointStatus.DONE, "savepoint/7/100")
    (made,) = two.savepoints.list()
    assert {pipeline: point.checkpoint for pipeline, point in made.pipelines.items()} == {
        1: 3,
        2: 8,
    }
    assert two.savepoints.read(made.path) == made
    assert (made.name, made.lineage, made.made_ms, made.operators) == (
        "j",
        "7-a",
        100,
        operators_digest(JOB.plan),
    )


def test_with_a_stop_pipelines_wait_for_each_other(
    two: Pipelines,
) -> None:
    two.checkpoint(1, 3)
    two.checkpoint(2, 8)
    two.ask(stop=True)
    two.coordinator.serve(two.ledgers[1])
    assert (
        two.coordinator.must_wait(two.state(1)),
        two.coordinator.must_wait(two.state(2)),
        two.coordinator.ends_job,
    ) == (
        True,
        False,
        False,
    )
    two.coordinator.serve(two.ledgers[2])
    assert (two.coordinator.must_wait(two.state(1)), two.coordinator.ends_job) == (False, True)


def test_a_finished_pipeline_takes_part_with_its_completed_point(two: Pipelines) -> None:
    two.checkpoint(1, 3, PipelineStatus.FINISHED)
    two.checkpoint(2, 8)
    two.ask()
    two.coordinator.serve(two.ledgers[2])
    assert [point.checkpoint for point in two.savepoints.list()[0].pipelines.values()] == [3, 8]


def test_the_last_pipeline_to_finish_seals_the_savepoint(two: Pipelines) -> None:
    two.checkpoint(2, 8)
    two.ask()
    two.coordinator.serve(two.ledgers[2])
    two.checkpoint(1, 3, PipelineStatus.FINISHED)
    two.coordinator.serve(two.ledgers[1])
    assert two.request().status is SavepointStatus.DONE


def test_a_pipeline_without_a_checkpoint_keeps_the_savepoint_open(two: Pipelines) -> None:
    two.checkpoint(1, 3)
    two.ask()
    for ledger in two.ledgers.values():
        two.coordinator.serve(ledger)
    assert (two.request().status, two.state(2).savepoint) == (SavepointStatus.WANTED, None)


def test_the_successor_copies_the_checkpoint_that_was_chosen(two: Pipelines) -> None:
    chosen = two.checkpoint(1, 3)
    two.checkpoint(2, 8)
    two.ask()
    broken = Savepoints(two.savepoints.files)
    broken.copy = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]  # as a kill between the choice and the copy
    two.coordinator.savepoints = broken
    with pytest.raises(KeyboardInterrupt):
        two.coordinator.serve(two.ledgers[1])
    part = two.state(1).savepoint
    assert part is not None
    assert (part.checkpoint, part.copied) == (3, False)
    two.coordinator.savepoints = two.savepoints
    newer = two.checkpoint(1, 4)
    two.put(replace(two.state(1), retained=(chosen, newer)))
    for ledger in (two.ledger(1), two.ledgers[2]):
        two.coordinator.serve(ledger)
    assert two.savepoints.list()[0].pipelines[1].checkpoint == 3


def test_a_failed_copy_is_recorded_and_the_job_continues(two: Pipelines, tmp_path: Path) -> None:
    path = two.checkpoint(1, 3).path
    (tmp_path / path / "_manifest.json").unlink()
    two.ask(stop=True)
    two.coordinator.serve(two.ledgers[1])
    assert two.request().status is SavepointStatus.FAILED
    assert two.request().reason.startswith("pipeline 1: checkpoint ")
    assert (two.coordinator.requested, two.coordinator.ends_job) == (None, False)


def test_a_superseded_generation_records_nothing(two: Pipelines) -> None:
    two.checkpoint(1, 3, PipelineStatus.FINISHED)
    two.checkpoint(2, 8)
    two.ask()
    two.put(replace(two.state(2), generation=2))
    with pytest.raises(Fenced):
        two.coordinator.serve(two.ledgers[2])
    assert (two.request().status, two.savepoints.list()) == (SavepointStatus.WANTED, ())


def test_a_request_of_another_incarnation_is_ignored(two: Pipelines) -> None:
    two.ask(initialization_ms=4)
    assert (two.coordinator.requested, two.coordinator.ends_job) == (None, False)


def test_state_that_savepoints_need_is_kept_until_they_are_deleted(two: Pipelines) -> None:
    two.checkpoint(1, 3)
    two.checkpoint(2, 8)
    two.ask()
    for ledger in two.ledgers.values():
        two.coordinator.serve(ledger)
    retained = (two.checkpoint(1, 6),)
    assert two.coordinator.retained_points(1, retained) == {3: {SOURCE: 3}}
    assert two.coordinator.retained_points(1, (replace(retained[0], checkpoint=2),)) == {}
    two.savepoints.delete(two.savepoints.list()[0])
    two.ask(id="200")
    assert two.coordinator.retained_points(1, retained) == {}


def test_an_unlistable_storage_releases_nothing(
    two: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise PermissionError(str(tmp_path))

    monkeypatch.setattr(two.savepoints, "list", refuse)
    assert two.coordinator.retained_points(1, (two.checkpoint(1, 6),)) is None


def test_the_plan_in_a_savepoint_has_no_secrets() -> None:
    plan = plan_of(
        url="jdbc:x://me:hush@host/db?password=hush",
        password="hush",
        catalog={"s3.access-key": "hush", "uri": "u"},
        primary_keys=["id"],
    )
    document = plan_document(plan)
    assert "hush" not in str(document)
    assert document["pipelines"][0]["actions"][0]["options"]["primary_keys"] == ["id"]
    assert operators_digest(plan) == operators_digest(plan_of())
