"""Heartbeats of servers: one record each, rewritten, so that all servers know one another.

For displays, and for pages that continue with another server; no decision depends on it. It works
like a lease: a server that is silent for a whole lease, on the observer's own clock, is no longer
shown, and the leader removes its record. A server that shuts down in order removes its own. One
that was only slow is back with its next heartbeat: no other process writes under its name.
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
    """The heartbeat of this server.

    `step` is called at least every tenth of a lease.
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
        """Write a heartbeat if one is due; the caller handles an unavailable store."""
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
        """Return why the store cannot be written, if that lasts for longer than `after_s`.

        Any thread may call it.
        """
        since_s = self._trying_s
        if since_s is None or self.clock.monotonic_s() - since_s <= after_s:
            return ""
        return self._trouble or "the store has not answered a write in time"

    def withdraw(self) -> None:
        """Remove the record at an orderly shutdown.

        If the store cannot be written, the leader removes it later.
        """
        with self._lock:
            self._withdrawn = True
            failpoint("server.withdraw.before")
            try:
                self.store.transact((), [Delete(SERVERS, self.me.id)])
            except (Conflict, StoreUnavailable, OutcomeUnknown) as error:
                LOG.warning("server_record_not_removed", extra={"why": str(error)})
            failpoint("server.withdraw.after")


def live_servers(cache: ClusterCache, lease_ms: int, clock: Clock) -> list[ServerRecord]:
    """Return the servers that have sent a heartbeat within a lease, as observed here."""
    now_s = clock.monotonic_s()
    return [
        seen.value
        for _, seen in sorted(cache.servers().items())
        if now_s - seen.since_s <= lease_ms / 1000
    ]


def remove_silent_servers(
    cache: ClusterCache, leading: Leader, lease_ms: int, clock: Clock
) -> None:
    """Remove the records of silent servers, as the leader.

    A heartbeat in the meantime wins.
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
            continue  # it is alive, or this server no longer leads: the next cycle decides
        failpoint("server.sweep.after")
        LOG.warning("server_lost", extra={"server": key})
