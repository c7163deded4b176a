"""Retry connections to a database server that does not answer, because it may be restarting.

Called by CDC sources, in drivers and tasks.
"""

from collections.abc import Callable
from typing import TypeVar

from tidegate.model.errors import TransientError
from tidegate.retry import backoff, retry

RECONNECT_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
T = TypeVar("T")


def retry_connect(act: Callable[[], T], retries: int) -> T:
    """Call `act`, and again up to `retries` times while its error is transient."""
    return retry(act, (TransientError,), backoff(RECONNECT_PAUSES_S, retries_max=retries))
