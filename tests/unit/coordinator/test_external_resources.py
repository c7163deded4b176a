"""External resources: recorded with the job, refused to others, dropped when not needed."""

from pathlib import Path

import pytest
from coordinator_parts import OPERATOR, Installation

from tidegate.connectors.chaos import external
from tidegate.coordinator.cleanup import carry_out_cleanup
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.external_resources import ResourceTaken, drop_unneeded, read
from tidegate.coordinator.history_expiry import expire
from tidegate.coordinator.housekeeping import Housekeeper
from tidegate.driver.resources import DriverResources
from tidegate.home import Home
from tidegate.model.errors import Fenced
from tidegate.model.external_resources import RESOURCES, ResourceRecord
from tidegate.model.job import BlockKind, JobEnv
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import JOB_STATES, PENDING_CLEANUPS, JobRecord, JobStatus
from tidegate.plugin.contract import Resource
from tidegate.store.base import Delete
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine


class World:
    """An installation, and a server outside."""

    def __init__(self, place: Path) -> None:
        self.here = Installation(place)
        self.server = place / "server"
        self.server.mkdir()

    def plan(self, *slots: str) -> Plan:
        actions = [
            Action(
                operator=f"{OPERATOR}{n or ''}",
                label="",
                kind=BlockKind.SOURCE,
                plugin="Chaos",
                options={
                    "outside.path": str(self.server),
                    "outside.slot": slot,
                    "password": "hunter2",
                },
            )
            for n, slot in enumerate(slots)
        ]
        return Plan(
            job_name="a job", env=JobEnv(), pipelines=(PipelinePlan(id=1, actions=tuple(actions)),)
        )

    def submit(
        self,
        job_id: int = 7,
        restore: str | None = None,
        *,
        slot: str = "one",
        source: int | None = None,
    ) -> JobRecord:
        return self.here.submit(
            job_id, restore, of=self.plan(slot), name=f"job {job_id}", source=source
        )

    def book(self, job: JobRecord, generation: int = 0) -> DriverResources:
        return DriverResources(
            self.here.store,
            job,
            generation,
            job.plan.pipelines[0].actions[0],
            self.here.clock,
            lambda failures: failures < 3,
        )

    def create(self, kind: str, name: str) -> Resource:
        external.create(kind, name, str(self.server))
        return Resource(kind=kind, name=name, location=str(self.server))

    def records(self) -> list[ResourceRecord]:
        return [read(entry) for entry in self.here.store.list(RESOURCES)]

    def owners(self) -> list[tuple[str, int]]:
        return sorted((record.name, record.job_id) for record in self.records())

    def files(self) -> list[str]:
        return sorted(file.name for file in self.server.iterdir())

    def clean_up(self) -> None:
        carry_out_cleanup(self.here.store, self.here.storage, 7)

    def drop(self) -> int:
        return drop_unneeded(self.here.store, self.here.clock.now_ms())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_submit_asks_only_for_its_own_things_and_a_leader_only_about_those_of_no_running_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in range(1, 20):
        world.submit(job_id, slot=f"slot-{job_id}")
    listed: list[str] = []
    scan = world.here.store.backend.scan
    monkeypatch.setattr(
        world.here.store.backend,
        "scan",
        lambda map, prefix: listed.append(map) or scan(map, prefix),
    )
    world.submit(20, slot="slot-20")
    assert RESOURCES not in listed
    world.here.ended(JobStatus.FINISHED, 3)
    cache = ClusterCache(world.here.store, world.here.clock)
    cache.refresh()
    housekeeper = Housekeeper(cache, world.here.storage, world.here.settings, world.here.clock)
    ownerless = housekeeper._ownerless(world.here.clock.now_ms())
    assert [
        read(entry).name for key in ownerless if (entry := world.here.store.get(RESOURCES, key))
    ] == ["slot-3"]
    world.here.store.transact([], [Delete(PENDING_CLEANUPS, "3"), Delete(JOB_STATES, "3")])
    assert drop_unneeded(world.here.store, world.here.clock.now_ms(), among=ownerless) == 1
    assert ("slot-3", 3) not in world.owners()


def test_what_the_options_tell_is_recorded_with_the_job_and_refused_to_others(world: World) -> None:
    world.submit(7)
    assert world.owners() == [("one", 7)]
    with pytest.raises(
        ResourceTaken,
        match=(
            r"chaos slot 'one' at .*server is used by job 7 \(job 7\): use another name, or stop"
            r" that job"
        ),
    ):
        world.submit(8)
    assert world.here.snapshot(8).record is None
    world.submit(8, slot="two")
    assert world.owners() == [("one", 7), ("two", 8)]


def test_two_sources_of_one_job_do_not_share_a_slot(world: World) -> None:
    with pytest.raises(ResourceTaken, match="is used twice in this job"):
        world.here.submit(of=world.plan("one", "one"))


def test_what_turns_out_in_the_driver_is_recorded_once_and_only_by_the_generation_that_runs(
    world: World,
) -> None:
    job = world.submit()
    table = Resource(kind=external.TABLE, name="t", location=str(world.server))
    for _ in range(2):
        world.book(job).record(table)
    assert world.owners() == [("one", 7), ("t", 7)]
    other = world.submit(8, slot="two")
    with pytest.raises(ResourceTaken, match="is used by job 7"):
        world.book(other).record(table)
    with pytest.raises(Fenced):
        world.book(job, generation=5).record(Resource(kind=external.TABLE, name="u", location=""))
    world.book(job).forget(table)
    assert world.owners() == [("one", 7), ("two", 8)]


def test_nothing_of_a_job_that_lives_or_can_be_resumed_is_dropped_and_nobody_else_gets_it(
    world: World,
) -> None:
    job = world.submit()
    world.create(external.SLOT, "one")
    world.book(job).record(world.create(external.TABLE, "t"))
    assert world.drop() == 0
    world.here.checkpoint()
    world.here.ended(JobStatus.CANCELED)
    assert world.drop() == 0
    with pytest.raises(
        ResourceTaken, match="is kept for job 7, which has ended and can be resumed"
    ):
        world.submit(8)
    assert world.files() == ["slot-one", "table-t"]


def test_what_a_job_leaves_that_cannot_be_resumed_is_dropped(world: World) -> None:
    world.submit()
    world.create(external.SLOT, "one")
    world.here.ended(JobStatus.FINISHED)
    with pytest.raises(ResourceTaken, match="will be dropped soon"):
        world.submit(8)
    assert world.drop() == 1
    assert (world.owners(), world.files()) == ([], [])
    world.submit(8)


def test_the_end_of_history_ends_what_was_kept_for_a_restore(world: World) -> None:
    world.submit()
    world.create(external.SLOT, "one")
    world.here.checkpoint()
    world.here.ended(JobStatus.FAILED)
    world.clean_up()
    assert world.drop() == 0
    assert expire(world.here.store, 7, world.here.clock.now_ms(), world.here.clock.now_ms())
    assert world.drop() == 1
    assert world.files() == []


def test_a_restore_takes_along_what_the_earlier_run_had(world: World) -> None:
    job = world.submit()
    world.book(job).record(world.create(external.TABLE, "t"))
    world.here.checkpoint()
    world.here.ended(JobStatus.CANCELED)
    again = world.submit(restore="latest")
    assert {record.initialization_ms for record in world.records()} == {again.initialization_ms}
    assert world.drop() == 0


def test_a_fresh_start_keeps_only_what_it_declares(world: World) -> None:
    job = world.submit()
    world.book(job).record(world.create(external.TABLE, "t"))
    world.here.ended(JobStatus.CANCELED)
    world.clean_up()
    world.submit(restore="fresh")
    assert world.drop() == 1
    assert world.owners() == [("one", 7)]


def test_a_job_that_goes_on_with_the_lineage_of_another_gets_its_slot(world: World) -> None:
    job = world.submit(7)
    world.book(job).record(world.create(external.TABLE, "t"))
    world.here.checkpoint(7)
    world.here.ended(JobStatus.CANCELED)
    world.submit(8, restore="latest", source=7)
    assert world.owners() == [("one", 8), ("t", 8)]


def test_a_drop_that_fails_says_why_without_secrets_and_is_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit()
    world.create(external.SLOT, "one")
    world.here.ended(JobStatus.FINISHED)
    (world.server / "down").touch()
    assert world.drop() == 0
    [record] = world.records()
    assert (record.attempts, record.dropping, "is down" in record.error) == (1, False, True)
    assert "hunter2" not in repr(record)
    (world.server / "down").unlink()
    assert world.drop() == 0, "it is not due yet"
    world.here.clock.ms += 10_000
    monkeypatch.setattr(external, "drop", _says_the_password)
    assert world.drop() == 0
    assert world.records()[0].error == "ValueError: bad password ******"
    monkeypatch.undo()
    world.here.clock.ms += 20_000
    assert world.drop() == 1
    assert world.files() == []


def _says_the_password(*_: object) -> None:
    raise ValueError("bad password hunter2")


def test_a_name_is_not_reused_during_a_drop_and_a_drop_is_repeated_after_a_crash(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit()
    world.here.ended(JobStatus.FINISHED)
    monkeypatch.setattr(external, "drop", _dies)
    with pytest.raises(KeyboardInterrupt):
        world.drop()
    world.clean_up()
    for job_id in (7, 8):
        with pytest.raises(ResourceTaken, match="is being dropped: submit"):
            world.submit(job_id)
    monkeypatch.undo()
    assert world.drop() == 1
    world.submit(8)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_embedded_run_leaves_nothing_outside(tmp_path: Path) -> None:
    job = tmp_path / "job.conf"
    job.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "m", batch.max-rows = 10, checkpoint.interval = 10 }}
source {{ Chaos {{ plugin_output = "t", row.num = 30, outside.path = "{tmp_path / "server"}" }} }}
sink {{ Chaos {{ plugin_input = "t", path = "{tmp_path / "out"}" }} }}"""
    )
    ran = run_in_process(str(job), Home(tmp_path / "home"), PlainEngine())
    assert ran.outcome.status is JobStatus.FINISHED
    assert list((tmp_path / "server").iterdir()) == []
