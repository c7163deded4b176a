"""Errors of the store, raised by `Store` and by every backend.

Exceptions of libraries are translated and never reach a caller.
"""

from tidegate.model.errors import Domain, TerminalError, TransientError


class Conflict(TransientError):
    """A check of a transaction failed; nothing was written. Read again, then decide again."""

    condition = "store-conflict"

    def __init__(self, map: str, key: str, expected: int, found: int) -> None:
        super().__init__(
            f"{map}/{key} is {_state(found)} and not {_state(expected)} as expected: someone else"
            " has changed it; nothing was written"
        )
        self.map = map
        self.key = key
        self.expected = expected
        self.found = found


class StoreUnavailable(TransientError):
    """The store did not answer, and nothing was written."""

    condition = "store-unavailable"
    domain = Domain.EXTERNAL


class AnswerLost(StoreUnavailable):
    """A backend cannot say whether a transaction was written.

    `Store.transact` resolves it; callers of the store never see it.
    """

    condition = "store-answer-lost"


class StoreDamaged(TerminalError):
    """The stored data is not a valid store, or not the one that was open."""

    condition = "store-damaged"
    domain = Domain.EXTERNAL


class DocumentDamaged(StoreDamaged):
    """One document is not what was written. It is never used; all others are."""

    def __init__(self, map: str, key: str, why: str) -> None:
        super().__init__(
            f"the stored document {map}/{key} is damaged and is not used: {why}. Restore the store"
            " from a copy; or see `tidegate state verify`, forget the job (`tidegate state"
            " forget`) and resume it from its checkpoints with --restore latest"
        )
        self.map = map
        self.key = key
        self.why = why


class StoreLost(StoreUnavailable):
    """The store was removed, unmounted or replaced by another one.

    Callers wait for it; it is never created again.
    """

    condition = "store-lost"


class StoreRefused(TerminalError):
    """A map name, key, value or transaction that no store accepts: a bug of the caller."""

    condition = "store-refused"


class StoreClosed(TerminalError):
    """The store was used after `close`."""

    condition = "store-closed"

    def __init__(self) -> None:
        super().__init__("the store has been closed in this process and takes no more calls")


def _state(version: int) -> str:
    return f"at version {version}" if version else "absent"
