"""What a driver does, from its first write to its exit code. Called by __main__ with an engine: Spark, or the plain one of the test kit."""

import argparse
import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.driver.background import BackgroundEngine
from tidegate.driver.metrics import MetricsWriter
from tidegate.failpoint import failpoint
from tidegate.home import Home
from tidegate.logs import log_to
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import Fenced, TerminalError
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import DRIVERS, JOBS, PIPELINES, STATES, DriverRecord, JobRecord, JobState, PipelineState, PipelineStatus
from tidegate.pipeline.attempts import run_pipeline
from tidegate.pipeline.clock import SystemClock
from tidegate.pipeline.engine import Engine, EngineGone
from tidegate.pipeline.ledger import Ledger, pipeline_key
from tidegate.pipeline.loop import Surroundings
from tidegate.pipeline.meter import Meter
from tidegate.runner.exits import DriverExit
from tidegate.runner.process import reference, session_members
from tidegate.store.base import Check, Put, Store
from tidegate.store.errors import Conflict
from tidegate.store.open import open_store

LOG = logging.getLogger("tidegate.driver")
RETAINED_MAX = 3
STREAMING_INTERVAL_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """What this process was started for."""

    home: Home
    job_id: int
    generation: int
    worker: str = ""
    now_ms: int = 0


EngineFactory = Callable[[Assignment, JobRecord], Engine]


def main(arguments: Sequence[str], engine_factory: EngineFactory) -> int:
    """Run one generation; the exit code says how it ended."""
    assignment = parse(arguments)
    log_to(assignment.home.logs(assignment.job_id) / "driver.log")
    store = open_store(assignment.home.store_url)
    try:
        register(store, assignment)
        entry = store.get(JOBS, str(assignment.job_id))
        if entry is None:
            raise TerminalError(f"job {assignment.job_id} is not in the store")
        job = from_document(JobRecord, entry.value, f"job {assignment.job_id}")
        driver = Driver(assignment, store, job, engine_factory)
        driver.listen()
        return driver.run()
    except Fenced as error:
        LOG.warning("fenced", extra={"job_id": assignment.job_id, "generation": assignment.generation, "why": str(error)})
        return DriverExit.FENCED
    except EngineGone as error:
        print(error, file=sys.stderr)
        return DriverExit.ENGINE_GONE
    finally:
        store.close()


def parse(arguments: Sequence[str]) -> Assignment:
    """The command line of a driver."""
    parser = argparse.ArgumentParser(prog="python -m tidegate.driver")
    parser.add_argument("--home", required=True, type=Path)
    parser.add_argument("--job-id", required=True, type=int)
    parser.add_argument("--generation", required=True, type=int)
    given = parser.parse_args(arguments)
    return Assignment(home=Home(given.home), job_id=given.job_id, generation=given.generation)


def register(store: Store, assignment: Assignment) -> None:
    """Put this process's name on record: a generation that is no longer the current one is refused, and so is a second process for the same one."""
    key = str(assignment.job_id)
    me = reference(os.getpid())
    mine = DriverRecord(job_id=assignment.job_id, generation=assignment.generation, process=me, worker=assignment.worker, started_ms=assignment.now_ms)
    while True:
        state, driver = store.get(STATES, key), store.get(DRIVERS, key)
        if state is None:
            raise TerminalError(f"job {assignment.job_id} is not in the store")
        current = from_document(JobState, state.value, f"state of job {key}")
        before = from_document(DriverRecord, driver.value, f"driver of job {key}") if driver else None
        if current.generation != assignment.generation or current.status.terminal:
            raise Fenced(f"job {key}", assignment.generation, current.generation)
        if before is not None and before.generation >= assignment.generation and before.process != me:
            raise Fenced(f"job {key}, which has a driver already,", assignment.generation, before.generation)
        failpoint("driver.register.before")
        try:
            store.transact([Check(STATES, key, state.version), Check(DRIVERS, key, driver.version if driver else 0)], [Put(DRIVERS, key, to_document(mine))])
        except Conflict:
            continue
        failpoint("driver.register.after")
        return


class Driver:
    """The threads of one generation: a loop for each pipeline, the metrics writer, the watch on the leader."""

    def __init__(self, assignment: Assignment, store: Store, job: JobRecord, engine_factory: EngineFactory) -> None:
        self.assignment, self.store, self.job = assignment, store, job
        self.stop, self.abandon, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.engine = BackgroundEngine(lambda: engine_factory(assignment, job))
        self.clock = SystemClock()
        self.meters: list[Meter] = []

    def listen(self) -> None:
        """SIGTERM and SIGINT ask for a stop at a checkpoint; the end of the leader ends everything."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        threading.Thread(target=end_with_leader, name="leader-watch", daemon=True).start()

    def run(self) -> int:
        """Until every pipeline has ended."""
        work = self.assignment.home.work(self.job.job_id, self.assignment.generation)
        work.mkdir(parents=True, exist_ok=True)
        self.engine.start()
        slots = threading.Semaphore(self.job.plan.env.pipeline_concurrency or len(self.job.plan.pipelines))
        runs = [self._start(plan, slots) for plan in self.job.plan.pipelines if not self._finished(plan)]
        metrics = MetricsWriter(self.store, self.job.job_id, self.meters, self.clock)
        metrics.start()
        try:
            return self._await(runs)
        finally:
            metrics.stop()
            try:
                self.engine.close()
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def _finished(self, plan: PipelinePlan) -> bool:
        entry = self.store.get(PIPELINES, pipeline_key(self.job.job_id, plan.id))
        return entry is not None and from_document(PipelineState, entry.value).status is PipelineStatus.FINISHED

    def _start(self, plan: PipelinePlan, slots: threading.Semaphore) -> "Future[PipelineStatus]":
        meter = Meter(plan.id, self.assignment.generation)
        self.meters.append(meter)
        ledger = Ledger(self.store, self.job.job_id, plan.id, self.assignment.generation, clock=self.clock, abandon=self.abandon)
        around = Surroundings(
            job=self.job,
            storage=CheckpointStorage(self.assignment.home.checkpoints),
            engine=self.engine,
            clock=self.clock,
            stop=self.stop,
            retained_max=self.job.plan.env.checkpoints_retained_max or RETAINED_MAX,
            interval_s=STREAMING_INTERVAL_S,
        )
        future: Future[PipelineStatus] = Future()

        def work() -> None:
            try:
                with slots:
                    future.set_result(run_pipeline(around, plan, ledger, meter))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name=f"pipeline-{plan.id}", daemon=True).start()
        return future

    def _await(self, runs: "Sequence[Future[PipelineStatus]]") -> int:
        """The main thread waits and handles signals. One pipeline that fails stops the others at their next checkpoint."""
        for run in runs:
            run.add_done_callback(self._one_ended)
        while not all(run.done() for run in runs):
            self.ended.wait(0.2)
            self.ended.clear()
        failures = [error for run in runs if (error := run.exception()) is not None]
        fenced = next((error for error in failures if isinstance(error, Fenced)), None)
        if fenced:
            raise fenced
        if failures:
            raise failures[0]
        return DriverExit.ENDED

    def _one_ended(self, run: "Future[PipelineStatus]") -> None:
        if run.exception() is not None or run.result() is PipelineStatus.FAILED:
            self.stop.set()
        self.ended.set()


def end_with_leader() -> None:
    """Wait until standard input closes; then SIGKILL this whole session: nobody leads it any more."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            continue
    me = reference(os.getpid())
    for pid in session_members(me):
        if pid != me.pid:
            os.kill(pid, signal.SIGKILL)
    os.kill(me.pid, signal.SIGKILL)
