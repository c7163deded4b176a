"""The options of the Jdbc source. Declarations only: `tidegate validate` imports this."""

from tidegate.plugin.option import Option, OptionKind, OptionSet

UNUSED = "Accepted for compatibility with SeaTunnel, without effect"

CONNECTION = (
    Option(
        "url",
        OptionKind.TEXT,
        "The database: jdbc:mysql://host:3306/db, jdbc:mariadb://...,"
        " jdbc:postgresql://host:5432/db, jdbc:sqlite:/path/file.db. Any other JDBC URL is used"
        " through Spark's JDBC.",
        required=True,
    ),
    Option(
        "driver",
        OptionKind.TEXT,
        "The class of the JDBC driver, for any other URL, with its jar in `env { jars }`. The"
        " databases above need none.",
    ),
    Option(
        "username", OptionKind.TEXT, "The user; may also be part of the URL.", fallbacks=("user",)
    ),
    Option("password", OptionKind.TEXT, "The password.", secret=True),
    Option(
        "properties",
        OptionKind.MAP,
        "More properties of the connection, like those after the ? of the URL: sslMode,"
        " currentSchema ...",
        secret=True,
    ),
    Option(
        "connection_check_timeout_sec",
        OptionKind.INT,
        "Timeout for opening a connection.",
        30,
        minimum=1,
    ),
    Option("compatible_mode", OptionKind.TEXT, f"{UNUSED}."),
    Option("dialect", OptionKind.TEXT, f"{UNUSED}: the URL determines the database."),
)

_ONE_TABLE = (
    Option(
        "table_path",
        OptionKind.TEXT,
        "The table: database.table (MySQL), database.schema.table or schema.table (PostgreSQL),"
        " table (SQLite).",
    ),
    Option(
        "query",
        OptionKind.TEXT,
        "A query to read instead of a whole table; with table_path, its rows have that table's"
        " name and key.",
    ),
    Option(
        "use_regex",
        OptionKind.BOOL,
        "Whether table_path is a regular expression: all tables whose whole name it matches are"
        " read.",
        False,
    ),
    Option(
        "partition_column",
        OptionKind.TEXT,
        "The column by which rows are divided into splits. Default: the first column of the"
        " primary key, else of a unique key.",
    ),
    Option(
        "partition_lower_bound",
        OptionKind.TEXT,
        "Only rows whose partition_column has at least this value.",
    ),
    Option(
        "partition_upper_bound",
        OptionKind.TEXT,
        "Only rows whose partition_column has at most this value.",
    ),
    Option(
        "partition_num",
        OptionKind.INT,
        "The number of splits. Default: depends on split.size.",
        minimum=1,
    ),
)
TABLE_OPTIONS = OptionSet(options=_ONE_TABLE)
"""The options of one entry of `table_list`."""

SOURCE_OPTIONS = OptionSet(
    options=(
        *CONNECTION,
        *_ONE_TABLE,
        Option(
            "table_list",
            OptionKind.LIST,
            "Several tables: a list of blocks, each with table_path, query and the partition_*"
            " options.",
        ),
        Option(
            "where_condition",
            OptionKind.TEXT,
            "Only rows that match this condition, in all tables: `where id > 100`.",
        ),
        Option(
            "fetch_size",
            OptionKind.INT,
            "Approximate number of rows fetched at once; 0 leaves it to the driver.",
            0,
            minimum=0,
        ),
        Option(
            "split.size",
            OptionKind.INT,
            "Approximate number of rows of a split: a killed read resumes at a split.",
            8096,
            minimum=1,
        ),
        Option(
            "split.even-distribution.factor.lower-bound",
            OptionKind.DOUBLE,
            "Keys are divided by arithmetic if width of keys / rows is at least this.",
            0.05,
        ),
        Option(
            "split.even-distribution.factor.upper-bound",
            OptionKind.DOUBLE,
            "Keys are divided by arithmetic if width of keys / rows is at most this.",
            100.0,
        ),
        Option(
            "split.sample-sharding.threshold",
            OptionKind.INT,
            "Other keys are sampled if there would be at least this many splits.",
            1000,
            minimum=1,
        ),
        Option(
            "split.inverse-sampling.rate",
            OptionKind.INT,
            "The sampling step: every n-th key is read.",
            1000,
            minimum=1,
        ),
        Option(
            "use_select_count",
            OptionKind.BOOL,
            "Whether rows are counted by `select count(*)` instead of estimated from statistics.",
            False,
        ),
        Option(
            "int_type_narrowing",
            OptionKind.BOOL,
            "Whether tinyint(1) of MySQL is a boolean; otherwise it is a number.",
            True,
        ),
        Option("skip_analyze", OptionKind.BOOL, f"{UNUSED}: tables are never analysed.", False),
        Option(
            "decimal_type_narrowing", OptionKind.BOOL, f"{UNUSED}: decimals stay decimals.", True
        ),
        Option("handle_blob_as_string", OptionKind.BOOL, f"{UNUSED}: bytes stay bytes.", False),
    ),
)
