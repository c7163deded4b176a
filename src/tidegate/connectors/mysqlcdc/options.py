"""Options of MySQL-CDC, with SeaTunnel's names.

Declarations and checks only: `tidegate validate` imports this.
"""

import re
from collections.abc import Iterable

from tidegate.databases.cdc.options import COMMON, check
from tidegate.databases.url import System
from tidegate.model.job import BlockKind
from tidegate.model.problem import Problem
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values, When

EXAMPLE = "jdbc:mysql://host:3306/database"

OPTIONS = OptionSet(
    (
        *COMMON,
        Option(
            "startup.mode",
            OptionKind.ENUM,
            "Where a fresh start begins: initial reads the tables and then the log, "
            "snapshot-only ends after the tables, the other modes read only the log.",
            "initial",
            choices=("initial", "earliest", "latest", "specific", "timestamp", "snapshot-only"),
        ),
        Option(
            "startup.specific-offset.file", OptionKind.TEXT, "The log file of the start position."
        ),
        Option(
            "startup.specific-offset.pos",
            OptionKind.LONG,
            "The start position in its log file, where an event begins.",
            minimum=4,
        ),
        Option(
            "startup.timestamp",
            OptionKind.LONG,
            "Milliseconds since 1970: the log is read from the first transaction at or after it.",
            minimum=0,
        ),
        Option(
            "stop.mode",
            OptionKind.ENUM,
            "Where the job ends: at the latest position at its start, at a specific "
            "position, or never.",
            "never",
            choices=("never", "latest", "specific"),
        ),
        Option("stop.specific-offset.file", OptionKind.TEXT, "The log file of the stop position."),
        Option(
            "stop.specific-offset.pos",
            OptionKind.LONG,
            "The stop position in its log file.",
            minimum=4,
        ),
        Option(
            "time-as-text",
            OptionKind.BOOL,
            "Whether columns of the type TIME are strings: as times of day, values below "
            "zero or from 24:00 on are errors.",
            False,
        ),
        Option(
            "binlog-filters.accepted",
            OptionKind.BOOL,
            "Whether to accept a server with binlog_do_db or binlog_ignore_db, although its "
            "log lacks statements that run in the databases it excludes.",
            False,
        ),
        Option(
            "foreign-key-cascades",
            OptionKind.ENUM,
            "What to do about tables whose rows InnoDB changes by foreign keys (ON DELETE or "
            "ON UPDATE CASCADE, SET NULL), which its log does not show: reject them, or read "
            "them anyway.",
            "refuse",
            choices=("refuse", "ignore"),
        ),
        Option(
            "server-id",
            OptionKind.TEXT,
            "Accepted for compatibility with SeaTunnel; readers need no id here, and never "
            "disconnect each other.",
        ),
    ),
    exclusive=(("table-names", "table-pattern"),),
    conditions=(
        When(
            "startup.mode",
            ("specific",),
            ("startup.specific-offset.file", "startup.specific-offset.pos"),
        ),
        When("startup.mode", ("timestamp",), ("startup.timestamp",)),
        When("stop.mode", ("specific",), ("stop.specific-offset.file", "stop.specific-offset.pos")),
    ),
)


def _check(block: Block, values: Values) -> Iterable[Problem]:
    yield from check(System.MYSQL, EXAMPLE, block, values)
    for key in ("startup.specific-offset.file", "stop.specific-offset.file"):
        if values[key] and not re.search(r"\d$", values[key]):
            yield block.problem(
                (key,),
                f"{values[key]!r} is not a log file: its name must end with a number, such as "
                "binlog.000003",
            )


CONNECTORS = (
    Connector(
        name="MySQL-CDC",
        kind=BlockKind.SOURCE,
        summary="Tables of MariaDB and MySQL, and all their changes, from the binary log.",
        options=OPTIONS,
        capabilities=Capabilities(
            batch=False,
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="position of the binary log; keys read of each table",
        ),
        implementation="tidegate.connectors.mysqlcdc.source:MySqlCdcSource",
        check=_check,
    ),
)
