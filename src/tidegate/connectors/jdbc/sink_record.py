"""The sink's record in the target database: one row for each (lineage, pipeline, sink).

It changes in the same transaction as the data. Called by committer.py. Its row lock is the fence:
every commit holds it, and a generation that finds a higher one in the row ends. So does a driver
that finds its own generation with the token of another driver, which runs in another copy of its
installation. `prepared` names the tables whose save modes were applied.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.jdbc.stage_names import record_id
from tidegate.connectors.jdbc.staging import staging_table_name
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import StatementRefused
from tidegate.databases.session import Session
from tidegate.databases.url import Address, System
from tidegate.model.errors import Domain, Fenced, OtherCopy, TerminalError, TransientError
from tidegate.plugin.contract import OperatorContext, SinkRestore

TABLE = "tidegate_sink_record"
_ALREADY_THERE = ("23505", "42P07", "1050", "42701", "1060")
_NO_TABLE = ("42P01", "1146")
_ADDED_COLUMNS = {"token": "varchar(100)", "installation": "varchar(40)"}
"""Columns that tables of older releases lack."""
_DROPPED_PREFIX = "dropped by "
"""Prefix of the token after another job's save mode removed this sink's rows."""


class RecordGone(TransientError):
    """The record or its table is missing: the target was replaced while the job ran."""

    condition = "sink-record-gone"
    domain = Domain.EXTERNAL

    def __init__(self, where: str, operator: str) -> None:
        super().__init__(
            f"the record of the Jdbc sink {operator} is no longer in {where} (table {TABLE}):"
            " the row was deleted, or the database was dropped or replaced while the job ran"
        )
        self.where = where
        self.operator = operator


class SinkRowsDropped(TerminalError):
    """Another job's save mode has removed the rows of this sink."""

    condition = "sink-data-dropped"

    def __init__(self, where: str, operator: str, by: str) -> None:
        super().__init__(
            f"{by} has removed rows that the Jdbc sink {operator} had written to {where}, by its"
            " save mode (DROP_DATA or RECREATE_SCHEMA). Let the two jobs write to different tables,"
            " and restart this one with --restore fresh"
        )
        self.where = where
        self.operator = operator
        self.by = by


class TargetOffsetsDiffer(TerminalError):
    """The target has this batch with other offsets.

    Two jobs write as the same sink, or the store was restored to an older state.
    """

    condition = "other-offsets"

    def __init__(self, where: str, checkpoint: int, found: int) -> None:
        what = (
            "with other offsets of its sources"
            if found == checkpoint
            else f"and is already at checkpoint {found}"
        )
        super().__init__(
            f"the database {where} has the batch of checkpoint {checkpoint} {what} (table"
            f" {TABLE}): start with --restore fresh, or restore that checkpoint"
        )
        self.checkpoint = checkpoint
        self.found = found


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkRecord:
    """Contents of a sink's record."""

    checkpoint: int
    generation: int
    offsets: Any = None
    prepared: frozenset[str] = frozenset()


class SinkRecordTable:
    """Reads and writes the record of one sink in one lineage."""

    def __init__(
        self, address: Address, dialect: Dialect, context: OperatorContext, resume: SinkRestore
    ) -> None:
        self._address = address
        self._dialect = dialect
        self._context = context
        self._lineage = resume.lineage
        self._generation = resume.generation
        self._token = resume.token
        self._installation = resume.installation
        lineage = resume.lineage
        self._id = record_id(context, lineage)
        self._table = dialect.qualified(staging_table_name(address, TABLE))

    def create_table(self, session: Session) -> None:
        """Create the table, or add missing columns; another sink may do so at the same time."""
        info = self._dialect.table_info(session, staging_table_name(self._address, TABLE))
        if info is None:
            text = "longtext" if self._dialect.system is System.MYSQL else "text"
            self._create_if_missing(
                session,
                f"create table if not exists {self._table} (id varchar(64) primary key, lineage"
                f" varchar(200), job bigint, pipeline integer, sink {text}, checkpoint bigint not"
                f" null, generation bigint not null, offsets {text}, prepared {text}, "
                + ", ".join(f"{name} {kind}" for name, kind in _ADDED_COLUMNS.items())
                + ")",
            )
            return
        for name, kind in _ADDED_COLUMNS.items():
            if info.column(name) is None:
                self._create_if_missing(
                    session, f"alter table {self._table} add column {name} {kind}"
                )

    @staticmethod
    def _create_if_missing(session: Session, statement: str) -> None:
        try:
            session.execute(statement)
        except StatementRefused as error:
            if error.code not in _ALREADY_THERE and "duplicate column" not in str(error):
                raise

    def read_checkpoint(self, session: Session) -> int:
        """Read the newest committed checkpoint; 0 without a record. Changes nothing."""
        info = self._dialect.table_info(session, staging_table_name(self._address, TABLE))
        if info is None:
            return 0
        dropped = (
            f" and (token is null or token not like '{_DROPPED_PREFIX}%')"
            if info.column("token") is not None
            else ""
        )
        checkpoint = session.scalar(
            f"select checkpoint from {self._table} where id = %s{dropped.replace('%', '%%')}",
            (self._id,),
        )
        return int(checkpoint or 0)

    def insert_if_missing(
        self, session: Session, checkpoint: int, prepared: frozenset[str]
    ) -> bool:
        """Within a transaction: insert the row if it does not exist; returns whether it did."""
        words = {
            System.MYSQL: ("insert ignore into", ""),
            System.POSTGRES: ("insert into", "on conflict do nothing"),
            System.SQLITE: ("insert or ignore into", ""),
        }
        first, last = words[self._dialect.system]
        made = session.execute(
            f"{first} {self._table} (id, lineage, job, pipeline, sink, checkpoint, generation,"
            f" offsets, prepared) values (%s, %s, %s, %s, %s, %s, 0, null, %s) {last}",
            (
                self._id,
                self._lineage[:200],
                self._context.job_id,
                self._context.pipeline,
                self._context.operator,
                checkpoint,
                json.dumps(sorted(prepared)),
            ),
        )
        return made > 0

    def lock(self, session: Session) -> SinkRecord:
        """Lock the row until the end of the transaction and read it.

        Raises Fenced if it belongs to a higher generation, OtherCopy if to another driver of this
        generation, RecordGone if it does not exist.
        """
        lock = "" if self._dialect.system is System.SQLITE else " for update"
        try:
            rows = session.query(
                f"select checkpoint, generation, offsets, prepared, token from {self._table} where"
                f" id = %s{lock}",
                (self._id,),
            )
        except StatementRefused as error:
            if error.code not in _NO_TABLE and "no such table" not in str(error):
                raise
            rows = []
        if not rows:
            raise RecordGone(str(self._address), self._context.operator)
        checkpoint, current, offsets, prepared, token = rows[0]
        self._check_owner(current, token or "")
        return SinkRecord(
            checkpoint=checkpoint,
            generation=current,
            offsets=json.loads(offsets) if offsets else None,
            prepared=frozenset(json.loads(prepared) if prepared else ()),
        )

    def _check_owner(self, current: int, token: str) -> None:
        what = f"the Jdbc sink {self._context.operator} in {self._address}"
        if current > self._generation:
            raise Fenced(what, self._generation, current)
        if token.startswith(_DROPPED_PREFIX) and current == self._generation:
            raise SinkRowsDropped(
                str(self._address), self._context.operator, token.removeprefix(_DROPPED_PREFIX)
            )
        if current == self._generation and token and self._token and token != self._token:
            raise OtherCopy(what, self._generation)

    def take_over(self, session: Session) -> None:
        """Within a transaction: assign the row to this driver, and fence older generations."""
        session.execute(
            f"update {self._table} set generation = %s, token = %s, installation = %s where id"
            " = %s",
            (self._generation, self._token, self._installation, self._id),
        )

    def fence_other_sinks(self, session: Session, path: str) -> None:
        """Stop every other sink that has written to a table whose rows are about to be removed."""
        for key, prepared in session.query(
            f"select id, prepared from {self._table} where id <> %s", (self._id,)
        ):
            if path in (json.loads(prepared) if prepared else ()):
                by = f"{_DROPPED_PREFIX}job {self._context.job_id} ({self._context.job_name})"[:100]
                session.execute(f"update {self._table} set token = %s where id = %s", (by, key))

    def save_prepared(self, session: Session, prepared: frozenset[str]) -> None:
        """Within a transaction: save the names of the prepared tables."""
        session.execute(
            f"update {self._table} set prepared = %s where id = %s",
            (json.dumps(sorted(prepared)), self._id),
        )

    def advance(self, session: Session, checkpoint: int, offsets: Mapping[str, Any]) -> None:
        """Within a transaction: advance the record to this batch."""
        session.execute(
            f"update {self._table} set checkpoint = %s, offsets = %s where id = %s",
            (checkpoint, json.dumps(offsets), self._id),
        )

    def remove(self, session: Session) -> None:
        """Delete the record, since the job has finished. A record of another driver stays."""
        mine = "(token is null or token = '' or token = %s)" if self._token else "1 = 1"
        given = (self._id, self._generation, *((self._token,) if self._token else ()))
        session.execute(
            f"delete from {self._table} where id = %s and generation <= %s and {mine}", given
        )

    def includes(
        self, record: SinkRecord, checkpoint: int, offsets: Mapping[str, Any], ahead: int = 0
    ) -> bool:
        """Whether the target already has this batch.

        Batches before the record, up to checkpoint `ahead`, are being repeated and included. Raises
        TargetOffsetsDiffer if the target has this checkpoint with other offsets.
        """
        if checkpoint < record.checkpoint <= ahead:
            return True
        if record.checkpoint < checkpoint or (
            record.checkpoint == checkpoint and record.offsets is None
        ):
            return False
        if record.checkpoint == checkpoint and record.offsets == json.loads(json.dumps(offsets)):
            return True
        raise TargetOffsetsDiffer(str(self._address), checkpoint, record.checkpoint)
