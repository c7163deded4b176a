"""The Chaos sink: counts rows, or writes the ids of each batch to a file, with injected faults.

Called by the engine through plugin.contract. With `path`, a batch is one file that is created
atomically and exclusively (a link to a finished file), so that only one of several attempts wins.
The file contains the record of the batch: offsets and generation.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.connectors.chaos.faults import ChaosEnded, FaultInjector
from tidegate.failpoint import failpoint
from tidegate.model.errors import Fenced
from tidegate.model.types import Table
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    CommitRange,
    Committer,
    Message,
    OperatorContext,
    Sink,
    SinkRestore,
    TargetRecord,
    Writer,
    WriteTask,
)
from tidegate.plugin.option import Values


class ChaosSink(Sink):
    def writer(self, task: WriteTask) -> Writer:
        return _ChaosWriter(self.values, task)

    def committer(self) -> Committer:
        return ChaosCommitter(self.values, self.context)


class _ChaosWriter(Writer):
    def __init__(self, values: Values, task: WriteTask) -> None:
        self._values = values
        self._task = task
        self._rows = 0
        self._ids: list[Any] = []

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        """Count the rows of one batch, and keep their ids if there is a `path`."""
        self._rows += batch.num_rows
        if self._values["path"] is None:
            return
        name = self._values["id_field"]
        if name not in table.names():
            raise ChaosEnded(f"Chaos: the column {name} (id_field) is not in table {table.path}")
        self._ids.append(batch.column(name).to_numpy(zero_copy_only=False))

    def close(self) -> Message:
        FaultInjector.of(self._values).inject("write", self._task.checkpoint, self._task.token)
        ids = np.sort(np.concatenate(self._ids)) if self._ids else np.array([], dtype=np.int64)
        return {"rows": self._rows, "ids": list(_runs(ids))}

    def abort(self) -> None:
        self._ids.clear()


def _runs(ids: Any) -> Iterator[list[int]]:
    """Yield sorted ids as runs [first, last]; a duplicate id starts a new run."""
    if not len(ids):
        return
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    for run in np.split(ids, breaks):
        yield [int(run[0]), int(run[-1])]


def committed_ids(path: str) -> list[int]:
    """Read all ids from the files of a Chaos sink, in order; for tests."""
    files = sorted(Path(path).glob("*.json"))
    return [
        n
        for file in files
        for first, last in json.loads(file.read_text())["ids"]
        for n in range(first, last + 1)
    ]


_tries: "Counter[tuple[str, int]]" = Counter()
"""How often this process has tried to commit a batch, so that a repeated attempt may succeed."""


class ChaosCommitter(Committer):
    """Writes one file per committed batch."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self._values = values
        self._name = f"{context.pipeline}-{context.operator.replace('/', '_')}"
        self._faults = FaultInjector.of(values)
        self._rows = self._checkpoint = 0
        self._failed: set[int] = set()  # checkpoints whose commit has already failed

    def target_record(self, resume: SinkRestore) -> TargetRecord | None:
        """The newest batch that has a file; None if rows are only counted."""
        if self._values["path"] is None:
            return None
        numbers = (int(file.stem.rpartition("-")[2]) for file in self._files(resume.lineage))
        return TargetRecord(target=self._values["path"], checkpoint=max(numbers, default=0))

    def uncheckpointed_commits(self, resume: SinkRestore) -> Sequence[CommitRange]:
        records = [json.loads(file.read_text()) for file in self._files(resume.lineage)]
        return [
            CommitRange(checkpoint=r["checkpoint"], offsets=r["offsets"])
            for r in records
            if r["checkpoint"] > resume.checkpoint
        ]

    def _files(self, lineage: str) -> list[Path]:
        """The files of the batches of a lineage, by id."""
        files = (
            sorted(Path(self._values["path"]).glob("*.json"))
            if self._values["path"] is not None
            else []
        )
        return [file for file in files if file.name.startswith(self._prefix(lineage))]

    def open(self, resume: SinkRestore) -> None:
        """Remove batches after the restore point, except those that will be repeated."""
        state = resume.state or {}
        self._rows = int(state.get("rows", 0))
        self._checkpoint = int(state.get("checkpoint", 0))
        self._failed.update(
            resume.uncheckpointed_commits, [] if resume.pending is None else [resume.pending]
        )
        if self._values["path"] is None:
            return
        directory = Path(self._values["path"])
        directory.mkdir(parents=True, exist_ok=True)
        for file in [
            f for f in directory.iterdir() if f.name.startswith(self._prefix(resume.lineage))
        ]:
            checkpoint = int(file.name.removesuffix(file.suffix).rpartition("-")[2])
            if file.suffix != ".json" or not resume.keeps(checkpoint):
                failpoint("chaos.undo.before")
                file.unlink(missing_ok=True)
                failpoint("chaos.undo.after")

    def _prefix(self, lineage: str) -> str:
        return f"{lineage}-{self._name}-".replace("/", "_")

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        if str(commit.checkpoint) in map(
            str, self._values["fail_at_checkpoint"] or ()
        ) and self._may_fail(commit.checkpoint):
            self._faults.raise_error(f"commit of checkpoint {commit.checkpoint}")
        _tries[self._name, commit.checkpoint] += 1
        self._faults.inject(
            "commit", commit.checkpoint, commit.generation, _tries[self._name, commit.checkpoint]
        )
        if commit.checkpoint <= self._checkpoint:
            return AlreadyCommitted()
        outcome = self._record(commit) if self._values["path"] is not None else BatchCommitted()
        self._rows += sum(int(m["rows"]) for m in commit.messages)
        self._checkpoint = commit.checkpoint
        return outcome

    def _may_fail(self, checkpoint: int) -> bool:
        spared = checkpoint in self._failed and not self._values["fail_terminally"]
        self._failed.add(checkpoint)
        return not spared

    def _record(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        ids = sorted(run for message in commit.messages for run in message["ids"])
        text = json.dumps(
            {
                "checkpoint": commit.checkpoint,
                "generation": commit.generation,
                "offsets": commit.offsets,
                "ids": ids,
            }
        )
        stem = Path(self._values["path"]) / f"{self._prefix(commit.lineage)}{commit.checkpoint:08}"
        final, staged = (
            stem.with_name(stem.name + ".json"),
            stem.with_name(stem.name + f".{commit.generation}"),
        )
        failpoint("chaos.commit.before")
        with staged.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        failpoint("chaos.commit.middle")
        try:
            os.link(staged, final)
        except FileExistsError:
            return _check_existing(final, commit)
        finally:
            staged.unlink(missing_ok=True)
        _sync_directory(final.parent)
        failpoint("chaos.commit.after")
        return BatchCommitted()

    def state(self) -> Any:
        return {"rows": self._rows, "checkpoint": self._checkpoint}


def _check_existing(final: Path, commit: Commit) -> AlreadyCommitted:
    """Accept an existing batch with the same ranges; any other is an error."""
    record = json.loads(final.read_text())
    if record["generation"] > commit.generation:
        raise Fenced(f"the Chaos sink at {final.parent}", commit.generation, record["generation"])
    if record["offsets"] != json.loads(json.dumps(commit.offsets)):
        raise ChaosEnded(
            f"Chaos: {final} contains checkpoint {commit.checkpoint} with other ranges"
        )
    return AlreadyCommitted()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
