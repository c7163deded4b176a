"""Views of jobs, made from what matters in a test."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidegate.lifecycle.observation import DriverSupervision, JobObservation, LifecycleLimits
from tidegate.model.job import JobEnv
from tidegate.model.plan import PipelinePlan, Plan
from tidegate.model.records import (
    Assignment,
    CheckpointKind,
    CheckpointRef,
    DesiredState,
    DriverCommand,
    DriverEnd,
    DriverRecord,
    Failure,
    JobIntent,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
    ProcessRef,
    SavepointRequest,
    SavepointStatus,
)

JOB, GENERATION, NOW_MS, STARTED_MS = 7, 3, 1_000_000, 900_000


@dataclass(frozen=True)
class Make:
    """Records and views with everything filled in that a test does not name."""

    generation = GENERATION
    now_ms = NOW_MS

    def record(self, desired: DesiredState = DesiredState.RUN, **env: Any) -> JobRecord:
        plan = Plan(job_name="j", env=JobEnv(**env), pipelines=(PipelinePlan(id=1, actions=()),))
        return JobRecord(
            job_id=JOB,
            name="j",
            initialization_ms=1,
            lineage="l",
            plan=plan,
            intent=JobIntent(desired=desired),
        )

    def process(self, pid: int = 42) -> ProcessRef:
        return ProcessRef(pid=pid, started=1, boot="b", host="h")

    def driver(
        self, end: DriverEnd | int | None = None, generation: int = GENERATION, worker: str = "w"
    ) -> DriverRecord:
        if isinstance(end, int):
            end = DriverEnd(at_ms=NOW_MS, code=end, proof="exit")
        return DriverRecord(
            job_id=JOB,
            generation=generation,
            process=self.process(),
            worker=worker,
            started_ms=STARTED_MS,
            end=end,
        )

    def assignment(self, order: DriverCommand = DriverCommand.RUN, worker: str = "w") -> Assignment:
        return Assignment(
            job_id=JOB, initialization_ms=1, generation=GENERATION, worker=worker, command=order
        )

    def pipeline(
        self, status: PipelineStatus = PipelineStatus.RUNNING, number: int = 1, **fields: Any
    ) -> PipelineState:
        return PipelineState(
            job_id=JOB, pipeline=number, lineage="l", generation=GENERATION, status=status, **fields
        )

    def checkpoint(
        self, generation: int = GENERATION, kind: CheckpointKind = CheckpointKind.CHECKPOINT
    ) -> CheckpointRef:
        return CheckpointRef(
            checkpoint=5,
            path="p",
            kind=kind,
            generation=generation,
            begun_ms=STARTED_MS + 1,
            completed_ms=STARTED_MS + 2,
        )

    def savepoint(
        self,
        status: SavepointStatus = SavepointStatus.WANTED,
        *,
        stop: bool = True,
        reason: str = "",
    ) -> SavepointRequest:
        return SavepointRequest(
            job_id=JOB,
            initialization_ms=1,
            id="9",
            stop=stop,
            asked_ms=1,
            status=status,
            reason=reason,
        )

    def failure(self, message: str = "boom") -> Failure:
        return Failure(at_ms=1, generation=GENERATION, pipeline=1, message=message)

    def view(
        self,
        status: JobStatus,
        desired: DesiredState = DesiredState.RUN,
        *,
        env: dict[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        **fields: Any,
    ) -> JobObservation:
        """A job whose driver lives and is watched, unless the fields say otherwise."""
        about = JobState(job_id=JOB, status=status, generation=GENERATION, **(state or {}))
        alive: dict[str, Any] = {
            "pipelines": (self.pipeline(),),
            "driver": self.driver(),
            "assignment": self.assignment(),
            "supervision": DriverSupervision.ALIVE,
        }
        return JobObservation(
            now_ms=NOW_MS,
            record=self.record(desired, **(env or {})),
            state=about,
            **{**alive, **fields},
        )

    def undriven(
        self, status: JobStatus, desired: DesiredState = DesiredState.RUN, **fields: Any
    ) -> JobObservation:
        """A job without a driver or an assignment, unless the fields say otherwise."""
        nothing: dict[str, Any] = {
            "driver": None,
            "assignment": None,
            "supervision": DriverSupervision.NONE,
            "pipelines": (self.pipeline(PipelineStatus.CREATED),),
        }
        return self.view(status, desired, **{**nothing, **fields})

    def ordered(
        self, view: JobObservation, order: DriverCommand, age_ms: int = 0
    ) -> JobObservation:
        """The same job with an order that was given so long ago."""
        return replace(view, assignment=self.assignment(order), command_age_ms=age_ms)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def limits(make: Make) -> LifecycleLimits:
    return make.view(JobStatus.RUNNING).limits
