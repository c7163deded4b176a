"""A CDC source driven like the pipeline drives it, and a mirror of its tables.

The mirror is stricter than any sink: every change must fit the rows that it has.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.model.job import BlockKind, JobMode
from tidegate.model.problem import Location
from tidegate.model.table_changes import AcceptedChange
from tidegate.plugin.contract import MULTIPLE_TABLES, Limit, OperatorContext
from tidegate.plugin.option import Block
from tidegate.plugin.registry import find

BATCHES_MAX = 500


def make_source(
    name: str,
    options: dict[str, Any],
    mode: JobMode = JobMode.STREAMING,
    *,
    accept: Sequence[str] = (),
) -> Any:
    """Return a source with these options; `accept` has decisions as for --accept-change."""
    connector = find(BlockKind.SOURCE, name)
    block = Block(options, lambda _: Location(""), "source[0]")
    values, problems = connector.options.read(block)
    assert [p.message for p in problems] == []
    assert [p.message for p in connector.check(block, values)] == []
    changes = tuple(map(AcceptedChange.parse, accept))
    context = OperatorContext(
        job_id=1,
        job_name="test",
        pipeline=1,
        operator="Source[0]",
        mode=mode,
        parallelism=2,
        accepted_changes=changes,
    )
    return connector.load()(values, context)


def restored(offset: Any) -> Any:
    """Return an offset as it comes from a checkpoint."""
    return json.loads(json.dumps(offset))


def rows_of(
    source: Any, start: Any, end: Any, *, joint: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return all rows of a batch as (path, row)."""
    for split in (source.shared_splits if joint else source.splits)(
        restored(start), restored(end), 4
    ):
        for batch in source.read(split):
            path = (
                split.table
                if split.table != MULTIPLE_TABLES
                else batch.schema.metadata[b"table"].decode()
            )
            for row in batch.to_pylist():
                yield path, row


class Mirror:
    """The rows of all tables by key.

    An insert of an existing row, or a before image that differs, is an error of the source.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self.offset = restored(source.initial())

    def apply(self, path: str, row: dict[str, Any]) -> None:
        keys = next(t.primary_key for t in self.source.tables() if t.path == path)
        kind = row.pop("__row_kind")
        key = (path, *(row[name] for name in keys))
        if kind == 0:
            assert key not in self.rows, f"{key} is inserted and is there"
            self.rows[key] = row
        elif kind == 1:
            assert self.rows[key] == row, (
                f"{key} is said to have been {row}, and was {self.rows[key]}"
            )
        elif kind == 2:
            assert key in self.rows, f"{key} is updated and is not there"
            self.rows[key] = row
        else:
            assert self.rows.pop(key) == row, f"{key} is deleted as another row than it is"

    def step(self, limit: Limit | None = None, *, between: Any = None, joint: bool = True) -> bool:
        """Run one batch; return False if there was nothing to read.

        `between` runs after its range is fixed and before it is read.
        """
        end = restored(self.source.latest(self.offset, limit or Limit()))
        if end == self.offset:
            return False
        if between is not None:
            between()
        for path, row in rows_of(self.source, self.offset, end, joint=joint):
            self.apply(path, row)
        self.offset = end
        return True

    def run(self, limit: Limit | None = None) -> int:
        """Run batches until there is nothing to read; return their number."""
        for count in range(BATCHES_MAX):
            if not self.step(limit):
                return count
        raise AssertionError("the source does not come to an end")

    def table(self, path: str) -> list[dict[str, Any]]:
        """Return the rows of a table, by key."""
        return [
            row
            for key, row in sorted(self.rows.items(), key=lambda item: tuple(map(str, item[0])))
            if key[0] == path
        ]
