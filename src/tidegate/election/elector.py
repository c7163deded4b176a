"""Holds an office, or waits for it. Called by servers for `coordinator` and by workers for
`worker/<id>`: `step()` again and again, at least every tenth of a lease, from a thread that does
nothing slow; everybody else asks `leadership()`.

It never sleeps, starts no threads, and never assumes that a write was made whose answer it did not
get. The protocol is told in the package's docstring.
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
    """The two hands that are needed here."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for people."""

    def monotonic_s(self) -> float:
        """Seconds that never go backwards."""


@dataclass(slots=True)
class HeldLease:
    """One holding of an office, shared by everybody who was given a `Leading` of it. Written by the
    elector's turn only; each field is one assignment, so other threads read it without a lock.
    """

    version: int
    term: int
    renew_at_s: float
    renewed_s: float  # when the last successful renewal began
    heartbeat_number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Leader:
    """I hold the office. `check()` belongs into every transaction that is made in its name."""

    lease_name: str
    term: int
    version: int
    held: HeldLease = field(compare=False, repr=False)
    clock: ElectionClock = field(compare=False, repr=False)
    timing: Timing = field(compare=False, repr=False)

    def check(self) -> Check:
        """The condition under which I may write."""
        return Check(LEASES, self.lease_name, self.version)

    def trusted(self) -> bool:
        """Whether I may act in the name of the office where no check can be carried; moves on with
        each renewal, and ends for good when the office is lost.
        """
        return trusted(self.clock.monotonic_s(), self.held.renewed_s, self.timing)


@dataclass(frozen=True, slots=True)
class NotLeader:
    """Somebody else holds the office, as far as is known; an empty name where nobody does, or
    nothing is known.
    """

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
    """One candidate for one office. `me` names this process and no other, also no later one."""

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
        self.trouble = ""  # why the last turn could not be finished; for displays
        self._lock = threading.Lock()
        self._leadership: Leader | NotLeader = NotLeader()
        self._observed: Observed | None = None
        self._held: HeldLease | None = None
        self._unresolved: _UnresolvedTake | None = None
        self._term = 0  # the last one that I held
        self._resigned = False

    def leadership(self) -> Leader | NotLeader:
        """Where this process stood after the last turn.

        Any thread may ask; a turn that hangs shows in `Leading.trusted()`.
        """
        return self._leadership

    def step(self) -> Leader | NotLeader:
        """One turn: renew what I hold when it is due, take what is free or silent."""
        return self._step(wait_for_silence=True)

    def claim(self) -> Leader | NotLeader:
        """One turn that does not wait for silence: for an office that can only be mine.

        Whoever else holds it is fenced by this.
        """
        return self._step(wait_for_silence=False)

    def resign(self) -> None:
        """Give the office back, so that others need not wait, and never seek it again.

        Where the store is out of reach they wait for a lease.
        """
        with self._lock:
            self._resigned = True
            try:
                self._resolve_take()
                tenure = self._held
                self._lose()
                if tenure is not None:
                    self._delete(tenure)
            except (Conflict, StoreUnavailable, OutcomeUnknown) as weather:
                self._log_trouble(str(weather))

    def _step(self, *, wait_for_silence: bool) -> Leader | NotLeader:
        with self._lock:
            if self._resigned:
                return self._leadership
            try:
                standing = self._act(wait_for_silence=wait_for_silence)
                self._log_trouble("")
            except (Conflict, StoreUnavailable, OutcomeUnknown) as weather:
                standing = self._leader(self._held) if self._held else self._not_leader()
                self._log_trouble(str(weather))
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
        """Whether the office is still mine; asks the store only when a renewal is due."""
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
        except Conflict:  # somebody was faster, or woke up: the next look says who
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
        """Find out what became of a take.

        What stays unknown for a whole lease is given up: if it was written, it is silent by then.
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
        if isinstance(outcome, Committed):  # it may be lost again already: renewing finds out
            self._hold(outcome.revision, doubt.term, doubt.began_s, renew_at_s=NEVER_S)

    def _hold(self, version: int, term: int, began_s: float, *, renew_at_s: float) -> HeldLease:
        self._held = HeldLease(version=version, term=term, renewed_s=began_s, renew_at_s=renew_at_s)
        self._term = term
        return self._held

    def _lose(self) -> None:
        """Whoever still has a `Leading` of this tenure sees at once that it is over."""
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
                "office",
                extra={
                    "office": self.lease_name,
                    "from": _describe(before),
                    "to": _describe(standing),
                    "term": standing.term,
                },
            )

    def _log_trouble(self, trouble: str) -> None:
        """One line when the weather turns, not one for each turn in the rain."""
        if bool(trouble) != bool(self.trouble):
            LOG.warning(
                (
                    "the office cannot be looked after"
                    if trouble
                    else "the office is looked after again"
                ),
                extra={"office": self.lease_name, "why": trouble},
            )
        self.trouble = trouble


def observed_from(lease: Entry | None, beat: Entry | None) -> Observed:
    """What the two documents of an office say. The beat outlives the lease and remembers its term.

    One that is damaged is judged by its version alone: silence is seen all the same, and no term
    was ever above the revision of its own writing.
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
