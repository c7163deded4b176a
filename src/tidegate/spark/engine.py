"""Run the batches of a driver's pipelines as Spark jobs.

A batch runs fused in the Python workers if it needs no SQL, otherwise through DataFrames. Called by
pipeline/, from one thread per pipeline; `cancel` and `tasks` from any thread. The engine knows
neither the store nor the commits of sinks.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pyspark import RDD, InheritableThread, SparkContext
from pyspark.sql import DataFrame, Observation, SparkSession

from tidegate.model.errors import TidegateError
from tidegate.model.throughput import Volume, Volumes, add_volumes
from tidegate.pipeline.engine import Batch, TaskCount, Written
from tidegate.pipeline.fused import collect, encode, fused_tasks
from tidegate.pipeline.graph import Graph
from tidegate.spark.build import FrameBuilder, Frames, split_count, task_count
from tidegate.spark.cluster import Executors, NoExecutors, is_local, no_executor_s_max
from tidegate.spark.errors import BatchCancelled, is_cancellation, translate_spark_errors
from tidegate.spark.session import end_session
from tidegate.spark.tasks import CountsParam, RunFused, empty_task

CANCEL_INTERVAL_S = 0.2  # repeated, because a batch may be between two jobs when it is cancelled
EXECUTOR_CHECK_INTERVAL_S = 1.0


@dataclass(slots=True)
class _Running:
    """The running batch of a pipeline; all its Spark jobs are in one job group."""

    group: str
    cancelled: bool = False
    no_executor_s: float = 0.0  # time without executors after which the batch was cancelled
    over: threading.Event = field(default_factory=threading.Event)


class SparkEngine:
    """An Engine on a session, or on a context: then a session is created when a batch needs SQL."""

    def __init__(self, spark: SparkSession | SparkContext) -> None:
        self._session = spark if isinstance(spark, SparkSession) else None
        self._context = spark.sparkContext if isinstance(spark, SparkSession) else spark
        self._lock = threading.Lock()
        self._master = str(self._context.master)
        self._local_width: int | None = (
            self._context.defaultParallelism if is_local(self._master) else None
        )
        self._executors = Executors(self._context)
        self._no_executor_s_max = (
            0.0
            if is_local(self._master)
            else no_executor_s_max(dict(self._context.getConf().getAll()))
        )
        self._counts = self._context.accumulator({}, CountsParam())
        self._builders: dict[int, FrameBuilder] = {}
        self._empties: dict[int, RDD[object]] = {}
        self._running: dict[int, _Running] = {}
        self._numbers = count(1)

    @property
    def _spark(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = SparkSession(self._context)
            return self._session

    @property
    def width(self) -> int:
        """Number of tasks that can run at once; in a cluster it changes with the executors."""
        return self._local_width or self._context.defaultParallelism

    def warm_up(self) -> None:
        """Run an empty job, so that the Python workers exist and the JVM has loaded its classes."""
        with translate_spark_errors():
            self._empty(self.width).mapPartitionsWithIndex(empty_task).collect()

    def run(self, graph: Graph, batch: Batch) -> Written:
        """Run one batch: read, transform, stage. Errors are translated."""
        with self._group(batch) as running, translate_spark_errors():
            if graph.fusable:
                return self._run_fused(graph, batch)
            return self._run_frames(graph, batch, running)

    def tasks(self, pipeline: int) -> TaskCount:
        """Count the tasks of the running batch that Spark has planned so far."""
        running = self._running.get(pipeline)
        if running is None:
            return TaskCount(0, 0)
        tracker = self._context.statusTracker()
        with translate_spark_errors():
            jobs = filter(
                None, (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(running.group))
            )
            stages = [
                stage
                for job in jobs
                for number in job.stageIds
                if (stage := tracker.getStageInfo(number)) is not None
            ]
        return TaskCount(sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages))

    def cancel(self, pipeline: int) -> None:
        """Interrupt the running batch, if there is one."""
        running = self._running.get(pipeline)
        if running is not None:
            running.cancelled = True
            threading.Thread(
                target=self._cancel_until_over,
                args=(running,),
                name=f"cancel-pipeline-{pipeline}",
                daemon=True,
            ).start()

    def _cancel_until_over(self, running: _Running) -> None:
        while not running.over.is_set():
            try:
                self._context.cancelJobGroup(running.group)
            except Exception:  # the JVM is gone, so the batch ends
                return
            running.over.wait(CANCEL_INTERVAL_S)

    def _watch_executors(self, running: _Running) -> None:
        """Cancel a batch that has no executor for too long: Spark would wait forever."""
        alone_since_s: float | None = None
        while not running.over.wait(EXECUTOR_CHECK_INTERVAL_S):
            count = self._executors.count()
            now_s = time.monotonic()
            if count != 0:
                alone_since_s = None
            elif alone_since_s is None:
                alone_since_s = now_s
            elif now_s - alone_since_s > self._no_executor_s_max:
                running.no_executor_s = now_s - alone_since_s
                self._cancel_until_over(running)
                return

    def close(self) -> None:
        """Stop Spark before the driver exits."""
        end_session(self._context)

    def thread(self, target: Callable[[], Any], name: str) -> threading.Thread:
        """Create a thread for a pipeline's loop that has its own thread in the JVM."""
        return InheritableThread(target=target, name=name, daemon=True)

    @contextmanager
    def _group(self, batch: Batch) -> Iterator[_Running]:
        running = _Running(f"tidegate-{batch.pipeline}-{batch.checkpoint}-{next(self._numbers)}")
        self._running[batch.pipeline] = running
        try:
            with translate_spark_errors():
                self._context.setJobGroup(
                    running.group,
                    f"pipeline {batch.pipeline} batch {batch.checkpoint}",
                    interruptOnCancel=True,
                )
                self._context.setLocalProperty("spark.scheduler.pool", f"pipeline-{batch.pipeline}")
            if self._no_executor_s_max:
                threading.Thread(
                    target=self._watch_executors,
                    args=(running,),
                    name=f"executors-of-pipeline-{batch.pipeline}",
                    daemon=True,
                ).start()
            yield running
            # cancelled too late to interrupt anything: the caller still expects the batch to end
            if running.cancelled:
                raise BatchCancelled(batch.pipeline)
        except TidegateError as error:
            if running.no_executor_s:
                raise NoExecutors(self._master, running.no_executor_s) from error
            if (
                running.cancelled
                and error.__cause__ is not None
                and is_cancellation(error.__cause__)
            ):
                raise BatchCancelled(batch.pipeline) from error
            raise
        finally:
            running.over.set()
            self._running.pop(batch.pipeline, None)

    def _run_fused(self, graph: Graph, batch: Batch) -> Written:
        width = self.width
        # one split per table first, to learn the weight: cutting a file may mean reading all of it
        tasks = fused_tasks(graph, batch, 1)
        if not tasks.splits:
            return collect(graph, [])
        wanted = split_count([split for _, split in tasks.splits], width)
        tasks = tasks if wanted == 1 else fused_tasks(graph, batch, wanted)
        partitions = task_count(len(tasks.splits), width)
        return collect(
            graph,
            self._empty(partitions).mapPartitionsWithIndex(RunFused(tasks, partitions)).collect(),
        )

    def _empty(self, partitions: int) -> RDD[object]:
        """Return an RDD of empty partitions.

        A DataFrame would add a second to the first batch, and 40 ms to each, for Spark's SQL.
        """
        if partitions not in self._empties:
            self._empties[partitions] = self._context.parallelize([], partitions)
        return self._empties[partitions]

    def _run_frames(self, graph: Graph, batch: Batch, running: _Running) -> Written:
        builder = self._builders.get(batch.pipeline)
        if builder is None or builder.graph is not graph:
            builder = self._builders[batch.pipeline] = FrameBuilder(
                self._spark, graph, self._counts
            )
        frames = builder.build(batch, running.group, self.width)
        try:
            texts = self._write(frames, running, batch)
            return collect(graph, texts, self._volumes(graph, frames, running.group))
        finally:
            self._release(frames, running.group)

    def _write(self, frames: Frames, running: _Running, batch: Batch) -> list[str]:
        """Run one job for all our writers, then one for each sink that Spark writes."""
        frame = frames.message_frame()
        texts = [row[0] for row in frame.collect()] if frame is not None else []
        for save in frames.saves:
            if running.cancelled:
                raise BatchCancelled(batch.pipeline)
            save.run()
            rows = int(save.observation.get["rows"])
            texts.append(encode(save.operator, {"rows": rows}, {save.table: Volume(rows)}))
        return texts

    def _volumes(self, graph: Graph, frames: Frames, group: str) -> Volumes:
        """Return the volumes of the sources; Spark's own readers give only row counts."""
        parts: list[Volumes] = []
        for operator, table, seen in frames.observed:
            parts.append(
                {
                    operator: {
                        table: Volume(
                            int(seen.get["rows"]) if isinstance(seen, Observation) else seen.count()
                        )
                    }
                }
            )
        for name, volume in list(self._counts.value.items()):
            if name.startswith(f"{group}/"):
                operator, number, _ = name.removeprefix(f"{group}/").rsplit("/", 2)
                parts.append({operator: {graph.tables[operator][int(number)].path: volume}})
        return add_volumes(*parts)

    def _release(self, frames: Frames, group: str) -> None:
        for frame in frames.cached:
            _unpersist(frame)
        for name in [name for name in list(self._counts.value) if name.startswith(f"{group}/")]:
            self._counts.value.pop(name, None)


def _unpersist(frame: DataFrame) -> None:
    """Free the cache, unless the JVM is gone."""
    try:
        frame.unpersist()
    except Exception:  # the earlier error is the one to report
        return
