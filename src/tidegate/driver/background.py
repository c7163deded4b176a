"""Starts the engine in the background, so that sources plan and sinks open while the JVM starts.

The start may take arbitrarily long (a cluster accepts the application but grants no container), so
a stop does not wait for it.
"""

import threading
from collections.abc import Callable

from tidegate.model.errors import Domain, TransientError
from tidegate.pipeline.engine import Batch, Engine, TaskCount, Written
from tidegate.pipeline.graph import Graph

STOP_CHECKED_EVERY_S = 0.1


class EngineNotStarted(TransientError):
    """The job was stopped before its engine had started.

    The next run repeats the batch that waited for it.
    """

    condition = "engine-not-started"
    domain = Domain.EXTERNAL

    def __init__(self, waits_for: str) -> None:
        super().__init__(f"stopped before the engine had started: {waits_for}")


class BackgroundEngine:
    """An engine that blocks its first batches until the real engine has started.

    An error of the start is raised there, to every pipeline. Setting `stop` ends the wait;
    `describe` returns what the start waits for.
    """

    def __init__(
        self, start: Callable[[], Engine], stop: threading.Event, describe: Callable[[], str]
    ) -> None:
        self._factory = start
        self._stop = stop
        self._describe = describe
        self._engine: Engine | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the engine in a background thread."""
        self._thread = threading.Thread(target=self._start, name="engine-start", daemon=True)
        self._thread.start()

    @property
    def starting(self) -> bool:
        """Whether a batch would have to wait for the engine."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def waits_for(self) -> str:
        """What the start of the engine waits for; empty once it has started."""
        return self._describe() if self.starting else ""

    def run(self, graph: Graph, batch: Batch) -> Written:
        return self._ready().run(graph, batch)

    def tasks(self, pipeline: int) -> TaskCount:
        """Return the task count of the real engine, and zero while it starts."""
        return self._engine.tasks(pipeline) if self._engine else TaskCount(0, 0)

    def cancel(self, pipeline: int) -> None:
        if self._engine:
            self._engine.cancel(pipeline)

    def close(self) -> None:
        """Close the real engine.

        A stop does not wait for a start in progress, which ends with this process's session.
        """
        self._wait_for_start()
        if self._engine:
            self._engine.close()

    def _start(self) -> None:
        try:
            self._engine = self._factory()
        except BaseException as error:
            self._error = error

    def _wait_for_start(self) -> None:
        while self._thread and self._thread.is_alive() and not self._stop.is_set():
            self._thread.join(STOP_CHECKED_EVERY_S)

    def _ready(self) -> Engine:
        """Return the started engine; after a failed start, raise its error and start again.

        So every attempt of a pipeline tries the start once more.
        """
        with self._lock:
            self._wait_for_start()
            if self._engine is None and self._error is None:
                raise EngineNotStarted(self._describe())
            if self._engine is None and self._error is not None:
                error, self._error = self._error, None
                self.start()
                raise error
            assert self._engine is not None, "start first"
            return self._engine
