"""Runs a function for several jobs in parallel, so that their transactions share waits.

Used by the reconciler of a server. Each job is a transaction of its own, with its own conditions;
only the waits are shared: for one fsync on SQLite, one statement on PostgreSQL, and in parallel on
etcd. Simulations and tests run sequentially, as does a cycle with a single job.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

THREADS_MAX = 8
Move = Callable[[int], bool]


def run_sequentially(move: Move, jobs: Sequence[int]) -> int:
    """Run the function for these jobs in order; return how many changed."""
    return sum(move(job_id) for job_id in jobs)


class ParallelJobExecutor:
    """Runs jobs in several threads, which stay for the next cycle. For one caller at a time.

    A call returns when every job is done. The first exception is raised then; it stops the other
    threads after their current job.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._hands = 0

    def __call__(self, move: Move, jobs: Sequence[int]) -> int:
        """Run the function for these jobs; return how many changed."""
        if len(jobs) <= 1:
            return run_sequentially(move, jobs)
        crew, helpers = _Batch(move, jobs), min(THREADS_MAX, len(jobs)) - 1
        for _ in range(self._hands, helpers):
            threading.Thread(target=self._help, name="leader-job", daemon=True).start()
        self._hands = max(self._hands, helpers)
        for _ in range(helpers):
            self._work.put(crew)
        crew.work()
        for _ in range(helpers):
            crew.done.acquire()
        if crew.error is not None:
            raise crew.error
        return crew.moved

    def _help(self) -> None:
        while True:
            crew = self._work.get()
            crew.work()
            crew.done.release()
            del crew  # and with it the jobs of a turn that is over


class _Batch:
    """The jobs of one call; threads take the next job until none is left."""

    def __init__(self, move: Move, jobs: Sequence[int]) -> None:
        self.move = move
        self.moved = 0
        self.error: BaseException | None = None
        self.done = threading.Semaphore(0)  # one for each helper that has nothing left to do
        self._jobs: Iterator[int] = iter(jobs)
        self._lock = threading.Lock()

    def work(self) -> None:
        """Run jobs until none is left, or a thread has failed."""
        while (job_id := self._next()) is not None:
            try:
                moved = self.move(job_id)
            except BaseException as error:
                with self._lock:
                    self.error = self.error or error
                return
            with self._lock:
                self.moved += moved

    def _next(self) -> int | None:
        with self._lock:
            return next(self._jobs, None) if self.error is None else None
