"""Declares the Console sink. Must stay light: `tidegate validate` imports this module."""

from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.option import Option, OptionKind, OptionSet

OPTIONS = OptionSet(
    (
        Option("log.print.data", OptionKind.BOOL, "Whether to print rows.", True),
        Option(
            "log.print.delay.ms",
            OptionKind.INT,
            "Delay per row in milliseconds; the tasks wait before the batch is committed.",
            0,
            minimum=0,
        ),
        Option(
            "multi_table_sink_replica",
            OptionKind.INT,
            "Accepted, without effect: one writer serves all tables.",
            1,
        ),
    )
)

CONNECTORS = (
    Connector(
        name="Console",
        kind=BlockKind.SINK,
        summary="Prints the rows of every committed batch to standard output.",
        options=OPTIONS,
        capabilities=Capabilities(
            delivery=Delivery.AT_LEAST_ONCE,
            go_back=GoBack.DUPLICATE,
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="row numbers of each subtask, tables already described",
        ),
        implementation="tidegate.connectors.console.sink:Console",
        aliases=("ConsoleSink",),
    ),
)
