"""The arithmetic of a lease, pure: what follows from polls, and how long a holder is trusted.

Called by elector.py and lease_monitor.py, which read the store and the clock; nothing here reads
either. Seconds are those of the caller's monotonic clock.
"""

from dataclasses import dataclass, replace

COORDINATOR = "coordinator"
WORKER_PREFIX = "worker/"

RENEW_SHARE = 0.25  # of the lease, between two renewals: three in a row may fail
# A holder's clock that is 5 % slow and a candidate's that is 5 % fast still agree on the order.
TRUST_SHARE = 0.9
GAP_SHARE = 0.25  # of the lease: the most that the time between two polls may count


def worker_lease(worker: str) -> str:
    """Return the name of a worker's lease."""
    return f"{WORKER_PREFIX}{worker}"


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals of a lease of this length."""

    lease_s: float

    @property
    def renew_s(self) -> float:
        """The time from one renewal to the next."""
        return self.lease_s * RENEW_SHARE

    @property
    def trust_s(self) -> float:
        """How long a renewal is trusted, from its beginning."""
        return self.lease_s * TRUST_SHARE

    @property
    def gap_s(self) -> float:
        """The longest time between two polls that counts as observed."""
        return self.lease_s * GAP_SHARE


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """A lease as it was read, and for how long it has been unchanged."""

    lease_version: int = 0  # 0: vacant
    heartbeat_version: int = 0
    holder: str = ""
    address: str = ""
    term: int = 0  # the highest known term of this lease
    unchanged_s: float = 0.0
    since_s: float = 0.0  # when these versions were read first
    answered_s: float = 0.0  # when they were read last
    unwatched_s: float = 0.0  # the time in between that does not count

    def same_as(self, other: "Observed") -> bool:
        """Whether nothing was written between the two polls."""
        return (self.lease_version, self.heartbeat_version) == (
            other.lease_version,
            other.heartbeat_version,
        )


def observe(
    before: Observed | None, now: Observed, *, requested_s: float, answered_s: float, timing: Timing
) -> Observed:
    """Return the lease as it is `now`, with the time it has been unchanged.

    The first poll counts from its response and the last one up to its request: anything outside may
    have been before or after the change.
    """
    if before is None or not now.same_as(before):
        return replace(
            now, unchanged_s=0.0, since_s=answered_s, answered_s=answered_s, unwatched_s=0.0
        )
    unwatched_s = before.unwatched_s + max(0.0, answered_s - before.answered_s - timing.gap_s)
    unchanged_s = max(before.unchanged_s, requested_s - before.since_s - unwatched_s)
    return replace(
        now,
        unchanged_s=unchanged_s,
        since_s=before.since_s,
        answered_s=answered_s,
        unwatched_s=unwatched_s,
    )


@dataclass(frozen=True, slots=True)
class Take:
    """The lease is vacant, or its holder has been silent for a whole lease."""

    term: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Another process holds the lease.

    If it stays silent, the lease may be taken at `until_s`.
    """

    until_s: float


def seek(observed: Observed, timing: Timing, *, term_min: int = 0) -> Take | Wait:
    """Decide what a candidate does.

    `term_min`: the last term that it held itself; the store may have lost the documents since.
    """
    if observed.lease_version == 0 or silent(observed, timing):
        return next_term(observed, term_min)
    return Wait(observed.answered_s + timing.lease_s - observed.unchanged_s)


def next_term(observed: Observed, term_min: int = 0) -> Take:
    """Take the lease with a term above all known ones."""
    return Take(max(observed.term, term_min) + 1)


def silent(observed: Observed, timing: Timing) -> bool:
    """Whether a lease is held, and its holder sent no heartbeat for a whole lease."""
    return observed.lease_version > 0 and observed.unchanged_s >= timing.lease_s


@dataclass(frozen=True, slots=True)
class Hold:
    """The lease is held, and the next renewal is not due."""


@dataclass(frozen=True, slots=True)
class Renew:
    """The lease needs a heartbeat; the store decides whether it is still held."""


def keep(now_s: float, renew_at_s: float) -> Hold | Renew:
    return Hold() if now_s < renew_at_s else Renew()


def trusted(now_s: float, renewed_s: float, timing: Timing) -> bool:
    """Whether a holder may rely on its last successful renewal, which began at `renewed_s`."""
    return now_s < renewed_s + timing.trust_s
