"""The options of the Jdbc source. Declarations only: `tidegate validate` imports this."""

from tidegate.plugin.option import Kind, Option, OptionSet

UNUSED = "Accepted for the reference's sake, without effect"

CONNECTION = (
    Option(
        "url",
        Kind.TEXT,
        "The database: jdbc:mysql://host:3306/db, jdbc:mariadb://...,"
        " jdbc:postgresql://host:5432/db, jdbc:sqlite:/path/file.db. Any other JDBC URL is handed"
        " to Spark's JDBC.",
        required=True,
    ),
    Option(
        "driver",
        Kind.TEXT,
        "The class of the JDBC driver, for any other URL, with its jar in `env { jars }`. The"
        " databases above need none.",
    ),
    Option("username", Kind.TEXT, "The user; it may stand in the URL too.", fallbacks=("user",)),
    Option("password", Kind.TEXT, "The password.", secret=True),
    Option(
        "properties",
        Kind.MAP,
        "More properties of the connection, as they may stand behind the ? of the URL: sslMode,"
        " currentSchema ...",
        secret=True,
    ),
    Option(
        "connection_check_timeout_sec", Kind.INT, "How long a connection may take.", 30, minimum=1
    ),
    Option("compatible_mode", Kind.TEXT, f"{UNUSED}."),
    Option("dialect", Kind.TEXT, f"{UNUSED}: the URL says which database it is."),
)

_ONE_TABLE = (
    Option(
        "table_path",
        Kind.TEXT,
        "The table: database.table (MySQL), database.schema.table or schema.table (PostgreSQL),"
        " table (SQLite).",
    ),
    Option(
        "query",
        Kind.TEXT,
        "What to read instead of a whole table; with table_path it is that table's rows, and has"
        " its name and key.",
    ),
    Option(
        "use_regex",
        Kind.BOOL,
        "Whether table_path is a regular expression: all tables whose whole name it matches are"
        " read.",
        False,
    ),
    Option(
        "partition_column",
        Kind.TEXT,
        "The column by which the rows are cut into splits; otherwise the first of the primary key,"
        " else of a unique key.",
    ),
    Option(
        "partition_lower_bound",
        Kind.TEXT,
        "Only rows whose partition_column has at least this value.",
    ),
    Option(
        "partition_upper_bound",
        Kind.TEXT,
        "Only rows whose partition_column has at most this value.",
    ),
    Option(
        "partition_num", Kind.INT, "Into how many splits; otherwise split.size says it.", minimum=1
    ),
)
TABLE_OPTIONS = OptionSet(options=_ONE_TABLE)
"""What one entry of `table_list` takes."""

SOURCE_OPTIONS = OptionSet(
    options=(
        *CONNECTION,
        *_ONE_TABLE,
        Option(
            "table_list",
            Kind.LIST,
            "Several tables: a list of blocks, each with table_path, query and the partition_*"
            " options.",
        ),
        Option(
            "where_condition",
            Kind.TEXT,
            "Only rows for which this holds, in all tables: `where id > 100`.",
        ),
        Option(
            "fetch_size",
            Kind.INT,
            "About how many rows are fetched at once; 0 leaves it to the driver.",
            0,
            minimum=0,
        ),
        Option(
            "split.size",
            Kind.INT,
            "About how many rows a split has: a killed read goes on at a split.",
            8096,
            minimum=1,
        ),
        Option(
            "split.even-distribution.factor.lower-bound",
            Kind.DOUBLE,
            "Keys are cut by arithmetic where width of keys / rows is at least this.",
            0.05,
        ),
        Option(
            "split.even-distribution.factor.upper-bound",
            Kind.DOUBLE,
            "Keys are cut by arithmetic where width of keys / rows is at most this.",
            100.0,
        ),
        Option(
            "split.sample-sharding.threshold",
            Kind.INT,
            "Other keys are sampled where there would be at least so many splits.",
            1000,
            minimum=1,
        ),
        Option(
            "split.inverse-sampling.rate",
            Kind.INT,
            "Then every so manieth key is looked at.",
            1000,
            minimum=1,
        ),
        Option(
            "use_select_count",
            Kind.BOOL,
            "Whether rows are counted by `select count(*)` instead of asking the statistics.",
            False,
        ),
        Option(
            "int_type_narrowing",
            Kind.BOOL,
            "Whether tinyint(1) of MySQL is a boolean; otherwise it is a number.",
            True,
        ),
        Option("skip_analyze", Kind.BOOL, f"{UNUSED}: tables are never analysed.", False),
        Option("decimal_type_narrowing", Kind.BOOL, f"{UNUSED}: decimals stay decimals.", True),
        Option("handle_blob_as_string", Kind.BOOL, f"{UNUSED}: bytes stay bytes.", False),
    ),
)
