"""A storage that is out of reach, or that refuses: the two errors, and waiting for the first one to
pass. Called by the files on other file systems.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from tidegate.model.errors import Domain, TerminalError, TransientError

LOG = logging.getLogger("tidegate.checkpoints")
T = TypeVar("T")
# Asked with the number of failures in a row while the storage is out of reach: waits and says True
# to try again, or False to give up.
Patience = Callable[[int], bool]


class StorageUnavailable(TransientError):
    """The storage is out of reach: worth waiting for."""

    condition = "storage-unavailable"
    domain = Domain.EXTERNAL


class StorageRefused(TerminalError):
    """The storage can be reached, and does not do what it is asked: a wrong key, a missing bucket."""

    condition = "storage-refused"
    domain = Domain.EXTERNAL


def never(_: int) -> bool:
    return False


def retry_unavailable(
    act: Callable[[], T],
    patience: Patience,
    place: str,
    note: Callable[[str], None] = lambda _: None,
) -> T:
    """Do it; while the storage is out of reach, as often as the patience lasts.

    `note` is told what is waited for.
    """
    failures = 0
    while True:
        try:
            result = act()
        except StorageUnavailable as error:
            failures += 1
            note(str(error))
            if failures == 1 and patience is not never:
                LOG.warning(
                    "checkpoint storage out of reach", extra={"place": place, "why": str(error)}
                )
            if not patience(failures):
                raise
        else:
            if failures:
                LOG.info("checkpoint storage back", extra={"place": place, "failures": failures})
            return result
