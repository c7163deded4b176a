"""Transactions that are valid at the source are valid at the target.

Unique values are swapped, freed and reused; keys are exchanged.
"""

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from cdc_kit import make_source, restored, rows_of
from database_kit import Driven, Place, sink, table

from tidegate.connectors.jdbc.merge_runner import KeysMerged, UniqueTaken
from tidegate.model.types import RowKind
from tidegate.plugin.contract import Limit

USERS = table("shop.users", ["id"], kinds=True, id="bigint", email="string", name="string")
FIRST = [(1, "one", "a"), (2, "two", "b"), (3, "three", "c")]
EMAIL = "email varchar(40)"
TABLES = {
    "maria": (
        f"create table users (id bigint primary key, {EMAIL}, name text, unique key email (email))"
    ),
    "my": (
        f"create table users (id bigint primary key, {EMAIL}, name text, unique key email (email))"
    ),
    "pg": f"create table users (id bigint primary key, {EMAIL} unique, name text)",
    "lite": f"create table users (id bigint primary key, {EMAIL} unique, name text)",
}
CHANGES: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "freed by a delete and used again": (
        [("-D", 2, "two", "b"), ("+I", 4, "two", "new")],
        [(1, "one", "a"), (3, "three", "c"), (4, "two", "new")],
    ),
    "freed by an update and used again": (
        [("-U", 2, "two", "b"), ("+U", 2, "other", "b"), ("+I", 4, "two", "new")],
        [(1, "one", "a"), (2, "other", "b"), (3, "three", "c"), (4, "two", "new")],
    ),
    "used again by a row with a lower key": (
        [
            ("-U", 3, "three", "c"),
            ("+U", 3, "other", "c"),
            ("-U", 1, "one", "a"),
            ("+U", 1, "three", "a"),
        ],
        [(1, "three", "a"), (2, "two", "b"), (3, "other", "c")],
    ),
    "values swapped": (
        [
            ("-U", 1, "one", "a"),
            ("+U", 1, None, "a"),
            ("-U", 2, "two", "b"),
            ("+U", 2, "one", "b"),
            ("-U", 1, None, "a"),
            ("+U", 1, "two", "a"),
        ],
        [(1, "two", "a"), (2, "one", "b"), (3, "three", "c")],
    ),
    "values moved around": (
        [
            ("-U", 1, "one", "a"),
            ("+U", 1, "two", "a"),
            ("-U", 2, "two", "b"),
            ("+U", 2, "three", "b"),
            ("-U", 3, "three", "c"),
            ("+U", 3, "one", "c"),
        ],
        [(1, "two", "a"), (2, "three", "b"), (3, "one", "c")],
    ),
    "keys swapped, as a delete and an insert each": (
        [
            ("-D", 1, "one", "a"),
            ("+I", 2, "one", "a"),
            ("-D", 2, "two", "b"),
            ("+I", 1, "two", "b"),
        ],
        # The order of the source: 2 is put, then taken away. Only a source that deletes first means
        # a swap.
        [(1, "two", "b"), (3, "three", "c")],
    ),
    "keys swapped, deletes first": (
        [
            ("-D", 1, "one", "a"),
            ("-D", 2, "two", "b"),
            ("+I", 2, "one", "a"),
            ("+I", 1, "two", "b"),
        ],
        [(1, "two", "b"), (2, "one", "a"), (3, "three", "c")],
    ),
    "a key moved onto another's value": (
        [("-D", 1, "one", "a"), ("-D", 2, "two", "b"), ("+I", 9, "two", "b")],
        [(3, "three", "c"), (9, "two", "b")],
    ),
}


@pytest.fixture(params=["maria", "my", "pg", "lite"])
def users(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    place.execute(TABLES[request.param])
    return place


def rows(place: Place, columns: str = "id, email, name") -> list[tuple[Any, ...]]:
    return place.execute(f"select {columns} from users order by id")


def filled(place: Place, **more: Any) -> Driven:
    driven = Driven(sink(place, table="users", **more))
    driven.batch(1, (USERS, [("+I", *row) for row in FIRST]))
    assert rows(place) == FIRST
    return driven


@pytest.mark.parametrize("change", list(CHANGES))
def test_valid_transaction_is_applied_to_unique_columns(users: Place, change: str) -> None:
    changes, wanted = CHANGES[change]
    filled(users).batch(2, (USERS, changes))
    assert rows(users) == wanted


def test_rows_without_kinds_that_swap_values_replace_each_other(users: Place) -> None:
    plain = replace(USERS, kinds=False)
    driven = Driven(sink(users, table="users"))
    driven.batch(1, (plain, FIRST))
    driven.batch(2, (plain, [(1, "two", "a"), (2, "one", "b"), (4, "four", "d")]))
    assert rows(users) == [(1, "two", "a"), (2, "one", "b"), (3, "three", "c"), (4, "four", "d")]


@pytest.mark.parametrize("extra", [False, True])
def test_rows_of_several_tasks_that_swap_values_replace_each_other(
    users: Place, extra: bool
) -> None:
    if extra:
        users.execute("alter table users add column seen int default 7")
    plain = replace(USERS, kinds=False)
    driven = Driven(sink(users, table="users"))
    driven.batch(1, (plain, FIRST))
    messages = driven.stage(2, (plain, [(1, "two", "a")])) + driven.stage(
        2, (plain, [(2, "three", "b"), (4, "four", "d")]), subtask=1
    )
    driven.commit(2, messages + driven.stage(2, (plain, [(3, "one", "c")]), subtask=2))
    assert rows(users) == [(1, "two", "a"), (2, "three", "b"), (3, "one", "c"), (4, "four", "d")]
    assert users.our_tables() == []


def test_unique_conflict_with_an_unchanged_row_is_an_error(
    users: Place,
) -> None:
    driven = filled(users)
    for changes in ([("+I", 9, "two", "again")], [("-U", 1, "one", "a"), ("+U", 1, "two", "a")]):
        with pytest.raises(UniqueTaken, match=r"users .*violate a unique index"):
            driven.batch(2, (USERS, changes))
        assert rows(users) == FIRST


def test_columns_that_only_the_target_has_keep_their_values(users: Place) -> None:
    users.execute("alter table users add column seen int default 7")
    driven = filled(users)
    users.execute("update users set seen = id * 10")
    changes = [*CHANGES["values moved around"][0], ("+I", 4, "four", "d")]
    driven.batch(2, (USERS, changes))
    assert rows(users, "id, email, seen") == [
        (1, "two", 10),
        (2, "three", 20),
        (3, "one", 30),
        (4, "four", 7),
    ]
    driven.batch(
        3,
        (
            USERS,
            [
                ("-U", 1, "two", "a"),
                ("+U", 1, "three", "a"),
                ("-U", 2, "three", "b"),
                ("+U", 2, "two", "b"),
            ],
        ),
    )
    assert rows(users, "id, email, seen") == [
        (1, "three", 10),
        (2, "two", 20),
        (3, "one", 30),
        (4, "four", 7),
    ]


@pytest.mark.parametrize("where", ["maria", "my", "pg"])
def test_rows_are_not_replaced_if_foreign_keys_cascade(
    request: pytest.FixtureRequest, where: str
) -> None:
    place: Place = request.getfixturevalue(where)
    place.execute(
        TABLES[where],
        "create table orders (n int primary key, u bigint, foreign key (u) references users (id) on"
        " delete cascade)",
    )
    driven = filled(place)
    place.execute("insert into orders values (1, 1)")
    with pytest.raises(UniqueTaken, match="orders"):
        driven.batch(2, (USERS, CHANGES["values swapped"][0]))
    assert rows(place) == FIRST
    assert place.execute("select n, u from orders") == [(1, 1)]
    driven.batch(2, (USERS, [("-U", 1, "one", "a"), ("+U", 1, "uno", "a")]))
    assert place.execute("select n, u from orders") == [(1, 1)]


def test_prefix_index_does_not_merge_keys(binlog_place: Place) -> None:
    binlog_place.execute(
        "create table users (id varchar(40) collate utf8mb4_bin not null, n int, unique key part"
        " (id(3)))"
    )
    words = table("shop.users", ["id"], id="string", n="int")
    driven = Driven(sink(binlog_place, table="users"))
    driven.batch(1, (words, [("abc1", 1)]))
    with pytest.raises(UniqueTaken):
        driven.batch(2, (words, [("abc2", 2)]))
    assert binlog_place.execute("select id, n from users") == [("abc1", 1)]


def test_deferrable_key_of_the_target_is_respected(pg: Place) -> None:
    pg.execute(
        "create table users (id bigint primary key deferrable initially deferred, email text unique"
        " deferrable, name text)"
    )
    driven = filled(pg)
    for number, name in enumerate(("values moved around", "keys swapped, deletes first"), 2):
        pg.execute(
            "delete from users",
            "insert into users values (1, 'one', 'a'), (2, 'two', 'b'), (3, 'three', 'c')",
        )
        driven.batch(number, (USERS, CHANGES[name][0]))
        assert rows(pg) == CHANGES[name][1]


def test_exclusion_constraint_is_respected(pg: Place) -> None:
    pg.execute(
        "create table users (id bigint primary key, email text, name text, exclude using btree"
        " (email with =))"
    )
    filled(pg).batch(2, (USERS, CHANGES["values swapped"][0]))
    assert rows(pg) == CHANGES["values swapped"][1]


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_of_unique_values_arrive(users: Place, seed: int) -> None:
    """Random moves of a few values between a few rows: batches of whole transactions, each valid at
    its end.
    """
    chance = random.Random(seed)
    driven = Driven(sink(users, table="users"))
    there: dict[int, tuple[int, str | None, str]] = {}
    for checkpoint in range(1, 12):
        changes: list[tuple[Any, ...]] = []
        for _ in range(chance.randint(1, 3)):
            changes += _transaction(chance, there)
        driven.batch(checkpoint, (USERS, changes))
        assert rows(users) == [there[key] for key in sorted(there)]


def _transaction(
    chance: random.Random, there: dict[int, tuple[int, str | None, str]]
) -> list[tuple[Any, ...]]:
    """A few rows get other values, all at once; some go and come.

    Deletes come before what follows them.
    """
    keys = chance.sample(range(1, 8), chance.randint(1, 4))
    gone = {key: there.pop(key) for key in keys if key in there}
    used = {row[1] for row in there.values()}
    free = [value for value in ("a", "b", "c", "d", "e", "f", "g", "h") if value not in used]
    chance.shuffle(free)
    after = {
        key: (key, email, f"{chance.random():.3f}")
        for key, email in zip(keys, free, strict=False)
        if chance.random() < 0.8
    }
    changes: list[tuple[Any, ...]] = [("-D", *row) for key, row in gone.items() if key not in after]
    for key, row in after.items():
        changes += [("-U", *gone[key]), ("+U", *row)] if key in gone else [("+I", *row)]
    there.update(after)
    return changes


# Keys of the sink.


def test_source_rows_with_the_same_sink_key_are_rejected(place: Place) -> None:
    words = table("shop.words", ["id"], id="bigint", word="string", n="int")
    driven = Driven(sink(place, table="words", primary_keys=["word"]))
    with pytest.raises(
        KeysMerged, match=r"shop\.words have the key word = 'a'.*key of the source is id"
    ):
        driven.batch(1, (words, [(1, "a", 1), (2, "b", 2), (3, "a", 3)]))
    driven.batch(1, (words, [(1, "a", 1), (2, "b", 2)]))
    with pytest.raises(KeysMerged, match="word = 'b'"):
        driven.batch(2, (words, [(3, "c", 3), (4, "b", 4)]))
    driven.batch(2, (words, [(2, "b", 5), (3, "c", 3)]))
    assert place.execute("select id, word, n from words order by id") == [
        (1, "a", 1),
        (2, "b", 5),
        (3, "c", 3),
    ]
    messages = driven.stage(3, (words, [(5, "d", 1)])) + driven.stage(
        3, (words, [(6, "d", 1)]), subtask=1
    )
    with pytest.raises(KeysMerged, match="word = 'd'"):
        driven.commit(3, messages)
    Driven(
        sink(place, table="words", primary_keys=["word"], allow_merged_keys=True), 2, checkpoint=2
    ).batch(3, (words, [(4, "b", 4)]))
    assert place.execute("select id, word, n from words order by id") == [
        (1, "a", 1),
        (3, "c", 3),
        (4, "b", 4),
    ]


# From a log.


def test_swapped_values_and_keys_of_a_log_arrive(binlog_place: Place, pg: Place) -> None:
    """Statements that are valid at the source: MariaDB over a third value, PostgreSQL by deferred
    constraints at once.
    """
    binlog_place.execute(
        "create table users (id bigint primary key, email varchar(40) unique, name text)",
        "insert into users values (1, 'one', 'a'), (2, 'two', 'b')",
    )
    pg.execute(
        "create table users (id bigint primary key, email text unique deferrable initially"
        " deferred, name text)",
        "alter table users replica identity full",
        "insert into users values (1, 'one', 'a'), (2, 'two', 'b')",
    )
    for place, target in itertools.product((binlog_place, pg), repeat=2):
        if place is target:
            continue
        postgres = place is pg
        path = f"{place.database}.public.users" if postgres else f"{place.database}.users"
        slot = {"slot.name": f"unique_{place.database}"} if postgres else {}
        source = make_source(
            "Postgres-CDC" if postgres else "MySQL-CDC",
            {**place.options(), "table-names": [path], **slot},
        )
        target.execute(
            "create table copy_of_users (id bigint primary key, email varchar(40) unique, name"
            " text)"
        )
        driven = Driven(
            sink(target, table="copy_of_users", primary_keys=["id"]), lineage=place.database
        )
        numbers, offset = itertools.count(1), restored(source.initial())
        offset = deliver(source, offset, driven, numbers)
        with place.session() as session, session.transaction():
            if postgres:
                session.execute("update users set email = case id when 1 then 'two' else 'one' end")
            else:
                for value, key in ((None, 1), ("one", 2), ("two", 1)):
                    session.execute("update users set email = %s where id = %s", (value, key))
            session.execute("delete from users where id = 2")
            session.execute("insert into users values (3, 'one', 'c')")
        deliver(source, offset, driven, numbers)
        assert target.execute("select id, email, name from copy_of_users order by id") == [
            (1, "two", "a"),
            (3, "one", "c"),
        ]


def deliver(source: Any, offset: Any, driven: Driven, numbers: Any) -> Any:
    """Batches until there is nothing to read."""
    while (end := restored(source.latest(offset, Limit()))) != offset:
        (captured,) = source.tables()
        found = [row for _, row in rows_of(source, offset, end)]
        kinds = list(RowKind)
        driven.batch(
            next(numbers),
            (captured, [(kinds[row.pop("__row_kind")].value, *row.values()) for row in found]),
        )
        offset = end
    return offset
