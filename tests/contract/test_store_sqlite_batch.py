"""A batch of transactions leaves the same behind as the same transactions one after the other:
entries, the change feed, outcomes, and who was turned away.
"""

import random
from pathlib import Path

import pytest

from tidegate.store.backend import (
    Changes,
    Check,
    NotCommitted,
    Retention,
    Transaction,
    TransactionName,
    Write,
)
from tidegate.store.combine import Outcome
from tidegate.store.errors import StoreUnavailable
from tidegate.store.sqlite.backend import SqliteBackend
from tidegate.store.sqlite.write_batch import decide_batch

MAPS, KEYS = ("a", "b"), ("1", "2", "3")
PLACES = [(map, key) for map in MAPS for key in KEYS]
SEEDS = 40
ROUNDS = 6


def transaction(chance: random.Random, revision: int, number: int) -> Transaction:
    """One that knows some versions, some of them wrong, and writes and deletes some entries."""
    checks = tuple(
        Check(*place, chance.randint(0, revision + 2)) for place in PLACES if chance.random() < 0.1
    )
    writes = tuple(
        Write(*place, None if chance.random() < 0.4 else f'"{number} é \\u0000 {chance.random()}"')
        for place in PLACES
        if chance.random() < 0.4
    )
    return Transaction(
        token=TransactionName(id=number.to_bytes(16), since=0),
        checks=checks,
        writes=writes or (Write("a", "1", "0"),),
    )


def aware(backend: SqliteBackend, chance: random.Random, given: Transaction) -> Transaction:
    """The same with checks that hold before the batch; others of the batch may still be quicker."""
    rows = {(map, row.key): row.version for map in MAPS for row in backend.scan(map, "")}
    places = [place for place in PLACES if chance.random() < 0.3]
    return Transaction(
        token=given.token,
        checks=tuple(Check(*place, rows.get(place, 0)) for place in places),
        writes=given.writes,
    )


def told(outcomes: list[Outcome]) -> list[str]:
    return [str(outcome) for outcome in outcomes]


def left(backend: SqliteBackend) -> tuple[object, ...]:
    feed = backend.feed(MAPS, 0)
    assert isinstance(feed, Changes)
    return backend.revision(), {map: backend.scan(map, "") for map in MAPS}, feed


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_batch_is_the_same_as_one_after_the_other(tmp_path: Path, seed: int) -> None:
    chance, number = random.Random(seed), 0
    together, alone = (
        SqliteBackend(tmp_path / f"{name}.db", retention=Retention())
        for name in ("together", "alone")
    )
    for _ in range(ROUNDS):
        batch = []
        for _ in range(chance.randint(1, 6)):
            number += 1
            given = transaction(chance, together.revision(), number)
            batch.append(aware(together, chance, given) if chance.random() < 0.7 else given)
        late = [chance.choice(batch).token] if chance.random() < 0.3 else []
        assert [each.resolve_outcome(token) for token in late for each in (together, alone)] == [
            NotCommitted(),
            NotCommitted(),
        ] * len(late)
        one_by_one = [outcome for each in batch for outcome in alone._commit_batch([each])]
        at_once = together._commit_batch(batch)
        assert told(at_once) == told(one_by_one)
        assert [isinstance(outcome, StoreUnavailable) for outcome in at_once] == [
            each.token in late for each in batch
        ]
        assert left(together) == left(alone)
        assert [together.resolve_outcome(each.token) for each in batch] == [
            alone.resolve_outcome(each.token) for each in batch
        ]
    together.close()
    alone.close()


def test_what_was_deleted_and_written_again_in_one_batch_is_there_once_and_told_each_time() -> None:
    token = TransactionName(id=b"t", since=0)
    writes = [
        Write("a", "1", None),
        Write("a", "1", "1"),
        Write("a", "1", None),
        Write("a", "1", None),
    ]
    batch = decide_batch(
        [Transaction(token=token, checks=(), writes=(write,)) for write in writes],
        7,
        {("a", "1"): 3},
        (),
    )
    assert batch.outcomes == [8, 9, 10, 11]
    assert [(revision, kind) for revision, _, _, kind in batch.changes] == [
        (8, "delete"),
        (9, "put"),
        (10, "delete"),
    ]
    assert (batch.put, batch.deleted) == ([], [("a", "1")])
