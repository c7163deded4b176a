"""A whole run of a job in this process: taken up, driven and ended as `tidegate run` does, with any
engine. For tests that share one JVM or need none.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.checkpoints.savepoints import Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli.job_file import load_plan
from tidegate.clock import SystemClock
from tidegate.coordinator.claim import Claim, Claimant, Submission
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.restore.options import RestoreOptions, StartMode, parse_changes
from tidegate.coordinator.restore.sink_checks import ask_recorded
from tidegate.coordinator.savepoint_requests import request_of, request_savepoint
from tidegate.coordinator.terminal_transaction import OwnedGeneration, end_job, status_of
from tidegate.driver.main import Driver
from tidegate.driver.registration import register
from tidegate.home import Home
from tidegate.model.engine import DriverSpec, EngineSettings
from tidegate.model.problem import Strictness
from tidegate.model.records import JobOutcome, JobStatus, SavepointStatus
from tidegate.model.restore import OnSinkLost
from tidegate.pipeline.engine import Batch, Engine, TaskCount, Written
from tidegate.pipeline.graph import Graph
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.process import process_ref
from tidegate.store.base import Store
from tidegate.store.open import open_store


class Shared:
    """An engine that many runs use: a driver that ends does not close it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def run(self, graph: Graph, batch: Batch) -> Written:
        return self.engine.run(graph, batch)

    def tasks(self, pipeline: int) -> TaskCount:
        return self.engine.tasks(pipeline)

    def cancel(self, pipeline: int) -> None:
        self.engine.cancel(pipeline)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run began with, and how it ended."""

    claim: Claim
    outcome: JobOutcome


def run_in_process(
    file: str,
    home: Home,
    engine: Engine,
    *,
    job_id: int = 7,
    restore: str = "auto",
    variables: Sequence[str] = (),
    stop_at_rows: int | None = None,
    compaction_threshold: int = 10_000,
    restore_from: int | None = None,
    save: bool = False,
    skip_files: Sequence[str] = (),
    accept_files: Sequence[str] = (),
    accept_changes: Sequence[str] = (),
    on_sink_lost: str = "fail",
) -> Ran:
    """Run a job file until it has ended, or has been stopped at the checkpoint after `stop_at_rows`
    rows. `restore_from`: take another job's state. `save`: with its first savepoint, where there is
    none yet.
    """
    clock = SystemClock()
    home.create()
    plan = load_plan(file, variables, strict=Strictness.NORMAL)
    store, storage = (
        open_store(home.store_url, compaction_threshold=compaction_threshold),
        CheckpointStorage(home.checkpoints),
    )
    try:
        submission = Submission(
            job_id=job_id,
            name=plan.job_name,
            plan=plan,
            file=file,
            options=replace(
                RestoreOptions.parse(restore).from_job(restore_from, job_id),
                skip_files=tuple(skip_files),
                accept_files=tuple(accept_files),
                accept_changes=parse_changes(accept_changes),
                on_sink_lost=OnSinkLost(on_sink_lost),
            ),
            me=process_ref(os.getpid()),
            now_ms=clock.now_ms(),
            ask_sink=ask_recorded,
        )
        claim = Claimant(store, storage, home).claim(submission)
        there = Savepoints(storage.files)
        if save and not there.list(job_id):
            request_savepoint(store, there, clock, job_id, stop=True)
        if claim.start is not StartMode.NOTHING:
            _drive(
                store,
                driver_spec(EngineSettings(), home, job_id=job_id, generation=claim.generation),
                claim,
                engine,
                stop_at_rows,
            )
        snapshot = read_job(store, job_id)
        request = request_of(snapshot)
        status = status_of(snapshot) or JobStatus.FAILED
        if (
            status is JobStatus.CANCELED
            and request is not None
            and request.value.status is SavepointStatus.DONE
        ):
            status = JobStatus.SAVEPOINT_DONE
        outcome = end_job(
            store, storage, OwnedGeneration(job_id, claim.generation), status, clock.now_ms()
        )
        store.compact()
        return Ran(claim, outcome)
    finally:
        store.close()


def _drive(
    store: Store, order: DriverSpec, claim: Claim, engine: Engine, stop_at_rows: int | None
) -> None:
    register(store, order, SystemClock().now_ms())
    driver = Driver(order, store, claim.job, lambda *_: engine)
    if stop_at_rows is not None:
        threading.Thread(target=_stop_at, args=(driver, stop_at_rows), daemon=True).start()
    driver.run()


def _stop_at(driver: Driver, rows: int) -> None:
    """Ask for a stop once so many rows are committed."""
    while (
        sum(p.value.rows_read for p in read_job(driver.store, driver.job.job_id).pipelines) < rows
    ):
        time.sleep(0.005)
    driver.stop.set()
