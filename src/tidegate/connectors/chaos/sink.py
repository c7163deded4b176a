"""The Chaos sink: counts rows, or writes the ids of each batch into a file of its own; with trouble
in write and commit.

Called by the engine through plugin.contract. With `path`, a batch is one file that appears whole
and exclusively (a link to a finished file), so that of two attempts one wins and both may come: the
record of the batch (offsets, generation) is in it.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.connectors.chaos.trouble import ChaosEnded, FaultInjector
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
    SinkMemory,
    SinkRestore,
    Writer,
    WriteTask,
)
from tidegate.plugin.option import Values


class ChaosSink(Sink):
    def writer(self, task: WriteTask) -> Writer:
        return _ChaosWriter(self.values, task)

    def committer(self) -> Committer:
        """Writes them, one file for each batch."""
        return ChaosCommitter(self.values, self.context)


class _ChaosWriter(Writer):
    def __init__(self, values: Values, task: WriteTask) -> None:
        self._values = values
        self._task = task
        self._rows = 0
        self._ids: list[Any] = []

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        """Count one batch, and remember its ids where they are wanted."""
        self._rows += batch.num_rows
        if self._values["path"] is None:
            return
        name = self._values["id_field"]
        if name not in table.names():
            raise ChaosEnded(f"Chaos: the column {name} (id_field) is not in table {table.path}")
        self._ids.append(batch.column(name).to_numpy(zero_copy_only=False))

    def close(self) -> Message:
        """Runs of ids, as [first, last] pairs."""
        FaultInjector.of(self._values).meet("write", self._task.checkpoint, self._task.token)
        ids = np.sort(np.concatenate(self._ids)) if self._ids else np.array([], dtype=np.int64)
        return {"rows": self._rows, "ids": list(_runs(ids))}

    def abort(self) -> None:
        self._ids.clear()


def _runs(ids: Any) -> Iterator[list[int]]:
    """Sorted ids as runs; an id that is there twice begins a run of its own."""
    if not len(ids):
        return
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    for run in np.split(ids, breaks):
        yield [int(run[0]), int(run[-1])]


def committed_ids(path: str) -> list[int]:
    """All ids that the files of a Chaos sink hold, in order; for tests."""
    files = sorted(Path(path).glob("*.json"))
    return [
        n
        for file in files
        for first, last in json.loads(file.read_text())["ids"]
        for n in range(first, last + 1)
    ]


_tries: "Counter[tuple[str, int]]" = Counter()
"""How often this process has tried to commit a batch: another attempt of the same generation may
end well.
"""


class ChaosCommitter(Committer):
    """One file for each batch."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self._values = values
        self._name = f"{context.pipeline}-{context.operator.replace('/', '_')}"
        self._trouble = FaultInjector.of(values)
        self._rows = self._checkpoint = 0
        self._spared: set[int] = set()  # checkpoints that failed already

    def memory(self, resume: SinkRestore) -> SinkMemory | None:
        """The newest batch that has a file; None where rows are only counted."""
        if self._values["path"] is None:
            return None
        numbers = (int(file.stem.rpartition("-")[2]) for file in self._files(resume.lineage))
        return SinkMemory(place=self._values["path"], checkpoint=max(numbers, default=0))

    def uncheckpointed_commits(self, resume: SinkRestore) -> Sequence[CommitRange]:
        records = [json.loads(file.read_text()) for file in self._files(resume.lineage)]
        return [
            CommitRange(checkpoint=r["checkpoint"], offsets=r["offsets"])
            for r in records
            if r["checkpoint"] > resume.checkpoint
        ]

    def _files(self, lineage: str) -> list[Path]:
        """The batches of a lineage, by their ids."""
        files = (
            sorted(Path(self._values["path"]).glob("*.json"))
            if self._values["path"] is not None
            else []
        )
        return [file for file in files if file.name.startswith(self._prefix(lineage))]

    def open(self, resume: SinkRestore) -> None:
        """Take away what is newer than the point to go on from, except the batches that will be
        repeated.
        """
        state = resume.state or {}
        self._rows = int(state.get("rows", 0))
        self._checkpoint = int(state.get("checkpoint", 0))
        self._spared.update(
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
            self._trouble.raise_error(f"commit of checkpoint {commit.checkpoint}")
        _tries[self._name, commit.checkpoint] += 1
        self._trouble.meet(
            "commit", commit.checkpoint, commit.generation, _tries[self._name, commit.checkpoint]
        )
        if commit.checkpoint <= self._checkpoint:
            return AlreadyCommitted()
        outcome = self._record(commit) if self._values["path"] is not None else BatchCommitted()
        self._rows += sum(int(m["rows"]) for m in commit.messages)
        self._checkpoint = commit.checkpoint
        return outcome

    def _may_fail(self, checkpoint: int) -> bool:
        spared = checkpoint in self._spared and not self._values["fail_terminally"]
        self._spared.add(checkpoint)
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
            return _recognised(final, commit)
        finally:
            staged.unlink(missing_ok=True)
        _sync_directory(final.parent)
        failpoint("chaos.commit.after")
        return BatchCommitted()

    def state(self) -> Any:
        return {"rows": self._rows, "checkpoint": self._checkpoint}


def _recognised(final: Path, commit: Commit) -> AlreadyCommitted:
    """The same batch is there: skipped where its ranges are the same, an error otherwise."""
    record = json.loads(final.read_text())
    if record["generation"] > commit.generation:
        raise Fenced(f"the Chaos sink at {final.parent}", commit.generation, record["generation"])
    if record["offsets"] != json.loads(json.dumps(commit.offsets)):
        raise ChaosEnded(f"Chaos: {final} holds checkpoint {commit.checkpoint} with other ranges")
    return AlreadyCommitted()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
