"""Declares the Sql transform.

Must import neither pyspark nor pyarrow; sqlglot is imported only when a query is checked.
"""

from collections.abc import Iterator
from dataclasses import replace

from tidegate.model.job import BlockKind
from tidegate.model.problem import Location, Problem
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values
from tidegate.plugin.tables import MULTI_TABLE, RuleSet

OPTIONS = OptionSet(
    (
        Option(
            "query",
            OptionKind.TEXT,
            "SELECT columns and expressions FROM the input (any name) WHERE a condition. A query"
            " reads one table, row by row.",
            fallbacks=("sql",),
        ),
        Option(
            "engine",
            OptionKind.ENUM,
            "Accepted and without effect: every query runs on Spark.",
            default="ZETA",
            choices=("ZETA", "INTERNAL"),
        ),
        Option(
            "table_name",
            OptionKind.TEXT,
            "Accepted and without effect: the input has any name in FROM.",
        ),
        *MULTI_TABLE,
    )
)


def _check_query(block: Block, values: Values) -> Iterator[Problem]:
    from tidegate.connectors.sql.errors import SqlError
    from tidegate.connectors.sql.query import translate_query

    try:
        translate_query(values["query"], None)
    except SqlError as error:
        problem = block.problem(("query",), error.message, suggestion=error.suggestion)
        at = problem.at
        yield (
            replace(problem, at=Location(at.file, at.line + error.line - 1)) if at.line else problem
        )


RULES = RuleSet(options=OPTIONS, required=("query",), check=_check_query)

CONNECTORS = (
    Connector(
        name="Sql",
        kind=BlockKind.TRANSFORM,
        summary=(
            "Transforms rows by a SELECT, with SeaTunnel's functions and Spark's functions of one"
            " row."
        ),
        options=OPTIONS,
        capabilities=Capabilities(row_kinds=True, multi_table=True),
        implementation="tidegate.connectors.sql.transform:Sql",
        spark="tidegate.connectors.sql.spark:frame",
        check=RULES.problems,
    ),
)
