"""Fixtures: a server's API on an in-memory store with a manual clock and handmade records."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tidegate.api.app import make_app
from tidegate.api.context import ApiContext, ApiServer
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.config.load import load_text
from tidegate.coordinator.cluster_cache import COORDINATOR, ClusterCache
from tidegate.coordinator.commands import Commands
from tidegate.model.document import to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.plan import Plan
from tidegate.model.records import (
    ASSIGNMENTS,
    JOB_OUTCOMES,
    JOB_STATES,
    LEASES,
    METRICS,
    PIPELINES,
    RUNNING_JOBS,
    WORKERS,
    Assignment,
    CheckpointRef,
    JobOutcome,
    JobRecord,
    JobState,
    JobStatus,
    Lease,
    PipelineMetrics,
    PipelineState,
    ProcessRef,
    WorkerRecord,
)
from tidegate.planner.plan import plan
from tidegate.store.base import Delete, Put
from tidegate.store.open import open_store
from tidegate.testing.faulty_store import Fault, StoreCall, faulty_store

NOW_MS = 1_790_000_000_000
HOCON = """
env {{ job.mode = "{mode}", checkpoint.interval = 2000 {env} }}
source {{ FakeSource {{ plugin_output = "t", row.num = 5, schema {{ table = "db.t", fields {{ id = bigint, name = string }} }} }} }}
sink {{ Console {{ plugin_input = "t" }} }}
"""


class ManualClock:
    """A clock that advances only when a test says so."""

    def __init__(self) -> None:
        self.at_ms = NOW_MS
        self.at_s = 100.0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: threading.Event, _seconds: float) -> bool:
        return event.is_set()

    def advance(self, seconds: float) -> None:
        self.at_ms += round(seconds * 1000)
        self.at_s += seconds


def planned(mode: str = "STREAMING", env: str = "") -> Plan:
    result = plan(load_text(HOCON.format(mode=mode, env=env), "job")).plan
    assert result is not None
    return result


class Caller:
    """Sends requests to an application without a socket."""

    def __init__(self, app: Starlette) -> None:
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        )

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._client.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._client.post(path, **options))

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._client.delete(path, **options))

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()


class Site:
    """An API with its store, and methods to put records there."""

    def __init__(self, tmp_path: Path, settings: EngineSettings) -> None:
        self.clock = ManualClock()
        self.settings = settings
        self.fault = Fault.NONE
        self.solid = open_store("memory:")
        self.store, _ = faulty_store(self.solid, self._choose)
        self.cache = ClusterCache(self.store, self.clock)
        commands = Commands(
            self.store, CheckpointStorage(tmp_path / "checkpoints"), settings, self.clock
        )
        me = ApiServer(id="server-1", address="http://127.0.0.1:8080")
        self.context = ApiContext(
            cache=self.cache,
            commands=commands,
            store=self.store,
            settings=settings,
            clock=self.clock,
            me=me,
        )
        self.app = make_app(self.context)
        self.http = Caller(self.app)

    def _choose(self, _operation: StoreCall) -> Fault:
        return self.fault

    def put(self, map: str, key: object, record: Any) -> None:
        self.solid.transact([], [Put(map, str(key), to_document(record))])

    def take(self, map: str, key: object) -> None:
        self.solid.transact([], [Delete(map, str(key))])

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Send a GET after the server has refreshed its cache."""
        self.context.catch_up()
        return self.http.get(path, **options)

    def running(
        self,
        job_id: int,
        status: JobStatus = JobStatus.RUNNING,
        *,
        name: str = "stream",
        at_ms: int = NOW_MS - 60_000,
        env: str = "",
        **state: Any,
    ) -> None:
        """Add a job that has not ended, and its state."""
        self.put(
            RUNNING_JOBS,
            job_id,
            JobRecord(
                job_id=job_id,
                name=name,
                initialization_ms=at_ms,
                lineage="l",
                plan=planned(env=env),
            ),
        )
        entered = {JobStatus.RUNNING.value: at_ms + 1000}
        self.put(
            JOB_STATES,
            job_id,
            JobState(
                **{
                    "job_id": job_id,
                    "status": status,
                    "initialization_ms": at_ms,
                    "generation": 1,
                    "entered": entered,
                    **state,
                }
            ),
        )

    def pipeline(
        self, job_id: int, pipeline: int = 1, *, checkpoint: int = 0, age_s: float = 0, **more: Any
    ) -> None:
        """Add a pipeline with a checkpoint of this age."""
        completed_ms = NOW_MS - round(age_s * 1000)
        ref = CheckpointRef(
            checkpoint=checkpoint,
            path="p",
            generation=1,
            begun_ms=completed_ms - 10,
            completed_ms=completed_ms,
        )
        state = PipelineState(
            job_id=job_id,
            pipeline=pipeline,
            lineage="l",
            generation=1,
            retained=(ref,) if checkpoint else (),
            **more,
        )
        self.put(PIPELINES, f"{job_id}/{pipeline}", state)

    def metrics(self, job_id: int, pipeline: int = 1, **values: Any) -> None:
        """Add the metrics that a driver has reported."""
        self.put(
            METRICS,
            f"{job_id}/{pipeline}",
            PipelineMetrics(pipeline=pipeline, generation=1, **values),
        )

    def ended(self, job_id: int, status: JobStatus = JobStatus.FINISHED, **more: Any) -> None:
        """Add a job that has ended, as it is after its terminal transition."""
        values = {
            "name": "batch",
            "initialization_ms": NOW_MS - 5000,
            "finished_ms": NOW_MS - 1000,
            "rows_read": 5,
            "rows_written": 5,
        }
        outcome = JobOutcome(
            **{
                "job_id": job_id,
                "lineage": "l",
                "status": status,
                "plan": planned("BATCH"),
                **values,
                **more,
            }
        )
        self.put(JOB_OUTCOMES, job_id, outcome)
        self.put(
            JOB_STATES,
            job_id,
            JobState(job_id=job_id, status=status, initialization_ms=outcome.initialization_ms),
        )

    def worker(
        self,
        name: str,
        *,
        slots: int = 4,
        tags: dict[str, str] | None = None,
        holds: tuple[int, ...] = (),
    ) -> None:
        """Add a worker, with the jobs that are assigned to it."""
        process = ProcessRef(pid=1, started=1, boot="b", host="h")
        self.put(
            WORKERS,
            name,
            WorkerRecord(
                id=name, host="h", boot="b", process=process, slots=slots, tags=tags or {}
            ),
        )
        for job_id in holds:
            self.put(
                ASSIGNMENTS,
                job_id,
                Assignment(job_id=job_id, initialization_ms=0, generation=1, worker=name),
            )

    def leader(self, name: str = "server-1") -> None:
        self.put(LEASES, COORDINATOR, Lease(holder=name, term=3, address="http://127.0.0.1:8080"))


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings()


@pytest.fixture
def site(tmp_path: Path, settings: EngineSettings) -> Iterator[Site]:
    made = Site(tmp_path, settings)
    yield made
    made.http.close()


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[[EngineSettings], Site]]:
    made: list[Site] = []

    def make(settings: EngineSettings) -> Site:
        made.append(Site(tmp_path, settings))
        return made[-1]

    yield make
    for site in made:
        site.http.close()


@pytest.fixture
def guarded_site(tmp_path: Path) -> Iterator[Site]:
    """A site with basic authentication, below a context path."""
    settings = EngineSettings()
    made = Site(
        tmp_path,
        replace(
            settings,
            http=replace(
                settings.http,
                basic_auth=True,
                username="ann",
                password="sesame",
                context_path="/flow",
            ),
        ),
    )
    yield made
    made.http.close()
