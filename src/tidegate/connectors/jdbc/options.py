"""Declares the Jdbc connectors: the sink's options and the capabilities of source and sink.

Declarations only, without Arrow and drivers, so that validation is fast.
"""

from dataclasses import replace

from tidegate.connectors.jdbc.jvm_sql import Brand
from tidegate.connectors.jdbc.option_checks import check_sink, check_source
from tidegate.connectors.jdbc.source_options import CONNECTION, SOURCE_OPTIONS, UNUSED
from tidegate.databases.url import has_native_dialect
from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.types import RowKind
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.option import Option, OptionKind, OptionSet, Values

SCHEMA_MODES = (
    "RECREATE_SCHEMA",
    "CREATE_SCHEMA_WHEN_NOT_EXIST",
    "ERROR_WHEN_SCHEMA_NOT_EXIST",
    "IGNORE",
)
DATA_MODES = ("DROP_DATA", "APPEND_DATA", "CUSTOM_PROCESSING", "ERROR_WHEN_DATA_EXISTS")

SINK_OPTIONS = OptionSet(
    options=(
        *CONNECTION,
        Option(
            "query",
            OptionKind.TEXT,
            "A statement for every row, with a ? for each column in order, or with :name for a"
            " column: `insert into t (a, b) values (?, ?)`. Save modes do not apply.",
        ),
        Option(
            "generate_sink_sql",
            OptionKind.BOOL,
            "Whether the statements are made from the table's columns and key.",
            False,
        ),
        Option(
            "database",
            OptionKind.TEXT,
            "The database of `table`, if the URL names none or another one; placeholders such as"
            " ${database_name} are replaced.",
        ),
        Option(
            "table",
            OptionKind.TEXT,
            "The table; ${database_name}, ${schema_name} and ${table_name} are those of the"
            " incoming table. Default: ${table_name}.",
        ),
        Option(
            "primary_keys",
            OptionKind.LIST,
            "The key columns. Default: the incoming table's primary key, else its unique key;"
            " without a key rows are only inserted.",
        ),
        Option(
            "enable_upsert",
            OptionKind.BOOL,
            "Whether a row replaces an existing row with the same key; otherwise that is an error."
            " Updates and deletes are always applied.",
            True,
        ),
        Option(
            "field_ide",
            OptionKind.ENUM,
            "How names of tables and columns are written.",
            "ORIGINAL",
            choices=("ORIGINAL", "UPPERCASE", "LOWERCASE"),
        ),
        Option(
            "schema_save_mode",
            OptionKind.ENUM,
            "How the table is prepared before the first rows.",
            "CREATE_SCHEMA_WHEN_NOT_EXIST",
            choices=SCHEMA_MODES,
        ),
        Option(
            "data_save_mode",
            OptionKind.ENUM,
            "What happens to existing rows.",
            "APPEND_DATA",
            choices=DATA_MODES,
        ),
        Option(
            "custom_sql",
            OptionKind.TEXT,
            "The statement of data_save_mode = CUSTOM_PROCESSING, run once before the first rows.",
        ),
        Option(
            "batch_size",
            OptionKind.INT,
            "Number of rows per execution of `query`; generated statements write whole batches.",
            1000,
            minimum=1,
        ),
        Option(
            "is_exactly_once",
            OptionKind.BOOL,
            f"{UNUSED}: the sink always delivers exactly once.",
            False,
        ),
        Option("xa_data_source_class_name", OptionKind.TEXT, f"{UNUSED}: no XA is needed."),
        Option(
            "max_commit_attempts",
            OptionKind.INT,
            f"{UNUSED}: a batch is repeated until it is committed.",
        ),
        Option("transaction_timeout_sec", OptionKind.INT, f"{UNUSED}."),
        Option(
            "max_retries",
            OptionKind.INT,
            f"{UNUSED}: `job.retry.times` limits the attempts of a batch.",
        ),
        Option("auto_commit", OptionKind.BOOL, f"{UNUSED}: a batch is one transaction."),
        Option(
            "batch_interval_ms",
            OptionKind.INT,
            f"{UNUSED}: `checkpoint.interval` determines how often rows become visible.",
        ),
        Option("support_upsert_by_insert_only", OptionKind.BOOL, f"{UNUSED}."),
        Option(
            "support_upsert_by_query_primary_key_exist",
            OptionKind.BOOL,
            f"{UNUSED}: existing keys are found without a query for each row.",
        ),
        Option(
            "connect_timeout_ms", OptionKind.INT, f"{UNUSED}: see connection_check_timeout_sec."
        ),
        Option("socket_timeout_ms", OptionKind.INT, f"{UNUSED}."),
        Option("oracle_insert_mode", OptionKind.TEXT, f"{UNUSED}."),
        Option(
            "is_primary_key_updated",
            OptionKind.BOOL,
            f"{UNUSED}: a changed key is always applied.",
        ),
        Option("use_copy_statement", OptionKind.BOOL, f"{UNUSED}: rows are always loaded in bulk."),
        Option(
            "allow_lossy_types",
            OptionKind.BOOL,
            "Whether columns may round or truncate values: fewer digits after the point or of a"
            " second, a date for a time, a float for a decimal. Otherwise such a column is rejected"
            " before the first row.",
            False,
        ),
        Option(
            "allow_merged_keys",
            OptionKind.BOOL,
            "Whether different rows of the source may become one row of the target, since its"
            " collation ignores case, accents or blanks, or primary_keys are not unique at the"
            " source. Otherwise such a key is rejected.",
            False,
        ),
        Option(
            "allow_shared_table",
            OptionKind.BOOL,
            "Whether several incoming tables may be written to one table of the target. Otherwise"
            " they are rejected.",
            False,
        ),
        Option(
            "create_index",
            OptionKind.BOOL,
            "Whether a created table has its key as primary key. Without it, keys still work, but"
            " more slowly.",
            True,
        ),
        Option("multi_table_sink_replica", OptionKind.INT, f"{UNUSED}."),
    ),
)


def _refine_sink(values: Values, capabilities: Capabilities) -> Capabilities:
    """With keys a replay converges; without keys it duplicates rows."""
    keyed = bool(values["primary_keys"]) and not values["query"] and values["enable_upsert"]
    refuses = (RowKind.DELETE,) if values["query"] else ()
    return replace(
        capabilities,
        go_back=GoBack.REPLAY if keyed else GoBack.DUPLICATE,
        row_kinds=not values["query"],
        refuses=refuses,
    )


def needs_jvm(values: Values) -> bool:
    """Whether the database is only accessible through Spark's JDBC."""
    return not has_native_dialect(values["url"])


_SOURCE, _SINK = (
    Connector(
        name="Jdbc",
        kind=BlockKind.SOURCE,
        summary=(
            "Reads tables or queries of MariaDB, MySQL, PostgreSQL and SQLite, in parallel splits;"
            " of any other database by Spark, with its driver."
        ),
        options=SOURCE_OPTIONS,
        capabilities=Capabilities(
            streaming=False,
            multi_table=True,
            fusable=True,
            state="the splits, and how many of them are done",
        ),
        implementation="tidegate.connectors.jdbc.source:JdbcSource",
        check=check_source,
    ),
    Connector(
        name="Jdbc",
        kind=BlockKind.SINK,
        summary=(
            "Writes tables of MariaDB, MySQL, PostgreSQL and SQLite, exactly once: inserts, updates"
            " and deletes by key. Oracle, DB2, SQL Server, H2 and Derby through their drivers,"
            " exactly once too; any other database at least once."
        ),
        options=SINK_OPTIONS,
        capabilities=Capabilities(
            delivery=Delivery.EXACTLY_ONCE,
            go_back=GoBack.REPLAY,
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="the last batch and the prepared tables",
        ),
        implementation="tidegate.connectors.jdbc.sink:JdbcSink",
        check=check_sink,
        refine=_refine_sink,
    ),
)

_JVM_SOURCE = replace(
    _SOURCE,
    capabilities=replace(_SOURCE.capabilities, fusable=False),
    implementation="tidegate.connectors.jdbc.jvm_connector:JvmSource",
    spark="tidegate.connectors.jdbc.spark:frame",
)
_JVM_SINK = replace(
    _SINK,
    capabilities=replace(_SINK.capabilities, fusable=False),
    implementation="tidegate.connectors.jdbc.jvm_connector:JvmSink",
    spark="tidegate.connectors.jdbc.spark:save",
)
_DIRECT_SINK = replace(
    _JVM_SINK,
    capabilities=Capabilities(
        delivery=Delivery.AT_LEAST_ONCE,
        go_back=GoBack.DUPLICATE,
        refuses=(RowKind.UPDATE_BEFORE, RowKind.DELETE),
        multi_table=True,
        state="the tables that were written",
    ),
    refine=None,
)
_AT_LEAST_ONCE_SINK = replace(
    _JVM_SINK, capabilities=replace(_JVM_SINK.capabilities, delivery=Delivery.AT_LEAST_ONCE)
)


def _jvm_sink(values: Values) -> Connector:
    """Exactly once for known databases; the transactions of others may not include the record."""
    if Brand.of(values["url"]).has_known_transactions:
        return _JVM_SINK
    staged = values["query"] or (values["primary_keys"] and values["enable_upsert"])
    return _AT_LEAST_ONCE_SINK if staged else _DIRECT_SINK


CONNECTORS = (
    replace(_SOURCE, choose=lambda values: _JVM_SOURCE if needs_jvm(values) else None),
    replace(_SINK, choose=lambda values: _jvm_sink(values) if needs_jvm(values) else None),
)
