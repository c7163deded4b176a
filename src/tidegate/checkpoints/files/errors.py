"""Errors of the checkpoint storage: unavailable for now, or refused."""

from tidegate.model.errors import Domain, TerminalError, TransientError


class StorageUnavailable(TransientError):
    """The storage cannot be reached; a retry may succeed."""

    condition = "storage-unavailable"
    domain = Domain.EXTERNAL


class StorageRefused(TerminalError):
    """The storage rejects the request: a wrong key, a missing bucket."""

    condition = "storage-refused"
    domain = Domain.EXTERNAL
