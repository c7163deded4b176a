"""Kit for tests of the file sink: generations that open, stage and commit, and failpoints."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.connectors.localfile import (
    committer,
    fence,
    lineage_cleanup,
    publishing,
    rollback,
    save_mode,
    writer,
)
from tidegate.connectors.localfile.options import SINK_OPTIONS
from tidegate.connectors.localfile.sink import LocalFileSink
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    OperatorContext,
    SinkRestore,
    WriteTask,
)
from tidegate.plugin.option import Block

TABLE = Table(path="db.orders", columns=(Column(name="id", type=DataType(TypeName.BIGINT)),))
_tokens = itertools.count()
sys.path.insert(0, str(Path(__file__).parent))  # for the kit beside this file


class Generation:
    """One driver of one generation: opens, stages with any number of tasks, commits."""

    def __init__(
        self,
        root: Path,
        number: int,
        *,
        lineage: str = "L",
        operator: str = "Sink[0]-LocalFile",
        pipeline: int = 1,
        **options: Any,
    ) -> None:
        data = {"path": str(root), **options}
        values, problems = SINK_OPTIONS.read(Block(data, lambda _: Location("job.conf"), "sink[0]"))
        assert problems == []
        context = OperatorContext(
            job_id=7,
            job_name="orders",
            pipeline=pipeline,
            operator=operator,
            mode=JobMode.STREAMING,
            parallelism=2,
        )
        self.sink = LocalFileSink(values, context)
        self.number = number
        self.lineage = lineage
        self.pipeline, self.committer = pipeline, self.sink.committer()

    def resume(
        self, checkpoint: int = 0, pending: int | None = None, state: Any = None, **more: Any
    ) -> SinkRestore:
        return SinkRestore(
            lineage=self.lineage,
            generation=self.number,
            checkpoint=checkpoint,
            pending=pending,
            state=state,
            **more,
        )

    def open(
        self, checkpoint: int = 0, pending: int | None = None, state: Any = None, **more: Any
    ) -> "Generation":
        self.committer.open(self.resume(checkpoint, pending, state, **more))
        return self

    def stage(self, checkpoint: int, *tasks: list[int], table: Table = TABLE) -> list[Any]:
        messages = []
        for subtask, ids in enumerate(tasks):
            task = WriteTask(
                lineage=self.lineage,
                checkpoint=checkpoint,
                generation=self.number,
                subtask=subtask,
                token=f"t{next(_tokens)}",
            )
            writer = self.sink.writer(task)
            writer.write(table, pa.record_batch({"id": pa.array(ids, pa.int64())}))
            messages.append(writer.close())
        return messages

    def commit(
        self, checkpoint: int, messages: list[Any], offsets: Any = None
    ) -> BatchCommitted | AlreadyCommitted:
        ranges = {"Source[0]": [checkpoint - 1, checkpoint]} if offsets is None else offsets
        return self.committer.commit(
            Commit(
                lineage=self.lineage,
                pipeline=self.pipeline,
                checkpoint=checkpoint,
                generation=self.number,
                offsets=ranges,
                messages=messages,
            )
        )

    def batch(self, checkpoint: int, *tasks: list[int]) -> BatchCommitted | AlreadyCommitted:
        return self.commit(checkpoint, self.stage(checkpoint, *tasks))


def visible(root: Path) -> list[Path]:
    """What a reader of the directory sees: everything but hidden names."""
    return sorted(
        p
        for p in root.rglob("*")
        if p.is_file()
        and not any(part.startswith((".", "_")) for part in p.relative_to(root).parts)
    )


def rows(root: Path) -> list[int]:
    return sorted(int(line) for path in visible(root) for line in path.read_text().split())


def records(root: Path) -> list[str]:
    return sorted(p.name for p in root.glob(".tidegate/*/*/commits/*.json"))


def staged(root: Path) -> list[Path]:
    return sorted(p for kind in ("staging", "dead") for p in root.glob(f".tidegate/*/*/{kind}/*/*"))


class Crash(Exception):
    pass


@pytest.fixture
def kit() -> SimpleNamespace:
    """Return the names of this file, for tests that cannot import it."""
    return SimpleNamespace(
        Generation=Generation,
        Crash=Crash,
        TABLE=TABLE,
        rows=rows,
        visible=visible,
        records=records,
        staged=staged,
        crash=crash,
    )


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], None]:
    """Return `at(name, act)`: calls act once, when this failpoint is next passed."""
    due: dict[str, Callable[[], Any]] = {}

    def passed(name: str) -> None:
        act = due.pop(name, None)
        if act is not None:
            act()

    for module in (
        committer,
        writer,
        fence,
        lineage_cleanup,
        publishing,
        save_mode,
        rollback,
    ):
        monkeypatch.setattr(module, "failpoint", passed)
    return due.__setitem__


def crash() -> None:
    raise Crash
