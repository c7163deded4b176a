"""Repeat an action that fails with a transient error: one loop for all callers.

The caller says which errors are transient, how long to pause, and when to give up. The module knows
neither the store nor the checkpoint storage nor databases. Restarts of whole jobs are decided in
`lifecycle/retry.py`.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidegate.clock import SystemClock

T = TypeVar("T")
TransientErrors = tuple[type[Exception], ...]
# Receives the number of failures in a row, pauses, and returns whether to try again.
Pause = Callable[[int], bool]


def retry(
    act: Callable[[], T],
    transient: TransientErrors,
    pause: Pause,
    on_failure: Callable[[int, Exception], None] = lambda _, __: None,
) -> T:
    """Call `act` until it returns, raises another error, or `pause` gives up.

    The last transient error is raised when `pause` gives up. `on_failure` receives the number of
    failures so far and the error, before the pause.
    """
    failures = 0
    while True:
        try:
            return act()
        except transient as error:
            failures += 1
            on_failure(failures, error)
            if not pause(failures):
                raise


def no_retry(_: int) -> bool:
    """Give up at the first failure."""
    return False


def backoff(
    pauses_s: Sequence[float],
    *,
    retries_max: int | None = None,
    wait: Callable[[float], bool] | None = None,
) -> Pause:
    """Pause for these times, one after the other; the last one repeats.

    `wait` pauses, and returns True if the caller must give up: a stop was requested. Without it the
    pause cannot be interrupted. Without `retries_max` the number of retries is unlimited.
    """
    wait = wait or _sleep

    def pause(failures: int) -> bool:
        if retries_max is not None and failures > retries_max:
            return False
        return not wait(pauses_s[min(failures, len(pauses_s)) - 1])

    return pause


def _sleep(seconds: float) -> bool:
    return SystemClock().wait(threading.Event(), seconds)
