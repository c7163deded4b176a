"""Declares the Assert sink. Must stay light: `tidegate validate` imports this module."""

from collections.abc import Iterable

from tidegate.connectors.assertion.rules import parse_rules
from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.problem import Problem
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values

OPTIONS = OptionSet(
    (
        Option(
            "rules",
            OptionKind.MAP,
            "The rules to check: row_rules and field_rules (with NOT_NULL, NULL, MIN, MAX,"
            " MIN_LENGTH, MAX_LENGTH, MIN_ROW, MAX_ROW, equals_to), catalog_table_rule,"
            " table-names, tables_configs.",
            required=True,
        ),
        Option(
            "multi_table_sink_replica",
            OptionKind.INT,
            "Accepted, without effect: one writer serves all tables.",
            1,
        ),
    )
)


def check(block: Block, values: Values) -> Iterable[Problem]:
    """Check all rules; each problem has its location."""
    return parse_rules(block, values["rules"])[1] if values["rules"] is not None else ()


CONNECTORS = (
    Connector(
        name="Assert",
        kind=BlockKind.SINK,
        summary=(
            "Stores nothing, and fails the job with the rule and the value if a rule is broken."
        ),
        options=OPTIONS,
        capabilities=Capabilities(
            delivery=Delivery.EXACTLY_ONCE,
            go_back=GoBack.REWIND,
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="rows counted of each table",
        ),
        implementation="tidegate.connectors.assertion.sink:Assert",
        check=check,
    ),
)
