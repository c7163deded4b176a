"""Every server says that it is there: one record each, rewritten as a sign of life, so that all
servers know one another. For displays and for pages that go on with another server; nothing is
decided by it.

It works as a lease does: who has been silent for a whole lease, on the watcher's own clock, is not
shown any more, and the leader takes the record away. A server that ends in order takes its own
away. One that was only slow is back with its next sign of life: nobody else ever writes under its
name.
"""

import logging
import threading
from dataclasses import replace

from tidegate.clock import Clock
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.election import Leader
from tidegate.failpoint import failpoint
from tidegate.model.document import to_document
from tidegate.model.errors import TidegateError
from tidegate.model.records import SERVERS, ServerRecord
from tidegate.store.base import Check, Delete, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict, StoreUnavailable

LOG = logging.getLogger("tidegate.coordinator")
HEARTBEAT_SHARE = 0.25  # of the lease, between two signs of life: three in a row may fail


class ServerHeartbeat:
    """This server, for the others.

    `step` is called again and again, at least every tenth of a lease.
    """

    def __init__(self, store: Store, me: ServerRecord, lease_ms: int, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.me = me
        self._every_s = lease_ms / 1000 * HEARTBEAT_SHARE
        self._due_s = float("-inf")
        self._withdrawn = False
        self._lock = threading.Lock()
        self._trouble = ""
        self._trying_s: float | None = None  # since when a write is under way, or fails

    def step(self) -> None:
        """A sign of life, where one is due. Bad weather is the caller's to wait for."""
        with self._lock:
            if self._withdrawn or self.clock.monotonic_s() < self._due_s:
                return
            began_s = self.clock.monotonic_s()
            self._trying_s = began_s if self._trying_s is None else self._trying_s
            self.me = replace(self.me, number=self.me.number + 1)
            failpoint("server.announce.before")
            try:
                self.store.transact((), [Put(SERVERS, self.me.id, to_document(self.me))])
            except TidegateError as error:
                self._trouble = str(error)
                raise
            failpoint("server.announce.after")
            self._due_s = began_s + self._every_s
            self._trouble = ""
            self._trying_s = None

    def trouble(self, after_s: float) -> str:
        """Why the store cannot be written, where that has been so for this long; this server tries
        again and again. Any thread may ask.
        """
        since_s = self._trying_s
        if since_s is None or self.clock.monotonic_s() - since_s <= after_s:
            return ""
        return self._trouble or "the store has not answered a write in time"

    def withdraw(self) -> None:
        """The orderly end: nothing of this server is left.

        Where the store cannot be written, the leader tidies.
        """
        with self._lock:
            self._withdrawn = True
            failpoint("server.withdraw.before")
            try:
                self.store.transact((), [Delete(SERVERS, self.me.id)])
            except (Conflict, StoreUnavailable, OutcomeUnknown) as weather:
                LOG.warning("left without a word", extra={"why": str(weather)})
            failpoint("server.withdraw.after")


def live_servers(cache: ClusterCache, lease_ms: int, clock: Clock) -> list[ServerRecord]:
    """The servers that have given a sign of life within a lease, as far as this one has seen."""
    now_s = clock.monotonic_s()
    return [
        seen.value
        for _, seen in sorted(cache.servers().items())
        if now_s - seen.since_s <= lease_ms / 1000
    ]


def remove_silent_servers(
    cache: ClusterCache, leading: Leader, lease_ms: int, clock: Clock
) -> None:
    """The leader's part: take the records of silent servers away.

    One that speaks in the meantime wins.
    """
    now_s = clock.monotonic_s()
    for key, seen in sorted(cache.servers().items()):
        if now_s - seen.since_s <= lease_ms / 1000:
            continue
        failpoint("server.sweep.before")
        try:
            cache.store.transact(
                [leading.check(), Check(SERVERS, key, seen.version)], [Delete(SERVERS, key)]
            )
        except Conflict:
            continue  # it lives, or somebody else leads: the next look says which
        failpoint("server.sweep.after")
        LOG.warning("a server is gone", extra={"why": key})
