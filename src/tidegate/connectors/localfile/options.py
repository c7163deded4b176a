"""The LocalFile connectors: the sink's options, and the capabilities of source and sink.

Declarations only: no Arrow, no Spark, so that validating is fast.
"""

from dataclasses import replace

from tidegate.connectors.localfile.option_checks import check_sink, check_source
from tidegate.connectors.localfile.source_options import (
    CODECS,
    FORMAT_DESCRIPTION,
    FORMATS,
    SHARED,
    SOURCE_OPTIONS,
    UNUSED,
)
from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.option import Option, OptionKind, OptionSet, Values

SINK_OPTIONS = OptionSet(
    options=(
        Option(
            "path",
            OptionKind.TEXT,
            "The directory for the files; ${database_name}, ${schema_name} and ${table_name} are"
            " replaced by those of the table.",
            required=True,
        ),
        Option(
            "tmp_path",
            OptionKind.TEXT,
            f"{UNUSED}: files are staged in a hidden directory below `path`.",
            "/tmp/seatunnel",
        ),
        Option(
            "custom_filename",
            OptionKind.BOOL,
            "Whether `file_name_expression` names the files.",
            False,
        ),
        Option(
            "file_name_expression",
            OptionKind.TEXT,
            "A file's name, without its suffix; ${transactionId}, ${now} and ${uuid} are replaced.",
            "${transactionId}",
        ),
        Option("filename_time_format", OptionKind.TEXT, "How ${now} is written.", "yyyy.MM.dd"),
        Option(
            "file_format_type",
            OptionKind.ENUM,
            FORMAT_DESCRIPTION,
            "csv",
            choices=FORMATS,
            fallbacks=("file_format",),
        ),
        *SHARED,
        Option("row_delimiter", OptionKind.TEXT, "Ends every row of a csv or text file.", "\n"),
        Option(
            "have_partition",
            OptionKind.BOOL,
            "Whether rows go into directories by the values of `partition_by`.",
            False,
        ),
        Option("partition_by", OptionKind.LIST, "The columns whose values name the directories."),
        Option(
            "partition_dir_expression",
            OptionKind.TEXT,
            "How such a directory is named.",
            "${k0}=${v0}/${k1}=${v1}/.../${kn}=${vn}/",
        ),
        Option(
            "is_partition_field_write_in_file",
            OptionKind.BOOL,
            "Whether the columns of `partition_by` are written to the files too.",
            False,
        ),
        Option(
            "sink_columns",
            OptionKind.LIST,
            "Only these columns, in this order; all by default.",
        ),
        Option(
            "is_enable_transaction",
            OptionKind.BOOL,
            "Whether every row is written exactly once; otherwise at least once.",
            True,
        ),
        Option(
            "batch_size",
            OptionKind.INT,
            "Maximum rows of a file; by default 1000000 for csv, text and json files, unlimited for"
            " others.",
            minimum=1,
        ),
        Option(
            "target_file_size",
            OptionKind.LONG,
            "Approximate size in bytes at which a file is closed; by default 134217728 (128 MiB)"
            " for parquet and orc files, unlimited for others.",
            minimum=1,
        ),
        Option(
            "single_file_mode",
            OptionKind.BOOL,
            "Whether each task writes one file however many rows it has.",
            False,
        ),
        Option(
            "create_empty_file_when_no_data",
            OptionKind.BOOL,
            f"{UNUSED}: a batch without rows writes no file.",
            False,
        ),
        Option(
            "compress_codec",
            OptionKind.ENUM,
            "Compression of the files; by default zstd for parquet and none for others.",
            choices=CODECS,
        ),
        Option(
            "enable_header_write",
            OptionKind.BOOL,
            "Whether csv and text files begin with the names of the columns.",
            False,
        ),
        Option(
            "csv_string_quote_mode",
            OptionKind.ENUM,
            "Which strings of csv files are quoted.",
            "MINIMAL",
            choices=("ALL", "MINIMAL", "NONE"),
        ),
        Option(
            "parquet_avro_write_timestamp_as_int96",
            OptionKind.BOOL,
            "Whether parquet timestamps are written as int96, for old readers.",
            False,
        ),
        Option(
            "parquet_avro_write_fixed_as_int96",
            OptionKind.LIST,
            f"{UNUSED}: there are no fixed-length columns.",
        ),
        Option(
            "schema_save_mode",
            OptionKind.ENUM,
            "What to do with the directory before the first row.",
            "CREATE_SCHEMA_WHEN_NOT_EXIST",
            choices=(
                "RECREATE_SCHEMA",
                "CREATE_SCHEMA_WHEN_NOT_EXIST",
                "ERROR_WHEN_SCHEMA_NOT_EXIST",
                "IGNORE",
            ),
        ),
        Option(
            "data_save_mode",
            OptionKind.ENUM,
            "What to do with existing files before the first row.",
            "APPEND_DATA",
            choices=("DROP_DATA", "APPEND_DATA", "ERROR_WHEN_DATA_EXISTS"),
        ),
        Option(
            "save_mode",
            OptionKind.TEXT,
            f"{UNUSED}: an older name, which SeaTunnel no longer reads either.",
        ),
        Option("max_rows_in_memory", OptionKind.INT, f"{UNUSED}: excel files are not supported."),
        Option("sheet_max_rows", OptionKind.INT, f"{UNUSED}: excel files are not supported."),
        Option(
            "xml_root_tag", OptionKind.TEXT, f"{UNUSED}: xml files are not supported.", "RECORDS"
        ),
        Option(
            "merge_update_event",
            OptionKind.BOOL,
            f"{UNUSED}: for change formats, which are not supported.",
        ),
        Option(
            "schema_evolution_enabled",
            OptionKind.BOOL,
            f"{UNUSED}: a table keeps its columns while a job runs.",
        ),
    ),
)


def _with_transactions(values: Values, capabilities: Capabilities) -> Capabilities:
    if values["is_enable_transaction"] is False:
        return replace(capabilities, delivery=Delivery.AT_LEAST_ONCE, go_back=GoBack.DUPLICATE)
    return capabilities


CONNECTORS = (
    Connector(
        name="LocalFile",
        kind=BlockKind.SOURCE,
        summary="Reads csv, text, json, parquet and orc files from a local or shared disk.",
        options=SOURCE_OPTIONS,
        capabilities=Capabilities(
            multi_table=True,
            fusable=True,
            state="the files that are read, and the position in the partly read one",
        ),
        implementation="tidegate.connectors.localfile.source:LocalFileSource",
        check=check_source,
    ),
    Connector(
        name="LocalFile",
        kind=BlockKind.SINK,
        summary=(
            "Writes csv, text, json, parquet and orc files to a local or shared disk, each row"
            " exactly once."
        ),
        options=SINK_OPTIONS,
        capabilities=Capabilities(
            delivery=Delivery.EXACTLY_ONCE,
            go_back=GoBack.REWIND,
            multi_table=True,
            fusable=True,
            state="the batches whose files are published",
        ),
        implementation="tidegate.connectors.localfile.sink:LocalFileSink",
        check=check_sink,
        refine=_with_transactions,
    ),
)
