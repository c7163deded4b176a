"""Committer for databases behind JDBC drivers: rows and record in one transaction.

Called by jvm_connector.py and spark.py, in the driver.

    open     creates the sink's record if it is missing, and assigns it to this generation, so that
             older ones are fenced; drops their staging tables
    save     (spark.py) applies the save modes to a target, and Spark fills a staging table
    commit   one transaction: lock the record, skip the batch if it is included, else merge every
             staging table and advance the record; then drop the staging tables

The record is locked by an update, which works in every database. Its fence is the generation and
the driver's token, as in sink_record.py; it is removed when the store says FINISHED (`forget`), so
that a driver that restores can detect a target that lost it (`target_record`).
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegate.connectors.jdbc.jvm_sql import (
    ADDED_COLUMNS,
    KIND,
    RECORD,
    SEQ,
    Brand,
    JvmMergeSql,
    add_record_column,
    create_record_table,
    stage_column,
)
from tidegate.connectors.jdbc.merge_runner import RowsLost
from tidegate.connectors.jdbc.sink_query import column_indexes, parse_parameters
from tidegate.connectors.jdbc.sink_record import RecordGone, TargetOffsetsDiffer
from tidegate.connectors.jdbc.stage_names import StageName, is_dead, record_id, stage_prefix
from tidegate.connectors.jdbc.target import KeyMissing
from tidegate.databases.errors import StatementRefused, TransientDatabaseError
from tidegate.failpoint import failpoint
from tidegate.model.errors import Fenced, OtherCopy, UserError
from tidegate.model.types import RowKind
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    CommitRange,
    Committer,
    OperatorContext,
    SinkRestore,
    TargetRecord,
)
from tidegate.plugin.option import Values

_log = logging.getLogger(__name__)
_DELETES = f"{KIND} in ({RowKind.UPDATE_BEFORE.code}, {RowKind.DELETE.code})"
_PUTS = f"{KIND} in ({RowKind.INSERT.code}, {RowKind.UPDATE_AFTER.code})"


class JdbcConnection(Protocol):
    """A JDBC connection without autocommit, which raises our errors; see spark.py."""

    def execute(self, sql: str, *given: Any) -> int:
        """Run a statement and return the number of changed rows."""

    def rows(self, sql: str, *given: Any) -> list[tuple[str | None, ...]]:
        """Run a query and return its rows as texts."""

    def tables(self, prefix: str) -> list[str]:
        """Names of tables with a prefix, in lower case."""

    def run_for_rows(self, statement: str, query: str, rows_max: int) -> None:
        """Run a statement for every row of a query, with its values as parameters."""

    def commit(self) -> None:
        """Commit the transaction and begin a new one."""

    def rollback(self) -> None:
        """Roll the transaction back and begin a new one."""

    def close(self) -> None:
        """Close the connection and roll back uncommitted changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilledStage:
    """One filled staging table.

    `columns` are the target's column names in SQL, `names` the incoming ones.
    """

    target: str
    stage: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    key: tuple[int, ...]
    kinds: bool
    large: frozenset[int] = frozenset()


@dataclass(slots=True)
class JvmStaging:
    """State that save and commit share in one driver.

    A second attempt of a batch replaces the first one.
    """

    prepared: frozenset[str] = frozenset()
    prepared_now: set[str] = field(default_factory=set)
    filled: dict[tuple[int, int], FilledStage] = field(default_factory=dict)
    lineage: str = ""
    record_recreated: bool = False
    """Whether the record was lost and recreated: missing tables are then created again too."""
    inputs: dict[str, str] = field(default_factory=dict)
    """The incoming table of each target."""

    def stages_of(self, checkpoint: int) -> list[FilledStage]:
        """The staging tables of a batch, in the order of its inputs."""
        return [part for (batch, _), part in sorted(self.filled.items()) if batch == checkpoint]


class JvmCommitter(Committer):
    """The committer of one sink. `where` is its address for messages."""

    def __init__(
        self, values: Values, context: OperatorContext, staging: JvmStaging, where: str
    ) -> None:
        self._values = values
        self._context = context
        self._staging = staging
        self._where = where
        self._brand = Brand.of(values["url"])
        self._resume = SinkRestore(lineage="", generation=0, checkpoint=0)
        self._checkpoint = 0

    @contextmanager
    def _connection(self) -> Iterator[JdbcConnection]:
        from tidegate.connectors.jdbc.spark import connect

        connection = connect(self._values)
        try:
            yield connection
        finally:
            connection.close()

    # Open.

    def target_record(self, resume: SinkRestore) -> TargetRecord | None:
        """Read the record's checkpoint; None outside of a driver, which has no JVM."""
        if "pyspark" not in sys.modules:
            return None
        from tidegate.connectors.jdbc.spark import is_spark_running

        if not is_spark_running():
            return None
        place = f"{self._where} (table {RECORD})"
        with self._connection() as connection:
            if not resume.checkpoint or not connection.tables(RECORD):
                return TargetRecord(target=place, checkpoint=0)
            rows = connection.rows(
                f"select checkpoint_id from {RECORD} where id = ?",
                record_id(self._context, resume.lineage),
            )
        return TargetRecord(target=place, checkpoint=int(rows[0][0] or 0) if rows else 0)

    def uncheckpointed_commits(self, resume: SinkRestore) -> Sequence[CommitRange]:
        """The record, if it is newer than the restore point."""
        with self._connection() as connection:
            checkpoint, offsets = self._acquire_record(connection, resume)
        return (
            (CommitRange(checkpoint=checkpoint, offsets=offsets),)
            if offsets is not None and checkpoint > resume.checkpoint
            else ()
        )

    def open(self, resume: SinkRestore) -> None:
        with self._connection() as connection:
            self._acquire_record(connection, resume)
            for name in connection.tables(stage_prefix(self._context)):
                stage = StageName.parse(name)
                if stage is not None and is_dead(stage, resume.lineage, resume.generation):
                    connection.execute(f"drop table {name}")
            connection.commit()

    def _acquire_record(self, connection: JdbcConnection, resume: SinkRestore) -> tuple[int, Any]:
        """Assign the record to this generation; returns checkpoint and offsets. May be repeated."""
        self._resume = resume
        self._checkpoint = resume.checkpoint
        self._staging.lineage = resume.lineage
        state = resume.state or {}
        remembered = frozenset(state.get("prepared", ())) | frozenset(state.get("begun", ()))
        self._staging.inputs = dict(state.get("inputs", {}))
        failpoint("foreignsink.open.before")
        if not connection.tables(RECORD):
            self._create_if_missing(connection, create_record_table(self._brand), "id")
        for name in ADDED_COLUMNS:
            if not self._has_column(connection, name):
                self._create_if_missing(connection, add_record_column(self._brand, name), name)
        failpoint("foreignsink.open.middle")
        if not connection.rows(f"select checkpoint_id from {RECORD} where id = ?", self._id()):
            self._insert_record(connection, resume, remembered)
            self._staging.record_recreated = self._staging.record_recreated or resume.checkpoint > 0
        checkpoint, offsets, prepared = self._lock_record(connection)
        sql = (
            f"update {RECORD} set generation_id = ?, fence_token = ?, installation = ? where id = ?"
        )
        connection.execute(sql, resume.generation, resume.token, resume.installation, self._id())
        connection.commit()
        failpoint("foreignsink.open.after")
        self._staging.prepared = prepared | remembered
        return checkpoint, offsets

    @staticmethod
    def _has_column(connection: JdbcConnection, name: str) -> bool:
        try:
            connection.rows(f"select {name} from {RECORD} where 1 = 0")
        except StatementRefused:
            connection.rollback()
            return False
        return True

    def _create_if_missing(self, connection: JdbcConnection, statement: str, column: str) -> None:
        try:
            connection.execute(statement)
            connection.commit()
        except (StatementRefused, TransientDatabaseError):
            connection.rollback()
            # Another sink may have created it at the same time.
            if not self._has_column(connection, column):
                raise

    def _insert_record(
        self, connection: JdbcConnection, resume: SinkRestore, prepared: frozenset[str]
    ) -> None:
        context = self._context
        connection.execute(
            f"insert into {RECORD} (id, lineage, job_id, pipeline_id, sink_name, checkpoint_id,"
            " generation_id, prepared_json) values (?, ?, ?, ?, ?, ?, 0, ?)",
            self._id(),
            resume.lineage[:200],
            context.job_id,
            context.pipeline,
            context.operator[:500],
            resume.checkpoint,
            json.dumps(sorted(prepared)),
        )

    def _id(self) -> str:
        return record_id(self._context, self._resume.lineage)

    def _lock_record(self, connection: JdbcConnection) -> tuple[int, Any, frozenset[str]]:
        """Lock the record until the end of the transaction and read it.

        Raises Fenced if it belongs to a higher generation, OtherCopy if to another driver of this
        generation, RecordGone if it does not exist.
        """
        rows: list[tuple[str | None, ...]] = []
        if connection.tables(RECORD):
            connection.execute(
                f"update {RECORD} set pipeline_id = pipeline_id where id = ?", self._id()
            )
            found = "checkpoint_id, generation_id, offsets_json, prepared_json, fence_token"
            rows = connection.rows(f"select {found} from {RECORD} where id = ?", self._id())
        if not rows:
            raise RecordGone(self._where, self._context.operator)
        checkpoint, current, offsets, prepared, token = rows[0]
        mine, what = (
            self._resume.generation,
            f"the Jdbc sink {self._context.operator} in {self._where}",
        )
        if int(current or 0) > mine:
            raise Fenced(what, mine, int(current or 0))
        if (
            int(current or 0) == mine
            and token
            and self._resume.token
            and token != self._resume.token
        ):
            raise OtherCopy(what, mine)
        return (
            int(checkpoint or 0),
            json.loads(offsets) if offsets else None,
            frozenset(json.loads(prepared) if prepared else ()),
        )

    # Commit.

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        parts = self._staging.stages_of(commit.checkpoint)
        with self._connection() as connection:
            failpoint("foreignsink.commit.before")
            checkpoint, offsets, prepared = self._lock_record(connection)
            had = self._includes(checkpoint, offsets, commit)
            if not had:
                self._check_rows(
                    connection, parts, sum(int(message["rows"]) for message in commit.messages)
                )
                for part in parts:
                    self._merge(connection, part)
                self._advance_record(
                    connection,
                    commit,
                    prepared | self._staging.prepared | self._staging.prepared_now,
                )
            failpoint("foreignsink.commit.middle")
            connection.commit()
            failpoint("foreignsink.commit.after")
            self._staging.prepared |= self._staging.prepared_now
            self._checkpoint = commit.checkpoint
            self._drop_finished_stages(connection, commit.checkpoint)
        return AlreadyCommitted() if had else BatchCommitted()

    def _includes(self, checkpoint: int, offsets: Any, commit: Commit) -> bool:
        if commit.checkpoint < checkpoint <= max(self._resume.uncheckpointed_commits, default=0):
            return True
        if checkpoint < commit.checkpoint or (checkpoint == commit.checkpoint and offsets is None):
            return False
        if checkpoint == commit.checkpoint and offsets == json.loads(json.dumps(commit.offsets)):
            return True
        raise TargetOffsetsDiffer(self._where, commit.checkpoint, checkpoint)

    def _check_rows(
        self, connection: JdbcConnection, parts: Sequence[FilledStage], written: int
    ) -> None:
        """Check that the staging tables have all rows that Spark wrote, and each row once.

        A task that was retried may have written its rows twice.
        """
        found = sum(
            int(connection.rows(f"select count(*) from {part.stage}")[0][0] or 0) for part in parts
        )
        distinct = sum(
            int(connection.rows(f"select count(distinct {SEQ}) from {part.stage}")[0][0] or 0)
            for part in parts
        )
        if found != written or distinct != written:
            raise TransientDatabaseError(
                self._where,
                f"{written} rows were written, but the staging tables have {found} rows,"
                f" {distinct} of them distinct; the batch is repeated",
            )

    def _merge(self, connection: JdbcConnection, part: FilledStage) -> None:
        query = self._values["query"]
        if (
            part.kinds
            and (query or not part.key)
            and connection.rows(f"select count(*) from {part.stage} where {_DELETES}")[0][0] != "0"
        ):
            if query:
                raise UserError(
                    "`query` cannot write a row that deletes: use generate_sink_sql = true, or put"
                    " FilterRowKind before the sink"
                )
            raise KeyMissing(
                f"rows update or delete in {part.target}, which has no key: set primary_keys, or"
                " put FilterRowKind before the sink"
            )
        if query:
            statement, names = parse_parameters(query, "?")
            chosen = ", ".join(stage_column(n) for n in column_indexes(names, part.names))
            connection.run_for_rows(
                statement,
                f"select {chosen} from {part.stage} where {_PUTS} order by {SEQ}",
                self._values["batch_size"],
            )
            return
        upsert = bool(self._values["enable_upsert"])
        merge = JvmMergeSql(
            brand=self._brand,
            target=part.target,
            stage=part.stage,
            columns=part.columns,
            key=part.key,
            upsert=upsert,
            large=part.large,
        )
        statements = merge.statements()
        for statement in statements[: -merge.puts]:
            connection.execute(statement)
        put = int(connection.rows(f"select count(*) from {part.stage}")[0][0] or 0)
        counted = sum(connection.execute(statement) for statement in statements[-merge.puts :])
        # If all columns are part of the key, existing rows are left as they are.
        if counted != put and len(part.key) < len(part.columns):
            raise RowsLost(self._where, part.target, put, counted)

    def _advance_record(
        self, connection: JdbcConnection, commit: Commit, prepared: frozenset[str]
    ) -> None:
        offsets, names = json.dumps(commit.offsets), json.dumps(sorted(prepared))
        sql = (
            f"update {RECORD} set checkpoint_id = ?, offsets_json = ?, prepared_json = ? where"
            " id = ?"
        )
        connection.execute(sql, commit.checkpoint, offsets, names, self._id())

    def _drop_finished_stages(self, connection: JdbcConnection, checkpoint: int) -> None:
        """Drop staging tables of this batch and of its failed attempts.

        What remains is dropped when the sink is opened again.
        """
        self._staging.filled = {
            place: part for place, part in self._staging.filled.items() if place[0] > checkpoint
        }
        for name in connection.tables(stage_prefix(self._context)):
            stage = StageName.parse(name)
            if stage is not None and (
                stage.checkpoint <= checkpoint
                or is_dead(stage, self._resume.lineage, self._resume.generation - 1)
            ):
                connection.execute(f"drop table {name}")
        connection.commit()

    # After the batches.

    def state(self) -> Mapping[str, Any]:
        """The last batch, and the tables whose save modes were applied."""
        return {
            "version": 2,
            "checkpoint": self._checkpoint,
            "prepared": sorted(self._staging.prepared),
            "inputs": self._staging.inputs,
        }

    def forget(self) -> None:
        """Remove the record, since the job is FINISHED in the store.

        A record of another driver stays.
        """
        failpoint("foreignsink.finish.before")
        token = self._resume.token
        mine = " and (fence_token is null or fence_token = ?)" if token else ""
        with self._connection() as connection:
            given = (self._id(), self._resume.generation, *((token,) if token else ()))
            connection.execute(
                f"delete from {RECORD} where id = ? and generation_id <= ?{mine}", *given
            )
            connection.commit()
        failpoint("foreignsink.finish.after")
        _log.info(
            "jdbc sink: finished at checkpoint %d",
            self._checkpoint,
            extra={"lineage": self._resume.lineage, "sink": self._context.operator},
        )
