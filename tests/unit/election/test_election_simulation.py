"""Seeded lives of an office with five candidates: clocks that run 5 % apart, pauses between any two
calls of the store, kills, faults, requests that arrive late. Whoever thinks that it leads tries to
write, trusted or not. The seed of a life that went wrong is in the name of the example and in the
message.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest

from tidegate.election import Elector, Leader
from tidegate.model.records import LEASES
from tidegate.store import Conflict, OutcomeUnknown, Put, Store, StoreUnavailable, open_store
from tidegate.testing.faulty_store import Fault, FaultyBackend, StoreCall, faulty_store

LEASE_S = 4.0
POLL_S = LEASE_S / 10
CANDIDATES = 5
LIFE_S = 40 * LEASE_S
CALM_S = 4 * LEASE_S
LIVES = 50


@dataclass
class Hands:
    """A clock of its own: another zero, and up to 5 % too fast or too slow."""

    world: "World"
    rate: float
    zero_s: float

    def monotonic_s(self) -> float:
        return self.zero_s + self.world.at_s * self.rate

    def now_ms(self) -> int:
        return int(self.world.at_s * 1000)


@dataclass(eq=False)
class Candidate:
    name: str
    hands: Hands
    store: Store
    network: FaultyBackend
    elector: Elector
    next_s: float
    busy: bool = False  # inside a call of the store, while the others go on
    alive: bool = True
    storm_until_s: float = 0.0  # until then no answer comes to anything that it writes
    held: list[Leader] = field(
        default_factory=list
    )  # every standing that it ever had, for the writes of a process that does not know better


@dataclass(frozen=True)
class Work:
    """A write that went through."""

    revision: int
    name: str
    term: int


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.at_s = 0.0
        self.truth = open_store("memory:", compaction_threshold=1_000_000)
        self.fault_share = self.chance.choice([0.0, 0.05, 0.2])
        self.pause_share = self.chance.choice([0.0, 0.02, 0.1])
        self.storm_share = self.chance.choice([0.0, 0.1, 0.3])
        self.born = 0
        self.work: list[Work] = []
        self.refused = 0
        self.takes: dict[int, tuple[str, int]] = {}  # version of the lease -> holder, term
        self.candidates = [self.candidate() for _ in range(CANDIDATES)]

    def candidate(self) -> Candidate:
        self.born += 1
        name = f"p{self.born}"
        hands = Hands(self, self.chance.uniform(0.95, 1.05), self.chance.uniform(0, 1e6))
        store, network = faulty_store(self.truth, lambda _: Fault.NONE)
        made = Candidate(
            name,
            hands,
            store,
            network,
            Elector(store, "coordinator", name, "", int(LEASE_S * 1000), hands),
            self.at_s + self.chance.random() * POLL_S,
        )
        network.choose, network.pause = self.faults(made), lambda: self.others_go_on(made)
        return made

    def faults(self, candidate: Candidate) -> Callable[[StoreCall], Fault]:
        kinds = [fault for fault in Fault if fault not in (Fault.NONE, Fault.SLOW)]

        def choose(operation: StoreCall) -> Fault:
            if self.at_s < candidate.storm_until_s and operation in (
                StoreCall.APPLY,
                StoreCall.SETTLE,
            ):
                return self.chance.choice([Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.HELD_BACK])
            if self.chance.random() < self.pause_share:
                return Fault.SLOW
            return (
                self.chance.choice(kinds) if self.chance.random() < self.fault_share else Fault.NONE
            )

        return choose

    def others_go_on(self, paused: Candidate) -> None:
        """The paused one stands still in the middle of its call; the world does not."""
        paused.busy = True
        self.run_until(
            self.at_s + self.chance.choice([0.01, 0.3, 1.2, 3.0]) * LEASE_S * self.chance.random()
        )
        paused.busy = False

    def run_until(self, end_s: float) -> None:
        while True:
            ready = [c for c in self.candidates if c.alive and not c.busy]
            due = min(ready, key=lambda c: c.next_s, default=None)
            if due is None or due.next_s > end_s:
                self.at_s = max(self.at_s, end_s)
                return
            self.at_s = max(self.at_s, due.next_s)
            self.turn(due)

    def turn(self, candidate: Candidate) -> None:
        candidate.busy = True
        standing = candidate.elector.step()
        candidate.busy = False
        candidate.next_s = self.at_s + POLL_S * self.chance.uniform(0.5, 1.0)
        if isinstance(standing, Leader):
            self.takes.setdefault(standing.version, (candidate.name, standing.term))
            if not candidate.held or candidate.held[-1] is not standing:
                candidate.held.append(standing)
        self.at_most_one_trusts_itself()
        for leading in candidate.held[-1:] + self.chance.sample(
            candidate.held, min(2, len(candidate.held))
        ):
            self.try_to_write(candidate, leading)
        if self.chance.random() < 0.1:
            candidate.network.deliver()

    def try_to_write(self, candidate: Candidate, leading: Leader) -> None:
        try:
            revision = self.truth.transact(
                [leading.check()], [Put("work", candidate.name, {"term": leading.term})]
            )
        except Conflict:
            self.refused += 1
            return
        self.work.append(Work(revision, candidate.name, leading.term))

    def trusted(self) -> list[str]:
        standings = [(c.name, c.elector.leadership()) for c in self.candidates if c.alive]
        return [
            name
            for name, standing in standings
            if isinstance(standing, Leader) and standing.trusted()
        ]

    def at_most_one_trusts_itself(self) -> None:
        assert len(self.trusted()) <= 1, (
            f"seed {self.seed}: {self.trusted()} trust themselves at {self.at_s}"
        )

    def trouble_some(self) -> None:
        for candidate in [c for c in self.candidates if not c.busy]:
            leads = isinstance(candidate.elector.leadership(), Leader)
            if self.chance.random() < (0.3 if leads else 0.1):
                candidate.alive = False
                self.candidates.append(self.candidate())
            elif self.chance.random() < self.storm_share:
                candidate.storm_until_s = self.at_s + self.chance.random() * 2 * LEASE_S
        self.candidates = [c for c in self.candidates if c.alive]

    def live(self) -> None:
        while self.at_s < LIFE_S:
            self.run_until(self.at_s + self.chance.random() * 2 * LEASE_S)
            self.trouble_some()

    def calm_down(self) -> None:
        """The world is kind from now on: whatever was in doubt has been settled or given up, and
        somebody leads.
        """
        self.fault_share = self.pause_share = 0.0
        for candidate in self.candidates:
            candidate.storm_until_s = 0.0
        self.run_until(self.at_s + CALM_S)


@cache  # several tests look at the same lives
def lived(seed: int) -> World:
    world = World(seed)
    world.live()
    world.calm_down()
    return world


def holders_by_revision(world: World) -> list[tuple[int, str, int]]:
    """Every lease that was ever written, from the change log, with who held it; a lease that nobody
    ever knew to be its own is left out.
    """
    changes = world.truth.changes(LEASES, 0)
    versions = [event.version for event in changes.events]  # type: ignore[union-attr]  # nothing was compacted
    return [(version, *world.takes.get(version, ("nobody", 0))) for version in versions]


@pytest.mark.parametrize("life", range(LIVES))
def test_terms_grow_and_only_the_holder_of_the_moment_writes(seed: int, life: int) -> None:
    world = lived(seed + life)
    tenures = holders_by_revision(world)
    terms = [term for _, name, term in tenures if name != "nobody"]
    assert terms == sorted(set(terms)), f"seed {world.seed}"
    for work in world.work:
        _, name, term = max(tenure for tenure in tenures if tenure[0] <= work.revision)
        assert (work.name, work.term) == (name, term), f"seed {world.seed}: {work}"


@pytest.mark.parametrize("life", range(LIVES))
def test_a_leader_is_trusted_after_faults_end_and_a_dead_one_is_replaced_in_time(
    seed: int, life: int
) -> None:
    world = lived(seed + life)
    for _ in range(3):
        (leader,) = world.trusted()
        died_s = world.at_s
        for candidate in world.candidates:
            candidate.alive = candidate.name != leader
        world.candidates = [
            *(c for c in world.candidates if c.alive),
            world.candidate(),
            world.candidate(),
        ]
        world.run_until(world.at_s + POLL_S)  # everybody has had a look
        while not world.trusted():
            world.run_until(world.at_s + POLL_S / 20)
        assert world.at_s - died_s <= LEASE_S / 0.95 + 2 * POLL_S, f"seed {world.seed}"
        world.run_until(world.at_s + POLL_S)


def test_the_runs_contain_enough_faults(seed: int) -> None:
    worlds = [lived(seed + life) for life in range(LIVES)]
    assert sum(len(world.takes) for world in worlds) > 6 * LIVES
    assert sum(world.refused for world in worlds) > 100 * LIVES
    assert sum(len(world.work) for world in worlds) > 100 * LIVES
    assert (
        sum(
            name not in {c.name for c in world.candidates}
            for world in worlds
            for name, _ in world.takes.values()
        )
        > LIVES
    )


def test_a_holder_that_is_paused_between_its_decision_and_its_write_writes_nothing() -> None:
    world = World(1)
    world.fault_share = world.pause_share = 0.0
    world.run_until(LEASE_S)
    (leader,) = world.trusted()
    paused = next(c for c in world.candidates if c.name == leader)
    decided = paused.elector.leadership()
    assert isinstance(decided, Leader)
    paused.busy = True
    world.run_until(world.at_s + 2 * LEASE_S)
    assert world.trusted() != [leader]
    for attempt in (
        lambda: world.truth.transact([decided.check()], [Put("work", "late", {})]),
        lambda: paused.store.transact([decided.check()], [Put("work", "late", {})]),
    ):
        with pytest.raises(Conflict):
            attempt()
    assert not decided.trusted()
    assert not isinstance(paused.elector.step(), Leader)


def test_faults_of_the_store_reach_the_electors(seed: int) -> None:
    """Otherwise the lives above would be easier than they look."""
    met: set[str] = set()
    for life in range(10):
        world = World(seed + life)
        for candidate in world.candidates:
            inner = candidate.store.transact

            def noted(*arguments, inner=inner):
                try:
                    return inner(*arguments)
                except (Conflict, StoreUnavailable, OutcomeUnknown) as error:
                    met.add(type(error).__name__)
                    raise

            candidate.store.transact = noted
        world.live()
    assert met == {"Conflict", "StoreUnavailable", "OutcomeUnknown"}
