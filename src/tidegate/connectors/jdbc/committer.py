"""The Jdbc sink in the driver: makes each batch visible exactly once.

Called by the batch loop through plugin.contract.

    target_record   reads the newest checkpoint of the record; 0 if there is no record
    uncheckpointed_commits   the record, if it is newer than the restore point: its batches are in
             the tables already, are repeated and skipped
    open     creates the record's row and assigns it to this generation, so that the database itself
             fences older ones; drops dead staging tables
    commit   one transaction: lock and check the row, prepare tables, merge staged rows, advance the
             row; then drop the staging tables. A missing table may be created from a staging table
             (promotion.py)
    forget   removes the row, once the pipeline is FINISHED in the store and nothing is restored

If the outcome of a commit is unknown, it is repeated: the record shows whether it happened. Staged
rows are counted before they are merged, since a database that crashed may have lost them (unlogged
tables, or a whole table); then the batch is repeated. No connection is held between two batches.

MariaDB and MySQL end a transaction when a table is created. There, tables are prepared in advance
on a second connection, while the first one holds the row's lock: no other driver can take over in
between, and none of our rows is in a table that is not marked as prepared.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tidegate.connectors.jdbc.connection import open_existing
from tidegate.connectors.jdbc.merge_runner import MergeRunner, merge_parts
from tidegate.connectors.jdbc.merge_sql import MergeSql
from tidegate.connectors.jdbc.promotion import StagePromotion
from tidegate.connectors.jdbc.save_modes import SaveModes
from tidegate.connectors.jdbc.sink_query import run_query
from tidegate.connectors.jdbc.sink_record import TABLE, SinkRecord, SinkRecordTable
from tidegate.connectors.jdbc.stage_names import StageName, is_dead, stage_prefix
from tidegate.connectors.jdbc.staged_table import StagedRowsLost, StagedTable
from tidegate.connectors.jdbc.staging import staging_table_name
from tidegate.connectors.jdbc.target import (
    JdbcTarget,
    KeyMissing,
    single_target_name,
    table_from_message,
    target_of,
)
from tidegate.connectors.jdbc.target_check import SharedTable, TargetFit, check_target
from tidegate.databases.catalog import TableInfo, TableName
from tidegate.databases.ddl import drop_table
from tidegate.databases.dialect import dialect_of
from tidegate.databases.errors import StatementRefused
from tidegate.databases.session import Session, open_session
from tidegate.databases.targets.rules import rules_of
from tidegate.databases.url import Address, System
from tidegate.failpoint import failpoint
from tidegate.model.types import Column
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    CommitRange,
    Committer,
    Message,
    OperatorContext,
    SinkRestore,
    TargetRecord,
)
from tidegate.plugin.option import Values
from tidegate.plugin.placeholders import has_placeholder

_log = logging.getLogger(__name__)
_KEY_EXISTS = "23505"
_NO_TABLE = ("42P01", "1146")
_EXISTS = (_KEY_EXISTS, "42P07")
_STAGE_TABLES = {
    System.MYSQL: (
        "select table_name from information_schema.tables where table_schema = %s and"
        " left(table_name, %s) = %s"
    ),
    System.POSTGRES: (
        "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relkind = 'r' and left(c.relname, %s::integer) = %s"
    ),
    System.SQLITE: (
        "select name from sqlite_master where type = 'table' and substr(name, 1, %s) = %s"
    ),
}


class JdbcCommitter(Committer):
    """The committer of one sink."""

    def __init__(self, address: Address, values: Values, context: OperatorContext) -> None:
        self._address = address
        self._values = values
        self._context = context
        self._dialect = dialect_of(address.system)
        self._rules = rules_of(address.system)
        self._save_modes = SaveModes(self._dialect, values)
        self._resume = SinkRestore(lineage="", generation=0, checkpoint=0)
        self._lineage = ""
        self._generation = 0
        self._checkpoint = 0
        # Batches up to this checkpoint are in the tables, though not in checkpoints: those before
        # the record are skipped.
        self._uncheckpointed_until = 0
        self._prepared: frozenset[str] = frozenset()
        # The record was lost, and a user accepted to continue without it; its missing tables are
        # created again.
        self._record_recreated = False
        self._lost_tables: set[str] = set()
        self._infos: dict[str, TableInfo] = {}
        self._fits: dict[str, tuple[tuple[Column, ...], TargetFit]] = {}
        self._inputs: dict[str, str] = {}  # the incoming table of each target
        self._folds: bool | None = None
        # Targets that were empty at first, and have had only plain inserts since.
        self._plain_inserts: dict[str, bool] = {}

    @property
    def _records(self) -> SinkRecordTable:
        return SinkRecordTable(self._address, self._dialect, self._context, self._resume)

    # Open.

    def target_record(self, resume: SinkRestore) -> TargetRecord:
        """Read the record's checkpoint; does not create a missing SQLite file."""
        staging_table = f"{self._address} (table {TABLE})"
        if self._address.system is System.SQLITE and not os.path.exists(self._address.database):
            return TargetRecord(target=staging_table, checkpoint=0)
        with open_existing(self._address) as session:
            found = (
                SinkRecordTable(
                    self._address, self._dialect, self._context, resume
                ).read_checkpoint(session)
                if resume.checkpoint
                else 0
            )
            name = self._nonempty_target(session) if resume.fresh else None
        return TargetRecord(
            target=str(name or staging_table), checkpoint=found, others="rows" if name else ""
        )

    def _nonempty_target(self, session: Session) -> TableName | None:
        """The target's table, if it is not empty and rows are appended to it without a key.

        Only if all incoming tables have the same target.
        """
        text = str(self._values["table"] or "")
        if (
            self._values["query"]
            or self._values["data_save_mode"] != "APPEND_DATA"
            or not text
            or has_placeholder(text)
        ):
            return None
        if (
            self._values["primary_keys"]
            or self._values["schema_save_mode"] == "RECREATE_SCHEMA"
            or has_placeholder(self._values["database"] or "")
        ):
            return None
        name = single_target_name(self._values, self._dialect, self._address)
        if self._dialect.table_info(session, name) is None:
            return None
        return (
            name
            if session.query(f"select 1 from {self._dialect.qualified(name)} limit 1")
            else None
        )

    def uncheckpointed_commits(self, resume: SinkRestore) -> Sequence[CommitRange]:
        """The record, if it is newer than the restore point.

        Its batch and all batches before it are in the tables.
        """
        with self._session() as session:
            record = self._acquire_record(session, resume)
        if record.offsets is None or record.checkpoint <= resume.checkpoint:
            return ()
        return (CommitRange(checkpoint=record.checkpoint, offsets=record.offsets),)

    def open(self, resume: SinkRestore) -> None:
        with self._session() as session:
            self._acquire_record(session, resume)
            self._drop_dead_stages(session)
        self._uncheckpointed_until = max(resume.uncheckpointed_commits, default=0)

    def _session(self) -> Session:
        if self._address.system is System.SQLITE:
            os.makedirs(os.path.dirname(self._address.database), exist_ok=True)
        return open_session(self._address)

    def _acquire_record(self, session: Session, resume: SinkRestore) -> SinkRecord:
        """Assign the record to this generation and return it; may be repeated."""
        self._resume = resume
        self._lineage = resume.lineage
        self._generation = resume.generation
        self._checkpoint = resume.checkpoint
        remembered = frozenset((resume.state or {}).get("prepared", ()))
        self._inputs = dict((resume.state or {}).get("inputs", {}))
        failpoint("jdbcsink.open.before")
        self._records.create_table(session)
        failpoint("jdbcsink.open.middle")
        with session.transaction():
            begun = self._records.insert_if_missing(session, resume.checkpoint, remembered)
            record = self._records.lock(session)
            self._records.take_over(session)
        failpoint("jdbcsink.open.after")
        self._record_recreated = self._record_recreated or (begun and resume.checkpoint > 0)
        self._prepared = record.prepared | remembered
        return record

    def _drop_dead_stages(self, session: Session) -> None:
        for name in self._stage_tables(session):
            stage = StageName.parse(name.table)
            if stage is not None and is_dead(stage, self._lineage, self._generation):
                session.execute(drop_table(self._dialect, name))

    def _stage_tables(self, session: Session) -> list[TableName]:
        """All staging tables of this sink."""
        prefix, staging_table = stage_prefix(self._context), staging_table_name(self._address, "")
        sql = _STAGE_TABLES[self._dialect.system]
        given = [
            part
            for part in (
                staging_table.database
                if self._dialect.system is System.MYSQL
                else staging_table.schema,
            )
            if part
        ]
        return [
            staging_table_name(self._address, name)
            for (name,) in session.query(sql, [*given, len(prefix), prefix])
        ]

    # Commit.

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        assert commit.generation == self._generation, (
            "a committer must commit for the generation that opened it"
        )
        targets, before = self._targets(commit.messages), self._prepared
        try:
            return self._commit(commit, targets)
        except BaseException:
            # The failed transaction rolled back what it had prepared.
            self._prepared = before
            self._infos = {}
            self._fits = {}
            raise

    def _commit(
        self, commit: Commit, targets: dict[TableName, list[StagedTable]]
    ) -> BatchCommitted | AlreadyCommitted:
        with open_existing(self._address) as session:
            self._rules.prepare_session(session)
            self._check_inputs(session, targets)
            self._find_lost_tables(session, targets)
            if not self._dialect.transactional_ddl and not self._values["query"]:
                self._prepare_on_second_connection(session, commit, targets)
            failpoint("jdbcsink.merge.before")
            with session.transaction():
                record = self._records.lock(session)
                had = self._records.includes(
                    record, commit.checkpoint, commit.offsets, self._uncheckpointed_until
                )
                if not had:
                    self._merge(session, record, targets)
                    self._records.advance(session, commit.checkpoint, commit.offsets)
                failpoint("jdbcsink.merge.middle")
            failpoint("jdbcsink.merge.after")
            self._checkpoint = commit.checkpoint
            self._drop_finished_stages(session, commit.checkpoint)
        return AlreadyCommitted() if had else BatchCommitted()

    def _check_inputs(self, session: Session, targets: dict[TableName, list[StagedTable]]) -> None:
        """Reject two incoming tables with the same target.

        Rows with the same key would replace each other.
        """
        if self._values["query"] or self._values["allow_shared_table"]:
            return
        if self._folds is None:
            self._folds = self._rules.ignores_table_case(session)
        shared = set()
        for name, part in [(name, part) for name, parts in targets.items() for part in parts]:
            known = self._inputs.setdefault(
                name.path.lower() if self._folds else name.path, part.target.path
            )
            if known != part.target.path:
                shared.add((name.path, known, part.target.path))
        if shared:
            raise SharedTable(sorted(shared))

    def _find_lost_tables(
        self, session: Session, targets: dict[TableName, list[StagedTable]]
    ) -> None:
        """Find the missing tables of a target that was lost together with its record.

        They are prepared again; existing tables are not emptied.
        """
        for name in targets if self._record_recreated else ():
            if (
                name.path in self._prepared
                and name.path not in self._lost_tables
                and self._dialect.table_info(session, name) is None
            ):
                self._lost_tables.add(name.path)
                self._prepared -= {name.path}

    def _targets(self, messages: Sequence[Message]) -> dict[TableName, list[StagedTable]]:
        """Group staging tables by target, in the order of the tasks."""
        found: dict[TableName, list[StagedTable]] = defaultdict(list)
        for raw in [table for message in messages for table in message.get("tables", ())]:
            target = target_of(
                table_from_message(raw["table"]), self._values, self._dialect, self._address
            )
            staging_table = (
                staging_table_name(self._address, raw["stage"]) if raw["stage"] else None
            )
            found[target.name].append(
                StagedTable(
                    target, staging_table, raw["rows"], raw["subtask"], raw.get("shaped", False)
                )
            )
        return {name: sorted(parts, key=lambda part: part.subtask) for name, parts in found.items()}

    def _prepare_on_second_connection(
        self, session: Session, commit: Commit, targets: dict[TableName, list[StagedTable]]
    ) -> None:
        """Prepare tables on a second connection, while the first one locks the record.

        For databases in which creating a table ends the transaction.
        """
        if all(
            name.path in self._prepared and not self._lacks_columns(session, parts[0].target)
            for name, parts in targets.items()
        ):
            return
        with session.transaction(), open_existing(self._address) as other:
            record = self._records.lock(session)
            if not self._records.includes(
                record, commit.checkpoint, commit.offsets, self._uncheckpointed_until
            ):
                self._prepare(other, record, targets)
                self._records.save_prepared(session, self._prepared)

    def _lacks_columns(self, session: Session, target: JdbcTarget) -> bool:
        return target.adds_columns and any(
            self._table_info(session, target).column(column.name) is None
            for column in target.columns
        )

    def _prepare(
        self, session: Session, record: SinkRecord, targets: dict[TableName, list[StagedTable]]
    ) -> None:
        self._prepared |= record.prepared - self._lost_tables
        for name, parts in targets.items():
            target, fresh = parts[0].target, name.path not in self._prepared
            if not fresh and not self._lacks_columns(session, target):
                continue
            failpoint("jdbcsink.prepare.before")
            if fresh:
                if self._save_modes.removes_rows:
                    self._records.fence_other_sinks(session, name.path)
                self._save_modes.apply(session, target)
            else:
                self._save_modes.add_missing_columns(
                    session, target, self._table_info(session, target)
                )
            failpoint("jdbcsink.prepare.after")
            self._infos.pop(name.path, None)
            self._fits.pop(name.path, None)
            self._target_fit(session, target)
            self._prepared |= {name.path}

    def _table_info(self, session: Session, target: JdbcTarget) -> TableInfo:
        if target.name.path not in self._infos:
            self._infos[target.name.path] = self._save_modes.read_table(session, target)
        return self._infos[target.name.path]

    def _target_fit(self, session: Session, target: JdbcTarget) -> TargetFit:
        """Check the target, once for each set of columns; raises TargetUnfit."""
        known = self._fits.get(target.name.path)
        if known is None or known[0] != target.columns:
            relation = self._rules.read_target(session, self._table_info(session, target))
            known = self._fits[target.name.path] = (
                target.columns,
                check_target(target.path, target, relation, self._rules, self._values),
            )
        return known[1]

    def _merge(
        self, session: Session, record: SinkRecord, targets: dict[TableName, list[StagedTable]]
    ) -> None:
        """Merge all rows of a batch, within the transaction."""
        if self._values["query"]:
            for part in [part for parts in targets.values() for part in parts]:
                if part.staging_table is not None:
                    self._check_staged_rows(session, part.staging_table, part.rows)
                    run_query(
                        session,
                        self._dialect,
                        self._values["query"],
                        part.staging_table,
                        part.target,
                        self._values["batch_size"],
                    )
            return
        if self._dialect.transactional_ddl:
            before = self._prepared
            self._prepared |= record.prepared - self._lost_tables
            targets = {
                name: parts
                for name, parts in targets.items()
                if not self._promote(session, name, parts)
            }
            self._prepare(session, record, targets)
            if self._prepared != before or self._prepared != record.prepared:
                self._records.save_prepared(session, self._prepared)
        for parts in targets.values():
            merges = [
                self._merge_runner(session, part, number)
                for number, part in enumerate(parts)
                if part.staging_table is not None
            ]
            merge_parts(session, merges, self._merge_one)

    def _promote(self, session: Session, name: TableName, parts: Sequence[StagedTable]) -> bool:
        """Promote the staging tables to the target; False if that is not possible."""
        full = sorted(
            (part for part in parts if part.staging_table is not None), key=lambda part: -part.rows
        )
        if name.path in self._prepared or not full or not all(part.shaped for part in full):
            return False
        adoption = StagePromotion(
            self._dialect,
            self._values,
            full[0].target,
            [part.staging_table for part in full if part.staging_table is not None],
        )
        if not adoption.is_allowed(session):
            return False
        for part in full:
            assert part.staging_table is not None
            self._check_staged_rows(session, part.staging_table, part.rows)
        if not self._try_statements(session, adoption.statements(), *_EXISTS):
            return False
        self._infos.pop(name.path, None)
        self._prepared |= {name.path}
        self._plain_inserts[name.path] = True
        return True

    def _merge_runner(self, session: Session, part: StagedTable, number: int) -> MergeRunner:
        assert part.staging_table is not None
        self._check_staged_rows(session, part.staging_table, part.rows)
        target = part.target
        changes = target.kinds and bool(
            session.query(
                f"select 1 from {self._dialect.qualified(part.staging_table)}"
                " where kind <> 0 limit 1"
            )
        )
        if changes and not target.key:
            raise KeyMissing(
                f"rows update or delete in {target.name}, which has no key: set primary_keys, or"
                " put FilterRowKind before the sink"
            )
        merge = MergeSql(
            dialect=self._dialect,
            target=target,
            relation=self._target_fit(session, target).relation,
            stage=part.staging_table,
            upsert=bool(self._values["enable_upsert"]),
            only_inserts=not changes,
            lossy=bool(self._values["allow_lossy_types"]),
            number=number,
            shaped=part.shaped,
        )
        return MergeRunner(session, self._rules, merge, part.rows)

    def _merge_one(self, session: Session, merger: MergeRunner) -> None:
        """Merge one staging table; in PostgreSQL plain inserts cost half as much."""
        if not self._values["allow_merged_keys"]:
            merger.check_keys()
        merge = merger.merge
        path = merge.target.name.path
        if (
            self._dialect.system is System.POSTGRES
            and self._can_insert_plain(session, merge.target, merge.table_info)
            and (plain := merge.plain_insert())
        ):
            self._plain_inserts[path] = (
                merger.try_statements(plain, _KEY_EXISTS, last=False) is None
            )
            if self._plain_inserts[path]:
                return
        merger.run()

    def _can_insert_plain(self, session: Session, target: JdbcTarget, info: TableInfo) -> bool:
        """Whether the target probably has none of the keys.

        It was empty at first and has had only plain inserts since; others may write to it too.
        """
        path = target.name.path
        if path not in self._plain_inserts:
            self._plain_inserts[path] = not session.query(
                f"select 1 from {self._dialect.qualified(info.name)} limit 1"
            )
        return self._plain_inserts[path]

    def _try_statements(self, session: Session, statements: Sequence[str], *codes: str) -> bool:
        """Run statements; False if one fails with one of the codes, then all are rolled back."""
        session.execute("savepoint tidegate_merge")
        try:
            for statement in statements:
                session.execute(statement)
        except StatementRefused as error:
            if error.code not in codes:
                raise
            session.execute("rollback to savepoint tidegate_merge")
            return False
        session.execute("release savepoint tidegate_merge")
        return True

    def _check_staged_rows(self, session: Session, staging_table: TableName, rows: int) -> None:
        """Check that the staging table still has all rows."""
        found: int | None = None
        try:
            found = int(
                session.scalar(f"select count(*) from {self._dialect.qualified(staging_table)}")
            )
        except StatementRefused as error:
            if error.code not in _NO_TABLE:
                raise
        if found != rows:
            raise StagedRowsLost(str(self._address), staging_table.table, rows, found)

    def _drop_finished_stages(self, session: Session, checkpoint: int) -> None:
        """Drop staging tables of this batch and of failed attempts.

        What remains is dropped when the sink is opened again.
        """
        failpoint("jdbcsink.sweep.before")
        for name in self._stage_tables(session):
            stage = StageName.parse(name.table)
            if stage is not None and (
                stage.checkpoint <= checkpoint
                or is_dead(stage, self._lineage, self._generation - 1)
            ):
                session.execute(drop_table(self._dialect, name))
        failpoint("jdbcsink.sweep.after")

    # After the batches.

    def state(self) -> Any:
        """The last batch, and the tables whose save modes were applied.

        If the target loses its record, they must not be emptied again.
        """
        return {
            "version": 1,
            "checkpoint": self._checkpoint,
            "prepared": sorted(self._prepared),
            "inputs": self._inputs,
        }

    def close(self) -> None:
        """Keep the record until the store says FINISHED; nothing is open.

        Without the record, a finished target could not be distinguished from a lost one.
        """

    def forget(self) -> None:
        failpoint("jdbcsink.finish.before")
        with open_existing(self._address) as session:
            self._records.remove(session)
        failpoint("jdbcsink.finish.after")
        _log.info(
            "jdbc sink: finished at checkpoint %d",
            self._checkpoint,
            extra={"lineage": self._lineage, "sink": self._context.operator},
        )
