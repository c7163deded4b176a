"""Observes the leases of others: alive, silent for a whole lease, or vacant.

Called by the coordinator in each reconcile cycle, for the workers. It writes nothing: the caller
writes what follows from a silence, with the checks of `expire`, so that a holder that renewed in
the meantime wins.
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
    """The lease is held, and its holder is not silent."""

    lease_name: str
    holder: str
    address: str
    term: int
    lease_version: int

    def check(self) -> Check:
        """Return the condition that the holder is unchanged."""
        return Check(LEASES, self.lease_name, self.lease_version)


@dataclass(frozen=True, kw_only=True, slots=True)
class Silent:
    """The holder has sent no heartbeat for a whole lease, all of which was observed."""

    lease_name: str
    holder: str
    term: int
    lease_version: int
    heartbeat_version: int
    unchanged_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Vacant:
    """The lease is not held any more."""

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

    The heartbeat document stays, and with it the term.
    """
    checks = (
        Check(LEASES, silent.lease_name, silent.lease_version),
        Check(HEARTBEATS, silent.lease_name, silent.heartbeat_version),
    )
    return LeaderWrites(checks, (Delete(LEASES, silent.lease_name),))


def forget(vacant: Vacant) -> LeaderWrites:
    """Delete the last document of a worker's lease, together with the worker's record."""
    return LeaderWrites(
        (
            Check(LEASES, vacant.lease_name, 0),
            Check(HEARTBEATS, vacant.lease_name, vacant.heartbeat_version),
        ),
        (Delete(HEARTBEATS, vacant.lease_name),),
    )


class LeaseMonitor:
    """All leases whose name begins with `prefix`, each with the same length.

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
        """Poll all leases.

        StoreUnavailable passes through; time without a poll hardly counts as silence.
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
    """Observe a lease by its versions alone if a document of a newer format cannot be read."""
    try:
        return observed_from(lease, beat)
    except (TidegateError, TypeError, KeyError, ValueError):
        return Observed(
            lease_version=lease.version if lease else 0,
            heartbeat_version=beat.version if beat else 0,
        )
