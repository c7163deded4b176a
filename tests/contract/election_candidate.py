"""`python election_candidate.py URL NAME LEASE_MS`: a candidate as a process of its own, for
test_election.py.

It tells every change of its standing as a line: `leading TERM`, `following HOLDER TERM`. As leader
it counts in `work/<term>`, in each turn, under its check, and it tries again with the standing that
it had in the turn before, as a process would that was stopped between deciding and writing:
`refused TERM` tells that this failed. When its standard input ends it resigns and ends.
"""

import select
import sys

from tidegate.clock import SystemClock
from tidegate.election import Elector, Leader, NotLeader
from tidegate.store import Check, Conflict, Put, Store, StoreUnavailable, open_store


def work(store: Store, leading: Leader) -> bool:
    """Count one up in the name of the office; whether that was allowed.

    It asks only the store, not the clock.
    """
    entry = store.get("work", str(leading.term))
    number = entry.value["number"] if entry else 0
    try:
        mine = Check("work", str(leading.term), entry.version if entry else 0)
        store.transact(
            [leading.check(), mine], [Put("work", str(leading.term), {"number": number + 1})]
        )
    except Conflict:
        return False
    except StoreUnavailable:  # it was busy for long; the next turn is soon
        return True
    return True


def told(standing: Leader | NotLeader) -> str:
    return (
        f"leading {standing.term}"
        if isinstance(standing, Leader)
        else f"following {standing.holder or '-'} {standing.term}"
    )


def main(url: str, name: str, lease_ms: int) -> None:
    store = open_store(url)
    elector = Elector(store, "coordinator", name, "", lease_ms, SystemClock())
    said, before = "", elector.leadership()
    while True:
        standing = elector.step()
        if told(standing) != said:
            said = told(standing)
            print(said, flush=True)
        for leading in (before, standing):
            if isinstance(leading, Leader) and not work(store, leading):
                print(f"refused {leading.term}", flush=True)
        before = standing
        if select.select([sys.stdin], [], [], lease_ms / 10_000)[0]:
            elector.resign()
            store.close()
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
