"""One simulated cluster: hosts, servers, workers, drivers, users and one store, on one seed. First
faults, then a quiet period, then the final checks.

The product's code is real: election, cluster cache, reconciler, transitions, housekeeping,
commands, worker, registration, ledger, batch loop, metrics, command watcher. Processes, time, the
store's medium, checkpoint directories and rows are simulated. The same seed repeats the same run.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tidegate.model.engine import (
    CheckpointSettings,
    CoordinatorSettings,
    EngineSettings,
    WorkerSettings,
)
from tidegate.model.errors import TidegateError, TransientError
from tidegate.store.backend import Retention
from tidegate.store.base import Delete, Put, Store
from tidegate.testing.simulation import installed
from tidegate.testing.simulation.backend import QuickStore, WatchedBackend
from tidegate.testing.simulation.checkers import Checker
from tidegate.testing.simulation.clock import HostClock
from tidegate.testing.simulation.connectors import MemoryTarget
from tidegate.testing.simulation.faults import ClusterFaults, FaultRates, FaultyBackendView
from tidegate.testing.simulation.final_checks import FinalChecks
from tidegate.testing.simulation.processes import (
    Host,
    Process,
    ServerProcess,
    SimulatedDriver,
    WorkerProcess,
)
from tidegate.testing.simulation.scheduler import Actor, Killed, Owner, Scheduler, SimulationEnded
from tidegate.testing.simulation.storage import MemorySavepoints, MemoryStorage
from tidegate.testing.simulation.users import Users

TRACE_LINES_MAX = 200_000
DECIDED = "transition.record.before"  # a leader has decided, and not yet written
LOOKS = 2  # at what an API would list, in the middle of everything


class InvariantBroken(Killed):
    """A promise was not kept."""


class SimulatedCluster:
    """One world, from its beginning to its end."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.trace = trace
        self.said: deque[str] = deque(maxlen=TRACE_LINES_MAX)
        self.complaint = ""
        self.quiet = False
        self.kind_s = 0.0
        self.leisure = 1.0
        self.fault_rates = FaultRates.drawn(self.rng)
        self._steady = 1 - max(
            self.fault_rates.freeze, self.fault_rates.switch
        )  # with no more luck than this nobody waits
        self.scheduler = Scheduler()
        self.settings = EngineSettings(
            state_cleanup_delay_ms=self.rng.choice([2_000, 8_000, 15_000]),
            history_expire_minutes=1,
            checkpoint=CheckpointSettings(timeout_ms=3_000),
            coordinator=CoordinatorSettings(
                lease_ms=3_000, start_timeout_ms=15_000, stop_timeout_ms=4_000
            ),
            worker=WorkerSettings(lease_ms=4_000),
        )
        self.checker = Checker(self)
        self.backend = WatchedBackend(Retention(self.rng.choice([60, 10_000])), self.checker.see)
        self.storage = MemoryStorage(self.at, self.checker.gone)
        self.savepoints = MemorySavepoints(self.storage)
        self.target = MemoryTarget(
            random.Random(self.rng.random()), self.at, self.broken, lambda: self.scheduler.now_s
        )
        self.hosts = [self._host(n) for n in range(self.rng.choice([1, 2, 2]))]
        self.server_count, self.worker_count, self.slots = (
            self.rng.choice([2, 3]),
            self.rng.choice([2, 3]),
            self.rng.choice([1, 2, 4]),
        )
        self.processes: list[Process] = []
        self.servers: list[ServerProcess] = []
        self.workers: list[WorkerProcess] = []
        self.drivers: dict[int, SimulatedDriver] = {}
        self.fronts: list[FaultyBackendView] = []
        self._numbers = 0
        self._hand = False
        self.users = Users(self)
        self.blows = ClusterFaults(self)
        self.final_checks = FinalChecks(self)

    def live(self) -> str:
        """All of it; what was broken, or nothing."""
        with installed.cluster(
            self.at, self.target, self.current_ref, random.Random(self.seed), self._logged
        ):
            self._staff()
            self.users.begin()
            self.blows.begin()
            for _ in range(LOOKS):
                self.scheduler.at(
                    self.fault_rates.chaos_s * self.rng.random(),
                    self.event(self.final_checks.nothing_ended_is_listed),
                )
            self.scheduler.at(self.fault_rates.chaos_s, self.event(self._stop_faults))
            self.scheduler.run()
            self.scheduler.unwind()
        return self.complaint

    # -- what the parts ask for

    def at(self, place: str) -> None:
        """A place where a process may be killed, frozen, or made to wait for others."""
        actor = self.scheduler.current
        if actor is None:
            return
        process = actor.owner
        if not process.alive:
            raise Killed
        if self.trace:
            self.note(actor.name, f"  {place}")
        if self.quiet:
            return
        luck = self.rng.random()
        if luck < self.fault_rates.kill:
            assert isinstance(process, Process)
            self.kill(process, place)
            raise Killed
        if actor.seat is not None and (luck > self._steady or place == DECIDED):
            self._dawdle(process, place, luck)

    def _dawdle(self, process: Owner, place: str, luck: float) -> None:
        """Others may run here, sometimes for long."""
        freeze_s = 0.0
        if place == DECIDED and self.rng.random() < self.fault_rates.hesitation:
            freeze_s = self.rng.uniform(0.8, 1.6) * self.settings.coordinator.lease_ms / 1000
        elif luck > 1 - self.fault_rates.freeze:
            freeze_s = self.rng.choice([0.5, 4.0, 8.0])
        if freeze_s:
            process.frozen_s = self.scheduler.now_s + freeze_s
            self.note("WORLD", f"freezes who is at {place} until {process.frozen_s:.1f}")
        if freeze_s or luck > 1 - self.fault_rates.switch:
            self.scheduler.pause(self.rng.random() * 0.2)

    def front(self, process: Process) -> Store:
        """A view on the store that fails at the fault rates."""
        front = FaultyBackendView(self, process)
        self.fronts.append(front)
        store = QuickStore(front)
        front.armed = True
        return store

    def writer(self) -> Actor | None:
        """Who makes the transaction that is being seen; None for somebody's hand."""
        if self._hand:
            return None
        assert self.scheduler.current is not None, "somebody writes"
        return self.scheduler.current

    def by_hand(self, writes: Sequence[Put | Delete]) -> None:
        """Somebody writes into the store with his own hands."""
        self._hand = True
        try:
            QuickStore(self.backend).transact([], writes)
        finally:
            self._hand = False

    def current_ref(self) -> Any:
        """The name of the process that runs now."""
        assert self.scheduler.current is not None
        assert isinstance(self.scheduler.current.owner, Process)
        return self.scheduler.current.owner.ref

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def join(self, process: Process) -> None:
        self.processes.append(process)
        match process:
            case ServerProcess():
                self.servers.append(process)
            case WorkerProcess():
                self.workers.append(process)
            case SimulatedDriver():
                self.drivers[process.number] = process
        self.note(process.name, f"begins as process {process.number} on {process.host.boot}")

    def kill(self, process: Process, why: str) -> None:
        """It is gone, at once."""
        if process.alive:
            process.alive, process.died_s = False, self.scheduler.now_s
            self.processes.remove(process)
            self.note(process.name, f"dies: {why}")

    def note(self, who: str, what: str) -> None:
        """For the one who looks into a world that went wrong."""
        if self.trace:
            self.said.append(f"{self.scheduler.now_s:9.3f} {who}: {what}")

    def broken(self, what: str) -> None:
        """A promise was not kept: the world ends here."""
        if not self.complaint:
            self.complaint = f"at {self.scheduler.now_s:.3f} s: {what}"
            self.note("WORLD", f"BROKEN: {what}")
        self.scheduler.end()
        raise InvariantBroken(what)

    # -- containment

    def event(self, act: Callable[[], None]) -> Callable[[], None]:
        """Something that happens at one moment, to nobody in particular."""

        def happen() -> None:
            try:
                act()
            except Killed:
                return
            except Exception as error:
                self._unexpected("the world", error)

        return happen

    def contained(self, process: Process, work: Callable[[], None]) -> Callable[[], None]:
        """Run a process's work: transient errors are fine, a bug ends the simulation."""

        def act() -> None:
            try:
                work()
            except SimulationEnded:
                raise
            except Killed:
                return
            except TransientError:
                return
            except Exception as error:
                self._unexpected(process.name, error)

        return act

    def take_turn(self, actor: Actor, after: Callable[[], None]) -> None:
        """One turn of a loop: mostly to its end at once, sometimes with pauses in its middle."""
        assert isinstance(actor.owner, Process)
        work = self.contained(actor.owner, actor.work)

        def turn() -> None:
            work()
            after()

        actor.work = turn
        if not self.quiet and self.rng.random() < self.fault_rates.interleaving:
            self.scheduler.spawn(actor.owner, actor.name, turn)
        else:
            self.scheduler.inline(actor)

    def expected(self, process: Process, error: Exception) -> None:
        """A pipeline may end with our own errors; anything else is a mistake."""
        if not isinstance(error, TidegateError):
            self._unexpected(process.name, error)

    def _unexpected(self, who: str, error: BaseException) -> None:
        import traceback

        lines = "".join(traceback.format_exception(error)[-6:])
        if not self.complaint:
            self.complaint = (
                f"at {self.scheduler.now_s:.3f} s: {who} made a mistake: {type(error).__name__}:"
                f" {error}\n{lines}"
            )
        self.scheduler.end()

    def _logged(self, name: str, text: str, error: BaseException | None) -> None:
        """What the product calls an error in its log."""
        if error is not None and not isinstance(error, Killed):
            self._unexpected(f"{name} ({text})", error)

    # -- who is there

    def _host(self, number: int) -> Host:
        clock = HostClock(self.scheduler, self.rng.uniform(0.96, 1.04), self.rng.uniform(0, 1000))
        return Host(f"host{number}", clock)

    def _staff(self) -> None:
        """Servers and workers that are missing come back, sooner or later."""
        up = [host for host in self.hosts if host.up]
        if up and sum(s.alive for s in self.servers) < self.server_count:
            self._hire(ServerProcess, "server", self.rng.choice(up))
        if up and sum(w.alive for w in self.workers) < self.worker_count:
            fewest = min(up, key=lambda host: sum(w.alive and w.host is host for w in self.workers))
            self._hire(
                WorkerProcess,
                "worker",
                fewest if self.quiet or self.rng.random() < 0.7 else self.rng.choice(up),
            )
        self.scheduler.at(
            self.scheduler.now_s + (0.5 if self.quiet else self.rng.choice([0.1, 1.0, 3.0])),
            self.event(self._staff),
        )

    def _hire(self, kind: type[ServerProcess] | type[WorkerProcess], word: str, host: Host) -> None:
        number = self.next_number()
        self.join(kind(self, word, f"{word}-{number}", host, number))

    # -- quiet period

    def _stop_faults(self) -> None:
        """From now on nothing goes wrong any more."""
        self.quiet, self.kind_s = True, self.scheduler.now_s
        self.note("WORLD", "is kind from now on")
        for process in self.processes:
            process.frozen_s = process.cut_s = 0.0
        for host in self.hosts:
            host.clock.wall_ms = 0
            if not host.up:
                host.up, host.boots = True, host.boots + 1
        for front in self.fronts:
            front.deliver()
        self.final_checks.begin()
