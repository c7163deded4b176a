"""What goes wrong in a simulated world, and how often.

Called by the world at every place, at every call of the store, and now and then.
"""

import contextlib
import functools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.store.backend import (
    Changes,
    Committed,
    Compacted,
    MapSize,
    NotCommitted,
    OutcomeForgotten,
    Query,
    StoredRow,
    Transaction,
    TransactionName,
)
from tidegate.store.errors import AnswerLost, Conflict, StoreUnavailable
from tidegate.testing.faulty_store import Fault
from tidegate.testing.simulation.processes import Host, Process
from tidegate.testing.simulation.scheduler import Actor

if TYPE_CHECKING:
    from tidegate.testing.simulation.cluster import SimulatedCluster

FAULTS = (Fault.UNAVAILABLE, Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.HELD_BACK, Fault.SLOW)


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRates:
    """How bad a world is.

    The first five are probabilities at one place or call, `events` the seconds between two blows.
    """

    kill: float
    freeze: float
    switch: float
    store_fault: float
    hesitation: float  # of a leader between its decision and its write, for about a lease
    interleaving: float  # how many turns may be paused in their middle
    events_s: float
    chaos_s: float
    clock_steps: bool

    @staticmethod
    def drawn(rng: random.Random) -> "FaultRates":
        return FaultRates(
            kill=rng.choice([0.0, 0.0005, 0.002]),
            freeze=rng.choice([0.0, 0.0005, 0.002]),
            switch=rng.choice([0.02, 0.1]),
            store_fault=rng.choice([0.0, 0.005, 0.03]),
            hesitation=rng.choice([0.0, 0.05, 0.3]),
            interleaving=rng.choice([0.1, 0.3]),
            events_s=rng.choice([2.0, 4.0, 10.0]),
            chaos_s=rng.choice([15.0, 25.0, 40.0]),
            clock_steps=rng.random() < 0.3,
        )


class FaultyBackendView:
    """A process's view of the store that fails at the fault rates (see testing/faulty_store for the
    kinds). A delayed transaction remembers its sender.
    """

    def __init__(self, cluster: "SimulatedCluster", process: Process) -> None:
        self.cluster = cluster
        self.process = process
        self.inner = cluster.backend
        self.armed = False
        self.held: list[tuple[Transaction, Actor]] = []

    def deliver(self) -> None:
        """What was held back arrives now."""
        held, self.held = self.held, []
        for transaction, sender in held:
            with contextlib.suppress(Conflict, StoreUnavailable):
                self.cluster.scheduler.inline(
                    Actor(sender.owner, sender.name, functools.partial(self._arrive, transaction))
                )

    def read(self, map: str, key: str) -> StoredRow | None:
        """The entry as of now."""
        self._gate("read")
        return self.inner.read(map, key)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        """The entries whose key begins so."""
        self._gate("scan")
        return self.inner.scan(map, prefix)

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        self._gate("ask")
        return self.inner.query(queries)

    def revision(self) -> int:
        self._gate("revision")
        return self.inner.revision()

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        """The change log of some maps."""
        self._gate("feed")
        return self.inner.feed(maps, since)

    def apply(self, transaction: Transaction) -> int:
        """Judge and write; perhaps later, perhaps never, perhaps without an answer."""
        fault = self._fault("apply")
        sender = self.cluster.scheduler.current
        if fault is Fault.HELD_BACK and sender is not None:
            self.held.append((transaction, sender))
        if fault in (Fault.REQUEST_LOST, Fault.HELD_BACK):
            raise AnswerLost("the request was lost on purpose")
        revision = self.inner.apply(transaction)
        if fault is Fault.ANSWER_LOST:
            raise AnswerLost("the answer was lost on purpose")
        if self.armed:
            self.cluster.at("applied")
        return revision

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        self._gate("settle")
        return self.inner.resolve_outcome(token)

    def size_by_map(self) -> dict[str, MapSize]:
        return self.inner.size_by_map()

    def compact(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _arrive(self, transaction: Transaction) -> None:
        self.inner.apply(transaction)

    def _gate(self, operation: str) -> None:
        if self._fault(operation) is not Fault.NONE:
            raise StoreUnavailable("unavailable on purpose")

    def _fault(self, operation: str) -> Fault:
        """What goes wrong with this call.

        One that is known to be refused is raised here, a slow one waits here.
        """
        cluster = self.cluster
        if not self.armed:
            return Fault.NONE
        cluster.at(operation)
        if self.process.cut_s > cluster.scheduler.now_s:
            raise StoreUnavailable("out of reach")
        if cluster.quiet or cluster.rng.random() >= cluster.fault_rates.store_fault:
            return Fault.NONE
        fault = cluster.rng.choice(FAULTS)
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable("unavailable on purpose")
        if fault is Fault.SLOW:
            if cluster.scheduler.can_pause:
                cluster.scheduler.pause(cluster.rng.choice([0.1, 0.5, 2.0]))
            return Fault.NONE
        return fault


class ClusterFaults:
    """What happens to whole processes and hosts, one blow after the other."""

    def __init__(self, cluster: "SimulatedCluster") -> None:
        self.cluster = cluster
        self.rng = cluster.rng

    def begin(self) -> None:
        """The first one comes soon."""
        self._again()

    def _again(self) -> None:
        self.cluster.scheduler.at(
            self.cluster.scheduler.now_s
            + self.cluster.fault_rates.events_s * 2 * self.rng.random(),
            self.cluster.event(self._blow),
        )

    def _blow(self) -> None:
        if self.cluster.quiet:
            return
        self._again()
        blows = [
            self._kill,
            self._kill,
            self._leaders,
            self._freeze,
            self._freeze,
            self._hang,
            self._hang,
        ]
        blows += [self._cut, self._cut_all, self._host, self._part, self._everything]
        if self.cluster.fault_rates.clock_steps:
            blows += [self._clock, self._clock]
        self.rng.choice(blows)()

    def _victims(self) -> list[Process]:
        return [p for p in self.cluster.processes if p.alive]

    def _kill(self) -> None:
        if victims := self._victims():
            self.cluster.kill(self.rng.choice(victims), "SIGKILL")

    def _leaders(self) -> None:
        """The leader, and often the next one too."""
        for _ in range(self.rng.choice([1, 2])):
            leading = [s for s in self.cluster.servers if s.alive and s.leading]
            for server in leading:
                self.cluster.kill(server, "SIGKILL of the leader")

    def _freeze(self) -> None:
        victims = self._victims()
        leading: list[Process] = [s for s in self.cluster.servers if s.alive and s.leading]
        victim = (
            self.rng.choice(leading if leading and self.rng.random() < 0.5 else victims)
            if victims
            else None
        )
        if victim is not None:
            victim.frozen_s = self.cluster.scheduler.now_s + self.rng.choice([1.0, 4.0, 8.0, 15.0])
            self.cluster.note(victim.name, f"frozen until {victim.frozen_s:.1f}")

    def _hang(self) -> None:
        """A driver that neither works nor dies."""
        if drivers := [p for p in self._victims() if p.kind == "driver"]:
            victim = self.rng.choice(drivers)
            victim.frozen_s = self.cluster.scheduler.now_s + self.rng.choice([10.0, 20.0])
            self.cluster.note(victim.name, f"hangs until {victim.frozen_s:.1f}")

    def _cut(self) -> None:
        if victims := self._victims():
            self._cut_off([self.rng.choice(victims)])

    def _cut_all(self) -> None:
        self._cut_off(self._victims())

    def _part(self) -> None:
        """A host that nobody can reach: its processes continue without the store."""
        host = self.rng.choice(self.cluster.hosts)
        self._cut_off([p for p in self._victims() if p.host is host])

    def _cut_off(self, victims: list[Process]) -> None:
        until_s = self.cluster.scheduler.now_s + self.rng.choice([1.0, 4.0, 8.0, 15.0])
        for victim in victims:
            victim.cut_s = until_s
            self.cluster.note(victim.name, f"cut off until {until_s:.1f}")

    def _host(self) -> None:
        """A host loses its power; it comes back later, as another boot."""
        host = self.rng.choice(self.cluster.hosts)
        if host.up:
            self._power_cut(host)

    def _power_cut(self, host: Host) -> None:
        host.up = False
        self.cluster.note(host.name, "power cut")
        for process in [p for p in self.cluster.processes if p.alive and p.host is host]:
            self.cluster.kill(process, "power cut")
        self.cluster.scheduler.at(
            self.cluster.scheduler.now_s + self.rng.choice([2.0, 6.0, 15.0]),
            self.cluster.event(lambda: self._power_on(host)),
        )

    def _power_on(self, host: Host) -> None:
        if not host.up:
            host.up, host.boots = True, host.boots + 1
            self.cluster.note(host.name, "is back")

    def _everything(self) -> None:
        """Servers and workers, sometimes the drivers too."""
        drivers = self.rng.random() < 0.5
        for process in self._victims():
            if drivers or process.kind != "driver":
                self.cluster.kill(process, "everything is restarted")

    def _clock(self) -> None:
        host = self.rng.choice(self.cluster.hosts)
        host.clock.wall_ms += self.rng.choice([-40_000, -5_000, 5_000, 40_000])
        host.clock.wall_ms = max(-60_000, min(60_000, host.clock.wall_ms))
        self.cluster.note(host.name, f"its clock was moved to {host.clock.wall_ms} ms")
