"""Chaos: the seed decides the faults, and every batch is committed exactly once."""

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.connectors.chaos import faults as faults_module
from tidegate.connectors.chaos import source as source_module
from tidegate.connectors.chaos.faults import (
    EXIT_CODE,
    ChaosEnded,
    ChaosFailed,
    FaultInjector,
    FaultKind,
)
from tidegate.connectors.chaos.options import CONNECTORS
from tidegate.connectors.chaos.sink import ChaosSink, committed_ids
from tidegate.connectors.chaos.source import ChaosSource
from tidegate.model.errors import Fenced
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import Table
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    Committer,
    Limit,
    Message,
    OperatorContext,
    SinkRestore,
    WriteTask,
)
from tidegate.plugin.option import Block

SOURCE, SINK = CONNECTORS


def made(connector: Any, options: dict[str, Any], mode: JobMode = JobMode.BATCH) -> Any:
    block = Block(options, lambda _: Location("job.conf", 1), "block")
    values, problems = connector.options.read(block)
    assert [*problems, *connector.check(block, values)] == []
    context = OperatorContext(
        job_id=1,
        job_name="j",
        pipeline=1,
        operator=f"{connector.kind}[0]-Chaos",
        mode=mode,
        parallelism=1,
    )
    return pickle.loads(pickle.dumps(connector.load()(values, context)))


def source(options: dict[str, Any], mode: JobMode = JobMode.BATCH) -> ChaosSource:
    found = made(SOURCE, options, mode)
    assert isinstance(found, ChaosSource)
    return found


def sink(options: dict[str, Any]) -> ChaosSink:
    found = made(SINK, options)
    assert isinstance(found, ChaosSink)
    return found


def trouble(**options: Any) -> FaultInjector:
    return FaultInjector.of(sink(options).values)


def message(chaos: ChaosSink, ids: list[int], token: str = "t", checkpoint: int = 1) -> Message:
    (table,) = source({}).tables()
    writer = chaos.writer(
        WriteTask(lineage="l", checkpoint=checkpoint, generation=1, subtask=0, token=token)
    )
    columns = [pa.array(ids, type=pa.int64()), pa.array(["p"] * len(ids))]
    writer.write(table, pa.RecordBatch.from_arrays(columns, names=["id", "payload"]))
    return writer.close()


def opened(
    chaos: ChaosSink,
    checkpoint: int = 0,
    pending: int | None = None,
    generation: int = 1,
    state: Any = None,
) -> Committer:
    committer = chaos.committer()
    committer.open(
        SinkRestore(
            lineage="l", generation=generation, checkpoint=checkpoint, pending=pending, state=state
        )
    )
    return committer


def batch(checkpoint: int, *messages: Message, generation: int = 1, end: int = 0) -> Commit:
    return Commit(
        lineage="l",
        pipeline=1,
        checkpoint=checkpoint,
        generation=generation,
        offsets={"s": [0, end]},
        messages=messages,
    )


def test_same_attempt_has_the_same_fault_and_another_may_not() -> None:
    chaos = trouble(fail_probability=0.5, seed=3)
    acts = [chaos.decide("write", 1, f"token-{n}") for n in range(50)]
    assert acts == [chaos.decide("write", 1, f"token-{n}") for n in range(50)]
    assert set(acts) == {FaultKind.FAIL, FaultKind.NOTHING}
    assert acts != [
        trouble(fail_probability=0.5, seed=4).decide("write", 1, f"token-{n}") for n in range(50)
    ]


def test_faults_follow_the_probabilities() -> None:
    chaos = trouble(fail_probability=0.2, crash_probability=0.1, hang_probability=0.3)
    counts = Counter(chaos.decide("write", n) for n in range(10_000))
    assert {act: round(n / 10_000, 1) for act, n in counts.items()} == {
        FaultKind.FAIL: 0.2,
        FaultKind.CRASH: 0.1,
        FaultKind.HANG: 0.3,
        FaultKind.NOTHING: 0.4,
    }


def test_no_faults_outside_the_places() -> None:
    chaos = trouble(fail_probability=1.0, places=["commit"])
    assert chaos.decide("write", 1) is FaultKind.NOTHING
    with pytest.raises(ChaosFailed, match="commit"):
        chaos.inject("commit", 1)


def test_hang_and_slow_down_last_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(faults_module.time, "sleep", slept.append)
    trouble(hang_probability=1.0, hang_ms=2500, slow_ms=40).inject("write", 1)
    assert slept == [0.04, 2.5]


def test_crash_exits_the_process() -> None:
    child = os.fork()
    if child == 0:
        trouble(crash_probability=1.0).inject("write", 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EXIT_CODE


def test_terminal_errors_are_raised_if_configured() -> None:
    with pytest.raises(ChaosEnded):
        trouble(fail_probability=1.0, fail_terminally=True).inject("write", 1)


def test_source_numbers_its_rows_independent_of_batches() -> None:
    chaos = source({"row.num": 1_000, "payload.length": 6})
    at = chaos.initial()
    ids: list[int] = []
    while not chaos.is_exhausted(at):
        end = chaos.latest(at, Limit(rows=333))
        for split in chaos.splits(at, end, 3):
            for rows in chaos.read(split):
                ids += rows.column("id").to_pylist()
                assert {len(p) for p in rows.column("payload").to_pylist()} == {6}
        at = end
    assert ids == list(range(1_000))
    assert chaos.progress(at).done == 1_000


def test_failing_source_returns_half_of_its_rows_first() -> None:
    chaos = source({"row.num": 10, "fail_probability": 1.0})
    start = chaos.initial()
    (split,) = chaos.splits(start, chaos.latest(start, Limit()), 1)
    rows = chaos.read(split)
    assert next(rows).num_rows == 5
    with pytest.raises(ChaosFailed):
        next(rows)


def test_repeated_batch_is_another_attempt_for_the_source() -> None:
    chaos = source({"row.num": 10})
    start = chaos.initial()
    end = chaos.latest(start, Limit())
    attempts = {
        s.payload["attempt"]
        for c in (chaos, source({"row.num": 10}))
        for _ in range(2)
        for s in c.splits(start, end, 1)
    }
    assert len(attempts) == 4


def test_rows_arrive_at_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [5.0]
    monkeypatch.setattr(source_module.time, "monotonic", lambda: now_s[0])
    chaos = source({"row.num": 1_000, "rate": 100}, JobMode.STREAMING)
    first = chaos.latest(chaos.initial(), Limit())
    assert first == {"at": 1}
    assert chaos.latest(first, Limit()) == first
    now_s[0] += 2
    assert chaos.latest(first, Limit()) == {"at": 201}


def test_ids_of_committed_batches_are_in_files_exactly_once(tmp_path: Path) -> None:
    chaos = sink({"path": str(tmp_path / "ids")})
    committer = opened(chaos)
    assert (
        committer.commit(batch(1, message(chaos, [3, 1, 2]), message(chaos, [7, 7])))
        == BatchCommitted()
    )
    assert committer.commit(batch(2, message(chaos, [4]))) == BatchCommitted()
    assert committed_ids(str(tmp_path / "ids")) == [1, 2, 3, 7, 7, 4]
    assert committer.state() == {"rows": 6, "checkpoint": 2}


def test_a_repeated_batch_is_recognised_by_its_offsets(tmp_path: Path) -> None:
    chaos = sink({"path": str(tmp_path)})
    rows = message(chaos, [1, 2])
    opened(chaos).commit(batch(1, rows))
    assert (
        opened(chaos, pending=1, generation=2).commit(batch(1, rows, generation=2))
        == AlreadyCommitted()
    )
    assert committed_ids(str(tmp_path)) == [1, 2]
    with pytest.raises(ChaosEnded, match="other ranges"):
        opened(chaos, pending=1, generation=2).commit(batch(1, rows, generation=2, end=9))


def test_an_older_generation_is_fenced(tmp_path: Path) -> None:
    chaos = sink({"path": str(tmp_path)})
    opened(chaos).commit(batch(1, message(chaos, [1]), generation=2))
    zombie = chaos.committer()
    with pytest.raises(Fenced):
        zombie.commit(batch(1, message(chaos, [1]), generation=1))


def test_batches_after_the_restore_point_are_removed_except_the_pending_one(tmp_path: Path) -> None:
    chaos = sink({"path": str(tmp_path)})
    committer = opened(chaos)
    for n in (1, 2, 3):
        committer.commit(batch(n, message(chaos, [n])))
    (tmp_path / "l-1-sink[0]-Chaos-00000004.1").write_text("half")
    (tmp_path / "other-1-sink[0]-Chaos-00000009.json").write_text('{"ids": [[9, 9]]}')
    opened(chaos, checkpoint=1, pending=2)
    assert committed_ids(str(tmp_path)) == [1, 2, 9]
    opened(chaos, checkpoint=1)
    assert committed_ids(str(tmp_path)) == [1, 9]
    assert not list(tmp_path.glob("*.1"))


def test_configured_checkpoint_fails_once_and_succeeds_as_pending() -> None:
    chaos = sink({"fail_at_checkpoint": [2]})
    committer = opened(chaos)
    committer.commit(batch(1, message(chaos, [1])))
    with pytest.raises(ChaosFailed, match="checkpoint 2"):
        committer.commit(batch(2, message(chaos, [2])))
    again = opened(chaos, checkpoint=1, pending=2, generation=2, state=committer.state())
    assert again.commit(batch(2, message(chaos, [2]), generation=2)) == BatchCommitted()
    assert again.state() == {"rows": 2, "checkpoint": 2}


def test_terminal_failure_at_a_checkpoint_is_repeated() -> None:
    chaos = sink({"fail_at_checkpoint": ["1"], "fail_terminally": True})
    for pending in (None, 1):
        with pytest.raises(ChaosEnded):
            opened(chaos, pending=pending).commit(batch(1, message(chaos, [1])))


def test_missing_id_column_is_an_error(tmp_path: Path) -> None:
    writer = sink({"path": str(tmp_path), "id_field": "nope"}).writer(
        WriteTask(lineage="l", checkpoint=1, generation=1, subtask=0, token="t")
    )
    with pytest.raises(ChaosEnded, match="nope"):
        writer.write(Table(path="t", columns=()), pa.RecordBatch.from_pylist([{"a": 1}]))


@pytest.mark.parametrize(
    ("connector", "options", "said"),
    [
        (SOURCE, {"places": ["write"]}, "block.places[0]"),
        (SINK, {"fail_probability": 2}, "too large"),
        (SINK, {"fail_at_checkpoint": ["x"]}, "no checkpoint id"),
        (SOURCE, {"rate": 0}, "never end"),
    ],
)
def test_invalid_options_are_reported(connector: Any, options: dict[str, Any], said: str) -> None:
    block = Block(options, lambda _: Location("job.conf", 1), "block")
    values, problems = connector.options.read(block)
    assert said in "\n".join(map(str, [*problems, *connector.check(block, values)]))


def test_backlog_only_if_the_limit_ended_the_batch() -> None:
    chaos = source({"row.num": 10})
    at = chaos.latest(chaos.initial(), Limit(rows=6))
    assert chaos.has_backlog(at)
    assert not chaos.has_backlog(chaos.latest(at, Limit(rows=6)))
    slow = source({"row.num": 10, "rate": 0.001})
    assert not slow.has_backlog(slow.latest(slow.initial(), Limit(rows=6)))
