"""Tables split by keys that are not integers.

Every row is read once, whatever the ordering of the key is, with repeated and null keys.
"""

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from database_kit import Place, batches, everything, source
from keys_kit import NOON, data, latin, moment, text, uuid

from tidegate.connectors.jdbc.chunk_position import ChunkPosition
from tidegate.connectors.jdbc.source import JdbcSource
from tidegate.databases.session import Session
from tidegate.model.records import JobStatus
from tidegate.plugin.contract import Limit
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest

ROWS = 260
DAY = datetime.date(2024, 2, 27)


def _decimal(chance: random.Random) -> str:
    return str(Decimal(chance.randint(-20_000, 20_000)) / 8)


def _large(chance: random.Random) -> str:
    return str(2**64 - 1 - chance.randint(0, 2000))


def _day(chance: random.Random) -> str:
    return str(DAY + datetime.timedelta(days=chance.randint(0, 400)))


def _near_moment(chance: random.Random) -> str:
    return str(NOON + datetime.timedelta(microseconds=chance.randint(0, 10**10)))


def _enum(chance: random.Random) -> str:
    return chance.choice(["z", "m", "a", "B", "10", "9"])


@dataclass(frozen=True, slots=True)
class Key:
    """A type of a column and values for it; `even`: cut by arithmetic."""

    place: str
    type: str
    value: Callable[[random.Random], Any]
    even: bool = False
    extra: tuple[Any, ...] = ()


KEYS = [
    Key("maria", "varchar(20) collate utf8mb4_general_ci", text),
    Key("maria", "varchar(20) collate utf8mb4_unicode_520_ci", text),
    Key("maria", "varchar(20) collate utf8mb4_bin", text),
    Key("maria", "varchar(20) character set latin1 collate latin1_german1_ci", latin),
    Key("maria", "varbinary(8)", data),
    Key("maria", "uuid", uuid),
    Key("maria", "decimal(12,3)", _decimal, even=True),
    Key("maria", "bigint unsigned", _large, even=True),
    Key("maria", "date", _day, even=True),
    Key("maria", "datetime(6)", _near_moment, even=True),
    Key("maria", "timestamp(6) null", moment),
    Key("maria", "enum('z', 'm', 'a', 'B', '10', '9')", _enum),
    Key("pg", "text", text),
    Key("pg", 'varchar(20) collate "C"', text),
    Key("pg", "char(8)", text),
    Key("pg", "bytea", data),
    Key("pg", "uuid", uuid),
    Key("pg", "inet", lambda chance: f"10.{chance.randint(0, 3)}.{chance.randint(0, 255)}.1"),
    Key("pg", "numeric(12,3)", _decimal, even=True),
    Key("pg", "numeric", _decimal, extra=("NaN",)),
    Key("pg", "date", _day, even=True),
    Key("pg", "date", _day, extra=("infinity", "-infinity", "0044-03-15 BC")),
    Key("pg", "timestamptz", _near_moment, even=True),
    Key("pg", "timestamp", moment, extra=("infinity",)),
    Key("pg", "mood", _enum),
    Key("lite", "text", text),
    Key("lite", "text collate nocase", text),
    Key("lite", "blob", data),
    Key("lite", "decimal_text(12,3)", _decimal),
    Key("lite", "date", _day),
    Key("lite", "datetime", _near_moment),
]


def _filled(place: Place, key: Key, chance: random.Random) -> None:
    """rows: numbered, with keys that repeat and some nulls."""
    if key.type == "mood":
        place.execute("create type mood as enum ('z', 'm', 'a', 'B', '10', '9')")
    values = [key.value(chance) for _ in range(ROWS // 2)] + list(key.extra)
    rows = [(n, None if n % 29 == 0 else chance.choice(values)) for n in range(ROWS)]
    place.execute(
        f"create table keyed (n int primary key, k {key.type})", "create index keyed_k on keyed (k)"
    )
    with place.session() as session, session.transaction():
        session.execute_many("insert into keyed values (%s, %s)", rows)


def _chunk_by_chunk(reading: JdbcSource, session: Session) -> list[int]:
    """The numbers of the rows of every chunk, by one connection."""
    (read,), position = reading.reads(), ChunkPosition.from_json(reading.initial())
    (table,) = position.tables
    found = []
    for chunk in range(table.count):
        found += [
            row[0]
            for row in session.query(
                "select n from"
                f" ({read.select(reading.dialect, table.column, *table.span(chunk, chunk + 1))}) c"
            )
        ]
    return found


@pytest.mark.parametrize(
    "key",
    KEYS,
    ids=[f"{key.place} {key.type[:40]} {''.join(map(str, key.extra[:1]))}".strip() for key in KEYS],
)
def test_every_row_is_read_once_whatever_the_key_is(
    request: pytest.FixtureRequest, key: Key
) -> None:
    place: Place = request.getfixturevalue(key.place)
    _filled(place, key, random.Random(key.type))
    sampled = {"split.sample-sharding.threshold": 2, "split.inverse-sampling.rate": 4}
    walked = {"split.even-distribution.factor.upper-bound": 0.0}
    query = {"query": "select n, k from keyed"}
    with place.session() as session:
        for size, more in (
            (9, {}),
            (30, {}),
            (9, walked),
            (13, walked | sampled),
            (15, walked | query),
        ):
            reading = source(
                place,
                **(
                    {
                        "table_path": "keyed",
                        "partition_column": "k",
                        "use_select_count": True,
                        "split.size": size,
                    }
                    | more
                ),
            )
            assert sorted(_chunk_by_chunk(reading, session)) == list(range(ROWS))
            edges = reading.initial()["tables"][0]["edges"]
            assert len(edges) >= (2 if key.value is _enum else ROWS // size // 2), "it is cut"
    if "NaN" not in key.extra:  # which is no decimal
        assert sorted(everything(reading)["n"].to_pylist()) == list(range(ROWS)), (
            "by the connections of tasks, too"
        )


@pytest.mark.parametrize(
    "key", [key for key in KEYS if key.even], ids=lambda key: f"{key.place} {key.type}"
)
def test_evenly_distributed_keys_are_split_by_arithmetic(
    request: pytest.FixtureRequest, key: Key
) -> None:
    place: Place = request.getfixturevalue(key.place)
    _filled(place, key, random.Random(key.type))
    wide = {"split.even-distribution.factor.upper-bound": 1000.0}
    edges = source(
        place,
        table_path="keyed",
        partition_column="k",
        partition_num=5,
        use_select_count=True,
        **wide,
    ).initial()["tables"][0]["edges"]
    assert len(edges) == 4
    places = [
        place.execute(
            "select count(*) from keyed where k <"
            f" {place.dialect.literal(e['number'] if isinstance(e, dict) else e)}"
        )[0][0]
        for e in edges
    ]
    assert places == sorted(places)
    assert all(ROWS // 10 <= upper - lower <= ROWS // 3 for lower, upper in pairwise(places)), (
        "about as many rows in each"
    )


def test_composite_key_is_split_by_its_first_column(place: Place) -> None:
    place.execute("create table pairs (shop varchar(20), number int, primary key (shop, number))")
    with place.session() as session, session.transaction():
        session.execute_many(
            "insert into pairs values (%s, %s)", [(f"shop {n % 7}", n) for n in range(ROWS)]
        )
    reading = source(place, table_path="pairs", use_select_count=True, **{"split.size": 10})
    (cut,) = reading.initial()["tables"]
    assert cut["column"] == "shop"
    assert 3 <= len(cut["edges"]) <= 7, "a shop is never cut in two"
    assert sorted(everything(reading, Limit(rows=20))["number"].to_pylist()) == list(range(ROWS))


def test_rows_with_null_keys_are_read_separately(place: Place) -> None:
    place.execute("create table loose (n int, k int)")
    with place.session() as session, session.transaction():
        session.execute_many(
            "insert into loose values (%s, %s)", [(n, n if n < 40 else None) for n in range(100)]
        )
    reading = source(
        place, table_path="loose", partition_column="k", partition_num=5, use_select_count=True
    )
    found = [
        sorted(rows["n"].to_pylist())
        for _, rows in batches(reading, reading.initial(), Limit(rows=1))
    ]
    assert found[0] == list(range(40, 100))
    assert sorted(n for rows in found[1:] for n in rows) == list(range(40))


def test_killed_read_by_text_keys_resumes_at_its_split(
    maria: Place, pg: Place, tmp_path: Path
) -> None:
    maria.execute(
        "create table words (word varchar(40) collate utf8mb4_general_ci primary key, n int)"
    )
    words = [f"{'Wörd' if n % 3 else 'wort'} {n * 7919 % 1000:03}" for n in range(240)]
    with maria.session() as session, session.transaction():
        session.execute_many(
            "insert into words values (%s, %s)", list(zip(words, range(240), strict=True))
        )
    file, home = tmp_path / "job.conf", str(tmp_path / "home")
    file.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "words", checkpoint.interval = 10, batch.max-rows = 20 }}
source {{ Jdbc {{ {maria.block(table_path="words", use_select_count=True)}, split.size = 10 }} }}
sink {{ Jdbc {{ {pg.block(table="words")} }} }}"""
    )
    with CrashRuns() as runs:
        assert (
            runs.run(
                RunRequest(home=home, file=str(file), failpoints="ledger.complete.after@6")
            ).code
            == KILLED
        )
        done = [word for (word,) in pg.execute("select word from words")]
        assert 60 <= len(done) < 240
        with maria.session() as session:
            session.execute_many(
                "update words set n = -1 where word = %s", [(word,) for word in done[:40]]
            )
        assert runs.run(RunRequest(home=home, file=str(file))).status == JobStatus.FINISHED.value
    assert sorted(pg.execute("select word, n from words")) == sorted(
        zip(words, range(240), strict=True)
    ), "what is read is not read again"
