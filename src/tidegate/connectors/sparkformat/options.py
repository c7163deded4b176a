"""Declares the Spark source and sink. Must stay light: `tidegate validate` imports this module."""

from collections.abc import Iterator

from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.problem import Problem
from tidegate.model.types import RowKind
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values
from tidegate.plugin.schema import read_schema

FORMAT = Option(
    "format",
    OptionKind.TEXT,
    "Spark's name of the data source: parquet, csv, json, orc, text, jdbc, or a class name.",
    required=True,
)
OPTIONS = Option(
    "options",
    OptionKind.MAP,
    "The options of the data source, passed to Spark unchanged.",
    default={},
    secret=True,
)

SOURCE = OptionSet(
    (
        FORMAT,
        OPTIONS,
        Option(
            "path",
            OptionKind.TEXT,
            "The path to load; not needed if the options contain it.",
            fallbacks=("load",),
        ),
        Option(
            "schema",
            OptionKind.MAP,
            "The columns, for data sources without a schema of their own; by default Spark infers"
            " them.",
        ),
    )
)
SINK = OptionSet(
    (
        FORMAT,
        OPTIONS,
        Option(
            "path",
            OptionKind.TEXT,
            "The path to save to; not needed if the options contain it.",
            fallbacks=("save",),
        ),
        Option(
            "mode",
            OptionKind.ENUM,
            "What the first batch does with existing data; later batches append.",
            default="append",
            choices=("append", "overwrite", "error", "errorifexists"),
        ),
        Option("partition_by", OptionKind.LIST, "Columns to partition by.", default=[]),
    )
)


def _check_source(block: Block, values: Values) -> Iterator[Problem]:
    yield from _check(block, values)
    if values["schema"] is not None:
        yield from read_schema(block, values["schema"])[1]


def _check(block: Block, values: Values) -> Iterator[Problem]:
    for name, value in (values["options"] or {}).items():
        if isinstance(value, list):
            yield block.problem(
                ("options", name), "an option of a data source is a single value, not a list"
            )


CONNECTORS = (
    Connector(
        name="Spark",
        kind=BlockKind.SOURCE,
        summary=("Reads any data source of Spark once: the rows that exist when the batch runs."),
        options=SOURCE,
        capabilities=Capabilities(streaming=False, state="whether everything is read"),
        implementation="tidegate.connectors.sparkformat.source:SparkSource",
        spark="tidegate.connectors.sparkformat.spark:frame",
        check=_check_source,
    ),
    Connector(
        name="Spark",
        kind=BlockKind.SINK,
        summary=(
            "Writes to any data source of Spark, with Spark's writers. A repeated batch is written"
            " again."
        ),
        options=SINK,
        capabilities=Capabilities(
            delivery=Delivery.AT_LEAST_ONCE,
            go_back=GoBack.DUPLICATE,
            refuses=(RowKind.UPDATE_BEFORE, RowKind.DELETE),
        ),
        implementation="tidegate.connectors.sparkformat.sink:SparkSink",
        spark="tidegate.connectors.sparkformat.spark:save",
        check=_check,
    ),
)
