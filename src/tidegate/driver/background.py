"""An engine that is started in the background, so that sources can plan and sinks can open while the JVM comes up."""

import threading
from collections.abc import Callable

from tidegate.pipeline.engine import Batch, Engine, TaskCount, Written
from tidegate.pipeline.graph import Graph


class BackgroundEngine:
    """Waits for the real engine when it is needed first; an error of its start is raised there, to every pipeline."""

    def __init__(self, start: Callable[[], Engine]) -> None:
        self._make = start
        self._engine: Engine | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to start the engine."""
        self._thread = threading.Thread(target=self._start, name="engine-start", daemon=True)
        self._thread.start()

    @property
    def starting(self) -> bool:
        """Whether a batch would have to wait for the engine."""
        return self._thread is not None and self._thread.is_alive()

    def run(self, graph: Graph, batch: Batch) -> Written:
        """As the real engine."""
        return self._ready().run(graph, batch)

    def tasks(self, pipeline: int) -> TaskCount:
        """As the real engine; nothing while it starts."""
        return self._engine.tasks(pipeline) if self._engine else TaskCount(0, 0)

    def cancel(self, pipeline: int) -> None:
        """As the real engine."""
        if self._engine:
            self._engine.cancel(pipeline)

    def close(self) -> None:
        """As the real engine; a start that is under way is waited for."""
        if self._thread:
            self._thread.join()
        if self._engine:
            self._engine.close()

    def _start(self) -> None:
        try:
            self._engine = self._make()
        except BaseException as error:
            self._error = error

    def _ready(self) -> Engine:
        """The engine; where its start failed it is tried once more for each attempt of a pipeline."""
        with self._lock:
            if self._thread:
                self._thread.join()
            if self._engine is None and self._error is not None:
                error, self._error = self._error, None
                self.start()
                raise error
            assert self._engine is not None, "start first"
            return self._engine
