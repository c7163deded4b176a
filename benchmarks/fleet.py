"""A worker with thousands of drivers that exist only in the store: `python -m benchmarks.fleet HOME
STORE_URL INTERVAL_MS`; ends when standard input does.

The worker is the real one. Its drivers make the writes of real ones, each in a transaction of its
own, and nothing else: they register, say every two seconds that they live, and begin and complete a
batch at every interval. So what is measured against it is the control plane, without Spark and
without data.
"""

import heapq
import sys
import threading
import time
from pathlib import Path
from types import MappingProxyType

from tidegate.clock import SystemClock
from tidegate.home import Home
from tidegate.model.document import to_document
from tidegate.model.engine import DriverSpec, EngineSettings
from tidegate.model.errors import Fenced, TransientError
from tidegate.model.records import (
    ASSIGNMENTS,
    DRIVERS,
    JOB_STATES,
    METRICS,
    CheckpointRef,
    DriverCommand,
    DriverRecord,
    PipelineMetrics,
    PipelineStatus,
    ProcessRef,
    SourceRange,
    WorkerRecord,
)
from tidegate.pipeline.ledger import Ledger, pipeline_key
from tidegate.runner.process import boot_id
from tidegate.store import Check, Conflict, Put, Store
from tidegate.store.open import open_store
from tidegate.worker.agent import Worker
from tidegate.worker.driver_handle import Alive, Exited
from tidegate.worker.host import WorkerThread

HOST = "fleet"
ALIVE_S = 2.0  # as real drivers do
PAUSE_S = 0.5
LANES = 4  # threads that share the drivers
RETAINED = 3
ROWS = 100
SLOTS = 1_000_000


class Hull:
    """The writes of one driver with one pipeline."""

    def __init__(self, store: Store, order: DriverSpec, worker: str, ref: ProcessRef) -> None:
        self.store = store
        self.order = order
        self.worker = worker
        self.ref = ref
        self.clock = SystemClock()
        self.ledger = Ledger(
            store, order.job_id, 1, order.generation, clock=self.clock, abandon=threading.Event()
        )
        self.registered = 0  # the version of its record
        self.ended: int | None = None  # exit code

    def register(self) -> None:
        """As the driver does: only for the current generation, and only once."""
        key = str(self.order.job_id)
        state, before = self.store.get(JOB_STATES, key), self.store.get(DRIVERS, key)
        if state is None or state.value["generation"] != self.order.generation:
            raise Fenced(f"job {key}", self.order.generation, 0)
        record = DriverRecord(
            job_id=self.order.job_id,
            generation=self.order.generation,
            process=self.ref,
            worker=self.worker,
            started_ms=self.clock.now_ms(),
        )
        checks = [
            Check(JOB_STATES, key, state.version),
            Check(DRIVERS, key, before.version if before else 0),
        ]
        self.registered = self.store.transact(checks, [Put(DRIVERS, key, to_document(record))])
        self.ledger.load()
        self.ledger.start({"source[0]": lambda: 0})

    def beat(self) -> None:
        """Send a heartbeat with metrics."""
        state, key = self.ledger.state, self.order.job_id
        figures = PipelineMetrics(
            pipeline=1,
            generation=self.order.generation,
            phase="waiting",
            checkpoint=state.next_checkpoint - 1,
            rows_read=state.rows_read,
            rows_written=state.rows_written,
            at_ms=self.clock.now_ms(),
        )
        self.store.transact(
            [Check(DRIVERS, str(key), self.registered)],
            [Put(METRICS, pipeline_key(key, 1), to_document(figures))],
        )

    def batch(self) -> None:
        """A batch, from its begin to its completion."""
        if self.ledger.state.pending is None:
            self.begin()
        self.complete()

    def begin(self) -> None:
        offset = self.ledger.state.rows_read
        self.ledger.begin({"source[0]": SourceRange(offset, offset + ROWS)})

    def complete(self) -> None:
        """The checkpoint of the range; what is no longer retained counts as deleted."""
        pending = self.ledger.state.pending
        assert pending is not None, "begin first"
        ref = CheckpointRef(
            checkpoint=pending.checkpoint,
            path=f"{self.order.job_id}/1/{pending.checkpoint}",
            generation=self.order.generation,
            begun_ms=pending.begun_ms,
            completed_ms=self.clock.now_ms(),
            bytes=1_000,
            rows_read=ROWS,
            rows_written=ROWS,
        )
        self.ledger.complete(
            ref, (), RETAINED, [each.path for each in self.ledger.state.pending_deletion]
        )

    def end(self) -> None:
        self.ledger.end(PipelineStatus.CANCELED)
        self.ended = 0


class HullGrip:
    """How the worker holds it."""

    def __init__(self, hull: Hull) -> None:
        self.hull = hull
        self.ref = hull.ref

    def look(self) -> Alive | Exited:
        """Alive until it has ended itself."""
        return Alive() if self.hull.ended is None else Exited(code=self.hull.ended, proof="exit")

    def terminate(self) -> None:
        """It reads its orders by itself."""

    def kill(self) -> None:
        self.hull.ended = -9


class Lane:
    """A thread that gives a share of the drivers their turns, each when it is due."""

    def __init__(self, fleet: "Fleet") -> None:
        self.fleet = fleet
        self._due: list[tuple[float, int, str, Hull]] = []
        self._changed = threading.Condition()
        self._count = 0
        threading.Thread(target=self._run, name="lane", daemon=True).start()

    def add(self, hull: Hull, act: str, at_s: float) -> None:
        """Give it this turn at this time."""
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (at_s, self._count, act, hull))
            self._changed.notify()

    def _next(self) -> tuple[str, Hull]:
        with self._changed:
            while True:
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    _, _, act, hull = heapq.heappop(self._due)
                    return act, hull
                self._changed.wait(wait_s)

    def _run(self) -> None:
        while True:
            act, hull = self._next()
            try:
                self._turn(act, hull)
            except (Fenced, Conflict):
                hull.ended = 75
            except TransientError:  # as a driver does: patience
                self.add(hull, act, time.monotonic() + PAUSE_S)

    def _turn(self, act: str, hull: Hull) -> None:
        if hull.ended is not None:
            return
        if act == "register":
            hull.register()
            self.add(hull, "beat", 0)
            # Not all at one moment: drivers that were started together drift apart.
            self.add(
                hull,
                "batch",
                time.monotonic() + self.fleet.interval_s * (hull.order.job_id % 97) / 97,
            )
            return
        if self.fleet.told_to_stop(hull):
            hull.end()
            return
        if act == "beat":
            hull.beat()
            self.add(hull, "beat", time.monotonic() + ALIVE_S)
        else:
            hull.batch()
            self.add(hull, "batch", time.monotonic() + self.fleet.interval_s)


class Fleet:
    """The launcher of the worker: drivers that are only records."""

    def __init__(self, store: Store, interval_s: float) -> None:
        self.store = store
        self.interval_s = interval_s
        self.worker: Worker | None = None
        self._boot = boot_id()
        self._started = 0
        self._lanes = [Lane(self) for _ in range(LANES)]

    def start(self, order: DriverSpec, *, plain: bool) -> HullGrip:  # noqa: ARG002  # protocol
        self._started += 1
        hull = Hull(
            self.store,
            order,
            order.worker,
            ProcessRef(pid=self._started, started=self._started, boot=self._boot, host=HOST),
        )
        self._lanes[self._started % LANES].add(hull, "register", 0)
        return HullGrip(hull)

    def adopt(self, process: ProcessRef, job_id: int) -> HullGrip:
        """There are none that others have started."""
        raise NotImplementedError(
            f"driver {process.pid} of job {job_id} was started by nobody here"
        )

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        pass

    def tend(self) -> None:
        pass

    def close(self) -> None:
        pass

    def told_to_stop(self, hull: Hull) -> bool:
        """Whether its order says so."""
        seen = (
            self.worker.follower.get(ASSIGNMENTS, str(hull.order.job_id)) if self.worker else None
        )
        return (
            seen is not None
            and seen.value.generation == hull.order.generation
            and seen.value.command is not DriverCommand.RUN
        )


def main(home: str, store_url: str, interval_ms: str) -> None:
    store, clock = open_store(store_url), SystemClock()
    fleet = Fleet(store, int(interval_ms) / 1000)
    process = ProcessRef(pid=1, started=1, boot=boot_id(), host=HOST)
    me = WorkerRecord(
        id="fleet-1",
        host=HOST,
        boot=process.boot,
        process=process,
        slots=SLOTS,
        tags=MappingProxyType({}),
        started_ms=clock.now_ms(),
    )
    fleet.worker = Worker(
        store, EngineSettings(store_url=store_url), me, Home(Path(home)), fleet, clock
    )
    thread = WorkerThread(fleet.worker, clock)
    thread.start()
    sys.stdin.buffer.read()
    thread.stop()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
