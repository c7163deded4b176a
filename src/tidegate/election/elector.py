"""Holds a lease, or waits for it.

Called by servers for `coordinator` and by workers for `worker/<id>`: `step()` at least every tenth
of a lease, from a thread that never blocks; all other code calls `leadership()`. It never sleeps,
starts no threads, and never assumes that a write without a response was made. The package's
docstring describes the protocol.
"""

import logging
import threading
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.election.lease import (
    Hold,
    Observed,
    Take,
    Timing,
    keep,
    next_term,
    observe,
    seek,
    trusted,
)
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.records import HEARTBEATS, LEASES, Heartbeat, Lease
from tidegate.store import (
    Check,
    Conflict,
    DamagedEntry,
    Delete,
    Entry,
    OutcomeUnknown,
    Put,
    Store,
    StoreUnavailable,
)
from tidegate.store.backend import Committed, TransactionName

LOG = logging.getLogger("tidegate.election")
NEVER_S = float("-inf")


class ElectionClock(Protocol):
    """The clock readings that an election needs."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for display."""

    def monotonic_s(self) -> float:
        """Seconds that never go backwards."""


@dataclass(slots=True)
class HeldLease:
    """One period of holding a lease, shared by all `Leader` values of it.

    Only the elector's step writes it. Each field is one assignment, so other threads read it
    without a lock.
    """

    version: int
    term: int
    renew_at_s: float
    renewed_s: float  # when the last successful renewal began
    heartbeat_number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Leader:
    """This process holds the lease. `check()` belongs in every transaction made in its name."""

    lease_name: str
    term: int
    version: int
    held: HeldLease = field(compare=False, repr=False)
    clock: ElectionClock = field(compare=False, repr=False)
    timing: Timing = field(compare=False, repr=False)

    def check(self) -> Check:
        """Return the condition under which this leader may write."""
        return Check(LEASES, self.lease_name, self.version)

    def trusted(self) -> bool:
        """Whether the holder may act where a transaction cannot carry the check.

        Each renewal extends it; it ends for good when the lease is lost.
        """
        return trusted(self.clock.monotonic_s(), self.held.renewed_s, self.timing)


@dataclass(frozen=True, slots=True)
class NotLeader:
    """Another process holds the lease, as far as is known; `holder` is empty if none does."""

    holder: str = ""
    term: int = 0
    address: str = ""


@dataclass(frozen=True, slots=True)
class _UnresolvedTake:
    """A take whose outcome is not known."""

    token: TransactionName
    term: int
    began_s: float


class Elector:
    """One candidate for one lease. `me` names this process and no other, also no later one."""

    def __init__(
        self,
        store: Store,
        lease_name: str,
        me: str,
        address: str,
        lease_ms: int,
        clock: ElectionClock,
    ) -> None:
        assert lease_ms > 0, "a lease has a length"
        self.store = store
        self.lease_name = lease_name
        self.me = me
        self.address = address
        self.clock = clock
        self.timing = Timing(lease_ms / 1000)
        self.trouble = ""  # why the last step could not be completed; for display
        self._lock = threading.Lock()
        self._leadership: Leader | NotLeader = NotLeader()
        self._observed: Observed | None = None
        self._held: HeldLease | None = None
        self._unresolved: _UnresolvedTake | None = None
        self._term = 0  # the last one that I held
        self._resigned = False

    def leadership(self) -> Leader | NotLeader:
        """Return the result of the last step.

        Any thread may call it; a step that hangs shows in `Leader.trusted()`.
        """
        return self._leadership

    def step(self) -> Leader | NotLeader:
        """Renew the held lease when it is due, or take one that is vacant or silent."""
        return self._step(wait_for_silence=True)

    def claim(self) -> Leader | NotLeader:
        """Take the lease without waiting for silence; the lease can only belong to this process.

        Any other holder is fenced by this.
        """
        return self._step(wait_for_silence=False)

    def resign(self) -> None:
        """Release the lease, so that others need not wait, and never seek it again.

        If the store is out of reach, they wait for a lease.
        """
        with self._lock:
            self._resigned = True
            try:
                self._resolve_take()
                tenure = self._held
                self._lose()
                if tenure is not None:
                    self._delete(tenure)
            except (Conflict, StoreUnavailable, OutcomeUnknown) as error:
                self._log_trouble(str(error))

    def _step(self, *, wait_for_silence: bool) -> Leader | NotLeader:
        with self._lock:
            if self._resigned:
                return self._leadership
            try:
                standing = self._act(wait_for_silence=wait_for_silence)
                self._log_trouble("")
            except (Conflict, StoreUnavailable, OutcomeUnknown) as error:
                standing = self._leader(self._held) if self._held else self._not_leader()
                self._log_trouble(str(error))
            self._set_leadership(standing)
            return standing

    def _act(self, *, wait_for_silence: bool) -> Leader | NotLeader:
        self._resolve_take()
        if (tenure := self._held) is not None and self._renewed(tenure):
            return self._leader(tenure)
        observed = self._observed = self._read_lease()
        decision = (
            seek(observed, self.timing, term_min=self._term)
            if wait_for_silence
            else next_term(observed, self._term)
        )
        return (
            self._take(observed, decision.term)
            if isinstance(decision, Take)
            else self._not_leader()
        )

    def _read_lease(self) -> Observed:
        asked_s = self.clock.monotonic_s()
        lease, beat = (
            self.store.get(LEASES, self.lease_name),
            self.store.get(HEARTBEATS, self.lease_name),
        )
        return observe(
            self._observed,
            observed_from(lease, beat),
            requested_s=asked_s,
            answered_s=self.clock.monotonic_s(),
            timing=self.timing,
        )

    def _renewed(self, tenure: HeldLease) -> bool:
        """Whether the lease is still held; reads the store only when a renewal is due."""
        began_s = self.clock.monotonic_s()
        if isinstance(keep(began_s, tenure.renew_at_s), Hold):
            return True
        beat = Heartbeat(term=tenure.term, number=tenure.heartbeat_number + 1)
        failpoint("lease.renew.before")
        try:
            self.store.transact(
                [Check(LEASES, self.lease_name, tenure.version)],
                [Put(HEARTBEATS, self.lease_name, to_document(beat))],
            )
        except Conflict:
            self._lose()
            return False
        failpoint("lease.renew.after")
        tenure.heartbeat_number, tenure.renewed_s, tenure.renew_at_s = (
            beat.number,
            began_s,
            began_s + self.timing.renew_s,
        )
        return True

    def _take(self, observed: Observed, term: int) -> Leader | NotLeader:
        lease = Lease(holder=self.me, term=term, address=self.address, since_ms=self.clock.now_ms())
        checks = [
            Check(LEASES, self.lease_name, observed.lease_version),
            Check(HEARTBEATS, self.lease_name, observed.heartbeat_version),
        ]
        writes = [
            Put(LEASES, self.lease_name, to_document(lease)),
            Put(HEARTBEATS, self.lease_name, to_document(Heartbeat(term=term, number=0))),
        ]
        began_s = self.clock.monotonic_s()
        failpoint("lease.take.before")
        try:
            version = self.store.transact(checks, writes)
        except Conflict:  # another candidate was faster, or the holder woke up
            return self._not_leader()
        except OutcomeUnknown as unknown:
            self._unresolved = _UnresolvedTake(unknown.token, term, began_s)
            raise
        failpoint("lease.take.after")
        return self._leader(
            self._hold(version, term, began_s, renew_at_s=began_s + self.timing.renew_s)
        )

    def _delete(self, tenure: HeldLease) -> None:
        failpoint("lease.resign.before")
        self.store.transact(
            [Check(LEASES, self.lease_name, tenure.version)], [Delete(LEASES, self.lease_name)]
        )
        failpoint("lease.resign.after")

    def _resolve_take(self) -> None:
        """Find out the outcome of a take.

        What stays unknown for a whole lease is dropped: if it was written, it is silent by then.
        """
        if (doubt := self._unresolved) is None:
            return
        try:
            outcome = self.store.resolve_outcome(doubt.token)
        except OutcomeUnknown:
            if self.clock.monotonic_s() - doubt.began_s > self.timing.lease_s:
                self._unresolved = None
            raise
        self._unresolved = None
        if isinstance(outcome, Committed):  # it may be lost again: renewing finds out
            self._hold(outcome.revision, doubt.term, doubt.began_s, renew_at_s=NEVER_S)

    def _hold(self, version: int, term: int, began_s: float, *, renew_at_s: float) -> HeldLease:
        self._held = HeldLease(version=version, term=term, renewed_s=began_s, renew_at_s=renew_at_s)
        self._term = term
        return self._held

    def _lose(self) -> None:
        """End the held lease at once for all holders of a `Leader` of it."""
        if self._held is not None:
            self._held.renewed_s = NEVER_S
        self._held = None
        self._observed = None
        self._set_leadership(NotLeader(term=self._term))

    def _leader(self, tenure: HeldLease) -> Leader:
        return Leader(
            lease_name=self.lease_name,
            term=tenure.term,
            version=tenure.version,
            held=tenure,
            clock=self.clock,
            timing=self.timing,
        )

    def _not_leader(self) -> NotLeader:
        if self._observed is None:
            return NotLeader(term=self._term)
        return NotLeader(self._observed.holder, self._observed.term, self._observed.address)

    def _set_leadership(self, standing: Leader | NotLeader) -> None:
        before, self._leadership = self._leadership, standing
        if before != standing:
            LOG.info(
                "leadership_changed",
                extra={
                    "lease": self.lease_name,
                    "from": _describe(before),
                    "to": _describe(standing),
                    "term": standing.term,
                },
            )

    def _log_trouble(self, trouble: str) -> None:
        """Log when trouble begins and when it ends, not at every step."""
        if bool(trouble) != bool(self.trouble):
            LOG.warning(
                "lease_step_failed" if trouble else "lease_step_recovered",
                extra={"lease": self.lease_name, "why": trouble},
            )
        self.trouble = trouble


def observed_from(lease: Entry | None, beat: Entry | None) -> Observed:
    """Combine the two documents of a lease.

    The heartbeat outlives the lease and remembers its term.

    A damaged document counts with its version alone: silence is still detected, and no term was
    ever above the revision of its own write.
    """
    held = (
        from_document(Lease, lease.value, f"lease {lease.key}")
        if lease and not isinstance(lease, DamagedEntry)
        else None
    )
    last = (
        from_document(Heartbeat, beat.value, f"beat {beat.key}")
        if beat and not isinstance(beat, DamagedEntry)
        else None
    )
    damaged = [entry.version for entry in (lease, beat) if isinstance(entry, DamagedEntry)]
    return Observed(
        lease_version=lease.version if lease else 0,
        heartbeat_version=beat.version if beat else 0,
        holder=held.holder if held else "",
        address=held.address if held else "",
        term=max(held.term if held else 0, last.term if last else 0, *damaged),
    )


def _describe(standing: Leader | NotLeader) -> str:
    return "leading" if isinstance(standing, Leader) else f"following {standing.holder}".rstrip()
