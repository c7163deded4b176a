"""The Jdbc sink in a task: loads batches into staging tables of this attempt and reports them.

Called by the engine through plugin.contract. Nothing is visible in a target yet. The tables are
named after the attempt, so that a retried task cannot confuse them; tables of a killed task are
dropped when the next generation opens the sink, or after the batch.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.connectors.jdbc.connection import retry_missing_file
from tidegate.connectors.jdbc.promotion import can_promote
from tidegate.connectors.jdbc.stage_names import StageName, lineage_digest, sink_digest
from tidegate.connectors.jdbc.staging import (
    StageLoader,
    loader_of,
    staged_column,
    staging_table_name,
)
from tidegate.connectors.jdbc.target import JdbcTarget, table_to_message, target_of
from tidegate.connectors.jdbc.target_check import TargetFit, check_names, check_target
from tidegate.connectors.jdbc.value_checks import ValueChecks, display_value, key_text
from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import dialect_of
from tidegate.databases.errors import StatementRefused
from tidegate.databases.targets.rules import rules_of
from tidegate.databases.url import Address
from tidegate.failpoint import failpoint
from tidegate.model.errors import TidegateError
from tidegate.model.types import ROW_KIND, Column, RowKind, Table
from tidegate.plugin.contract import Message, OperatorContext, Writer, WriteTask
from tidegate.plugin.option import Values

BUFFERED_ROWS_MAX = 65_536
BUFFERED_BYTES_MAX = 16 << 20
FIT_CACHE_MAX = 1000
_fit_cache: dict[tuple[Any, ...], tuple[tuple[Column, ...], TargetFit]] = {}
"""Results of target checks, per process, since tasks are many and short."""
_STAGED_ROW = re.compile(r"at row (\d+)")
_STAGED_COLUMN = re.compile(r"column \S*\bc(\d+)\b")


@dataclass(slots=True)
class _StagedInput:
    """The staging table of one incoming table; `held` are rows that are not loaded yet."""

    table: Table
    target: JdbcTarget
    staging_table: TableName | None = None
    fit: TargetFit | None = None
    shaped: bool = False
    rows: int = 0
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: int = 0


class JdbcWriter(Writer):
    """The writer of one task."""

    def __init__(
        self, address: Address, values: Values, context: OperatorContext, task: WriteTask
    ) -> None:
        self._address = address
        self._values = values
        self._context = context
        self._task = task
        self._dialect = dialect_of(address.system)
        self._rules = rules_of(address.system)
        self._loader: StageLoader | None = None
        self._stagings: dict[str, _StagedInput] = {}

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        """Buffer a batch until there are enough rows for a load."""
        if table.path not in self._stagings:
            # Raises an error for options that do not fit, before anything is staged.
            target = target_of(table, self._values, self._dialect, self._address)
            if not self._values["query"]:
                check_names(table.path, target, self._rules)
            self._stagings[table.path] = _StagedInput(table, target)
        staging = self._stagings[table.path]
        if not batch.num_rows:
            return
        staging.held.append(batch)
        staging.held_rows += batch.num_rows
        staging.held_bytes += batch.nbytes
        if staging.held_rows >= BUFFERED_ROWS_MAX or staging.held_bytes >= BUFFERED_BYTES_MAX:
            self._load(staging)

    def _load(self, staging: _StagedInput) -> None:
        if not staging.held:
            return
        if self._loader is None:
            with retry_missing_file(self._address):
                self._loader = loader_of(self._address, self._dialect)
        if staging.staging_table is None:
            staging.fit = self._target_fit(self._loader, staging)
            staging_table = staging_table_name(self._address, self._stage_name(staging))
            failpoint("jdbcsink.stage.before")
            staging.shaped = self._create_like_target(self._loader, staging_table, staging)
            if not staging.shaped:
                self._loader.create(
                    staging_table, [column.type for column in staging.table.columns]
                )
            staging.staging_table = staging_table
            failpoint("jdbcsink.stage.middle")
        for batch in _combine_batches(staging.held):
            checks = staging.fit.checks if staging.fit else ValueChecks(staging.target, self._rules)
            batch = checks.check(batch)
            try:
                self._loader.load(staging.staging_table, self._staged_rows(staging, batch))
            except StatementRefused as error:
                raise _with_user_names(error, staging, batch) from None
        failpoint("jdbcsink.stage.after")
        staging.held = []
        staging.held_rows = 0
        staging.held_bytes = 0

    def _target_fit(self, loader: StageLoader, staging: _StagedInput) -> TargetFit | None:
        """Check the target, if it exists and is kept; once in each process.

        None if it will be created with our types.
        """
        target = staging.target
        if self._values["query"] or self._values["schema_save_mode"] == "RECREATE_SCHEMA":
            return None
        about = (
            str(self._address),
            self._task.lineage,
            self._task.generation,
            self._context.operator,
            target.path,
            target.name.path,
        )
        known = _fit_cache.get(about)
        if known is not None and known[0] == target.columns:
            return known[1]
        info = self._dialect.table_info(loader.session, target.name)
        if info is None:
            return None
        found = check_target(
            target.path,
            target,
            self._rules.read_target(loader.session, info),
            self._rules,
            self._values,
        )
        while len(_fit_cache) >= FIT_CACHE_MAX:
            _fit_cache.pop(next(iter(_fit_cache)))
        _fit_cache[about] = (target.columns, found)
        return found

    def _create_like_target(
        self, loader: StageLoader, staging_table: TableName, staging: _StagedInput
    ) -> bool:
        target = staging.target
        return can_promote(
            target, self._values, self._dialect, self._address
        ) and loader.create_like_target(
            staging_table, target.name, target.columns, staging.held_rows
        )

    def _stage_name(self, staging: _StagedInput) -> str:
        number = list(self._stagings).index(staging.table.path)
        stage = StageName(
            sink_digest(self._context),
            lineage_digest(self._task.lineage),
            self._task.generation,
            self._task.checkpoint,
            self._task.token[:10],
            number,
        )
        return str(stage)

    def _staged_rows(self, staging: _StagedInput, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows for staging: with sequence numbers and row kinds, unless like the target."""
        first, staging.rows = staging.rows, staging.rows + batch.num_rows
        values: list[Any] = [
            staged_column(batch.column(column.name), column.type, self._dialect)
            for column in staging.table.columns
        ]
        if staging.shaped:
            return pa.RecordBatch.from_arrays(values, names=staging.target.names())
        kinds: Any = (
            batch.column(ROW_KIND).cast(pa.int16())
            if staging.table.kinds
            else pa.repeat(pa.scalar(RowKind.INSERT.code, pa.int16()), batch.num_rows)
        )
        numbers = pa.Array.from_buffers(
            pa.int64(), batch.num_rows, [None, pa.py_buffer(array("q", range(first, staging.rows)))]
        )
        return pa.RecordBatch.from_arrays(
            [numbers, kinds, *values],
            names=["seq", "kind", *(f"c{i}" for i in range(len(staging.table.columns)))],
        )

    def close(self) -> Message:
        """Load the remaining rows; reports the staging tables and their numbers of rows."""
        for staging in self._stagings.values():
            self._load(staging)
        if self._loader is not None:
            failpoint("jdbcsink.settle.before")
            self._loader.finish()
            failpoint("jdbcsink.settle.after")
        self._release()
        tables = [
            {
                "table": table_to_message(s.table),
                "stage": s.staging_table.table if s.staging_table else "",
                "rows": s.rows,
                "subtask": self._task.subtask,
                "shaped": s.shaped,
            }
            for s in self._stagings.values()
        ]
        return {"rows": sum(s.rows for s in self._stagings.values()), "tables": tables}

    def abort(self) -> None:
        """Drop the staging tables if the database can be reached; otherwise later."""
        try:
            for staging in self._stagings.values():
                if staging.staging_table is not None and self._loader is not None:
                    self._loader.drop(staging.staging_table)
        except TidegateError:
            return
        finally:
            self._release()

    def _release(self) -> None:
        if self._loader is not None:
            self._loader.close()
            self._loader = None


def _with_user_names(
    error: StatementRefused, staging: _StagedInput, batch: pa.RecordBatch
) -> StatementRefused:
    """Name the user's table, column and value instead of those of the staging table."""
    found, columns = _STAGED_COLUMN.search(error.why), staging.table.columns
    column = (
        columns[int(found[1])]
        if found and not staging.shaped and int(found[1]) < len(columns)
        else None
    )
    about = f", column {column.name!r} ({column.type})" if column else ""
    line = _STAGED_ROW.search(error.why)
    if column and line and 0 < int(line[1]) <= batch.num_rows:
        row = int(line[1]) - 1
        about += (
            f", key {key_text(staging.target, batch, row)}, value"
            f" {display_value(batch.column(column.name), row)}"
        )
    return StatementRefused(
        error.where, f"rows of table {staging.table.path!r}{about}: {error.why}", error.code
    )


def _combine_batches(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches of the same schema, since a load has a fixed cost."""
    if len({batch.schema.remove_metadata() for batch in batches}) > 1:
        return list(batches)
    return (
        pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches])
        .combine_chunks()
        .to_batches()
    )
