"""What several users do to one store at the same time, for the contract suite: as threads, or as
processes of their own.

As a process: `python -m tidegate.testing.store_worker URL ACT WORKER AMOUNT`. It ends with 0 if the
act did.
"""

import os
import random
import sys
from collections.abc import Callable

from tidegate.store import Check, Conflict, Entry, Put, Store, open_store

ACCOUNTS = 6
Act = Callable[[Store, int, int], None]


def count(
    store: Store,
    worker: int,  # noqa: ARG001  # all acts have the same arguments
    amount: int,
) -> None:
    """Add 1 to a common counter, `amount` times, each by compare-and-set."""
    for _ in range(amount):
        while not _added(store, "counters", "common", 1):
            continue


def transfer(store: Store, worker: int, amount: int) -> None:
    """Move money between two accounts in one transaction, `amount` times."""
    chance = random.Random(worker)
    for _ in range(amount):
        source, target = chance.sample(range(ACCOUNTS), 2)
        while not _moved(store, f"account-{source}", f"account-{target}", chance.randrange(100)):
            continue


def record(store: Store, worker: int, amount: int) -> None:
    """Write pairs of entries for ever (or `amount` pairs), and say of each which revision was
    acknowledged: the process is killed meanwhile.
    """
    number = len(store.list("left", f"{worker}/"))
    end = number + amount if amount else sys.maxsize
    while number < end:
        key = f"{worker}/{number:06d}"
        revision = store.transact(
            [Check("left", key, 0), Check("right", key, 0)],
            [Put("left", key, {"number": number}), Put("right", key, {"number": number})],
        )
        print(key, revision, flush=True)
        number += 1


def compact(
    store: Store,
    worker: int,  # noqa: ARG001  # all acts have the same arguments
    amount: int,
) -> None:
    for _ in range(amount):
        store.compact()


def stumble(
    store: Store,
    worker: int,  # noqa: ARG001  # all acts have the same arguments
    amount: int,
) -> None:
    """Keep writing over exceptions; report them and the number of entries at the end."""
    for number in range(amount):
        try:
            store.transact(writes=[Put("left", str(number), {})])
        except RuntimeError as error:
            print(type(error).__name__)
    print(len(store.list("left")))


def fork(store: Store, worker: int, amount: int) -> None:
    """Fork, and count on both sides."""
    count(store, worker, amount)
    child = os.fork()
    count(store, worker, amount)
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    count(store, worker, amount)


ACTS: dict[str, Act] = {
    "count": count,
    "transfer": transfer,
    "record": record,
    "compact": compact,
    "stumble": stumble,
    "fork": fork,
}


def _entry(store: Store, map: str, key: str) -> Entry:
    return store.get(map, key) or Entry(key, {"amount": 0}, 0)


def _added(store: Store, map: str, key: str, amount: int) -> bool:
    old = _entry(store, map, key)
    try:
        store.transact(
            [Check(map, key, old.version)],
            [Put(map, key, {"amount": old.value["amount"] + amount})],
        )
    except Conflict:
        return False
    return True


def _moved(store: Store, source: str, target: str, amount: int) -> bool:
    old = [_entry(store, "bank", source), _entry(store, "bank", target)]
    new = [{"amount": old[0].value["amount"] - amount}, {"amount": old[1].value["amount"] + amount}]
    try:
        store.transact(
            [Check("bank", e.key, e.version) for e in old],
            [Put("bank", e.key, v) for e, v in zip(old, new, strict=True)],
        )
    except Conflict:
        return False
    return True


def main(url: str, act: str, worker: str, amount: str) -> None:
    """One worker, to its end."""
    store = open_store(url)
    ACTS[act](store, int(worker), int(amount))
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
