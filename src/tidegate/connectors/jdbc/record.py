"""The sink's record in the target: one row for each (lineage, pipeline, sink), changed in the same transaction as the data. Called by committer.py.

Its lock is the fence: whoever commits holds it, and a generation that finds a higher one in it ends. `prepared` names the tables whose save modes are done.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.jdbc.names import record_id
from tidegate.connectors.jdbc.stage import stage_place
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import StatementRefused
from tidegate.databases.session import Session
from tidegate.databases.url import Address, System
from tidegate.model.errors import Fenced, TerminalError
from tidegate.plugin.contract import OperatorContext

TABLE = "tidegate_sink_record"
_ALREADY_THERE = ("23505", "42P07", "1050")


class OtherOffsets(TerminalError):
    """The target has this batch with other ranges: two jobs write as one, or the store was put back to an older time."""

    condition = "other-offsets"

    def __init__(self, where: str, checkpoint: int, found: int) -> None:
        what = "with other ranges of its sources" if found == checkpoint else f"and is at checkpoint {found} already"
        super().__init__(f"the database {where} holds the batch of checkpoint {checkpoint} {what} (table {TABLE}): start fresh, or restore that checkpoint")
        self.checkpoint, self.found = checkpoint, found


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What the target knows of this sink."""

    checkpoint: int
    generation: int
    offsets: Any = None
    prepared: frozenset[str] = frozenset()


class Records:
    """The record of one sink in one lineage."""

    def __init__(self, address: Address, dialect: Dialect, context: OperatorContext, lineage: str) -> None:
        self._address, self._dialect, self._context, self._lineage = address, dialect, context, lineage
        self._id = record_id(context, lineage)
        self._table = dialect.qualified(stage_place(address, TABLE))

    def create(self, session: Session) -> None:
        """The table of records, unless it is there; another sink may make it at the same moment."""
        if self._dialect.table_info(session, stage_place(self._address, TABLE)) is not None:
            return
        text = "longtext" if self._dialect.system is System.MYSQL else "text"
        try:
            session.execute(
                f"create table if not exists {self._table} (id varchar(64) primary key, lineage varchar(200), job bigint, pipeline integer, sink {text}, "
                f"checkpoint bigint not null, generation bigint not null, offsets {text}, prepared {text})"
            )
        except StatementRefused as error:
            if error.code not in _ALREADY_THERE:
                raise

    def begin(self, session: Session, checkpoint: int, prepared: frozenset[str]) -> None:
        """Within a transaction: the row of this sink, unless it is there."""
        words = {
            System.MYSQL: ("insert ignore into", ""),
            System.POSTGRES: ("insert into", "on conflict do nothing"),
            System.SQLITE: ("insert or ignore into", ""),
        }
        first, last = words[self._dialect.system]
        session.execute(
            f"{first} {self._table} (id, lineage, job, pipeline, sink, checkpoint, generation, offsets, prepared) "
            f"values (%s, %s, %s, %s, %s, %s, 0, null, %s) {last}",
            (self._id, self._lineage[:200], self._context.job_id, self._context.pipeline, self._context.operator, checkpoint, json.dumps(sorted(prepared))),
        )

    def locked(self, session: Session, generation: int) -> Record:
        """Within a transaction: the row, which nobody else can have until its end. Fenced where it belongs to a higher generation, or is gone."""
        lock = "" if self._dialect.system is System.SQLITE else " for update"
        rows = session.query(f"select checkpoint, generation, offsets, prepared from {self._table} where id = %s{lock}", (self._id,))
        if not rows or rows[0][1] > generation:
            raise Fenced(f"the Jdbc sink {self._context.operator} in {self._address}", generation, rows[0][1] if rows else generation + 1)
        checkpoint, current, offsets, prepared = rows[0]
        return Record(
            checkpoint=checkpoint,
            generation=current,
            offsets=json.loads(offsets) if offsets else None,
            prepared=frozenset(json.loads(prepared) if prepared else ()),
        )

    def fence(self, session: Session, generation: int) -> None:
        """Within a transaction: from now on only this generation and higher ones."""
        session.execute(f"update {self._table} set generation = %s where id = %s", (generation, self._id))

    def prepare(self, session: Session, prepared: frozenset[str]) -> None:
        """Within a transaction: the save modes of these tables are done."""
        session.execute(f"update {self._table} set prepared = %s where id = %s", (json.dumps(sorted(prepared)), self._id))

    def move(self, session: Session, checkpoint: int, offsets: Mapping[str, Any]) -> None:
        """Within a transaction: this batch is there."""
        session.execute(f"update {self._table} set checkpoint = %s, offsets = %s where id = %s", (checkpoint, json.dumps(offsets), self._id))

    def remove(self, session: Session, generation: int) -> None:
        """The job is done, and so is its record."""
        session.execute(f"delete from {self._table} where id = %s and generation <= %s", (self._id, generation))

    def has(self, record: Record, checkpoint: int, offsets: Mapping[str, Any], ahead: int = 0) -> bool:
        """Whether this very batch is there, or lies before the record in a chain up to `ahead` that is being repeated; OtherOffsets where another one is in
        its place."""
        if checkpoint < record.checkpoint <= ahead:
            return True
        if record.checkpoint < checkpoint or (record.checkpoint == checkpoint and record.offsets is None):
            return False
        if record.checkpoint == checkpoint and record.offsets == json.loads(json.dumps(offsets)):
            return True
        raise OtherOffsets(str(self._address), checkpoint, record.checkpoint)
