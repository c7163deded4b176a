"""The Assert sink: checks field rules in the tasks and counts the rows of the job in the driver.

Called by the engine through plugin.contract. The counts are part of the checkpoint. A repeated
batch is counted once, because the counts are restored from the last completed checkpoint.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidegate.connectors.assertion.catalog import check_catalog
from tidegate.connectors.assertion.errors import RuleFailed
from tidegate.connectors.assertion.fields import check_fields
from tidegate.connectors.assertion.rules import AssertRules, RuleType, TableRules, parse_rules
from tidegate.model.problem import Location
from tidegate.model.types import Table
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    Committer,
    Message,
    Sink,
    SinkRestore,
    Writer,
    WriteTask,
)
from tidegate.plugin.option import Block


class Assert(Sink):
    """Fails the job if a rule is broken."""

    @cached_property
    def rules(self) -> AssertRules:
        """The rules; options.py has already checked them."""
        return parse_rules(Block(self.values, lambda _: Location(""), ""), self.values["rules"])[0]

    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # nothing is staged
        return _AssertWriter(self.rules)

    def committer(self) -> Committer:
        return _Committer(self.rules)


class _AssertWriter(Writer):
    def __init__(self, rules: AssertRules) -> None:
        self._rules = rules
        self._counts: dict[str, int] = {}

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        matching = [rules for rules in self._rules.tables if rules.applies_to(table.path)]
        if table.path not in self._counts:
            for rules in matching:
                if rules.catalog is not None:
                    check_catalog(table, rules.catalog)
        self._counts[table.path] = self._counts.get(table.path, 0) + batch.num_rows
        for rules in matching:
            check_fields(table, batch, rules.fields)

    def close(self) -> Message:
        return {"rows": sum(self._counts.values()), "counts": self._counts}

    def abort(self) -> None:
        pass


class _Committer(Committer):
    def __init__(self, rules: AssertRules) -> None:
        self._rules = rules
        self._checkpoint = 0
        self._counts: dict[str, int] = {}

    def open(self, resume: SinkRestore) -> None:
        """Restore the counts of the checkpoint."""
        state: Mapping[str, Any] = resume.state or {}
        self._checkpoint = int(state.get("checkpoint", 0))
        self._counts = dict(state.get("counts", {}))

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        """Count the rows of a batch; too many rows fail the job immediately."""
        if commit.checkpoint <= self._checkpoint:
            return AlreadyCommitted()
        counts = dict(self._counts)
        for message in commit.messages:
            for path, rows in message["counts"].items():
                counts[path] = counts.get(path, 0) + int(rows)
        self._check_rows(counts, RuleType.MAX_ROW)
        self._checkpoint = commit.checkpoint
        self._counts = counts
        return BatchCommitted()

    def state(self) -> Any:
        return {"checkpoint": self._checkpoint, "counts": self._counts}

    def finish(self) -> None:
        """Fail the job if there are too few rows in total, or other tables than `table-names`."""
        self._check_rows(self._counts, RuleType.MAX_ROW)
        self._check_rows(self._counts, RuleType.MIN_ROW)
        names = self._rules.table_names
        if names and set(names) != set(self._counts):
            raise RuleFailed(
                f"Assert: the tables are {', '.join(sorted(self._counts)) or 'none'}, not"
                f" {', '.join(sorted(names))} (table-names)"
            )

    def _check_rows(self, counts: Mapping[str, int], kind: RuleType) -> None:
        for rules in self._rules.tables:
            total = sum(rows for path, rows in counts.items() if rules.applies_to(path))
            for rule in rules.rows:
                broken = total > rule.bound if kind is RuleType.MAX_ROW else total < rule.bound
                if rule.type is kind and broken:
                    raise RuleFailed(f"Assert: {total} rows {_of(rules)}break the rule {rule}")


def _of(rules: TableRules) -> str:
    return "" if rules.path is None else f"of table {rules.path} "
