"""Batches through the engine: fused and as DataFrames, with equal results."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from engine_parts import CONTEXT as CTX
from engine_parts import (
    Files,
    Numbers,
    Query,
    RejectingQuery,
    Renamed,
    SavedBySpark,
    batch,
    graph,
    node,
    staged,
    table,
)

from tidegate.model.errors import TransientError, UserError
from tidegate.model.records import SourceRange
from tidegate.model.types import ROW_KIND
from tidegate.pipeline.engine import TaskCount
from tidegate.spark.engine import SparkEngine
from tidegate.spark.errors import BatchCancelled

WAYS = {"fused": True, "frames": False}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def fused(request: pytest.FixtureRequest) -> bool:
    """Both ways of running a batch."""
    return request.param


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def numbers(*, fused: bool = True, **values: Any):
    return node("source", Numbers({"tables": (table(),)} | values, CTX), fusable=fused)


def files(place: Path, *inputs: str, **values: Any):
    return node("sink", Files({"place": str(place), **values}, CTX), inputs or ("source",))


def query(*select: str, where: str = "true", after: str = "source"):
    return node("query", Query({"select": select, "where": where}, CTX), (after,))


def read(log: Path) -> list[str]:
    return sorted(log.read_text().splitlines())


def test_a_copy_moves_every_row_and_counts_it(
    engine: SparkEngine, place: Path, fused: bool
) -> None:
    written = engine.run(graph(source=numbers(fused=fused), sink=files(place)), batch(1000))
    assert staged(written)["numbers"] == sorted(
        ({"id": i, "name": f"name {i}"} for i in range(1000)), key=lambda r: f'{{"id": {r["id"]},'
    )
    assert written.rows_read == {"source": 1000}
    assert written.rows_written() == 1000


def test_the_next_batch_uses_the_same_workers(
    engine: SparkEngine, place: Path, fused: bool
) -> None:
    copying = graph(source=numbers(fused=fused), sink=files(place))
    engine.run(copying, batch(1000))
    before = workers()
    engine.run(copying, batch(2000, 1000, 2))
    assert before & workers()


def workers() -> set[int]:
    """The Python workers that live: processes in the group of a daemon, which leads it."""
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            mine = b"tidegate.spark.worker_daemon" in Path(
                "/proc", entry, "cmdline"
            ).read_bytes() and os.getsid(int(entry)) == os.getsid(0)
            if mine and os.getpgid(int(entry)) != int(entry):
                found.add(int(entry))
        except OSError:
            continue
    return found


def test_arrow_transform_has_equal_results_fused_and_as_dataframe(
    engine: SparkEngine, place: Path, fused: bool
) -> None:
    renamed = node("renamed", Renamed({}, CTX), ["source"])
    written = engine.run(
        graph(source=numbers(fused=fused), renamed=renamed, sink=files(place, "renamed")), batch(10)
    )
    assert staged(written) == {"numbers": [{"id": i, "label": f"name {i}"} for i in range(10)]}


def test_row_kinds_arrive_as_the_last_column(engine: SparkEngine, place: Path, fused: bool) -> None:
    written = engine.run(
        graph(source=numbers(fused=fused, tables=(table(kinds=True),)), sink=files(place)), batch(8)
    )
    assert [row[ROW_KIND] for row in staged(written)["numbers"]] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_every_table_of_a_source_arrives_under_its_name(
    engine: SparkEngine, place: Path, fused: bool
) -> None:
    source = numbers(fused=fused, tables=(table("a"), table("b")))
    written = engine.run(graph(source=source, sink=files(place)), batch(10))
    assert {name: len(rows) for name, rows in staged(written).items()} == {"a": 10, "b": 10}
    assert written.rows_read == {"source": 20}
    assert {
        operator: {name: volume.rows for name, volume in tables.items()}
        for operator, tables in written.volumes.items()
    } == {
        "source": {"a": 10, "b": 10},
        "sink": {"a": 10, "b": 10},
    }
    assert all(
        volume.bytes >= 10 * 8 for tables in written.volumes.values() for volume in tables.values()
    )


def test_several_sinks_read_the_source_once(
    engine: SparkEngine, place: Path, tmp_path: Path, fused: bool
) -> None:
    source = numbers(fused=fused, log=str(tmp_path / "log"))
    written = engine.run(graph(source=source, sink=files(place), other=files(place)), batch(10))
    assert staged(written, "sink") == staged(written, "other")
    assert len(staged(written)["numbers"]) == 10
    assert read(tmp_path / "log") == ["numbers 0 5", "numbers 5 10"]
    assert written.rows_read == {"source": 10}
    assert written.rows_written() == 20


def test_branches_with_sql_read_the_source_once_and_count_it_once(
    engine: SparkEngine, place: Path, tmp_path: Path
) -> None:
    few = query("id", where="id < 3")
    nodes = graph(
        source=numbers(log=str(tmp_path / "log")),
        query=few,
        sink=files(place, "query"),
        all=files(place, "source"),
    )
    written = engine.run(nodes, batch(10))
    assert staged(written) == {"numbers": [{"id": 0}, {"id": 1}, {"id": 2}]}
    assert len(staged(written, "all")["numbers"]) == 10
    assert read(tmp_path / "log") == ["numbers 0 5", "numbers 5 10"]
    assert written.rows_read == {"source": 10}


def test_rejected_rows_are_computed_once(engine: SparkEngine, place: Path, tmp_path: Path) -> None:
    drawn = query("id", "rand() AS chance")  # another number each time that it is asked
    nodes = graph(
        source=numbers(log=str(tmp_path / "log")),
        query=drawn,
        sorted=node(
            "sorted",
            RejectingQuery({"select": ["id", "chance"], "where": "chance < 0.5"}, CTX),
            ("query",),
        ),
        sink=files(place, "sorted"),
    )
    written = engine.run(nodes, batch(200))
    found = staged(written)
    assert set(found) == {"numbers", "aside"}
    assert sorted(row["id"] for rows in found.values() for row in rows) == list(range(200))
    assert all(
        (row["chance"] < 0.5) == (name == "numbers") for name, rows in found.items() for row in rows
    )
    assert read(tmp_path / "log") == ["numbers 0 100", "numbers 100 200"]


def test_rows_that_spark_reads_below_a_cache_are_counted(engine: SparkEngine, place: Path) -> None:
    source = node(
        "source",
        Numbers({"tables": (table(),)}, CTX),
        fusable=False,
        spark="engine_parts:read_by_spark",
    )
    sorting = node(
        "sorted", RejectingQuery({"select": ["id", "name"], "where": "id < 3"}, CTX), ("query",)
    )
    written = engine.run(
        graph(
            source=source, query=query("id", "name"), sorted=sorting, sink=files(place, "sorted")
        ),
        batch(10),
    )
    assert {name: len(rows) for name, rows in staged(written).items()} == {"numbers": 3, "aside": 7}
    assert written.rows_read == {"source": 10}


def test_nothing_stays_cached_after_a_batch(spark: Any, engine: SparkEngine, place: Path) -> None:
    engine.run(graph(source=numbers(fused=False), sink=files(place), other=files(place)), batch(10))
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().size() == 0
    assert engine._counts.value == {}


def test_several_inputs_of_a_sink_are_united(engine: SparkEngine, place: Path, fused: bool) -> None:
    nodes = graph(
        one=numbers(fused=fused, tables=(table("one"),)),
        two=numbers(fused=fused, tables=(table("two"),)),
        sink=files(place, "one", "two"),
    )
    written = engine.run(nodes, batch(one=SourceRange(0, 4), two=SourceRange(0, 6)))
    assert {name: len(rows) for name, rows in staged(written).items()} == {"one": 4, "two": 6}
    assert written.rows_read == {"one": 4, "two": 6}
    subtasks = [message["subtask"] for message in written.messages["sink"]]
    assert len(set(subtasks)) == len(subtasks)


def test_source_without_new_data_is_not_read(engine: SparkEngine, place: Path, fused: bool) -> None:
    nodes = graph(
        one=numbers(fused=fused, tables=(table("one"),)),
        two=numbers(fused=fused, error=UserError("not to be read")),
        sink=files(place, "one", "two"),
    )
    written = engine.run(nodes, batch(one=SourceRange(0, 4), two=SourceRange(6, 6)))
    assert written.rows_read == {"one": 4, "two": 0}


def test_batch_without_new_data_runs_no_job(engine: SparkEngine, place: Path, fused: bool) -> None:
    written = engine.run(graph(source=numbers(fused=fused), sink=files(place)), batch(7, start=7))
    assert (written.rows_read, written.messages) == ({"source": 0}, {"sink": []})


def test_sql_filters_and_changes_columns(engine: SparkEngine, place: Path) -> None:
    nodes = graph(
        source=numbers(),
        query=query("id * 2 as twice", "upper(name) name", where="id % 4 = 1"),
        sink=files(place, "query"),
    )
    written = engine.run(nodes, batch(10))
    assert staged(written) == {
        "numbers": [
            {"twice": 10, "name": "NAME 5"},
            {"twice": 18, "name": "NAME 9"},
            {"twice": 2, "name": "NAME 1"},
        ]
    }
    assert written.rows_read == {"source": 10}
    assert written.rows_written() == 3


def test_row_kinds_pass_through_sql(engine: SparkEngine, place: Path) -> None:
    nodes = graph(
        source=numbers(tables=(table(kinds=True),)),
        query=query("id", "length(name) size", where="id > 4"),
        sink=files(place, "query"),
    )
    assert staged(engine.run(nodes, batch(8)))["numbers"] == [
        {"id": i, "size": 6, ROW_KIND: i & 3} for i in (5, 6, 7)
    ]


def test_empty_partition_sends_no_message(engine: SparkEngine, place: Path) -> None:
    written = engine.run(
        graph(source=numbers(), query=query("*", where="id < 3"), sink=files(place, "query")),
        batch(10),
    )
    assert len(written.messages["sink"]) == 1
    assert len(list(place.iterdir())) == 1


def test_the_next_batch_of_the_same_graph_has_its_own_rows(
    engine: SparkEngine, place: Path, fused: bool
) -> None:
    nodes = graph(source=numbers(fused=fused), sink=files(place))
    engine.run(nodes, batch(4))
    written = engine.run(nodes, batch(6, start=4, checkpoint=2))
    assert [row["id"] for row in staged(written)["numbers"]] == [4, 5]
    assert written.rows_read == {"source": 2}


def test_crashed_worker_is_retried_with_exact_rows_and_counts(
    engine: SparkEngine, place: Path, tmp_path: Path, fused: bool
) -> None:
    source = numbers(fused=fused, crash_once=str(tmp_path / "crashed"), log=str(tmp_path / "log"))
    written = engine.run(graph(source=source, sink=files(place), other=files(place)), batch(10))
    assert (tmp_path / "crashed").exists()
    assert read(tmp_path / "log").count("numbers 0 5") == 2
    assert [row["id"] for row in staged(written)["numbers"]] == list(range(10))
    assert written.rows_read == {"source": 10}
    assert written.rows_written() == 20


def test_sinks_of_spark_and_of_tidegate_share_a_batch(
    spark: Any, engine: SparkEngine, place: Path, tmp_path: Path
) -> None:
    by_spark = node("saved", SavedBySpark({"place": str(place / "spark")}, CTX), ["source"])
    written = engine.run(
        graph(source=numbers(log=str(tmp_path / "log")), sink=files(place), saved=by_spark),
        batch(10),
    )
    assert spark.read.parquet(str(place / "spark" / "numbers")).count() == 10
    assert written.messages["saved"] == [{"rows": 10}]
    assert written.rows_read == {"source": 10}
    assert read(tmp_path / "log") == ["numbers 0 5", "numbers 5 10"]


def test_failed_writer_is_aborted_and_its_error_is_raised(
    engine: SparkEngine, place: Path, fused: bool
) -> None:
    with pytest.raises(UserError, match=r"^the disk is full of stars$"):
        engine.run(
            graph(
                source=numbers(fused=fused),
                sink=files(place, error=UserError("the disk is full of stars")),
            ),
            batch(10),
        )
    assert {path.name.split("-")[0] for path in place.iterdir()} == {"aborted"}


def test_a_cancelled_batch_ends_with_that_error(
    engine: SparkEngine, place: Path, tmp_path: Path, fused: bool
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    errors: list[BaseException] = []

    def loop() -> None:
        try:
            engine.run(
                graph(
                    source=numbers(fused=fused, hang=str(fifo), log=str(tmp_path / "log")),
                    sink=files(place),
                ),
                batch(10),
            )
        except TransientError as error:
            errors.append(error)

    thread = engine.thread(loop, "loop")
    thread.start()
    while not (tmp_path / "log").exists():
        threading.Event().wait(0.02)
    assert engine.tasks(1) == TaskCount(0, 2)
    engine.cancel(1)
    thread.join(20)
    assert [type(error) for error in errors] == [BatchCancelled]
    assert engine.tasks(1) == TaskCount(0, 0)


def test_cancelling_an_idle_engine_has_no_effect(engine: SparkEngine, place: Path) -> None:
    engine.cancel(1)
    assert engine.run(graph(source=numbers(), sink=files(place)), batch(2)).rows_read == {
        "source": 2
    }


def test_two_pipelines_run_side_by_side(engine: SparkEngine, place: Path, fused: bool) -> None:
    results: dict[int, int] = {}

    def loop(pipeline: int) -> None:
        nodes = graph(pipeline, source=numbers(fused=fused), sink=files(place))
        results[pipeline] = sum(
            engine.run(nodes, batch(n + 10, start=n, checkpoint=n, pipeline=pipeline)).rows_read[
                "source"
            ]
            for n in range(0, 30, 10)
        )

    threads = [engine.thread(lambda p=p: loop(p), f"pipeline-{p}") for p in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {1: 30, 2: 30}
