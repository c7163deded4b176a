"""Declares the Chaos source and sink, which SeaTunnel does not have.

Must import neither Spark nor Arrow: `tidegate validate` imports this module.
"""

from collections.abc import Callable, Iterable

from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.problem import Problem
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.contract import OperatorContext, Resource
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values, shown

_FAULTS = (
    Option(
        "seed",
        OptionKind.LONG,
        "Seed of the injected faults. The same seed injects the same faults for the same place,"
        " checkpoint and attempt.",
        0,
    ),
    Option(
        "fail_probability",
        OptionKind.DOUBLE,
        "Probability that a read, write or commit raises an error.",
        0.0,
        minimum=0,
        maximum=1,
    ),
    Option(
        "fail_terminally",
        OptionKind.BOOL,
        "Whether these errors are terminal, so that the job is not retried.",
        False,
    ),
    Option(
        "crash_probability",
        OptionKind.DOUBLE,
        "Probability that the process exits immediately (in commit: the driver).",
        0.0,
        minimum=0,
        maximum=1,
    ),
    Option(
        "hang_probability",
        OptionKind.DOUBLE,
        "Probability that it hangs for hang_ms.",
        0.0,
        minimum=0,
        maximum=1,
    ),
    Option("hang_ms", OptionKind.LONG, "Duration of a hang in milliseconds.", 60_000, minimum=0),
    Option(
        "slow_ms",
        OptionKind.LONG,
        "Minimum duration of every read, write and commit in milliseconds.",
        0,
        minimum=0,
    ),
)


def _places(*names: str) -> Option:
    return Option(
        "places",
        OptionKind.LIST,
        f"The operations in which faults are injected: {', '.join(names)}.",
        list(names),
    )


_PLACES = {BlockKind.SOURCE: ("read",), BlockKind.SINK: ("write", "commit")}

SOURCE = OptionSet(
    (
        Option(
            "row.num",
            OptionKind.LONG,
            "Total number of rows, numbered from 0 in the column `id`.",
            1000,
            minimum=0,
        ),
        Option(
            "rate",
            OptionKind.DOUBLE,
            "Rows that arrive per second; by default all rows are available immediately.",
            minimum=0,
        ),
        Option("payload.length", OptionKind.INT, "Length of the column `payload`.", 16, minimum=0),
        Option(
            "outside.path",
            OptionKind.TEXT,
            "A directory that simulates a server on which this source has a slot and a table, as"
            " files. By default the source has no external resources.",
        ),
        Option(
            "outside.slot",
            OptionKind.TEXT,
            "The name of the slot; only one job may use it at a time.",
            "chaos",
        ),
        _places(*_PLACES[BlockKind.SOURCE]),
        *_FAULTS,
    )
)

SINK = OptionSet(
    (
        Option(
            "path",
            OptionKind.TEXT,
            "Directory for the committed ids, one file per batch. By default rows are only"
            " counted.",
        ),
        Option(
            "id_field",
            OptionKind.TEXT,
            "The integer column whose values are written to the files.",
            "id",
        ),
        Option(
            "fail_at_checkpoint",
            OptionKind.LIST,
            "Checkpoint ids whose commit raises an error. The repeated batch succeeds, unless"
            " fail_terminally is set.",
        ),
        _places(*_PLACES[BlockKind.SINK]),
        *_FAULTS,
    )
)


def _check(kind: BlockKind) -> Callable[[Block, Values], Iterable[Problem]]:
    def check(block: Block, values: Values) -> Iterable[Problem]:
        for index, operation in enumerate(values["places"]):
            if operation not in _PLACES[kind]:
                yield block.problem(
                    ("places", index),
                    f"{shown(operation)} is not possible here",
                    expected=f"one of {', '.join(_PLACES[kind])}",
                )
        for index, raw in enumerate(values.get("fail_at_checkpoint") or ()):
            if not str(raw).isdigit():
                yield block.problem(
                    ("fail_at_checkpoint", index), f"{shown(raw)} is no checkpoint id"
                )
        if values.get("rate") == 0:
            yield block.problem(("rate",), "with a rate of 0 the source never ends")

    return check


def _resources(values: Values, _: OperatorContext) -> Iterable[Resource]:
    if values["outside.path"]:
        yield Resource(
            kind="chaos slot", name=values["outside.slot"], location=values["outside.path"]
        )


CONNECTORS = (
    Connector(
        name="Chaos",
        kind=BlockKind.SOURCE,
        summary=(
            "Generates numbered rows, and fails, crashes, hangs or slows down by seed and"
            " probability."
        ),
        options=SOURCE,
        capabilities=Capabilities(fusable=True, state="rows read"),
        implementation="tidegate.connectors.chaos.source:ChaosSource",
        check=_check(BlockKind.SOURCE),
        resources=_resources,
        drop="tidegate.connectors.chaos.external:drop",
    ),
    Connector(
        name="Chaos",
        kind=BlockKind.SINK,
        summary=(
            "Counts rows, or writes the ids of each batch, and fails, crashes, hangs or slows down"
            " by seed and probability."
        ),
        options=SINK,
        capabilities=Capabilities(
            delivery=Delivery.EXACTLY_ONCE,
            go_back=GoBack.REWIND,
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="rows counted",
        ),
        implementation="tidegate.connectors.chaos.sink:ChaosSink",
        check=_check(BlockKind.SINK),
    ),
)
