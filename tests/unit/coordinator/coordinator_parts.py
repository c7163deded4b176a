"""Shared parts of the coordinator tests: a manual clock, a plan, an installation."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.commands import Commands
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.coordinator.restore.options import RestoreOptions
from tidegate.coordinator.terminal_transaction import terminal_transaction
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.job import BlockKind, JobEnv
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import (
    JOB_STATES,
    PIPELINES,
    RUNNING_JOBS,
    CheckpointRef,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
)
from tidegate.store.base import Put
from tidegate.store.open import open_store

OPERATOR = "Source[0]-FakeSource"


class Hands:
    """A clock that moves only on request."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.ms += round(seconds * 1000)
        return event.is_set()


def plan(*, pipelines: int = 1, env: JobEnv | None = None) -> Plan:
    """A plan whose connectors nobody asks."""
    action = Action(
        operator=OPERATOR, label=OPERATOR, kind=BlockKind.SOURCE, plugin="FakeSource", options={}
    )
    parts = tuple(
        PipelinePlan(
            id=n + 1, actions=(replace(action, operator=f"{OPERATOR}-{n}" if n else OPERATOR),)
        )
        for n in range(pipelines)
    )
    return Plan(job_name="a job", env=env or JobEnv(), pipelines=parts)


class Installation:
    """A store, a checkpoint storage, the commands."""

    def __init__(self, place: Path, settings: EngineSettings | None = None) -> None:
        self.clock = Hands()
        self.store = open_store("memory:")
        self.storage = CheckpointStorage(place / "checkpoints")
        self.settings = settings or EngineSettings()
        self.commands = Commands(self.store, self.storage, self.settings, self.clock)

    def submit(
        self,
        job_id: int | None = 7,
        restore: str | None = None,
        *,
        of: Plan | None = None,
        name: str | None = None,
        source: int | None = None,
        **more: Any,
    ) -> JobRecord:
        options = replace(RestoreOptions.parse(restore), **more).from_job(source, job_id)
        return self.commands.submit(
            of or plan(), file="", job_id=job_id, name=name, restore=options
        )

    def snapshot(self, job_id: int = 7) -> JobSnapshot:
        return read_job(self.store, job_id)

    def state(self, job_id: int = 7) -> JobState:
        state = self.snapshot(job_id).state
        assert state is not None
        return state.value

    def pipeline(self, job_id: int = 7, pipeline: int = 1) -> PipelineState:
        entry = self.store.get(PIPELINES, f"{job_id}/{pipeline}")
        assert entry is not None
        return from_document(PipelineState, entry.value)

    def put(self, *records: JobState | JobRecord | PipelineState) -> None:
        """Write records as they are."""
        maps = {JobState: JOB_STATES, JobRecord: RUNNING_JOBS, PipelineState: PIPELINES}
        for record in records:
            key = (
                f"{record.job_id}/{record.pipeline}"
                if isinstance(record, PipelineState)
                else str(record.job_id)
            )
            self.store.transact([], [Put(maps[type(record)], key, to_document(record))])

    def checkpoint(
        self, job_id: int = 7, *, status: PipelineStatus = PipelineStatus.RUNNING
    ) -> CheckpointRef:
        """The pipeline completes one more checkpoint, with everything that belongs to it on disk."""
        state = self.pipeline(job_id)
        number = state.next_checkpoint
        manifest = Manifest(
            job_id=job_id,
            pipeline=1,
            checkpoint=number,
            lineage=state.lineage,
            generation=state.generation,
            begun_ms=0,
            files={},
        )
        published = self.storage.publish(manifest, {OPERATOR: {"offset": number}})
        ref = CheckpointRef(
            checkpoint=number,
            path=published.path,
            generation=state.generation,
            begun_ms=0,
            completed_ms=self.clock.now_ms(),
        )
        self.put(
            replace(
                state,
                status=status,
                initial=state.initial or {OPERATOR: 0},
                retained=(*state.retained, ref),
                next_checkpoint=number + 1,
                checkpoints=state.checkpoints + 1,
            )
        )
        return ref

    def stored(self) -> set[str]:
        """Everything in the store about jobs."""
        return {
            f"{map}/{entry.key}"
            for map in self.store.size_by_map()
            for entry in self.store.list(map)
        }

    def ended(self, status: JobStatus, job_id: int = 7) -> None:
        """The leader has ended the job, as far as the records tell."""
        ending = terminal_transaction(
            self.snapshot(job_id),
            status,
            self.clock.now_ms(),
            due_ms=self.clock.now_ms() + self.settings.state_cleanup_delay_ms,
        )
        self.store.transact(ending.checks, ending.writes)
