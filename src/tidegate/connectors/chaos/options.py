"""The options of Chaos, source and sink: ours, the reference has no such thing.

Declarations only: `tidegate validate` imports this.
"""

from collections.abc import Callable, Iterable

from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.problem import Problem
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.contract import OperatorContext, Resource
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values, shown

_TROUBLE = (
    Option(
        "seed",
        OptionKind.LONG,
        "Decides together with place, checkpoint and attempt what goes wrong; another seed, another"
        " story.",
        0,
    ),
    Option(
        "fail_probability",
        OptionKind.DOUBLE,
        "How often a read, a write or a commit raises an error.",
        0.0,
        minimum=0,
        maximum=1,
    ),
    Option(
        "fail_terminally",
        OptionKind.BOOL,
        "Whether such an error is one that no retry can help.",
        False,
    ),
    Option(
        "crash_probability",
        OptionKind.DOUBLE,
        "How often the process ends at once (in commit: the driver).",
        0.0,
        minimum=0,
        maximum=1,
    ),
    Option(
        "hang_probability",
        OptionKind.DOUBLE,
        "How often it hangs for hang_ms.",
        0.0,
        minimum=0,
        maximum=1,
    ),
    Option("hang_ms", OptionKind.LONG, "How long it hangs.", 60_000, minimum=0),
    Option(
        "slow_ms",
        OptionKind.LONG,
        "How long every read, write and commit takes at least.",
        0,
        minimum=0,
    ),
)


def _places(*names: str) -> Option:
    return Option(
        "places",
        OptionKind.LIST,
        f"Where something may go wrong: of {', '.join(names)}.",
        list(names),
    )


_PLACES = {BlockKind.SOURCE: ("read",), BlockKind.SINK: ("write", "commit")}

SOURCE = OptionSet(
    (
        Option(
            "row.num",
            OptionKind.LONG,
            "Rows in all, numbered from 0 in the column `id`.",
            1000,
            minimum=0,
        ),
        Option(
            "rate",
            OptionKind.DOUBLE,
            "Rows that arrive each second; all at once where absent.",
            minimum=0,
        ),
        Option("payload.length", OptionKind.INT, "Letters of the column `payload`.", 16, minimum=0),
        Option(
            "outside.path",
            OptionKind.TEXT,
            "Directory that stands for a server where this source has a slot and a table, as files;"
            " none where absent.",
        ),
        Option(
            "outside.slot",
            OptionKind.TEXT,
            "The name of that slot; only one job may use it at a time.",
            "chaos",
        ),
        _places(*_PLACES[BlockKind.SOURCE]),
        *_TROUBLE,
    )
)

SINK = OptionSet(
    (
        Option(
            "path",
            OptionKind.TEXT,
            "Directory for one file of committed ids for each batch; rows are only counted where"
            " absent.",
        ),
        Option(
            "id_field",
            OptionKind.TEXT,
            "The column of whole numbers whose values are written there.",
            "id",
        ),
        Option(
            "fail_at_checkpoint",
            OptionKind.LIST,
            "Checkpoint ids whose commit raises an error; the repeated batch passes, unless"
            " fail_terminally.",
        ),
        _places(*_PLACES[BlockKind.SINK]),
        *_TROUBLE,
    )
)


def _check(kind: BlockKind) -> Callable[[Block, Values], Iterable[Problem]]:
    def check(block: Block, values: Values) -> Iterable[Problem]:
        for index, place in enumerate(values["places"]):
            if place not in _PLACES[kind]:
                yield block.problem(
                    ("places", index),
                    f"{shown(place)} is no place here",
                    expected=f"one of {', '.join(_PLACES[kind])}",
                )
        for index, raw in enumerate(values.get("fail_at_checkpoint") or ()):
            if not str(raw).isdigit():
                yield block.problem(
                    ("fail_at_checkpoint", index), f"{shown(raw)} is no checkpoint id"
                )
        if values.get("rate") == 0:
            yield block.problem(("rate",), "a rate of 0 rows would never end")

    return check


def _resources(values: Values, _: OperatorContext) -> Iterable[Resource]:
    if values["outside.path"]:
        yield Resource(kind="chaos slot", name=values["outside.slot"], place=values["outside.path"])


CONNECTORS = (
    Connector(
        name="Chaos",
        kind=BlockKind.SOURCE,
        summary=(
            "Numbered rows from a source that fails, crashes, hangs or slows down by seed and"
            " probability."
        ),
        options=SOURCE,
        capabilities=Capabilities(fusable=True, state="rows read"),
        implementation="tidegate.connectors.chaos.source:ChaosSource",
        check=_check(BlockKind.SOURCE),
        resources=_resources,
        drop="tidegate.connectors.chaos.outside:drop",
    ),
    Connector(
        name="Chaos",
        kind=BlockKind.SINK,
        summary=(
            "Counts rows, or writes their ids for each batch, and fails, crashes, hangs or slows"
            " down by seed and probability."
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
