"""Figures of running pipelines, written behind: when they have changed, at a bounded rate whatever
the row rate, and also when nothing changes.

They are for displays, and their arrival is the driver's sign of life. Every write is conditioned on
the driver's own record: figures of a driver that has been overtaken, or whose job has been cleaned
up, are not written.
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
from tidegate.runner.process import reference
from tidegate.store.base import Check, Put, Store
from tidegate.store.errors import Conflict

LOG = logging.getLogger("tidegate.driver")
ALIVE_S = 2.0  # a driver that lives says so at least so often
DELAY_S_MIN = 0.05  # and never more often, whatever the settings ask for


class MetricsWriter:
    """A thread that writes the figures of all meters of a driver, each time in one transaction.

    `waits_for` says what the start of its engine waits for.
    """

    def __init__(
        self,
        store: Store,
        order: DriverSpec,
        progress: Sequence[PipelineProgress],
        clock: Clock,
        waits_for: Callable[[], str] = lambda: "",
    ) -> None:
        self.store = store
        self.order = order
        self.meters = progress
        self.clock = clock
        self.waits_for = waits_for
        self.out_of_reach: Callable[[], str] = lambda: (
            ""
        )  # what the driver cannot reach at this moment
        self.delay_s = max(DELAY_S_MIN, min(ALIVE_S, order.write_behind_ms / 1000))
        self._ended = threading.Event()
        self._last: dict[int, PipelineMetrics] = {}
        self._alive_s = float("-inf")
        self._me = reference(os.getpid())
        self._version = 0
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; figures of an ended pipeline are of no use to anyone."""
        self._ended.set()
        self._thread.join()

    def step(self) -> None:
        """One turn: write what has changed, or everything when the last sign of life is too old."""
        now_s = self.clock.monotonic_s()
        figures = self._figures()
        due = (
            figures
            if now_s - self._alive_s >= ALIVE_S - self.delay_s / 2
            else [m for m in figures if _without_rates(m) != self._last.get(m.pipeline)]
        )
        if not due or not self._registered():
            return
        now_ms = self.clock.now_ms()
        puts = [
            Put(
                METRICS,
                pipeline_key(self.order.job_id, m.pipeline),
                to_document(replace(m, at_ms=now_ms)),
            )
            for m in due
        ]
        try:
            self.store.transact([Check(DRIVERS, str(self.order.job_id), self._version)], puts)
        except Conflict:
            self._version = 0
            return
        self._last |= {m.pipeline: _without_rates(m) for m in due}
        if len(due) == len(figures):
            self._alive_s = now_s

    def _figures(self) -> list[PipelineMetrics]:
        """What the meters say.

        A batch that waits for the engine is not being written yet: that is still the start, which
        has a window of its own.
        """
        out_of_reach = self.out_of_reach()
        figures = [replace(progress.read(), waits_for=out_of_reach) for progress in self.meters]
        waits_for = self.waits_for()
        if not waits_for:
            return figures
        return [
            replace(m, phase="starting", waits_for=waits_for) if m.phase == "writing" else m
            for m in figures
        ]

    def _registered(self) -> bool:
        """Whether this process is on record as the driver; remembers the version of that."""
        if self._version:
            return True
        entry = self.store.get(DRIVERS, str(self.order.job_id))
        record = from_document(DriverRecord, entry.value) if entry else None
        if (
            entry is not None
            and record is not None
            and record.process == self._me
            and record.generation == self.order.generation
            and record.end is None
        ):
            self._version = entry.version
        return self._version > 0

    def _run(self) -> None:
        while not self.clock.wait(self._ended, self.delay_s):
            try:
                self.step()
            except TransientError:  # the store is out of reach: patience
                continue
            except Exception:
                LOG.exception(
                    "the figures cannot be written",
                    extra={"job_id": self.order.job_id, "generation": self.order.generation},
                )


def _without_rates(metrics: PipelineMetrics) -> PipelineMetrics:
    """What is worth a write of its own.

    Rates change with time alone, and come with the next sign of life.
    """
    return replace(metrics, rates=None)
