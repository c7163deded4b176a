"""Names that a target truncates or treats as equal are rejected before a table is created."""

import pytest
from database_kit import Driven, Place, sink, source, table

from tidegate.connectors.jdbc.target_check import NameUnfit
from tidegate.databases.errors import TableMissing
from tidegate.model.errors import UserError
from tidegate.testing.servers.mariadb import MariaDbServer

LONG = "n" * 63


@pytest.mark.parametrize("name", [f"{LONG}a", "ä" * 32], ids=["characters", "bytes"])
def test_names_that_postgres_would_truncate_are_rejected(pg: Place, name: str) -> None:
    with pytest.raises(
        NameUnfit, match=f"the name of the table '{name}' is too long.*at most 63 bytes"
    ):
        Driven(sink(pg, table="${table_name}")).batch(
            1, (table(f"shop.{name}", ["id"], id="int"), [(1,)])
        )
    with pytest.raises(NameUnfit, match=f"the name of column '{name}' is too long"):
        Driven(sink(pg, table="t"), 2).batch(
            1, (table("shop.t", ["id"], id="int", **{name: "int"}), [(1, 1)])
        )
    assert pg.our_tables() == []
    assert pg.execute("select relname::text from pg_class where relname ~ '^(nn|ää|t$)'") == []


def test_two_tables_with_the_same_prefix_are_both_named(pg: Place) -> None:
    tables = [table(f"shop.{LONG}{end}", ["id"], id="int", v="int") for end in "ab"]
    driven = Driven(sink(pg, table="${table_name}"))
    for each in tables:
        with pytest.raises(NameUnfit, match=f"{each.path.rpartition('.')[2]}' is too long"):
            driven.batch(1, (each, [(1, 11)]))


def test_columns_that_postgres_would_truncate_to_one_are_both_named(pg: Place) -> None:
    wide = table("shop.t", ["id"], id="int", **{f"{LONG}a": "int", f"{LONG}b": "int"})
    with pytest.raises(NameUnfit, match=f"{LONG}a.*{LONG}b"):
        Driven(sink(pg, table="t")).batch(1, (wide, [(1, 1, 2)]))


def test_names_up_to_the_limit_are_accepted(binlog_place: Place, pg: Place) -> None:
    """64 characters of any kind in MariaDB, 63 bytes in PostgreSQL."""
    for place, name in ((binlog_place, "ä" * 64), (pg, f"{'ä' * 31}x")):
        Driven(sink(place, table="${table_name}")).batch(
            1, (table(f"shop.{name}", ["id"], id="int", **{name: "int"}), [(1, 2)])
        )
        quoted = place.dialect.quote(name)
        assert place.execute(f"select {quoted} from {quoted}") == [(2,)]
    with pytest.raises(NameUnfit, match="at most 64 characters"):
        Driven(sink(binlog_place, table="${table_name}"), lineage="M").batch(
            1, (table(f"shop.{'ä' * 65}", ["id"], id="int"), [(1,)])
        )


def test_columns_differing_only_in_case_are_rejected_where_equal(
    maria: Place, lite: Place, pg: Place
) -> None:
    both = table("shop.t", ["id"], id="int", Name="string", name="string")
    for place in (maria, lite):
        with pytest.raises(NameUnfit, match="the columns 'Name' and 'name' are the same there"):
            Driven(sink(place, table="t")).batch(1, (both, [(1, "a", "b")]))
    Driven(sink(pg, table="t")).batch(1, (both, [(1, "a", "b")]))
    assert pg.execute('select "Name", name from t') == [("a", "b")]
    with pytest.raises(NameUnfit, match="are the same there"):
        Driven(sink(pg, table="u", field_ide="LOWERCASE"), lineage="M").batch(
            1, (both, [(1, "a", "b")])
        )


def test_tables_differing_only_in_case_conflict_where_names_are_folded(
    pg: Place, lite: Place
) -> None:
    upper, lower = (table(f"shop.{name}", ["id"], id="int", v="int") for name in ("T1", "t1"))
    with MariaDbServer(
        settings={
            "innodb-flush-method": "nosync",
            "sync-binlog": "0",
            "lower-case-table-names": "1",
        }
    ) as server:
        server.execute("create database shop character set utf8mb4")
        folding = Place(
            url=server.url("shop"), user=server.user, password=server.password, database="shop"
        )
        for place in (folding, lite):
            with pytest.raises(UserError, match=r"shop\.T1 and shop\.t1 are both written to"):
                Driven(sink(place, table="${table_name}")).batch(
                    1, (upper, [(1, 1)]), (lower, [(1, 2)])
                )
    Driven(sink(pg, table="${table_name}")).batch(1, (upper, [(1, 1)]), (lower, [(1, 2)]))
    assert pg.execute('select v from "T1" union all select v + 10 from t1') == [(1,), (12,)]


def test_pattern_reads_tables_only(place: Place) -> None:
    place.execute(
        "create table base (id int primary key)",
        "insert into base values (1)",
        "create view shown as select id from base",
    )
    if "postgresql" in place.url:
        place.execute("create materialized view kept as select id from base", "create sequence sq")
    if "mysql" in place.url:
        place.execute("create sequence sq")
    reading = source(place, table_path=".*", use_regex=True)
    assert [each.path.rpartition(".")[2] for each in reading.tables()] == ["base"]
    assert source(place, table_path="shown").tables()[0].names() == ["id"], (
        "a view by its own name is read"
    )
    with pytest.raises(TableMissing):
        source(place, table_path="show.*", use_regex=True).tables()


@pytest.mark.parametrize("where", ["maria", "pg"])
def test_sequence_is_rejected_as_source(request: pytest.FixtureRequest, where: str) -> None:
    place: Place = request.getfixturevalue(where)
    place.execute("create sequence sq")
    with pytest.raises(UserError, match="is a sequence"):
        source(place, table_path="sq").tables()
