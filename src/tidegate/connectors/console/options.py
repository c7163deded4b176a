"""The options of Console. Declarations only: `tidegate validate` imports this."""

from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.option import Option, OptionKind, OptionSet

OPTIONS = OptionSet(
    (
        Option("log.print.data", OptionKind.BOOL, "Whether rows are printed.", True),
        Option(
            "log.print.delay.ms",
            OptionKind.INT,
            "Milliseconds to wait for each row; the tasks wait, before the batch is committed.",
            0,
            minimum=0,
        ),
        Option(
            "multi_table_sink_replica",
            OptionKind.INT,
            "Has no meaning here: one writer serves all tables.",
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
