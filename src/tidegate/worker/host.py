"""The agent's host with real processes and threads; also assembles and runs a worker.

Called by server and command line.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate.clock import Clock
from tidegate.home import Home
from tidegate.model.engine import DriverSpec, EngineSettings
from tidegate.model.records import ProcessRef, WorkerRecord
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.launch import ERROR_LOG, DriverProcess, Program, launch, stderr_tail
from tidegate.runner.process import (
    boot_id,
    is_alive,
    kill_session,
    process_ref,
    session_members,
    terminate_session,
)
from tidegate.runner.scratch import Sweeper, remove
from tidegate.runner.warm_pool import WarmPool
from tidegate.store import Store
from tidegate.worker.agent import Worker
from tidegate.worker.driver_handle import Alive, DriverHandle, Exited
from tidegate.worker.slots import memory_bytes, slots

LOG = logging.getLogger("tidegate.worker")
CYCLE_S = 0.2
STOP_TIMEOUT_S = 5.0
NO_PROCESS = ProcessRef(
    pid=0, started=0, boot="", host=""
)  # of a driver that could not be started: no process is ever taken for it


class DriverSession:
    """The process session of a driver, and the thread that kills it."""

    def __init__(self, ref: ProcessRef) -> None:
        self.ref = ref
        self._killing: threading.Thread | None = None

    def terminate(self) -> None:
        """SIGTERM to all of it."""
        terminate_session(self.ref)

    def kill(self) -> None:
        """Start to kill the session in a thread, unless one is doing so.

        After the deadline of a failed attempt, the next call tries again.
        """
        if self._killing is None or not self._killing.is_alive():
            self._killing = threading.Thread(
                target=kill_session, args=(self.ref,), name=f"kill-{self.ref.pid}", daemon=True
            )
            self._killing.start()


class OwnDriver(DriverSession):
    """A driver that this process has started."""

    def __init__(self, driver: DriverProcess) -> None:
        super().__init__(driver.ref)
        self.driver = driver

    def poll(self) -> Alive | Exited:
        """Return the exit code once its session is empty; kill what the leader leaves behind."""
        code = self.driver.poll()
        if code is None:
            return Alive()
        if session_members(self.ref):
            self.kill()
            return Alive()
        self.driver.close()
        return Exited(
            code=code, proof="exit", stderr_tail=self.driver.stderr_tail() if code else ""
        )


class AdoptedDriver(DriverSession):
    """A driver that another worker has started; not a child, so its exit code is unknown."""

    def __init__(self, ref: ProcessRef, error_log: Path) -> None:
        super().__init__(ref)
        self.error_log = error_log

    def poll(self) -> Alive | Exited:
        """Return Exited if its session is empty or is from before the last boot."""
        if self.ref.boot != boot_id():
            return Exited(proof="host restarted")
        if is_alive(self.ref):
            return Alive()
        if session_members(self.ref):
            self.kill()
            return Alive()
        return Exited(stderr_tail=stderr_tail(self.error_log))


class FailedStart:
    """A driver that could not be started."""

    def __init__(self, why: str) -> None:
        self.ref = NO_PROCESS
        self.why = why

    def poll(self) -> Exited:
        return Exited(proof="not started", stderr_tail=self.why)

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        pass


class HostLauncher:
    """Drivers as sessions of this host."""

    def __init__(self, home: Home, program: Program, pool: WarmPool, sweeper: Sweeper) -> None:
        self.home = home
        self.program = program
        self.pool = pool
        self.sweeper = sweeper

    def start(self, spec: DriverSpec, *, plain: bool) -> DriverHandle:
        """Use a warm driver if possible, else start a new one."""
        try:
            warm = self.pool.take(spec) if plain else None
            return OwnDriver(
                warm if isinstance(warm, DriverProcess) else launch(spec, self.program)
            )
        except OSError as error:
            LOG.error(
                "driver_not_started",
                extra={"job_id": spec.job_id, "generation": spec.generation, "why": str(error)},
            )
            return FailedStart(f"the driver cannot be started: {error}")

    def adopt(self, process: ProcessRef, job_id: int) -> DriverHandle:
        return AdoptedDriver(process, self.home.logs(job_id) / ERROR_LOG)

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        """Remove the scratch files in a thread, because there may be many."""
        for path in (
            self.home.work(job_id, generation),
            self.home.warm_work(process.pid, process.started),
        ):
            if path.exists():
                threading.Thread(
                    target=remove, args=(path,), name=f"clear-{job_id}", daemon=True
                ).start()

    def maintain(self) -> None:
        """Maintain the warm pool, and sweep scratch files of dead drivers."""
        try:
            self.pool.maintain()
        except OSError as error:
            LOG.error("warm_driver_not_started", extra={"why": str(error)})
        self.sweeper.maintain()

    def close(self) -> None:
        """End the warm drivers; those with a job keep running."""
        self.pool.close()


def open_worker(
    store: Store,
    settings: EngineSettings,
    home: Home,
    clock: Clock,
    environ: Mapping[str, str],
    *,
    address: str = "",
    module: str = "tidegate.driver",
) -> Worker:
    """Assemble the worker of this process."""
    process = process_ref(os.getpid())
    me = WorkerRecord(
        id=f"{socket.gethostname()}-{process.pid}-{secrets.token_hex(3)}",
        host=process.host,
        boot=process.boot,
        process=process,
        slots=slots(settings.worker.slots, memory_bytes()),
        tags=settings.worker.tags,
        warm=settings.worker.warm,
        started_ms=clock.now_ms(),
        address=address,
    )
    program = Program(environ=dict(environ), module=module)
    pool = WarmPool(
        program,
        driver_spec(settings, home, job_id=0, generation=0, worker=me.id, detached=True),
        settings.worker.warm,
        clock.monotonic_s,
    )
    return Worker(
        store,
        settings,
        me,
        home,
        HostLauncher(home, program, pool, Sweeper(home, process.host, clock.monotonic_s)),
        clock,
    )


class WorkerThread:
    """Runs a worker: one thread for its cycles, one for its lease.

    A slow cycle therefore does not lose the lease.
    """

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self.worker = worker
        self.clock = clock
        self._ended = threading.Event()
        self._wake = threading.Event()
        renewal_s = worker.settings.worker.lease_ms / 10_000
        self._threads = [
            threading.Thread(target=self._run, name="worker", daemon=True),
            threading.Thread(
                target=self._repeat,
                args=(worker.elector.claim, renewal_s),
                name="worker-lease",
                daemon=True,
            ),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Start the next cycle now, because there may be something to do."""
        self._wake.set()

    def retag(self, tags: Mapping[str, str]) -> None:
        """Give the worker other tags, at once."""
        self.worker.retag(tags)
        self.wake()

    def stop(self) -> None:
        """Sign off: drivers with a job keep running, warm drivers end.

        Does not wait for a cycle that hangs with the store.
        """
        self._ended.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)
        self.worker.leave()
        self.worker.launcher.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._guarded(self.worker.step)
            self.clock.wait(self._wake, CYCLE_S)
            self._wake.clear()

    def _repeat(self, act: Callable[[], object], pause_s: float) -> None:
        while not self.clock.wait(self._ended, pause_s):
            self._guarded(act)

    def _guarded(self, act: Callable[[], object]) -> None:
        """Call `act`; log an error, so that the next cycle runs nevertheless."""
        try:
            act()
        except Exception:
            LOG.exception("worker_cycle_failed")
