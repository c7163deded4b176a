"""Several jobs are moved at the same time, so that their transactions share the waits for the
store. Used by the reconciler of a server.

Each move is a transaction of its own, with its own conditions; only the waiting is done together:
for one fsync on SQLite, one statement on PostgreSQL, and side by side on etcd. Simulations and
tests move one job after the other instead, as does every turn with a single job.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

THREADS_MAX = 8
Move = Callable[[int], bool]


def run_sequentially(move: Move, jobs: Sequence[int]) -> int:
    """Move these jobs, in their order; how many were changed."""
    return sum(move(job_id) for job_id in jobs)


class ParallelJobExecutor:
    """The same by several threads, which stay for the next turn. For one caller at a time. A call
    returns when every job was moved; what was raised first is raised then, and ends the others
    after the job that they have in hand.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._hands = 0

    def __call__(self, move: Move, jobs: Sequence[int]) -> int:
        """Move these jobs; how many were changed."""
        if len(jobs) <= 1:
            return run_sequentially(move, jobs)
        crew, helpers = _Batch(move, jobs), min(THREADS_MAX, len(jobs)) - 1
        for _ in range(self._hands, helpers):
            threading.Thread(target=self._help, name="leader-hand", daemon=True).start()
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
    """Threads that take the next job as long as there is one."""

    def __init__(self, move: Move, jobs: Sequence[int]) -> None:
        self.move = move
        self.moved = 0
        self.error: BaseException | None = None
        self.done = threading.Semaphore(0)  # one for each helper that has nothing left to do
        self._jobs: Iterator[int] = iter(jobs)
        self._lock = threading.Lock()

    def work(self) -> None:
        """Until nothing is left, or somebody has failed."""
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
