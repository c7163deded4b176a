"""The replica identity is sufficient for the target, or the table is rejected.

That happens before anything is published or changed.
"""

import random
from typing import Any

import pytest
from cdc_kit import restored, rows_of
from postgres_kit import Shop

from tidegate.databases.cdc.errors import NotSetUp, TableChanged
from tidegate.plugin.contract import Limit

KEYS_ONLY = {"require-replica-identity-full": False}


def applied(source: Any, offset: Any, rows: dict[Any, Any], keys: tuple[str, ...] = ("id",)) -> Any:
    """Return what a sink that writes rows by key has after all batches.

    Also returns the last offset.
    """
    while True:
        end = restored(source.latest(offset, Limit()))
        if end == offset:
            return offset
        for _, row in rows_of(source, offset, end):
            kind = row.pop("__row_kind")
            key = tuple(row[name] for name in keys)
            if kind in (0, 2):
                rows[key] = row
            elif kind == 3:
                rows.pop(key, None)
        offset = end


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            [
                "create table a (id int primary key, n int not null, v text)",
                "create unique index u on a (n)",
                "alter table a replica identity using index u",
            ],
            (
                r"only n, and not id, which belongs to the key.*ALTER TABLE \"public\".\"a\""
                r" REPLICA IDENTITY FULL"
            ),
        ),
        (
            ["create table a (id int, v text, primary key (id) deferrable)"],
            "published tables whose rows its log could not identify.*deferrable",
        ),
        (
            [
                "create table a (id int primary key, v text)",
                "alter table a replica identity nothing",
            ],
            "could not identify",
        ),
        (["create table a (id int not null unique, v text)"], "could not identify"),
    ],
)
def test_insufficient_identity_is_rejected_before_publishing(
    shop: Shop, statements: list[str], said: str
) -> None:
    shop(*statements)
    with pytest.raises(NotSetUp, match=said):
        shop.source(**KEYS_ONLY).initial()
    assert shop("select 1 from pg_publication where pubname like 'tidegate%'") == []


def test_identity_of_an_index_with_the_key_is_sufficient(shop: Shop) -> None:
    shop(
        "create table a (id int primary key, n int not null, v text)",
        "create unique index u on a (id, n)",
        "alter table a replica identity using index u",
    )
    shop("insert into a values (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z')")
    source, rows = shop.source(**KEYS_ONLY), {}
    offset = applied(source, restored(source.initial()), rows)
    shop(
        "update a set n = 7 where id = 1",
        "delete from a where id = 2",
        "update a set id = 9 where id = 3",
        "update a set v = 'w' where id = 9",
    )
    offset = applied(source, offset, rows)
    assert sorted(rows.values(), key=str) == sorted(shop.rows("a"), key=str)
    shop(
        "create unique index w on a (n)",
        "alter table a replica identity using index w",
        "delete from a where id = 9",
    )
    with pytest.raises(TableChanged, match=r"identity was .* and is "):
        applied(source, offset, rows)


DEFERRED = (
    "create table a (id int, v text, primary key (id) deferrable initially deferred)",
    "alter table a replica identity full",
)


def test_swapped_keys_lose_no_row(shop: Shop) -> None:
    shop(*DEFERRED, "insert into a values (1, 'x'), (2, 'y'), (3, 'z')")
    source, rows = shop.source(), {}
    offset = applied(source, restored(source.initial()), rows)
    for statement in (
        "update a set id = 3 - id where id < 3",
        "update a set id = id + 1",
        "update a set id = id - 1",
        "update a set id = 4 - id",
    ):
        shop(statement)
        offset = applied(source, offset, rows)
        assert sorted(rows.values(), key=str) == sorted(shop.rows("a"), key=str), statement
    shop(
        "begin",
        "insert into a values (1, 'new')",
        "delete from a where id = 1 and v <> 'new'",
        "commit",
    )
    shop(
        "begin",
        "insert into a values (1, 'newer')",
        "update a set v = 'changed' where v = 'newer'",
        "delete from a where v = 'new'",
        "commit",
    )
    shop(
        "begin",
        "insert into a values (2, 'first'), (2, 'second')",
        "delete from a where id = 2 and v <> 'first'",
        "update a set v = 'last' where id = 2",
        "commit",
    )
    offset = applied(source, offset, rows)
    assert sorted(rows.values(), key=str) == sorted(shop.rows("a"), key=str)


def test_random_transactions_with_deferred_keys_equal_the_table(shop: Shop, seed: int) -> None:
    rng = random.Random(seed)
    shop(*DEFERRED, "insert into a select s, 'x' || s from generate_series(1, 6) s")
    source, rows = shop.source(), {}
    offset = applied(source, restored(source.initial()), rows)
    for number in range(12):
        steps = ["begin"]
        for step in range(rng.randrange(1, 6)):
            what, one, two = rng.randrange(4), rng.randrange(1, 8), rng.randrange(1, 8)
            if what == 0:
                steps.append(
                    f"update a set id = case id when {one} then {two} else {one} end where id in"
                    f" ({one}, {two})"
                )
            elif what == 1:
                steps.append(
                    f"update a set id = 8 - id where id between {min(one, two)} and {max(one, two)}"
                )
            elif what == 2:
                steps += [
                    f"insert into a values ({one}, 'n{number}.{step}')",
                    f"delete from a where id = {one} and v <> 'n{number}.{step}'",
                ]
            else:
                steps.append(f"update a set v = v || '.' where id = {one}")
        try:
            shop(*steps, "commit")
        except Exception:
            shop("rollback")
        if rng.random() < 0.6:
            offset = applied(source, offset, rows)
    applied(source, offset, rows)
    assert sorted(rows.values(), key=str) == sorted(shop.rows("a"), key=str)


def test_rows_swapped_during_a_chunk_are_rolled_back(shop: Shop) -> None:
    shop(*DEFERRED, "insert into a select s, 'x' || s from generate_series(1, 30) s")
    source = shop.source()
    start = restored(source.initial())
    end = restored(source.latest(start, Limit()))
    shop("update a set id = 31 - id", "update a set id = 31 - id", "update a set id = 31 - id")
    rows: dict[Any, Any] = {}
    for _, row in rows_of(source, start, end):
        assert row.pop("__row_kind") == 0
        assert (row["id"],) not in rows
        rows[(row["id"],)] = row
    assert {row["v"]: row["id"] for row in rows.values()} == {f"x{n}": n for n in range(1, 31)}
    applied(source, end, rows)
    assert sorted(rows.values(), key=str) == sorted(shop.rows("a"), key=str)
