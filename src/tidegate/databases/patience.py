"""Asking a server again that does not answer yet: it may be restarting.

Called by CDC sources, in drivers and tasks.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.model.errors import TransientError

FIRST_PAUSE_S = 0.25
PAUSE_S_MAX = 5.0
T = TypeVar("T")


def retry_transient(act: Callable[[], T], retries: int) -> T:
    """Do it, and again after longer and longer pauses where that may help; the last error is the
    one that comes out.
    """
    pause_s = FIRST_PAUSE_S
    for _ in range(retries):
        try:
            return act()
        except TransientError:
            time.sleep(pause_s)  # a server that restarts needs its time
            pause_s = min(pause_s * 2, PAUSE_S_MAX)
    return act()
