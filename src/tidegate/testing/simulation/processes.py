"""The processes of a simulated world: servers and workers made of the real parts, drivers that run
the real loop on pretend rows. Called by the world.

A process dies at once with all that it does; what it has written stays. A frozen one (as after
SIGSTOP) continues later as if nothing had happened.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidegate.coordinator.cluster_cache import COORDINATOR, ClusterCache
from tidegate.coordinator.commands import Commands
from tidegate.coordinator.events import EventLog
from tidegate.coordinator.housekeeping import Housekeeper
from tidegate.coordinator.reconciler import Reconciler
from tidegate.coordinator.server_heartbeat import ServerHeartbeat
from tidegate.coordinator.transitions import TransitionWriter
from tidegate.driver.commands import CommandWatcher, DriverControl
from tidegate.driver.metrics import MetricsWriter
from tidegate.driver.registration import register
from tidegate.election import Elector, Leader
from tidegate.home import Home
from tidegate.lifecycle.observation import LifecycleLimits
from tidegate.model.document import from_document
from tidegate.model.engine import DriverSpec
from tidegate.model.errors import Fenced, TerminalError, TransientError
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import (
    PIPELINES,
    RUNNING_JOBS,
    JobRecord,
    PipelineState,
    PipelineStatus,
    ProcessRef,
    ServerRecord,
    WorkerRecord,
)
from tidegate.pipeline.attempts import run_pipeline
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.ledger import Ledger, pipeline_key
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.savepoints import SavepointCoordinator
from tidegate.retry import retry
from tidegate.runner.exits import DriverExit
from tidegate.store.base import OUTAGE_ERRORS, Store
from tidegate.testing.simulation.clock import HostClock
from tidegate.testing.simulation.connectors import FaultPlan, SimEngine
from tidegate.testing.simulation.scheduler import Actor, Killed
from tidegate.worker.agent import Worker
from tidegate.worker.driver_handle import Alive, DriverHandle, Exited

if TYPE_CHECKING:
    from tidegate.testing.simulation.cluster import SimulatedCluster

T = TypeVar("T")
HOME = Home(Path("/simulated"))
# servers announce themselves in every so many-th world: nothing is decided by it, and it is a write
# more in every turn
ANNOUNCING = 7
LIMITS = LifecycleLimits(
    start_ms=15_000,
    stop_ms=4_000,
    interrupt_ms=3_000,
    terminate_ms=2_000,
    kill_ms=15_000,
    exit_ms=4_000,
    savepoint_ms=20_000,
)


class Exit(Killed):
    """The process ends by itself."""


@dataclass(eq=False)
class Host:
    """A machine. Its boot changes when it comes back."""

    name: str
    clock: HostClock
    boots: int = 1
    up: bool = True

    @property
    def boot(self) -> str:
        """Which life of the machine this is."""
        return f"{self.name}-boot{self.boots}"


@dataclass(eq=False)
class Process:
    """One simulated process, with a way of its own to the store."""

    cluster: "SimulatedCluster"
    kind: str
    name: str
    host: Host
    number: int
    alive: bool = True
    frozen_s: float = 0.0  # until then
    cut_s: float = 0.0  # the store is out of reach until then
    born_s: float = 0.0
    died_s: float = 0.0
    leaving: bool = False  # no turn is begun any more
    busy: bool = False  # a turn that holds locks is under way
    ref: ProcessRef = field(init=False)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.ref = ProcessRef(
            pid=self.number, started=self.number, boot=self.host.boot, host=self.host.name
        )
        self.born_s = self.cluster.scheduler.now_s
        self.store = self.cluster.front(self)

    def every(self, name: str, period_s: float, step: Callable[[], None]) -> None:
        """Take a turn again and again, for the life of this process."""
        cluster, steps = self.cluster, self.cluster.scheduler

        def due() -> None:
            if not self.alive or self.leaving:
                return
            if self.frozen_s > steps.now_s:
                steps.at(self.frozen_s, due)
                return
            cluster.take_turn(Actor(self, f"{self.name}.{name}", step), again)

        def again() -> None:
            steps.at(
                steps.now_s + period_s * (0.8 + 0.4 * cluster.rng.random()) * cluster.leisure, due
            )

        again()


class ServerProcess(Process):
    """A server without HTTP: the loops of server.py, one turn at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        cluster, clock, settings = self.cluster, self.host.clock, self.cluster.settings
        self.cache = ClusterCache(self.store, clock)
        self.commands = Commands(self.store, cluster.storage, settings, clock)
        self.commands.savepoints = cluster.savepoints
        self.elector = Elector(
            self.store, COORDINATOR, self.name, "", settings.coordinator.lease_ms, clock
        )
        self.announcement = ServerHeartbeat(
            self.store, ServerRecord(id=self.name), settings.coordinator.lease_ms, clock
        )
        recorder = TransitionWriter(self.store, cluster.storage, settings, clock, EventLog())
        self.reconciler = Reconciler(self.cache, recorder, settings, clock, lambda _: None)
        self.reconciler.limits = LIMITS
        self.housekeeper = Housekeeper(self.cache, cluster.storage, settings, clock)
        self.every("election", settings.coordinator.lease_ms / 6000, self._elect)
        self.every("leader", 0.6, self._lead)

    @property
    def announces(self) -> bool:
        """Whether it tells the others that it is there."""
        return self.cluster.seed % ANNOUNCING == 0

    @property
    def leading(self) -> bool:
        """Whether it believes that it leads."""
        return isinstance(self.elector.leadership(), Leader)

    def leave(self) -> None:
        self.leaving = True
        if not self.busy:
            self.elector.resign()
            if self.announces:
                self.announcement.withdraw()

    def _elect(self) -> None:
        if self.leaving:
            return
        self.busy = True
        try:
            self.elector.step()
            if self.announces:
                self.announcement.step()
        finally:
            self.busy = False

    def _lead(self) -> None:
        leading = self.elector.leadership()
        if isinstance(leading, Leader):
            self.reconciler.step(leading)
            self.housekeeper.step(leading)
        elif self.cluster.rng.random() < 0.2:
            self.cache.refresh()


class WorkerProcess(Process):
    """A worker, with the processes of its host."""

    def __post_init__(self) -> None:
        super().__post_init__()
        me = WorkerRecord(
            id=self.name,
            host=self.host.name,
            boot=self.host.boot,
            process=self.ref,
            slots=self.cluster.slots,
        )
        self.worker = Worker(
            self.store, self.cluster.settings, me, HOME, SimLauncher(self), self.host.clock
        )
        self.every("turn", 0.6, self._turn)

    def leave(self) -> None:
        self.leaving = True
        if not self.busy:
            self.worker.leave()

    def _turn(self) -> None:
        if self.leaving:
            return
        self.busy = True
        try:
            self.worker.step()
        finally:
            self.busy = False


class SimLauncher:
    """Drivers of one simulated host."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker

    def start(
        self,
        order: DriverSpec,
        *,
        plain: bool,  # noqa: ARG002  # none waits here
    ) -> DriverHandle:
        cluster = self.worker.cluster
        driver = SimulatedDriver(
            cluster,
            "driver",
            f"driver-{order.job_id}-g{order.generation}",
            self.worker.host,
            cluster.next_number(),
            order=order,
        )
        cluster.join(driver)
        return SimDriverHandle(driver.ref, driver, self.worker, child=True)

    def adopt(
        self,
        process: ProcessRef,
        job_id: int,  # noqa: ARG002  # has no logs
    ) -> DriverHandle:
        return SimDriverHandle(
            process, self.worker.cluster.drivers[process.pid], self.worker, child=False
        )

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        """Only the scratch files of the dead may go."""
        driver = self.worker.cluster.drivers[process.pid]
        if driver.alive:
            self.worker.cluster.broken(
                f"the scratch files of {driver.name} were removed while it lived (job {job_id},"
                f" generation {generation})"
            )

    def maintain(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(slots=True)
class SimDriverHandle:
    """A driver in the hands of a worker."""

    ref: ProcessRef
    driver: "SimulatedDriver"
    worker: WorkerProcess
    child: bool

    def poll(self) -> Alive | Exited:
        if self.ref.boot != self.worker.host.boot:
            return Exited(proof="host restarted")
        if self.driver.alive:
            return Alive()
        return Exited(code=self.driver.code, proof="exit") if self.child else Exited()

    def terminate(self) -> None:
        """SIGTERM: a stop, for those that listen."""
        if not self.driver.fault_plan.deaf:
            self.driver.stop.set()

    def kill(self) -> None:
        """SIGKILL: it may take its time."""
        self.driver.kill_soon()


class SimSavepoints(SavepointCoordinator):
    """Waits as everybody does here."""

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """So long; what is wanted meanwhile is seen at the end."""
        self.clock.wait(stop, seconds)


@dataclass(eq=False)
class SimulatedDriver(Process):
    """One generation of a job: the main thread of driver/main, and one actor for each pipeline."""

    order: DriverSpec = field(kw_only=True)
    code: int = -9
    excused: bool = (
        False  # nobody could see it, and it was silent for a lease: it may be alive, and is fenced
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        cluster = self.cluster
        self.stop = threading.Event()
        self.abandon = threading.Event()
        self.registered = self.dying = False
        self.results: dict[int, PipelineStatus | Exception] = {}
        self.meters: list[PipelineProgress] = []
        self.fault_plan = FaultPlan(random.Random(cluster.rng.random()), lambda: cluster.quiet)
        self.engine = SimEngine(self.fault_plan, self._work, self._leave)
        self._main = cluster.scheduler.spawn(
            self,
            f"{self.name}.main",
            cluster.contained(self, self._drive),
            cluster.rng.choice([0.2, 0.2, 0.5, 2.0, 6.0]),
        )

    def kill_soon(self) -> None:
        """At once, mostly; a process that hangs in the kernel takes its time."""
        if not self.dying:
            self.dying = True
            delay_s = self.cluster.rng.choice(
                [0.01, 0.01, 0.05, 1.0, 3.0]
                if self.cluster.quiet
                else [0.01, 0.05, 3.0, 10.0, 25.0]
            )
            self.cluster.scheduler.at(
                self.cluster.scheduler.now_s + delay_s, lambda: self.cluster.kill(self, "SIGKILL")
            )

    def _leave(self, code: int) -> None:
        self.code = code
        self.cluster.note(self.name, f"exits with {code}")
        self.cluster.kill(self, "exit")
        raise Exit

    def _work(self, seconds: float) -> None:
        self.cluster.scheduler.pause(seconds)
        self.cluster.at("engine.run")

    def _drive(self) -> None:
        try:
            self._retry(lambda: register(self.store, self.order, self.host.clock.now_ms()))
            self.registered = True
            job = self._retry(self._job)
            self._run(job)
        except Fenced as error:
            self.cluster.note(self.name, str(error))
            self._leave(DriverExit.FENCED)
        except TerminalError as error:
            self.cluster.note(self.name, str(error))
            self._leave(1)
        self._leave(DriverExit.ENDED)

    def _retry(self, act: Callable[[], T]) -> T:
        def pause(_: int) -> bool:
            self.cluster.scheduler.pause(0.5)
            return True

        return retry(act, OUTAGE_ERRORS, pause)

    def _job(self) -> JobRecord:
        entry = self.store.get(RUNNING_JOBS, str(self.order.job_id))
        if entry is None:
            raise TerminalError(f"job {self.order.job_id} is not in the store")
        return from_document(JobRecord, entry.value)

    def _run(self, job: JobRecord) -> None:
        self.fault_plan.become(job.plan.env)
        if self.fault_plan.name == "dying" and self.fault_plan.rng.random() < 0.5:
            self._leave(1)
        self.savepoints_step = SimSavepoints(
            self.store, job, self.cluster.savepoints, self.host.clock
        )
        self._retry(self.savepoints_step.step)
        plans = [
            plan for plan in job.plan.pipelines if not self._retry(partial(self._finished, plan.id))
        ]
        for plan in plans:
            self._begin(job, plan)
        watch = CommandWatcher(
            self.store,
            self.order,
            DriverControl(stop=self._asked, interrupt=self._interrupt, end=lambda: self._leave(-9)),
            self.host.clock,
        )
        metrics = MetricsWriter(self.store, self.order, self.meters, self.host.clock)
        steps = (
            [metrics.step]
            if self.fault_plan.deaf
            else [watch.step, metrics.step, self.savepoints_step.step]
        )
        while len(self.results) < len(plans):
            self.fault_plan.rng.shuffle(steps)  # they are threads
            for turn in steps:
                self._guarded(turn)
            self.cluster.scheduler.pause(0.7)
        self._judge()

    def _judge(self) -> None:
        failures = [result for result in self.results.values() if isinstance(result, Exception)]
        fenced = next((error for error in failures if isinstance(error, Fenced)), None)
        if fenced:
            raise fenced
        if failures:
            self._leave(1)

    def _guarded(self, turn: Callable[[], None]) -> None:
        try:
            turn()
        except TransientError:
            return

    def _asked(self) -> None:
        if not self.fault_plan.deaf:
            self.stop.set()

    def _interrupt(self) -> None:
        self._asked()
        for progress in self.meters:
            self.engine.cancel(progress.read().pipeline)

    def _finished(self, pipeline: int) -> bool:
        entry = self.store.get(PIPELINES, pipeline_key(self.order.job_id, pipeline))
        return (
            entry is not None
            and from_document(PipelineState, entry.value).status is PipelineStatus.FINISHED
        )

    def _begin(self, job: JobRecord, plan: PipelinePlan) -> None:
        progress = PipelineProgress(plan.id, self.order.generation, self.host.clock)
        self.meters.append(progress)
        ledger = Ledger(
            self.store,
            job.job_id,
            plan.id,
            self.order.generation,
            clock=self.host.clock,
            abandon=self.abandon,
        )
        context = PipelineContext(
            job=job,
            storage=self.cluster.storage,
            engine=self.engine,
            clock=self.host.clock,
            stop=self.stop,
            retained_max=job.plan.env.checkpoints_retained_max or 3,
            interval_s=1.0,
            savepoints=self.savepoints_step,
        )

        def work() -> None:
            try:
                self.results[plan.id] = run_pipeline(context, plan, ledger, progress)
            except Exception as error:
                self.cluster.expected(self, error)
                self.results[plan.id] = error
            if (
                self.results[plan.id] is not PipelineStatus.FINISHED
                and self.results[plan.id] is not PipelineStatus.CANCELED
            ):
                self.stop.set()

        self.cluster.scheduler.spawn(
            self, f"{self.name}.{plan.id}", self.cluster.contained(self, work)
        )
