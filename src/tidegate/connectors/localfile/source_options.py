"""Options shared by the LocalFile source and sink, and the source's own.

Declarations only, with SeaTunnel's names. SeaTunnel's options for unsupported formats or file
systems are declared too, so that its job files cause no warnings about unknown options.
"""

from tidegate.connectors.localfile.bad_rows import EXPANSION_RATIO_MAX, RECORD_BYTES_MAX
from tidegate.plugin.option import Option, OptionKind, OptionSet

FORMATS = ("csv", "text", "json", "parquet", "orc", "excel", "xml", "binary")
"""Formats of SeaTunnel; option_checks.py refuses the last three by name."""
SUPPORTED = FORMATS[:5]
CODECS = ("none", "lzo", "snappy", "lz4", "zlib", "gzip", "brotli", "zstd", "bz2")
SUFFIXES = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".br": "brotli",
    ".lzo": "lzo",
}
"""Codecs of text files, by file name suffix."""
ARCHIVES = ("none", "zip", "tar", "tar_gz", "gz")

FORMAT_DESCRIPTION = "The format of the files: csv, text, json, parquet or orc."
UNUSED = "Has no meaning here"

SHARED = (
    Option(
        "field_delimiter",
        OptionKind.TEXT,
        r"Separates the fields of a row; by default `,` for csv and `\001` for text.",
        fallbacks=("delimiter",),
    ),
    Option(
        "encoding", OptionKind.TEXT, "The character encoding of csv, text and json files.", "UTF-8"
    ),
    Option(
        "date_format",
        OptionKind.TEXT,
        "How dates are written in csv, text and json files.",
        "yyyy-MM-dd",
    ),
    Option(
        "datetime_format",
        OptionKind.TEXT,
        "How timestamps are written in csv, text and json files.",
        "yyyy-MM-dd HH:mm:ss",
    ),
    Option(
        "time_format",
        OptionKind.TEXT,
        "How times are written in csv, text and json files.",
        "HH:mm:ss",
    ),
    Option(
        "null_format",
        OptionKind.TEXT,
        "The text that is null in csv and text files, besides the empty text.",
    ),
    Option("quote_char", OptionKind.TEXT, "The quote character of csv files.", '"'),
    Option(
        "escape_char",
        OptionKind.TEXT,
        "The escape character of csv files; by default none: a quote is escaped by doubling it.",
    ),
    Option("sheet_name", OptionKind.TEXT, f"{UNUSED}: excel files are not supported."),
    Option("xml_row_tag", OptionKind.TEXT, f"{UNUSED}: xml files are not supported."),
    Option("xml_use_attr_format", OptionKind.BOOL, f"{UNUSED}: xml files are not supported."),
    Option("hdfs_site_path", OptionKind.TEXT, f"{UNUSED}: for HDFS only."),
    Option("remote_user", OptionKind.TEXT, f"{UNUSED}: for HDFS only."),
    Option("kerberos_principal", OptionKind.TEXT, f"{UNUSED}: for HDFS only."),
    Option("kerberos_keytab_path", OptionKind.TEXT, f"{UNUSED}: for HDFS only."),
    Option("krb5_path", OptionKind.TEXT, f"{UNUSED}: for HDFS only."),
)

_ONE_TABLE = (
    Option(
        "path",
        OptionKind.TEXT,
        "A file, a directory (read recursively) or a glob pattern. Names that begin with . or _ are"
        " ignored.",
    ),
    Option(
        "file_format_type",
        OptionKind.ENUM,
        FORMAT_DESCRIPTION,
        choices=FORMATS,
        fallbacks=("file_format",),
    ),
    Option(
        "schema",
        OptionKind.MAP,
        "The columns of the files; parquet and orc files have their own, text and csv files without"
        " a schema have one column `content`.",
        fallbacks=("catalog",),
    ),
    Option("read_columns", OptionKind.LIST, "Only these columns, in this order."),
    *SHARED,
    Option(
        "row_delimiter",
        OptionKind.TEXT,
        r"Separates the rows of a text or csv file; by default `\n`, which includes `\r\n` and"
        r" `\r`.",
    ),
    Option(
        "parse_partition_from_path",
        OptionKind.BOOL,
        "Whether directories such as `day=3` become columns of type string.",
        True,
    ),
    Option(
        "skip_header_row_number",
        OptionKind.LONG,
        "Number of lines to skip at the beginning of every csv or text file.",
        0,
        minimum=0,
    ),
    Option(
        "csv_use_header_line",
        OptionKind.BOOL,
        "Whether the first line of every csv file is a header, by which columns are matched.",
        False,
    ),
    Option(
        "recursive_file_scan",
        OptionKind.BOOL,
        "Whether directories below `path` are read too; otherwise only the files directly in it.",
        True,
    ),
    Option(
        "file_filter_pattern",
        OptionKind.TEXT,
        "A regular expression for the name or the whole path of a file; other files are ignored.",
    ),
    Option(
        "filename_extension",
        OptionKind.TEXT,
        "Only files with this extension, such as `csv` or `.txt`.",
    ),
    Option(
        "file_filter_modified_start",
        OptionKind.TEXT,
        "Only files modified at this time or later: yyyy-MM-dd HH:mm:ss, UTC.",
    ),
    Option(
        "file_filter_modified_end",
        OptionKind.TEXT,
        "Only files modified before this time: yyyy-MM-dd HH:mm:ss, UTC.",
    ),
    Option(
        "read_partitions",
        OptionKind.LIST,
        "Only files with one of these texts in their path, such as `day=3`.",
    ),
    Option(
        "compress_codec",
        OptionKind.ENUM,
        "Compression of csv, text and json files; also detected by the file name suffixes .gz,"
        " .bz2, .zst, .lz4, .br and .lzo.",
        "none",
        choices=CODECS,
    ),
    Option(
        "short_rows",
        OptionKind.ENUM,
        "A csv or text row with fewer fields than the schema or the header is a bad row (`fail`),"
        " or the missing columns are null (`fill_null`).",
        "fail",
        choices=("fail", "fill_null"),
    ),
    Option(
        "long_rows",
        OptionKind.ENUM,
        "A csv or text row with more fields than the schema or the header is a bad row (`fail`), or"
        " its last fields are dropped (`drop_extra`).",
        "fail",
        choices=("fail", "drop_extra"),
    ),
    Option(
        "missing_columns",
        OptionKind.ENUM,
        "A column of the schema that is not in the header of a csv file, in a json object or in a"
        " parquet or orc file is an error (`fail`), or null (`fill_null`).",
        "fail",
        choices=("fail", "fill_null"),
    ),
    Option(
        "excess_digits",
        OptionKind.ENUM,
        "A number with more decimal places than its decimal type, a time with more digits than"
        " microseconds, or a timestamp in a date column is a bad row (`fail`), or is rounded half"
        " up or truncated (`round`).",
        "fail",
        choices=("fail", "round"),
    ),
    Option(
        "max_record_bytes",
        OptionKind.LONG,
        "Maximum size of a csv, text or json record; a longer record, or a quote that is not closed"
        " within so many bytes, is an error.",
        RECORD_BYTES_MAX,
        minimum=1,
    ),
    Option(
        "max_expansion_ratio",
        OptionKind.LONG,
        "Maximum ratio by which a compressed file or an archive may expand beyond 1 GiB; more is an"
        " error.",
        EXPANSION_RATIO_MAX,
        minimum=1,
    ),
    Option(
        "archive_compress_codec",
        OptionKind.ENUM,
        "The archive format of the files.",
        "none",
        choices=ARCHIVES,
    ),
    Option("excel_engine", OptionKind.TEXT, f"{UNUSED}: excel files are not supported."),
    Option("poi_excel_max_file_size", OptionKind.LONG, f"{UNUSED}: excel files are not supported."),
    Option("binary_chunk_size", OptionKind.INT, f"{UNUSED}: binary files are not supported."),
    Option(
        "binary_complete_file_mode", OptionKind.BOOL, f"{UNUSED}: binary files are not supported."
    ),
    Option("sync_mode", OptionKind.TEXT, f"{UNUSED}: binary files are not supported."),
    Option(
        "enable_file_split", OptionKind.BOOL, f"{UNUSED}: large files are always read in parts."
    ),
    Option(
        "file_split_size",
        OptionKind.LONG,
        f"{UNUSED}: the parts of a file follow from its size and the number of cores.",
    ),
)

TABLE_OPTIONS = OptionSet(options=_ONE_TABLE)
"""Options of one entry of `tables_configs`."""

SOURCE_OPTIONS = OptionSet(
    options=(
        *_ONE_TABLE,
        Option(
            "tables_configs",
            OptionKind.LIST,
            "Several tables: a list of blocks, each with the options of one table.",
        ),
        Option(
            "discovery_mode",
            OptionKind.ENUM,
            "`once` reads the existing files; `continuous` also scans for new ones, in STREAMING"
            " jobs, among at most 20000 files.",
            "once",
            choices=("once", "continuous"),
        ),
        Option(
            "scan_interval",
            OptionKind.DURATION,
            "Time between two scans for new files; a file is read when it did not change for this"
            " long.",
            10_000,
            minimum=0,
        ),
        Option(
            "file_retention",
            OptionKind.DURATION,
            "How long `continuous` remembers a file that it has read and that is missing: if it"
            " comes back, it is not read again.",
            7 * 24 * 3_600_000,
            minimum=0,
        ),
    ),
    exclusive=(("path", "tables_configs"),),
)
