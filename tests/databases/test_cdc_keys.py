"""CDC snapshots split by keys of every type, on real servers, during writes.

No row may be lost, duplicated or stale.
"""

import datetime
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cdc_kit import Mirror
from database_kit import Place
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from keys_kit import (
    Keyed,
    RandomWriter,
    cdc,
    current_rows,
    data,
    data_16,
    day,
    decimal,
    large,
    latin,
    moment,
    text,
    uuid,
)

from tidegate.databases.cdc.errors import KeyNotUnique, OrderChanged
from tidegate.databases.cdc.key_order import order_of
from tidegate.databases.cdc.keys import KeyChunk, split_key
from tidegate.databases.chunks import as_bound
from tidegate.databases.errors import StatementRefused, TransientDatabaseError
from tidegate.model.types import parse_type
from tidegate.plugin.contract import Limit
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest

ROWS, EACH = 150, 15
KEYS = [
    Keyed("maria", "varchar(20) collate utf8mb4_general_ci", text),
    Keyed("maria", "varchar(20) collate utf8mb4_unicode_520_nopad_ci", text),
    Keyed("maria", "varchar(20) character set latin1 collate latin1_german1_ci", latin),
    Keyed("maria", "uuid", uuid),
    Keyed("maria", "binary(16)", data_16),
    Keyed("maria", "varbinary(8)", data),
    Keyed("maria", "decimal(12,3)", decimal),
    Keyed("maria", "bigint unsigned", large),
    Keyed("maria", "date", day),
    Keyed("maria", "varchar(20) collate utf8mb4_general_ci", text, and_n=True),
    Keyed("pg", "uuid", uuid),
    Keyed("pg", "text", text),
    Keyed("pg", 'varchar(20) collate "de-x-icu"', text),
    Keyed("pg", "char(8)", text),
    Keyed("pg", "numeric(12,3)", decimal),
    Keyed("pg", "numeric", decimal),
    Keyed("pg", "timestamptz", moment),
    Keyed("pg", "text", text, and_n=True),
]


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The database of a test, without slots at its end."""
    place: Place = request.getfixturevalue(request.param)
    yield place
    if request.param == "pg":
        _drop_slots(place)


def _drop_slots(place: Place) -> None:
    """Drop the slots; killed readers may hold them for a moment."""
    mine = "from pg_replication_slots where database = current_database() and not temporary"
    deadline_s = time.monotonic() + 60
    while place.execute(f"select 1 {mine}"):
        assert time.monotonic() < deadline_s, "a slot stays in use"
        with suppress(TransientDatabaseError, StatementRefused):
            place.execute(
                f"select pg_terminate_backend(active_pid) {mine} and active",
                f"select pg_drop_replication_slot(slot_name) {mine}",
            )


def both(keys: Sequence[Keyed]) -> Any:
    """Parametrize a test with each of these tables, in its database."""
    return pytest.mark.parametrize(
        ("home", "keyed"), [(key.place, key) for key in keys], ids=map(str, keys), indirect=["home"]
    )


def read_during_writes(home: Place, keyed: Keyed, seed: int, **more: Any) -> int:
    """Read a table to its end while it changes; return the number of chunks.

    Each batch is run by a new source, which has only the checkpoint.
    """
    options = {"snapshot.split.size": EACH, **more}
    with home.session() as session:
        hand = RandomWriter(session, keyed, seed)
        hand.fill(ROWS)
        mirror, chunks = Mirror(cdc(home, **options)), 0
        for turn in range(ROWS):
            hand.write()
            mirror.source = cdc(home, **options) if turn % 2 else mirror.source  # as after a kill
            mirror.step(Limit(rows=3 * EACH), between=hand.write)
            ((_, entry),) = mirror.offset["tables"].items()
            chunks += len(entry["read"]["cuts"])
            if entry["read"]["upto"] is None:
                break
        hand.write()
    mirror.run()
    ((path, _),) = mirror.offset["tables"].items()
    assert mirror.table(path) == current_rows(mirror.source)
    return chunks


@both(KEYS)
def test_snapshot_by_any_key_is_exact_during_writes(home: Place, keyed: Keyed, seed: int) -> None:
    keyed.make(home)
    assert read_during_writes(home, keyed, seed) > 3, "it is cut"


@both([Keyed("maria", "timestamp(6)", moment), Keyed("maria", "datetime(3)", moment)])
def test_server_time_zone_does_not_move_chunk_bounds(home: Place, keyed: Keyed, seed: int) -> None:
    keyed.make(home)
    ((zone,),) = home.execute("select @@global.time_zone")
    try:
        home.execute("set global time_zone = '+05:30'")
        assert read_during_writes(home, keyed, seed) > 3, "it is cut"
    finally:
        home.execute(f"set global time_zone = '{zone}'")


@both([Keyed("maria", "int", lambda _: 7, and_n=True), Keyed("pg", "int", lambda _: 7, and_n=True)])
def test_another_key_column_can_split_the_table(home: Place, keyed: Keyed, seed: int) -> None:
    keyed.make(home)
    assert read_during_writes(home, keyed, seed, config={"snapshotSplitColumn": "n"}) > 3


def test_rows_with_zero_or_null_dates_are_in_the_first_chunk(maria: Place, seed: int) -> None:
    maria.execute("create table keyed (k date, n int not null, v varchar(40))")
    maria.execute(
        "set session sql_mode = ''", "insert into keyed values ('2026-00-10', 500, 'zero')"
    )
    read_during_writes(maria, Keyed("maria", "date", day), seed, config={"primaryKeys": ["k", "n"]})
    maria.execute(
        "drop table keyed",
        "create table keyed (k date, n int not null, v varchar(40))",
        "insert into keyed values (null, 500, 'none')",
    )
    assert (
        read_during_writes(
            maria, Keyed("maria", "date", day), seed, config={"primaryKeys": ["k", "n"]}
        )
        > 3
    )


@pytest.mark.parametrize("home", ["maria", "my", "pg"], indirect=True)
def test_configured_key_that_is_not_unique_is_rejected(
    home: Place,
) -> None:
    home.execute("create table keyed (a int not null, b varchar(20), v varchar(40))")
    if "postgresql" in home.url:
        home.execute("alter table keyed replica identity full")
    rows = ", ".join(f"({n}, 'x', 'first')" for n in range(200))
    home.execute(
        f"insert into keyed values {rows}",
        "insert into keyed values (150, 'X', 'another'), (150, null, 'null'), (150, null, 'null')",
    )
    home.execute("insert into keyed values (150, 'x', 'the same')")
    options = {"config": {"primaryKeys": ["a", "b"]}, "snapshot.split.size": 20}
    source = cdc(home, **options)
    offset = source.initial()
    with pytest.raises(
        KeyNotUnique, match="have the same a, b, which table-names-config names as primaryKeys"
    ):
        source.latest(offset, Limit())
    home.execute(
        "update keyed set a = 999 where v = 'the same'", "delete from keyed where b is null"
    )
    mirror = Mirror(cdc(home, **options))
    mirror.run()
    assert len(mirror.rows) == 202


@pytest.mark.parametrize("home", ["pg"], indirect=True)
def test_rows_with_infinite_dates_are_in_the_first_chunk(home: Place, seed: int) -> None:
    keyed = Keyed(
        "pg",
        "date",
        lambda chance: (
            chance.choice(["infinity", "-infinity"]) if chance.random() < 0.1 else day(chance)
        ),
        and_n=True,
    )
    keyed.make(home)
    home.execute("insert into keyed values ('infinity', 500, 'last')")
    assert read_during_writes(home, keyed, seed) > 3


@both([Keyed("maria", "varchar(20) collate utf8mb4_general_ci", text), Keyed("pg", "text", text)])
def test_changed_collation_stops_the_snapshot(home: Place, keyed: Keyed, seed: int) -> None:
    keyed.make(home)
    with home.session() as session:
        RandomWriter(session, keyed, seed).fill(ROWS)
    mirror = Mirror(cdc(home, **{"snapshot.split.size": EACH}))
    assert mirror.step(Limit(rows=EACH))
    change = (
        "alter column k type text collate"
        if keyed.place == "pg"
        else "modify k varchar(20) not null collate"
    )
    before, after = (
        ('"default"', '"de-x-icu"')
        if keyed.place == "pg"
        else ("utf8mb4_general_ci", "utf8mb4_bin")
    )
    home.execute(f"alter table keyed {change} {after}")
    for _ in range(2):  # now, and after a restart
        with pytest.raises(OrderChanged, match="column k, and were ordered by"):
            mirror.run(Limit(rows=EACH))
        mirror.source = cdc(home, **{"snapshot.split.size": EACH})
    home.execute(f"alter table keyed {change} {before}")
    mirror.source = cdc(home, **{"snapshot.split.size": EACH})
    mirror.run()
    ((path, _),) = mirror.offset["tables"].items()
    assert mirror.table(path) == current_rows(mirror.source)


@both(
    [
        Keyed("maria", "bigint", lambda c: c.randint(-(2**62), 2**62)),
        Keyed("maria", "bigint unsigned", large),
        Keyed("pg", "numeric(20,0)", large),
    ]
)
def test_checkpoint_of_a_former_version_resumes_at_its_chunk(
    home: Place, keyed: Keyed, seed: int
) -> None:
    """Former versions recorded integers, and no order."""
    keyed.make(home)
    with home.session() as session:
        hand = RandomWriter(session, keyed, seed)
        hand.fill(ROWS)
        mirror = Mirror(cdc(home, **{"snapshot.split.size": EACH}))
        for _ in range(2):
            mirror.step(Limit(rows=2 * EACH))
            ((path, entry),) = mirror.offset["tables"].items()
            cuts = [
                int(cut["number"] if isinstance(cut, dict) else cut)
                for cut in entry["read"]["cuts"]
            ]
            mirror.offset["tables"][path]["read"] = {"upto": cuts[-1], "cuts": cuts}
            assert len(mirror.rows) < ROWS
            hand.write()
    mirror.run()
    assert mirror.table(path) == current_rows(mirror.source)


def job(home: Place, keyed: Keyed, target: Place) -> str:
    path = f"{home.database}.public.keyed" if keyed.place == "pg" else f"{home.database}.keyed"
    reader = "Postgres-CDC" if keyed.place == "pg" else "MySQL-CDC"
    slot = {"slot.name": f"keys_{home.database}"} if keyed.place == "pg" else {}
    read = home.block(
        **{"table-names": [path], "stop.mode": "latest", "snapshot.split.size": EACH, **slot}
    )
    write = target.block(
        generate_sink_sql=True, database=target.database, table="public.copied", primary_keys=["k"]
    )
    return f"""
env {{ job.mode = "STREAMING", job.name = "keys", parallelism = 2, checkpoint.interval = 10,
  batch.max-rows = {2 * EACH}, checkpoint.max-retained = 2 }}
source {{ {reader} {{ {read} }} }}
sink {{ Jdbc {{ {write} }} }}"""


@pytest.mark.timeout(600)
@both([Keyed("maria", "varchar(20) collate utf8mb4_general_ci", text), Keyed("pg", "uuid", uuid)])
def test_killed_snapshot_by_any_key_resumes_at_its_chunk(
    home: Place, keyed: Keyed, pg: Place, tmp_path: Path, seed: int
) -> None:
    keyed.make(home)
    file = tmp_path / "job.conf"
    file.write_text(job(home, keyed, pg))
    with CrashRuns() as runs, home.session() as session:
        hand = RandomWriter(session, keyed, seed)
        hand.fill(ROWS)
        before = sorted((n, str(k), v) for k, n, v in session.query("select k, n, v from keyed"))
        for failpoint in (
            "capture.chunk.middle",
            "ledger.complete.after",
            "capture.chunk.after",
            "ledger.complete.after",
        ):
            ended = runs.run(
                RunRequest(home=str(tmp_path / "home"), file=str(file), failpoints=f"{failpoint}@1")
            )
            assert ended.code == KILLED, ended
            hand.write()
        ((copied,),) = pg.execute("select count(*) from copied")
        assert 2 * EACH <= copied < len(before), "it is read in part"
        ended = runs.run(RunRequest(home=str(tmp_path / "home"), file=str(file)))
        assert (ended.code, ended.status) == (0, "FINISHED"), ended.error
        assert ended.restored, "it went on"
    assert sorted((n, k, v) for k, n, v in pg.execute("select k, n, v from copied")) == before


ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6
) | st.sampled_from(["", " ", "a", "A", "a ", "a\t", "ä", "a\u0308", "ß", "ss"])
ANY = {
    Keyed("maria", "varchar(20) collate utf8mb4_unicode_ci", text): ANY_TEXT,
    Keyed("maria", "varchar(20) collate utf8mb4_bin", text): ANY_TEXT,
    Keyed("maria", "uuid", uuid): st.uuids(version=4).map(str),
    Keyed("maria", "decimal(30,10)", decimal): st.decimals(-(10**19), 10**19, places=10),
    Keyed("maria", "timestamp(6)", moment): (
        st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2037, 12, 31)).map(str)
    ),
    Keyed("pg", "text", text): ANY_TEXT,
    Keyed("pg", 'text collate "de-x-icu"', text): ANY_TEXT,
    Keyed("pg", "numeric", decimal): st.decimals(-(10**19), 10**19, places=18),
    Keyed("pg", "timestamptz", moment): (
        st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)).map(str)
    ),
    Keyed("pg", "bytea", data): st.binary(max_size=4),
}


@both(list(ANY))
def test_every_key_is_in_one_chunk_for_database_and_log(home: Place, keyed: Keyed) -> None:
    keyed.make(home)
    source = cdc(home)
    ((_, cdc_table),) = source.cdc_tables.items()
    key = split_key(cdc_table, source.dialect)
    assert key is not None
    name, kind = cdc_table.info.columns[0], cdc_table.table.columns[0].type
    ordered = f"select {key.keys('keyed').value} as edge from keyed order by k"
    numbered = f"select {source.dialect.expression(name, kind)}, n from keyed"

    @settings(
        max_examples=8,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(ANY[keyed], min_size=1, max_size=30), st.sets(st.integers(0, 29), max_size=4))
    def check(values: list[Any], places: set[int]) -> None:
        session.execute("delete from keyed")
        for n, value in enumerate(values):
            with suppress(StatementRefused):  # the same key for the collation
                session.execute("insert into keyed values (%s, %s, null)", (value, n))
        found = [as_bound(value) for (value,) in session.query(ordered)]
        cuts = [found[place] for place in sorted(places) if place < len(found)]
        columns = [("k", kind), ("n", parse_type("int"))]
        (batch,) = source.dialect.batches(home.address, numbered, columns, 0)
        inside: list[int] = []
        for chunk in itertools.starmap(KeyChunk, itertools.pairwise([None, *cuts, None])):
            condition = key.condition(chunk)
            rows = sorted(
                n
                for (n,) in session.query(
                    f"select n from keyed where {condition}" if condition else "select n from keyed"
                )
            )
            assert sorted(batch.filter(order.inside(batch, chunk)).column("n").to_pylist()) == rows
            inside += rows
        assert sorted(inside) == sorted(batch.column("n").to_pylist())

    with home.session() as session, order_of(key, home.session) as order:
        check()
