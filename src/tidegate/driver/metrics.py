"""Writes the metrics of running pipelines to the store asynchronously, also as the heartbeat.

They are written when they have changed, at a rate that does not depend on the row rate, and at
least every HEARTBEAT_S. Displays show them, and their arrival proves that the driver is alive.
Every write is conditioned on the driver's own record, so a superseded driver, or one whose job was
cleaned up, writes none.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidegate.clock import Clock
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import DriverSpec
from tidegate.model.errors import TransientError
from tidegate.model.records import DRIVERS, METRICS, DriverRecord, PipelineMetrics
from tidegate.pipeline.ledger import pipeline_key
from tidegate.pipeline.progress import PipelineProgress
from tidegate.runner.process import process_ref
from tidegate.store.base import Check, Put, Store
from tidegate.store.errors import Conflict

LOG = logging.getLogger("tidegate.driver")
HEARTBEAT_S = 2.0  # the maximum time between heartbeats of a live driver
DELAY_S_MIN = 0.05  # the minimum time between writes, whatever the settings say


class MetricsWriter:
    """A thread that writes the metrics of all pipelines of a driver, in one transaction each time.

    `waits_for` returns what the start of the engine waits for.
    """

    def __init__(
        self,
        store: Store,
        spec: DriverSpec,
        progress: Sequence[PipelineProgress],
        clock: Clock,
        waits_for: Callable[[], str] = lambda: "",
    ) -> None:
        self.store = store
        self.spec = spec
        self.progress = progress
        self.clock = clock
        self.waits_for = waits_for
        self.unreachable: Callable[[], str] = lambda: (
            ""
        )  # what the driver cannot reach at this moment
        self.delay_s = max(DELAY_S_MIN, min(HEARTBEAT_S, spec.write_behind_ms / 1000))
        self._ended = threading.Event()
        self._written: dict[int, PipelineMetrics] = {}
        self._heartbeat_s = float("-inf")
        self._me = process_ref(os.getpid())
        self._version = 0
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop without a last write: nobody reads the metrics of an ended pipeline."""
        self._ended.set()
        self._thread.join()

    def step(self) -> None:
        """Write the metrics that have changed, or all of them when a heartbeat is due."""
        now_s = self.clock.monotonic_s()
        metrics = self._collect()
        due = (
            metrics
            if now_s - self._heartbeat_s >= HEARTBEAT_S - self.delay_s / 2
            else [m for m in metrics if _without_rates(m) != self._written.get(m.pipeline)]
        )
        if not due or not self._registered():
            return
        now_ms = self.clock.now_ms()
        puts = [
            Put(
                METRICS,
                pipeline_key(self.spec.job_id, m.pipeline),
                to_document(replace(m, at_ms=now_ms)),
            )
            for m in due
        ]
        try:
            self.store.transact([Check(DRIVERS, str(self.spec.job_id), self._version)], puts)
        except Conflict:
            self._version = 0
            return
        self._written |= {m.pipeline: _without_rates(m) for m in due}
        if len(due) == len(metrics):
            self._heartbeat_s = now_s

    def _collect(self) -> list[PipelineMetrics]:
        """Read the metrics of all pipelines.

        A batch that waits for the engine counts as starting, not as writing: the start has a
        timeout of its own.
        """
        unreachable = self.unreachable()
        metrics = [replace(progress.read(), waits_for=unreachable) for progress in self.progress]
        waits_for = self.waits_for()
        if not waits_for:
            return metrics
        return [
            replace(m, phase="starting", waits_for=waits_for) if m.phase == "writing" else m
            for m in metrics
        ]

    def _registered(self) -> bool:
        """Return whether the store has this process as the driver; keep the record's version."""
        if self._version:
            return True
        entry = self.store.get(DRIVERS, str(self.spec.job_id))
        record = from_document(DriverRecord, entry.value) if entry else None
        if (
            entry is not None
            and record is not None
            and record.process == self._me
            and record.generation == self.spec.generation
            and record.end is None
        ):
            self._version = entry.version
        return self._version > 0

    def _run(self) -> None:
        while not self.clock.wait(self._ended, self.delay_s):
            try:
                self.step()
            except TransientError:  # the store is unreachable: try again
                continue
            except Exception:
                LOG.exception(
                    "metrics_not_written",
                    extra={"job_id": self.spec.job_id, "generation": self.spec.generation},
                )


def _without_rates(metrics: PipelineMetrics) -> PipelineMetrics:
    """Return the part of the metrics whose change is worth a write.

    Rates change with time alone and are written with the next heartbeat.
    """
    return replace(metrics, rates=None)
