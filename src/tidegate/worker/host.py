"""This host as the agent sees it: real processes, real threads.

Also how a worker is put together and kept going. Called by server and command line.
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
    reference,
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
TURN_S = 0.2
END_WITHIN_S = 5.0
NOWHERE = ProcessRef(
    pid=0, started=0, boot="", host=""
)  # of a driver that could not be started: no process is ever taken for it


class DriverSession:
    """The session of a driver, and the thread that kills it."""

    def __init__(self, ref: ProcessRef) -> None:
        self.ref = ref
        self._killing: threading.Thread | None = None

    def terminate(self) -> None:
        """SIGTERM to all of it."""
        terminate_session(self.ref)

    def kill(self) -> None:
        """Begin to kill it, unless that is under way; a process that does not die is tried again
        when the deadline of the last try is over.
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
        """Its exit code, once nothing of its session is left; what its leader leaves behind is
        killed.
        """
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
    """A driver that another worker has started: nobody can wait for it, so it is looked at."""

    def __init__(self, ref: ProcessRef, error_log: Path) -> None:
        super().__init__(ref)
        self.error_log = error_log

    def poll(self) -> Alive | Exited:
        """Dead when its session is empty, or of an earlier life of this host."""
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
        self.ref = NOWHERE
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

    def start(self, order: DriverSpec, *, plain: bool) -> DriverHandle:
        """One that waits, else a new one."""
        try:
            waiting = self.pool.take(order) if plain else None
            return OwnDriver(
                waiting if isinstance(waiting, DriverProcess) else launch(order, self.program)
            )
        except OSError as error:
            LOG.error(
                "a driver cannot be started",
                extra={"job_id": order.job_id, "generation": order.generation, "why": str(error)},
            )
            return FailedStart(f"the driver cannot be started: {error}")

    def adopt(self, process: ProcessRef, job_id: int) -> DriverHandle:
        return AdoptedDriver(process, self.home.logs(job_id) / ERROR_LOG)

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        """In a thread: there may be much to remove."""
        for place in (
            self.home.work(job_id, generation),
            self.home.warm_work(process.pid, process.started),
        ):
            if place.exists():
                threading.Thread(
                    target=remove, args=(place,), name=f"clear-{job_id}", daemon=True
                ).start()

    def tend(self) -> None:
        """Drivers that wait, and what dead ones have left."""
        try:
            self.pool.tend()
        except OSError as error:
            LOG.error("a waiting driver cannot be started", extra={"why": str(error)})
        self.sweeper.tend()

    def close(self) -> None:
        """Only those that wait end with us."""
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
    """A worker of this host and this process."""
    process = reference(os.getpid())
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
    """Keeps a worker going: one thread for its turns, one for its lease, so that a slow turn costs
    it nothing.
    """

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self.worker = worker
        self.clock = clock
        self._ended = threading.Event()
        self._wake = threading.Event()
        beat_s = worker.settings.worker.lease_ms / 10_000
        self._threads = [
            threading.Thread(target=self._run_pass, name="worker", daemon=True),
            threading.Thread(
                target=self._again,
                args=(worker.elector.claim, beat_s),
                name="worker-lease",
                daemon=True,
            ),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """There may be something to do: look now."""
        self._wake.set()

    def retag(self, tags: Mapping[str, str]) -> None:
        """Other tags for the worker, at once."""
        self.worker.retag(tags)
        self.wake()

    def stop(self) -> None:
        """Leave in order: the drivers go on, those that wait for work end.

        A turn that hangs, as the store does, is left behind.
        """
        self._ended.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(END_WITHIN_S)
        self.worker.leave()
        self.worker.launcher.close()

    def _run_pass(self) -> None:
        while not self._ended.is_set():
            self._guarded(self.worker.step)
            self.clock.wait(self._wake, TURN_S)
            self._wake.clear()

    def _again(self, act: Callable[[], object], pause_s: float) -> None:
        while not self.clock.wait(self._ended, pause_s):
            self._guarded(act)

    def _guarded(self, act: Callable[[], object]) -> None:
        """A turn that fails is no reason not to try the next."""
        try:
            act()
        except Exception:
            LOG.exception("a turn of the worker failed")
