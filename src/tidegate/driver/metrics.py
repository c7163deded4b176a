"""Figures of running pipelines, written behind: at a bounded rate, whatever the row rate. For displays only."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from tidegate.model.document import to_document
from tidegate.model.errors import TransientError
from tidegate.model.records import METRICS, PipelineMetrics
from tidegate.pipeline.clock import Clock
from tidegate.pipeline.ledger import pipeline_key
from tidegate.pipeline.meter import Meter
from tidegate.store.base import Put, Store

DELAY_S = 0.5


class MetricsWriter:
    """A thread that writes the figures of all meters of a driver, in one transaction, when they have changed."""

    def __init__(self, store: Store, job_id: int, meters: Sequence[Meter], clock: Clock) -> None:
        self.store, self.job_id, self.meters, self.clock = store, job_id, meters, clock
        self._ended = threading.Event()
        self._last: dict[int, PipelineMetrics] = {}
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End; figures of an ended pipeline are of no use to anyone."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.clock.wait(self._ended, DELAY_S):
            changed = [m for meter in self.meters if (m := meter.read()) != self._last.get(m.pipeline)]
            now_ms = self.clock.now_ms()
            try:
                self.store.transact([], [Put(METRICS, pipeline_key(self.job_id, m.pipeline), to_document(replace(m, at_ms=now_ms))) for m in changed])
            except TransientError:
                continue
            self._last |= {m.pipeline: m for m in changed}
