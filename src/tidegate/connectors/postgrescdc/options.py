"""Options of Postgres-CDC, with SeaTunnel's names.

Declarations and checks only: `tidegate validate` imports this.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.databases.cdc.options import COMMON, check
from tidegate.databases.url import System
from tidegate.model.job import BlockKind
from tidegate.model.problem import Problem, Severity
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, Values

if TYPE_CHECKING:
    from tidegate.plugin.contract import OperatorContext, Resource

PLUGINS = (
    "pgoutput",
    "decoderbufs",
    "wal2json",
    "wal2json_rds",
    "wal2json_streaming",
    "wal2json_rds_streaming",
)
"""The decoding plugins that job files of SeaTunnel name; the first one is used."""
EXAMPLE = "jdbc:postgresql://host:5432/database"

OPTIONS = OptionSet(
    (
        *COMMON,
        Option(
            "schema-names", OptionKind.LIST, "The schemas whose tables are read; by default all."
        ),
        Option(
            "slot.name",
            OptionKind.TEXT,
            "The logical replication slot; created if it is missing. A slot that a job "
            "created is dropped when that job cannot be resumed.",
            "seatunnel",
        ),
        Option(
            "publication.name",
            OptionKind.TEXT,
            "The publication of the tables; created if it is missing. By default: tidegate_ "
            "and the name of the slot.",
        ),
        Option(
            "decoding.plugin.name",
            OptionKind.ENUM,
            "The decoding plugin. Always pgoutput, which every server has: other names are "
            "accepted with a notice, because job files of SeaTunnel have them.",
            "pgoutput",
            choices=PLUGINS,
        ),
        Option(
            "require-replica-identity-full",
            OptionKind.BOOL,
            "Whether every table must have REPLICA IDENTITY FULL. Otherwise before images "
            "have only the key, and rows that change while their chunk is read come twice, "
            "which an upsert resolves.",
            True,
        ),
        Option(
            "startup.mode",
            OptionKind.ENUM,
            "Where a fresh start begins: initial reads the tables and then the log, "
            "snapshot-only ends after the tables, latest reads the log from now on, earliest "
            "and committed-offset from the position of the slot.",
            "initial",
            choices=("initial", "earliest", "latest", "snapshot-only", "committed-offset"),
        ),
        Option(
            "stop.mode",
            OptionKind.ENUM,
            "Where the job ends: at the latest position at its start, or never.",
            "never",
            choices=("never", "latest"),
        ),
    ),
    exclusive=(("table-names", "table-pattern"),),
)


def _check(block: Block, values: Values) -> Iterable[Problem]:
    yield from check(System.POSTGRES, EXAMPLE, block, values)
    plugin = values["decoding.plugin.name"]
    if plugin != PLUGINS[0]:
        found = block.find("decoding.plugin.name")
        yield block.problem(
            found[0] if found else (),
            f"{plugin} is not used: the changes are read with pgoutput, which every PostgreSQL"
            " server has; the rows are the same",
            severity=Severity.NOTICE,
        )
    if not re.fullmatch(r"[a-z0-9_]{1,63}", str(values["slot.name"])):
        yield block.problem(
            ("slot.name",),
            f"{values['slot.name']!r} is not a valid name of a slot",
            expected="up to 63 of a-z, 0-9 and _",
        )


def _resources(values: Values, context: "OperatorContext") -> "Iterable[Resource]":
    from tidegate.connectors.postgrescdc.server_resources import (
        names,
    )  # imports the database driver, which only a submit needs

    return names(values, context)


CONNECTORS = (
    Connector(
        name="Postgres-CDC",
        kind=BlockKind.SOURCE,
        summary="Tables of PostgreSQL, and all their changes, through a logical replication slot.",
        options=OPTIONS,
        capabilities=Capabilities(
            batch=False,
            row_kinds=True,
            multi_table=True,
            fusable=True,
            state="position of the log; keys read of each table",
        ),
        implementation="tidegate.connectors.postgrescdc.source:PostgresCdcSource",
        check=_check,
        resources=_resources,
        drop="tidegate.connectors.postgrescdc.server_resources:drop",
    ),
)
