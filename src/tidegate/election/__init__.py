"""Who holds an office: leadership by a lease in the store, with a term, for `coordinator` (servers
compete) and `worker/<id>` (one worker each).

The idea. The store has no clock that we could ask, and the clocks of hosts are never compared. A
lease does not carry a time at which it ends; it ends when somebody has watched it for its whole
length, on a monotonic clock of his own, and its holder gave no sign of life. What makes this safe
is not the waiting: it is that every write of a holder names the lease that it was made under. The
waiting only decides how soon, and how rarely in vain, an office changes hands.

The documents of an office, both under its name:

    leases/<office>        Lease(holder, term, address)   written only when the holder changes; its version is the fence
    lease-beats/<office>   Beat(term, number)             rewritten by the holder every quarter of a lease; stays when the lease is deleted,
                                                          and so remembers the last term

What can be done, each in one transaction:

    take     if lease and beat are both at the versions that were seen: lease = me with term + 1, beat = (term + 1, 0)
    renew    if the lease is at my version: beat = (term, number + 1)
    resign   if the lease is at my version: delete it. Everybody sees an empty office at his next look and takes it without waiting
    expire   the same by the leader, for a silent worker, in the transaction in which it acts on that silence: if lease and beat are at the versions that
             were seen. A worker whose lease is gone takes it anew, with a new term

    candidate --- take: empty, or silent for a whole lease ---> holder --- renew, renew, renew ... ---+
        ^                                                          |                                  |
        +---------- lost: the lease is at another version ---------+------- resign, expired ----------+

What a candidate counts. The time since it first saw this pair of versions: from the answer that
brought them to the question of the latest look, so that neither a slow question nor a slow answer
makes the silence longer than it was. Time in which it did not look, because it was stopped or the
store was out of reach, counts only up to a quarter of a lease: when a store comes back, or a host
wakes up, the holders have time to speak first.

What a holder trusts. A renewal that began at t is seen by no candidate before t, so nobody takes
over before t + lease. The holder trusts itself until t + 0.9 lease, by its own monotonic clock: the
missing tenth pays for clocks that run up to 5 % too fast or too slow. After that it is still the
holder, but acts as if it were not, until a renewal goes through (the office may still be its own:
nobody else had to come) or fails (somebody did). Trust is for what cannot carry a check: deleting
files, answering questions. It is never a reason to leave the check away. A clock that stands still
while the machine sleeps makes trust last too long and changes nothing about the writes.

What a write carries. `Leading.check()`, the lease at my version, in each transaction of the holder.
Versions of the store never come twice, so a holder that was paused for an hour, between its
decision and its write, or inside the network, writes nothing. Terms are for people and logs; they
grow strictly because each taker writes the highest that it saw, plus one, on the condition that
nobody else did.

When an answer is lost. An unknown renewal does not lengthen trust and is simply made again. An
unknown take is settled with the store before anything else is done: it was written, or it is void
and can never be written. While even that cannot be found out the office counts as somebody else's;
should it be ours without our knowing, then nobody renews it, and it is taken like any other silent
one.

Cost: one small write for each holder every quarter of a lease, two small reads for each candidate
and look. A look every tenth of a lease gives a takeover within 1.1 leases of the last renewal.

Files: lease.py is the arithmetic, pure; elector.py holds or seeks one office; watch.py looks at the
offices of others. Called by server and worker; who calls must call often, from one thread that does
nothing slow.
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
