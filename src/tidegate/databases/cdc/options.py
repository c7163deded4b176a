"""Options that all CDC connectors share, with SeaTunnel's names.

Declarations and checks only: `tidegate validate` imports this.
"""

from collections.abc import Iterable, Mapping

from tidegate.databases.tls import DEBEZIUM, flatten
from tidegate.databases.url import System, parse_url
from tidegate.model.problem import Problem, Severity
from tidegate.plugin.javaregex import name_pattern_error
from tidegate.plugin.option import Block, Option, OptionKind, Values

COMMON = (
    Option(
        "url",
        OptionKind.TEXT,
        "The address of the database as a JDBC URL.",
        required=True,
        fallbacks=("base-url",),
    ),
    Option(
        "username", OptionKind.TEXT, "The user to log in as.", required=True, fallbacks=("user",)
    ),
    Option("password", OptionKind.TEXT, "The user's password.", required=True, secret=True),
    Option(
        "database-names",
        OptionKind.LIST,
        "The databases whose tables are read; by default all that database-pattern matches.",
    ),
    Option(
        "database-pattern",
        OptionKind.TEXT,
        "A regular expression for the whole name of a database.",
        ".*",
    ),
    Option("table-names", OptionKind.LIST, "The tables to read, each with its whole path."),
    Option(
        "table-pattern",
        OptionKind.TEXT,
        "A regular expression for the whole path of a table. New tables that match are "
        "read from the next start on.",
    ),
    Option(
        "table-names-config",
        OptionKind.LIST,
        "Settings of single tables: "
        "[{ table, primaryKeys = [...], snapshotSplitColumn = a column of the key to split by }].",
    ),
    Option(
        "snapshot.split.size",
        OptionKind.INT,
        "Approximate number of rows in one chunk of the snapshot.",
        8096,
        minimum=1,
    ),
    Option(
        "snapshot.fetch.size",
        OptionKind.INT,
        "Rows fetched per round trip in the snapshot.",
        1024,
        minimum=1,
    ),
    Option(
        "incremental.parallelism",
        OptionKind.INT,
        "Accepted for compatibility with SeaTunnel; the log is read once for each batch.",
        1,
        minimum=1,
    ),
    Option(
        "exactly_once",
        OptionKind.BOOL,
        "Accepted for compatibility with SeaTunnel; the handover from snapshot to log is "
        "always exact.",
        False,
    ),
    Option(
        "connect.timeout.ms",
        OptionKind.DURATION,
        "The timeout of opening a connection.",
        30_000,
        minimum=1,
    ),
    Option(
        "connect.max-retries",
        OptionKind.INT,
        "How often connecting to an unreachable server is retried before the attempt fails.",
        3,
        minimum=0,
    ),
    Option(
        "connection.pool.size",
        OptionKind.INT,
        "Accepted for compatibility with SeaTunnel; connections are opened as they are needed.",
        20,
        minimum=1,
    ),
    Option(
        "server-time-zone",
        OptionKind.TEXT,
        "Accepted for compatibility with SeaTunnel; timestamps are read in UTC, whatever "
        "time zone the server shows them in.",
    ),
    Option(
        "chunk-key.even-distribution.factor.upper-bound",
        OptionKind.DOUBLE,
        "Accepted for compatibility with SeaTunnel; chunks follow the index of the key.",
        100.0,
    ),
    Option(
        "chunk-key.even-distribution.factor.lower-bound",
        OptionKind.DOUBLE,
        "Accepted for compatibility with SeaTunnel; chunks follow the index of the key.",
        0.05,
    ),
    Option(
        "sample-sharding.threshold",
        OptionKind.INT,
        "Accepted for compatibility with SeaTunnel; chunks follow the index of the key.",
        1000,
    ),
    Option(
        "inverse-sampling.rate",
        OptionKind.INT,
        "Accepted for compatibility with SeaTunnel; chunks follow the index of the key.",
        1000,
    ),
    Option(
        "split.allow-sampling",
        OptionKind.BOOL,
        "Accepted for compatibility with SeaTunnel; chunks follow the index of the key.",
        True,
    ),
    Option(
        "enable_concurrent_read",
        OptionKind.BOOL,
        "Accepted for compatibility with SeaTunnel; chunks are read in parallel.",
        True,
    ),
    Option(
        "format",
        OptionKind.ENUM,
        "The format of rows.",
        "DEFAULT",
        choices=("DEFAULT", "COMPATIBLE_DEBEZIUM_JSON"),
    ),
    Option(
        "debezium",
        OptionKind.MAP,
        "Settings of Debezium. Only those of encrypted connections are used "
        "(database.ssl.mode, database.sslmode, database.sslrootcert).",
    ),
    Option(
        "schema-changes.enabled",
        OptionKind.BOOL,
        "Whether columns that are added to a table are propagated. Any other change of a "
        "table stops the job before it.",
        False,
    ),
)


def check(system: System, example: str, block: Block, values: Values) -> Iterable[Problem]:
    """Check the options that all CDC connectors share."""
    yield from _check_url(system, example, block, values)
    for key in ("table-pattern", "database-pattern"):
        wrong = name_pattern_error(values[key] or "")
        if wrong:
            yield block.problem((key,), wrong)
    for index, config in enumerate(values["table-names-config"] or ()):
        if not isinstance(config, Mapping) or not config.get("table"):
            yield block.problem(
                ("table-names-config", index),
                "an entry is a block { table = ..., primaryKeys = [...] }",
            )
    if values["format"] != "DEFAULT":
        yield block.problem(
            ("format",),
            "rows have a row kind and the columns of their table; the JSON envelope is "
            "not supported",
            expected="DEFAULT",
        )
    idle = [key for key, _ in flatten(values["debezium"] or {}) if key not in DEBEZIUM]
    if idle:
        yield block.problem(
            ("debezium",),
            f"Debezium is not used: {', '.join(idle)} has no effect",
            severity=Severity.WARNING,
        )


def _check_url(system: System, example: str, block: Block, values: Values) -> Iterable[Problem]:
    try:
        address = parse_url(str(values["url"] or ""))
    except ValueError as error:
        if values["url"]:
            yield block.problem(("url",), str(error), expected=example)
        return
    if address.system is not system:
        yield block.problem(("url",), f"the URL is one of {address.system.value}", expected=example)
