"""Connects to the sources of job files, and reports what would stop a job.

Called by `tidegate doctor FILE`.
"""

import logging
import os
from collections.abc import Iterator, Mapping

from tidegate.cli.dry_run import graphs_of
from tidegate.cli.findings import DoctorFinding, Level
from tidegate.cli.job_file import load
from tidegate.model.errors import TidegateError
from tidegate.model.problem import Strictness
from tidegate.plugin.contract import Source


def check_sources(file: str, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Yield a finding for each source, and one for each of its warnings."""
    planned = load(file, variables=variables, environ=os.environ, strict=Strictness.NORMAL)
    if planned.plan is None:
        repair = f"See: tidegate validate {file}"
        yield DoctorFinding(
            name=file, level=Level.MISSING, found="the job file has errors", repair=repair
        )
        return
    for graph in graphs_of(planned.plan):
        for operator, source in graph.sources.items():
            name = f"{file} {operator}"
            if graph.nodes[operator].connector.spark:
                yield DoctorFinding(
                    name=name, level=Level.OK, found="read by Spark; not checked here"
                )
            else:
                yield from _check(name, source)


def _check(name: str, source: Source) -> Iterator[DoctorFinding]:
    warnings = _Warnings()
    logger = logging.getLogger("tidegate")
    logger.addHandler(warnings)
    try:
        tables = source.tables()
    except TidegateError as error:
        yield DoctorFinding(
            name=name, level=Level.MISSING, found="it cannot be read", repair=str(error)
        )
    else:
        found = f"{len(tables)} table{'' if len(tables) == 1 else 's'}"
        yield DoctorFinding(name=name, level=Level.OK, found=found)
    finally:
        logger.removeHandler(warnings)
    for message in warnings.messages:
        yield DoctorFinding(name=name, level=Level.WARNING, found="it can be read", repair=message)


class _Warnings(logging.Handler):
    """Collects the warnings that a source logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
