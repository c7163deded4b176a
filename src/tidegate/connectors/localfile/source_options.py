"""The options that LocalFile source and sink share, and the source's own, by the names of the
reference. Declarations only.

Options that the reference has for formats or file systems that are not here are declared too, so
that its job files give no warnings about unknown keys.
"""

from tidegate.connectors.localfile.bad_rows import EXPANSION_RATIO_MAX, RECORD_BYTES_MAX
from tidegate.plugin.option import Option, OptionKind, OptionSet

FORMATS = ("csv", "text", "json", "parquet", "orc", "excel", "xml", "binary")
"""What the reference knows; check.py refuses the last three in words."""
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
"""The codecs of text files, by the ends of their names."""
ARCHIVES = ("none", "zip", "tar", "tar_gz", "gz")

FORMAT_DESCRIPTION = "The format of the files: csv, text, json, parquet or orc."
UNUSED = "Has no meaning here"

SHARED = (
    Option(
        "field_delimiter",
        OptionKind.TEXT,
        r"Between the fields of a row; `,` for csv and `\001` for text where nothing is given.",
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
        "The text that stands for null in csv and text files, besides nothing at all.",
    ),
    Option("quote_char", OptionKind.TEXT, "The quote character of csv files.", '"'),
    Option(
        "escape_char",
        OptionKind.TEXT,
        "The escape character of csv files; none where nothing is given: a quote is doubled.",
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
        "A file, a directory (read with all below it) or a glob pattern. Names that begin with . or"
        " _ are left out.",
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
        "The columns of the files; parquet and orc files bring their own, text and csv without it"
        " give one column `content`.",
        fallbacks=("catalog",),
    ),
    Option("read_columns", OptionKind.LIST, "Only these columns, in this order."),
    *SHARED,
    Option(
        "row_delimiter",
        OptionKind.TEXT,
        r"Between the rows of a text or csv file: `\n`, which stands for `\r\n` and `\r` too, where"
        r" nothing is given.",
    ),
    Option(
        "parse_partition_from_path",
        OptionKind.BOOL,
        "Whether directories such as `day=3` give columns, of type string.",
        True,
    ),
    Option(
        "skip_header_row_number",
        OptionKind.LONG,
        "So many lines at the top of every csv or text file are left out.",
        0,
        minimum=0,
    ),
    Option(
        "csv_use_header_line",
        OptionKind.BOOL,
        "Whether the first line of every csv file names its columns; they are found by these names"
        " then.",
        False,
    ),
    Option(
        "recursive_file_scan",
        OptionKind.BOOL,
        "Whether directories below `path` are read too; false: only the files directly in it.",
        True,
    ),
    Option(
        "file_filter_pattern",
        OptionKind.TEXT,
        "A regular expression for the name or the whole path of a file; others are left out.",
    ),
    Option(
        "filename_extension",
        OptionKind.TEXT,
        "Only files whose names end like this, such as `csv` or `.txt`.",
    ),
    Option(
        "file_filter_modified_start",
        OptionKind.TEXT,
        "Only files that were changed at this time or later: yyyy-MM-dd HH:mm:ss, UTC.",
    ),
    Option(
        "file_filter_modified_end",
        OptionKind.TEXT,
        "Only files that were changed before this time: yyyy-MM-dd HH:mm:ss, UTC.",
    ),
    Option(
        "read_partitions",
        OptionKind.LIST,
        "Only files with one of these texts in their path, such as `day=3`.",
    ),
    Option(
        "compress_codec",
        OptionKind.ENUM,
        "How csv, text and json files are compressed; file names that end in .gz, .bz2, .zst or"
        " .lz4 say it too.",
        "none",
        choices=CODECS,
    ),
    Option(
        "short_rows",
        OptionKind.ENUM,
        "A csv or text row with fewer fields than the schema or the header has is a bad row"
        " (`fail`), or the columns that it lacks are null (`fill_null`).",
        "fail",
        choices=("fail", "fill_null"),
    ),
    Option(
        "long_rows",
        OptionKind.ENUM,
        "A csv or text row with more fields than the schema or the header has is a bad row"
        " (`fail`), or its last fields are dropped (`drop_extra`).",
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
        "A number with more digits behind the point than its decimal type, a time with more digits"
        " than microseconds, or a timestamp in a date column is a bad row (`fail`), or is rounded"
        " half up or cut (`round`).",
        "fail",
        choices=("fail", "round"),
    ),
    Option(
        "max_record_bytes",
        OptionKind.LONG,
        "A csv, text or json record that is longer is an error, and so is a quote that is not"
        " closed within so many bytes.",
        RECORD_BYTES_MAX,
        minimum=1,
    ),
    Option(
        "max_expansion_ratio",
        OptionKind.LONG,
        "A compressed file or an archive that expands to more than so many times its size, and more"
        " than 1 GiB, is an error.",
        EXPANSION_RATIO_MAX,
        minimum=1,
    ),
    Option(
        "archive_compress_codec",
        OptionKind.ENUM,
        "Which archives the files are in.",
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
"""What one entry of `tables_configs` takes."""

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
            "`once` reads the files that are there; `continuous` goes on looking for new ones, in"
            " STREAMING jobs, among at most 20000 files.",
            "once",
            choices=("once", "continuous"),
        ),
        Option(
            "scan_interval",
            OptionKind.DURATION,
            "Time between two looks for new files; a file is read when it did not change for this"
            " long.",
            10_000,
            minimum=0,
        ),
        Option(
            "file_retention",
            OptionKind.DURATION,
            "How long `continuous` remembers a file that it has read and does not see any more: one"
            " that comes back is not read again.",
            7 * 24 * 3_600_000,
            minimum=0,
        ),
    ),
    exclusive=(("path", "tables_configs"),),
)
