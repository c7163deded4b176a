"""Looks at the offices of others: who lives, who has been silent for a whole lease, which are
empty. Called by the coordinator in each turn, for the workers.

It writes nothing. What follows from a silence is the caller's to write, with the checks of
`expire`, so that a holder that spoke in the meantime wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.election.elector import ElectionClock, observed_from
from tidegate.election.lease import WORKER_PREFIX, Observed, Timing, observe, silent
from tidegate.model.errors import TidegateError
from tidegate.model.records import HEARTBEATS, LEASES
from tidegate.store import Check, Delete, Entry, Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """The office is held, and nothing speaks against its holder yet."""

    lease_name: str
    holder: str
    address: str
    term: int
    lease_version: int

    def check(self) -> Check:
        """The condition that it still is the same holder."""
        return Check(LEASES, self.lease_name, self.lease_version)


@dataclass(frozen=True, kw_only=True, slots=True)
class Silent:
    """Its holder has given no sign of life for a whole lease, all of which was watched."""

    lease_name: str
    holder: str
    term: int
    lease_version: int
    heartbeat_version: int
    unchanged_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Vacant:
    """Nobody holds it; somebody did."""

    lease_name: str
    term: int
    heartbeat_version: int
    unchanged_s: float


LeaseStatus = Alive | Silent | Vacant


@dataclass(frozen=True, slots=True)
class LeaderWrites:
    """Checks and writes for a transaction of the leader."""

    checks: tuple[Check, ...]
    writes: tuple[Delete, ...]


def expire(silent: Silent) -> LeaderWrites:
    """End a silent lease, in the transaction that acts on the silence.

    The beat stays, and with it the term.
    """
    checks = (
        Check(LEASES, silent.lease_name, silent.lease_version),
        Check(HEARTBEATS, silent.lease_name, silent.heartbeat_version),
    )
    return LeaderWrites(checks, (Delete(LEASES, silent.lease_name),))


def forget(vacant: Vacant) -> LeaderWrites:
    """Take away the last trace of an office that will not be held again: a worker's, with its
    record.
    """
    return LeaderWrites(
        (
            Check(LEASES, vacant.lease_name, 0),
            Check(HEARTBEATS, vacant.lease_name, vacant.heartbeat_version),
        ),
        (Delete(HEARTBEATS, vacant.lease_name),),
    )


class LeaseMonitor:
    """All offices whose name begins with `prefix`, each with a lease of the same length.

    For one thread.
    """

    def __init__(
        self, store: Store, lease_ms: int, clock: ElectionClock, prefix: str = WORKER_PREFIX
    ) -> None:
        assert lease_ms > 0, "a lease has a length"
        self.store = store
        self.clock = clock
        self.prefix = prefix
        self.timing = Timing(lease_ms / 1000)
        self._observed: dict[str, Observed] = {}

    def step(self) -> Mapping[str, LeaseStatus]:
        """One look at all of them.

        StoreUnavailable passes through; time without a look hardly counts as silence.
        """
        asked_s = self.clock.monotonic_s()
        leases = {entry.key: entry for entry in self.store.list(LEASES, self.prefix)}
        beats = {entry.key: entry for entry in self.store.list(HEARTBEATS, self.prefix)}
        answered_s = self.clock.monotonic_s()
        self._observed = {
            office: observe(
                self._observed.get(office),
                _observed(leases.get(office), beats.get(office)),
                requested_s=asked_s,
                answered_s=answered_s,
                timing=self.timing,
            )
            for office in sorted(leases.keys() | beats.keys())
        }
        return {
            office: self._status(office, observed) for office, observed in self._observed.items()
        }

    def _status(self, office: str, seen: Observed) -> LeaseStatus:
        if seen.lease_version == 0:
            return Vacant(
                lease_name=office,
                term=seen.term,
                heartbeat_version=seen.heartbeat_version,
                unchanged_s=seen.unchanged_s,
            )
        if not silent(seen, self.timing):
            return Alive(
                lease_name=office,
                holder=seen.holder,
                address=seen.address,
                term=seen.term,
                lease_version=seen.lease_version,
            )
        return Silent(
            lease_name=office,
            holder=seen.holder,
            term=seen.term,
            lease_version=seen.lease_version,
            heartbeat_version=seen.heartbeat_version,
            unchanged_s=seen.unchanged_s,
        )


def _observed(lease: Entry | None, beat: Entry | None) -> Observed:
    """Silence is a matter of versions alone: documents of a newer kind, which cannot be read here,
    are judged as well.
    """
    try:
        return observed_from(lease, beat)
    except (TidegateError, TypeError, KeyError, ValueError):
        return Observed(
            lease_version=lease.version if lease else 0,
            heartbeat_version=beat.version if beat else 0,
        )
