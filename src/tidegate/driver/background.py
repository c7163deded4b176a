"""An engine that is started in the background, so that sources can plan and sinks can open while
the JVM comes up.

The start of an engine may take as long as a cluster likes (an application that is accepted and gets
no container): a stop does not wait for it.
"""

import threading
from collections.abc import Callable

from tidegate.model.errors import Domain, TransientError
from tidegate.pipeline.engine import Batch, Engine, TaskCount, Written
from tidegate.pipeline.graph import Graph

STOP_CHECKED_EVERY_S = 0.1


class EngineNotStarted(TransientError):
    """A stop came before the engine was up; the batch that waited for it is repeated by the next
    run.
    """

    condition = "engine-not-started"
    domain = Domain.EXTERNAL

    def __init__(self, waits_for: str) -> None:
        super().__init__(f"stopped before the engine was up: {waits_for}")


class BackgroundEngine:
    """Waits for the real engine when it is needed first; an error of its start is raised there, to
    every pipeline.

    `stop` ends the wait, and `describe` says what the start waits for.
    """

    def __init__(
        self, start: Callable[[], Engine], stop: threading.Event, describe: Callable[[], str]
    ) -> None:
        self._make = start
        self._stop = stop
        self._describe = describe
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

    @property
    def waits_for(self) -> str:
        """What the start of the engine waits for; empty once it is up."""
        return self._describe() if self.starting else ""

    def run(self, graph: Graph, batch: Batch) -> Written:
        return self._ready().run(graph, batch)

    def tasks(self, pipeline: int) -> TaskCount:
        """As the real engine; nothing while it starts."""
        return self._engine.tasks(pipeline) if self._engine else TaskCount(0, 0)

    def cancel(self, pipeline: int) -> None:
        if self._engine:
            self._engine.cancel(pipeline)

    def close(self) -> None:
        """As the real engine.

        A start that is under way is left behind by a stop: it ends with the session of this
        process.
        """
        self._wait_for_start()
        if self._engine:
            self._engine.close()

    def _start(self) -> None:
        try:
            self._engine = self._make()
        except BaseException as error:
            self._error = error

    def _wait_for_start(self) -> None:
        while self._thread and self._thread.is_alive() and not self._stop.is_set():
            self._thread.join(STOP_CHECKED_EVERY_S)

    def _ready(self) -> Engine:
        """The engine; where its start failed it is tried once more for each attempt of a pipeline."""
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
