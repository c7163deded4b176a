"""Checks of Jdbc blocks: all problems together, without passwords and without a database."""

from typing import Any

import pytest

from tidegate.connectors.jdbc.options import CONNECTORS
from tidegate.databases.url import System, parse_url, url_without_secrets
from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.problem import Location, Problem
from tidegate.plugin.connector import GoBack
from tidegate.plugin.option import Block

SOURCE = next(c for c in CONNECTORS if c.kind is BlockKind.SOURCE)
SINK = next(c for c in CONNECTORS if c.kind is BlockKind.SINK)
URL = "jdbc:mysql://host/shop"


def problems(connector: Any, **given: Any) -> list[Problem]:
    block = Block(given, lambda _: Location("job.conf", 1), "block")
    values, found = connector.options.read(block)
    return [*found, *connector.check(block, values)]


def messages(connector: Any, **given: Any) -> list[str]:
    return [problem.message for problem in problems(connector, **given)]


def test_valid_blocks_have_no_problems() -> None:
    assert problems(SOURCE, url=URL, table_path="shop.orders", user="u", password="p") == []
    assert problems(SOURCE, url=URL, query="select 1", partition_column="id", partition_num=4) == []
    assert (
        problems(
            SOURCE,
            url="jdbc:sqlite:/tmp/x.db",
            table_list=[{"table_path": "a"}, {"table_path": "b", "query": "select 1"}],
        )
        == []
    )
    assert problems(SINK, url=URL, generate_sink_sql=True, table="${table_name}") == []
    assert problems(SINK, url=URL, query="insert into t values (?)") == []


def test_all_problems_of_a_source_are_reported_together() -> None:
    found = messages(
        SOURCE,
        url="jdbc:oracle:thin:@host",
        where_condition="id > 1",
        partition_num=0,
        use_regex=True,
        table_path="(",
    )
    assert len(found) == 5
    assert any(
        "oracle is accessed through Spark's JDBC, which needs its driver" in message
        for message in found
    )
    assert any("name the tables in table_list" in message for message in found)
    assert any("must begin with `where`" in message for message in found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "what to read is missing"),
        (
            {"table_path": "t", "table_list": [{"table_path": "u"}]},
            "replaces query and table_path",
        ),
        ({"table_list": [{"table_path": "t"}, {"table_path": "t"}]}, "'t' is listed twice"),
        ({"table_list": [{"query": "select 1"}]}, "table_path is missing"),
        ({"table_list": ["t"]}, "must be a block"),
        ({"table_path": "t", "partition_lower_bound": 3}, "needs partition_column"),
        (
            {"query": "select 1", "table_path": "t", "use_regex": True},
            "use_regex cannot be combined with query",
        ),
    ],
)
def test_invalid_source_options_are_reported(given: dict[str, Any], message: str) -> None:
    assert [m for m in messages(SOURCE, url=URL, **given) if message in m]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "what to write is missing"),
        (
            {"query": "insert into t values (?)", "table": "t"},
            "generate_sink_sql and table have no effect with it",
        ),
        ({"query": "insert into t values (1)"}, "no ?"),
        ({"query": "insert into t values (':a') -- ?"}, "no ?"),
        ({"query": "insert into t values (?, :a)"}, "both ? and :name"),
        ({"table": "t", "data_save_mode": "CUSTOM_PROCESSING"}, "custom_sql is missing"),
        ({"table": "t", "data_save_mode": "DROP"}, "not possible"),
        (
            {"table": "t", "url": "jdbc:postgresql://host/a", "database": "b"},
            "sees only one database",
        ),
        ({"table": "t", "url": "jdbc:mysql://host:port/a"}, "host and port"),
        ({"table": "t", "url": "jdbc:sqlite:"}, "no file"),
    ],
)
def test_invalid_sink_options_are_reported(given: dict[str, Any], message: str) -> None:
    assert [m for m in messages(SINK, **{"url": URL, **given}) if message in m]


def test_other_databases_use_spark_jdbc_with_a_driver() -> None:
    oracle = {
        "url": "jdbc:oracle:thin:scott/tiger@//host:1521/x",
        "driver": "oracle.jdbc.OracleDriver",
    }
    assert (
        problems(SOURCE, table_path="SHOP.ORDERS", partition_column="ID", partition_num=4, **oracle)
        == []
    )
    assert problems(SOURCE, query="select 1 from dual", **oracle) == []
    assert (
        problems(
            SINK,
            table="ORDERS",
            generate_sink_sql=True,
            primary_keys=["ID"],
            enable_upsert=False,
            **oracle,
        )
        == []
    )
    assert (
        problems(
            SINK,
            table="ORDERS",
            is_exactly_once=True,
            primary_keys=["ID"],
            custom_sql="delete from t",
            **oracle,
        )
        == []
    )
    assert problems(SINK, query="insert into t values (:id)", **oracle) == []
    unknown = {"url": "jdbc:vertica://host/x", "driver": "com.vertica.jdbc.Driver"}
    assert [
        m
        for m in messages(SINK, table="ORDERS", is_exactly_once=True, **unknown)
        if "delivery is at least once" in m
    ]
    assert problems(SINK, table="ORDERS", primary_keys=["ID"], **unknown) == []
    assert [
        m for m in messages(SOURCE, url="oracle:thin:x", table_path="t") if "is not a JDBC URL" in m
    ]

    def able(**given: Any) -> tuple[Any, ...]:
        values, _ = SINK.options.read(Block(given, lambda _: Location(""), ""))
        found = SINK.capabilities_of(values)
        return found.delivery, found.go_back, found.fusable, found.row_kinds

    assert able(table="T", **oracle) == (Delivery.EXACTLY_ONCE, GoBack.DUPLICATE, False, True)
    assert able(table="T", primary_keys=["ID"], **oracle) == (
        Delivery.EXACTLY_ONCE,
        GoBack.REPLAY,
        False,
        True,
    )
    assert able(query="insert into t values (?)", **oracle) == (
        Delivery.EXACTLY_ONCE,
        GoBack.DUPLICATE,
        False,
        False,
    )
    assert able(table="T", **unknown) == (Delivery.AT_LEAST_ONCE, GoBack.DUPLICATE, False, False)
    assert able(table="T", primary_keys=["ID"], **unknown) == (
        Delivery.AT_LEAST_ONCE,
        GoBack.REPLAY,
        False,
        True,
    )
    values, _ = SINK.options.read(Block({"table": "T", **oracle}, lambda _: Location(""), ""))
    assert SINK.of(values).spark == "tidegate.connectors.jdbc.spark:save"
    assert SINK.of({**values, "url": URL}) is SINK


def test_replay_without_keys_duplicates_rows() -> None:
    def back(**given: Any) -> GoBack | None:
        values, _ = SINK.options.read(Block({"url": URL, **given}, lambda _: Location(""), ""))
        return SINK.capabilities_of(values).go_back

    assert back(table="t", primary_keys=["id"]) is GoBack.REPLAY
    assert back(table="t") is GoBack.DUPLICATE
    assert back(query="insert into t values (?)") is GoBack.DUPLICATE


def test_url_is_parsed_and_never_shows_its_password() -> None:
    address = parse_url("jdbc:mariadb://user:s%40cret@db.example:3307/shop?useSSL=true")
    assert (address.system, address.host, address.port, address.database, address.user, address.password) == (
        System.MYSQL, "db.example", 3307, "shop", "user", "s@cret",
    )  # fmt: skip
    assert "s@cret" not in f"{address} {address!r}"
    assert address.mask("failed with s@cret, s%40cret") == "failed with ******, ******"
    assert (
        parse_url("jdbc:postgresql://[::1]/db?user=u&password=p").uri("postgresql")
        == "postgresql://u:p@[::1]:5432/db"
    )
    assert (
        parse_url("jdbc:postgresql://h/db", "a", 'p"ss /word').uri("postgresql")
        == "postgresql://a:p%22ss%20%2Fword@h:5432/db"
    )
    assert parse_url("jdbc:sqlite:/data/x.db?mode=ro").database == "/data/x.db"
    assert (
        url_without_secrets("jdbc:mysql://u:p@h/db?password=x&a=b")
        == "jdbc:mysql://u:******@h/db?password=******&a=b"
    )


@pytest.mark.parametrize(
    "url",
    [
        "mysql",
        "jdbc:db2://h/x",
        "jdbc:mysql://",
        "jdbc:sqlite::memory:",
        "jdbc:mysql://h:99999999/x",
    ],
)
def test_invalid_url_is_explained(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        parse_url(url)


REFERENCE = {
    "source": (
        "url driver username user password query table_path table_list where_condition"
        " partition_column partition_lower_bound partition_upper_bound partition_num split.size"
        " split.even-distribution.factor.lower-bound split.even-distribution.factor.upper-bound"
        " split.sample-sharding.threshold split.inverse-sampling.rate fetch_size"
        " connection_check_timeout_sec properties decimal_type_narrowing use_select_count"
        " skip_analyze compatible_mode dialect"
    ),
    "sink": (
        "url driver username user password query generate_sink_sql database table primary_keys"
        " compatible_mode dialect connection_check_timeout_sec max_retries batch_size"
        " batch_interval_ms is_exactly_once xa_data_source_class_name max_commit_attempts"
        " transaction_timeout_sec auto_commit field_ide properties enable_upsert"
        " is_primary_key_updated support_upsert_by_insert_only"
        " support_upsert_by_query_primary_key_exist use_copy_statement create_index custom_sql"
        " schema_save_mode data_save_mode multi_table_sink_replica connect_timeout_ms"
        " socket_timeout_ms oracle_insert_mode"
    ),
}
WITHOUT_MEANING = {
    "source": {"compatible_mode", "dialect", "skip_analyze", "decimal_type_narrowing", "handle_blob_as_string"},
    "sink": {
        "compatible_mode", "dialect", "is_exactly_once", "xa_data_source_class_name", "max_commit_attempts", "transaction_timeout_sec", "max_retries",
        "auto_commit", "batch_interval_ms", "support_upsert_by_insert_only", "support_upsert_by_query_primary_key_exist", "is_primary_key_updated",
        "use_copy_statement", "multi_table_sink_replica", "connect_timeout_ms", "socket_timeout_ms", "oracle_insert_mode",
    },
}  # fmt: skip


@pytest.mark.parametrize("connector", [SOURCE, SINK], ids=["source", "sink"])
def test_every_option_of_seatunnel_is_supported_or_declared_unused(
    connector: Any,
) -> None:
    known = {
        name: option
        for option in connector.options.options
        for name in (option.key, *option.fallbacks)
    }
    kind = connector.kind.value
    assert set(REFERENCE[kind].split()) <= set(known)
    silent = {
        option.key
        for option in connector.options.options
        if option.description.startswith(
            "Accepted for compatibility with SeaTunnel, without effect"
        )
    }
    assert silent == WITHOUT_MEANING[kind]
