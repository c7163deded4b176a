"""Several jobs are moved at the same time, so that their transactions share the waits for the store. Used by the reconciler of a server.

Each move is a transaction of its own, with its own conditions; only the waiting is done together: for one fsync on SQLite, one statement on PostgreSQL, and
side by side on etcd. Simulations and tests move one job after the other instead, as does every turn with a single job.
"""

import threading
from collections.abc import Callable, Iterator, Sequence

HANDS_MAX = 8
Move = Callable[[int], bool]


def one_by_one(move: Move, jobs: Sequence[int]) -> int:
    """Move these jobs, in their order; how many were changed."""
    return sum(move(job_id) for job_id in jobs)


def together(move: Move, jobs: Sequence[int]) -> int:
    """The same by several threads. It returns when all of them have ended; what the first of them raised is raised then, and ends the others after the job that
    they have in hand."""
    if len(jobs) <= 1:
        return one_by_one(move, jobs)
    crew = _Crew(move, jobs)
    helpers = [threading.Thread(target=crew.work, name="leader-hand", daemon=True) for _ in range(min(HANDS_MAX, len(jobs)) - 1)]
    for helper in helpers:
        helper.start()
    crew.work()
    for helper in helpers:
        helper.join()
    if crew.error is not None:
        raise crew.error
    return crew.moved


class _Crew:
    """Threads that take the next job as long as there is one."""

    def __init__(self, move: Move, jobs: Sequence[int]) -> None:
        self.move, self.moved = move, 0
        self.error: BaseException | None = None
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
