"""Retry operations on a checkpoint storage that is unavailable. Called by the kinds of `Files`."""

import logging
from collections.abc import Callable
from typing import TypeVar

from tidegate.checkpoints.files.errors import StorageUnavailable
from tidegate.retry import Pause, no_retry, retry

LOG = logging.getLogger("tidegate.checkpoints")
T = TypeVar("T")


def retry_unavailable(
    act: Callable[[], T],
    pause: Pause,
    storage: str,
    note: Callable[[str], None] = lambda _: None,
) -> T:
    """Call `act` until the storage answers or `pause` gives up.

    `note` receives the reason before each pause. The first failure is logged, unless the caller
    does not retry; so is the end of an outage.
    """
    failed = 0

    def on_failure(failures: int, error: Exception) -> None:
        nonlocal failed
        failed = failures
        note(str(error))
        if failures == 1 and pause is not no_retry:
            LOG.warning(
                "checkpoint_storage_unavailable", extra={"storage": storage, "why": str(error)}
            )

    result = retry(act, (StorageUnavailable,), pause, on_failure)
    if failed:
        LOG.info("checkpoint_storage_available", extra={"storage": storage, "failures": failed})
    return result
