"""Leader election by a lease in the store, with a term.

Leases exist for `coordinator` (servers compete) and `worker/<id>` (one worker each).

The idea. The store has no clock that could be read, and the clocks of hosts are never compared. A
lease carries no end time. It ends when a candidate has watched it for its whole length, on the
candidate's monotonic clock, without a heartbeat of the holder. Waiting is not what makes this safe:
every write of a holder names the lease that it was made under. Waiting only decides how soon a
lease changes its holder, and how rarely without need.

The documents of a lease, both under its name:

    leases/<name>        Lease(holder, term, address)
                         written only when the holder changes; its version is the fence
    lease-beats/<name>   Heartbeat(term, number)
                         rewritten by the holder every quarter of a lease; stays when the lease is
                         deleted, and so remembers the last term

The operations, each one transaction:

    take     if lease and heartbeat are at the versions that were read: lease = me with term + 1,
             heartbeat = (term + 1, 0)
    renew    if the lease is at my version: heartbeat = (term, number + 1)
    resign   if the lease is at my version: delete it. Candidates find it vacant at their next poll
             and take it without waiting
    expire   the same by the leader for a silent worker, in the transaction that acts on the
             silence: if lease and heartbeat are at the versions that were read. A worker whose
             lease is gone takes it again with a new term

    candidate --- take: vacant, or silent for a whole lease ---> holder --- renew, renew ... ---+
        ^                                                           |                           |
        +---------- lost: the lease is at another version ----------+------ resign, expired ----+

What a candidate counts. The time since it first read this pair of versions: from the response that
returned them to the request of the latest poll, so that neither a slow request nor a slow response
makes the silence longer than it was. Time without polls, because the candidate was stopped or the
store was out of reach, counts only up to a quarter of a lease: when a store comes back, or a host
wakes up, the holders have time to renew first.

What a holder trusts. A renewal that began at t is seen by no candidate before t, so no candidate
takes over before t + lease. The holder trusts itself until t + 0.9 lease by its own monotonic
clock; the missing tenth allows for clocks that run up to 5 % too fast or too slow. After that it is
still the holder, but acts as if it were not, until a renewal succeeds (no other process took it) or
fails (one did). Trust is for acts that cannot carry a check: deleting files, answering queries. It
is never a reason to omit the check. A clock that stops while the machine sleeps makes trust last
too long and changes nothing about the writes.

What a write carries. `Leader.check()`, the lease at my version, in each transaction of the holder.
Versions of the store never repeat, so a holder that was paused for an hour, between its decision
and its write, or in the network, writes nothing. Terms are for users and logs; they grow strictly,
because each taker writes the highest term that it read plus one, on the condition that no other
process did.

When a response is lost. An unknown renewal does not extend trust and is repeated. An unknown take
is resolved with the store before anything else: it was written, or it can never be written. While
that is unknown, the lease counts as another process's; if it is ours without our knowledge, nobody
renews it, and it is taken like any other silent one.

Cost: one small write per holder every quarter of a lease, two small reads per candidate and poll. A
poll every tenth of a lease gives a takeover within 1.1 leases of the last renewal.

Files: lease.py is the arithmetic, pure; elector.py holds or seeks one lease; lease_monitor.py
observes the leases of others. Called by server and worker, often, from one thread that never
blocks.
"""

from tidegate.election.elector import Elector, Leader, NotLeader
from tidegate.election.lease import COORDINATOR, WORKER_PREFIX, worker_lease
from tidegate.election.lease_monitor import Alive, LeaseMonitor, Silent, Vacant, expire, forget

__all__ = [
    "COORDINATOR",
    "WORKER_PREFIX",
    "Alive",
    "Elector",
    "Leader",
    "LeaseMonitor",
    "NotLeader",
    "Silent",
    "Vacant",
    "expire",
    "forget",
    "worker_lease",
]
