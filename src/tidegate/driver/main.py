"""Runs a driver from its spec to its exit code.

Called by __main__ with an engine: Spark, or the plain one of the test kit.
"""

import argparse
import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from tidegate.checkpoints.open import open_files
from tidegate.checkpoints.savepoints import Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import SystemClock
from tidegate.driver.background import BackgroundEngine
from tidegate.driver.commands import CommandWatcher, DriverControl
from tidegate.driver.console import ConsoleLog
from tidegate.driver.log_retention import LogRetentionMonitor
from tidegate.driver.metrics import MetricsWriter
from tidegate.driver.registration import installation_of, register
from tidegate.driver.resources import DriverResources
from tidegate.driver.warm import take_over
from tidegate.logs import log_to
from tidegate.model.document import from_document
from tidegate.model.engine import DriverSpec
from tidegate.model.errors import Fenced, TerminalError, check_same_lineage
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import PIPELINES, RUNNING_JOBS, JobRecord, PipelineState, PipelineStatus
from tidegate.pipeline.attempts import run_pipeline
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.engine import Engine, EngineGone
from tidegate.pipeline.ledger import OUTAGE_PAUSES_S, Ledger, pipeline_key
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.savepoints import SavepointCoordinator
from tidegate.plugin.secret import plan_texts
from tidegate.redact import redact_stderr, register_secrets, secret_texts
from tidegate.retry import backoff, retry
from tidegate.runner import driver_spec, scratch
from tidegate.runner.exits import DriverExit
from tidegate.runner.launch import CONSOLE_LOG
from tidegate.runner.process import end_own_session
from tidegate.spark.cluster import StartState
from tidegate.store.base import OUTAGE_ERRORS, Store
from tidegate.store.open import open_store

LOG = logging.getLogger("tidegate.driver")
STDIN = 0
STORE_PAUSE_S = 0.5
T = TypeVar("T")
EngineFactory = Callable[[DriverSpec, JobRecord], Engine]
WarmUp = Callable[[DriverSpec], EngineFactory]


def main(arguments: Sequence[str], engine_factory: EngineFactory, warm_up: WarmUp) -> int:
    """Run one generation and return the exit code.

    A warm driver first starts its engine from a spec without a job, then waits for the job's spec.
    """
    warm = parse(arguments).warm
    spec = driver_spec.receive(STDIN)
    if spec is not None and warm:
        engine_factory = warm_up(spec)
        spec = take_over(driver_spec.receive(STDIN))
    if spec is None:
        return DriverExit.NO_SPEC
    return drive(spec, engine_factory)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line of a driver.

    Only --warm has an effect. The other options are there for readers of `ps`; the values that
    count are in the spec.
    """
    parser = argparse.ArgumentParser(prog="python -m tidegate.driver")
    parser.add_argument("--job-id", type=int)
    parser.add_argument("--generation", type=int)
    parser.add_argument("--warm", action="store_true")
    return parser.parse_args(arguments)


def drive(spec: DriverSpec, engine_factory: EngineFactory) -> int:
    """Register in the store, run the job, and return the exit code."""
    redact_stderr()
    register_secrets(secret_texts({"store": spec.store_url, **spec.storage_options, **spec.spark}))
    log_to(driver_spec.home_of(spec).logs(spec.job_id) / "driver.log")
    leader = LeaderPipe()
    if not spec.detached:
        leader.start()
    store = retry_outage(
        lambda: open_store(
            spec.store_url, compaction_threshold=spec.compaction_threshold, create=False
        )
    )
    try:
        retry_outage(lambda: register(store, spec, SystemClock().now_ms()))
        job = retry_outage(lambda: job_of(store, spec))
        register_secrets(plan_texts(job.plan))
        driver = Driver(spec, store, job, engine_factory)
        driver.listen(leader)
        return driver.run()
    except Fenced as error:
        LOG.warning(
            "fenced",
            extra={"job_id": spec.job_id, "generation": spec.generation, "why": str(error)},
        )
        return DriverExit.FENCED
    except EngineGone as error:
        print(error, file=sys.stderr)
        return DriverExit.ENGINE_GONE
    finally:
        store.close()


def retry_outage(act: Callable[[], T]) -> T:
    """Repeat `act` while the store is unreachable, because an outage must not end a driver."""
    return retry(act, OUTAGE_ERRORS, backoff([STORE_PAUSE_S]))


def job_of(store: Store, spec: DriverSpec) -> JobRecord:
    entry = store.get(RUNNING_JOBS, str(spec.job_id))
    if entry is None:
        raise TerminalError(f"job {spec.job_id} is not in the store")
    return with_defaults(from_document(JobRecord, entry.value, f"job {spec.job_id}"), spec)


def with_defaults(job: JobRecord, spec: DriverSpec) -> JobRecord:
    """Fill the settings that the job's env leaves out with the engine's defaults."""
    env = job.plan.env
    full = replace(
        env,
        checkpoints_retained_max=env.checkpoints_retained_max or spec.retained_max,
        checkpoint_pause_ms_min=(
            spec.pause_ms_min
            if env.checkpoint_pause_ms_min is None
            else env.checkpoint_pause_ms_min
        ),
        spark={**spec.spark, **env.spark},
    )
    return replace(job, plan=replace(job.plan, env=full))


class Driver:
    """The threads of one generation.

    A batch loop for each pipeline, the metrics writer, the savepoint thread, and the thread that
    reads commands from the leader's pipe or from the store.
    """

    def __init__(
        self, spec: DriverSpec, store: Store, job: JobRecord, engine_factory: EngineFactory
    ) -> None:
        self.spec = spec
        self.store = store
        self.job = job
        self.stop = threading.Event()
        self.abandon = threading.Event()
        self.ended = threading.Event()
        master = job.plan.env.spark.get("spark.master", "local[*]")
        spark_log = driver_spec.home_of(spec).logs(job.job_id) / "spark.log"
        self.engine = BackgroundEngine(
            lambda: engine_factory(spec, job), self.stop, StartState(master, spark_log).describe
        )
        self.clock = SystemClock()
        self._pause_in_outage = backoff(
            OUTAGE_PAUSES_S, wait=lambda seconds: self.clock.wait(self.abandon, seconds)
        )
        self.storage = CheckpointStorage(
            open_files(spec.checkpoints_root, spec.storage_options, self._pause_in_outage)
        )
        self.savepoints = SavepointCoordinator(
            store, job, Savepoints(self.storage.files), self.clock
        )
        self.progress: list[PipelineProgress] = []
        self.installation = ""
        # part of every fence, because a copy of this home may start the same generation
        self.token = secrets.token_hex(8)

    def listen(self, leader: "LeaderPipe") -> None:
        """Stop at a checkpoint on SIGTERM and SIGINT, and accept commands.

        An embedded driver is interrupted by its leader's pipe, a detached one by the store.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        leader.interrupt = self.interrupt
        if self.spec.detached:
            ConsoleLog(
                driver_spec.home_of(self.spec).logs(self.spec.job_id) / CONSOLE_LOG, self.clock
            ).start()
            CommandWatcher(
                self.store,
                self.spec,
                DriverControl(stop=self.stop.set, interrupt=self.interrupt, end=end_own_session),
                self.clock,
            ).start()

    def interrupt(self) -> None:
        """Cancel the running batches and stop.

        May be called repeatedly, because a batch may begin just after a call.
        """
        self.stop.set()
        for plan in self.job.plan.pipelines:
            self.engine.cancel(plan.id)

    def run(self) -> int:
        """Run all pipelines until every one of them has ended."""
        work = driver_spec.home_of(self.spec).work(self.job.job_id, self.spec.generation)
        scratch.create(work)
        self.engine.start()
        self.installation = retry_outage(lambda: installation_of(self.store))
        # a savepoint that was requested already applies from the first batch on
        retry_outage(self.savepoints.step)
        slots = threading.Semaphore(
            self.job.plan.env.pipeline_concurrency or len(self.job.plan.pipelines)
        )
        runs = [self._start(plan, slots) for plan in retry_outage(self._unfinished)]
        metrics = MetricsWriter(
            self.store, self.spec, self.progress, self.clock, lambda: self.engine.waits_for
        )
        metrics.unreachable = lambda: self.storage.files.trouble
        metrics.start()
        log_retention = LogRetentionMonitor(self.store, self.storage, self.spec, self.clock)
        self.savepoints.start()
        try:
            log_retention.start(self.job, self.progress)
            return self._wait_for(runs)
        finally:
            log_retention.stop()
            try:
                self.engine.close()
            finally:
                self.savepoints.stop()
                # last: heartbeats continue while the engine closes, which may take long
                metrics.stop()
                scratch.remove(work)

    def _unfinished(self) -> list[PipelinePlan]:
        entries = {
            plan.id: self.store.get(PIPELINES, pipeline_key(self.job.job_id, plan.id))
            for plan in self.job.plan.pipelines
        }
        states = {
            id: from_document(PipelineState, entry.value, f"state of pipeline {entry.key}")
            for id, entry in entries.items()
            if entry
        }
        check_same_lineage(
            self.job.job_id,
            {
                "the job": self.job.lineage,
                **{f"pipeline {id}": state.lineage for id, state in states.items()},
            },
        )
        finished = {id for id, state in states.items() if state.status is PipelineStatus.FINISHED}
        return [plan for plan in self.job.plan.pipelines if plan.id not in finished]

    def _start(self, plan: PipelinePlan, slots: threading.Semaphore) -> "Future[PipelineStatus]":
        progress = PipelineProgress(plan.id, self.spec.generation, self.clock)
        self.progress.append(progress)
        ledger = Ledger(
            self.store,
            self.job.job_id,
            plan.id,
            self.spec.generation,
            clock=self.clock,
            abandon=self.abandon,
            token=self.token,
        )
        context = PipelineContext(
            job=self.job,
            storage=self.storage,
            engine=self.engine,
            clock=self.clock,
            stop=self.stop,
            retained_max=self.job.plan.env.checkpoints_retained_max or self.spec.retained_max,
            interval_s=self.spec.interval_ms / 1000,
            savepoints=self.savepoints,
            resource_registry=lambda action: DriverResources(
                self.store,
                self.job,
                self.spec.generation,
                action,
                self.clock,
                self._pause_in_outage,
            ),
            installation=self.installation,
        )
        future: Future[PipelineStatus] = Future()

        def work() -> None:
            try:
                with slots:
                    future.set_result(run_pipeline(context, plan, ledger, progress))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name=f"pipeline-{plan.id}", daemon=True).start()
        return future

    def _wait_for(self, runs: "Sequence[Future[PipelineStatus]]") -> int:
        """Wait for all pipelines; the main thread must stay free to handle signals.

        A pipeline that fails stops the others at their next checkpoint.
        """
        for run in runs:
            run.add_done_callback(self._pipeline_ended)
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

    def _pipeline_ended(self, run: "Future[PipelineStatus]") -> None:
        if run.exception() is not None or run.result() is PipelineStatus.FAILED:
            self.stop.set()
        self.ended.set()


class LeaderPipe:
    """The pipe from `tidegate run`, which is the leader of an embedded driver.

    INTERRUPT cancels the running batches. The end of the pipe means that the leader has exited, and
    ends this whole session.
    """

    def __init__(self) -> None:
        # the default applies until there are batches to cancel
        self.interrupt: Callable[[], None] = end_own_session

    def start(self) -> None:
        """Start to read, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="leader-watch", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while received := os.read(STDIN, 1):
                if received == driver_spec.INTERRUPT:
                    self.interrupt()
        end_own_session()
