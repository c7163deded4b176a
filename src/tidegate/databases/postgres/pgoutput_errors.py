"""Errors of reading PostgreSQL's log."""

from tidegate.model.errors import Domain, TerminalError, UserError


class SlotDamaged(TerminalError):
    """Bytes of a slot that cannot be parsed."""

    condition = "log-damaged"
    domain = Domain.EXTERNAL

    def __init__(self, what: str) -> None:
        super().__init__(f"the log of the source cannot be parsed: {what}")


class IdentityNotFull(UserError):
    """A change lacks its complete before image, which is required."""

    condition = "replica-identity"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"an update or a delete of {path} came without the complete row before it: the "
            "replica identity of the table, or of one of its partitions, was not FULL at the "
            f"time of the change. Run ALTER TABLE {path.partition('.')[2] or path} REPLICA "
            "IDENTITY FULL on the source (and on each partition), and start with --restore "
            "fresh; or set require-replica-identity-full = false"
        )


class IdentityMissing(UserError):
    """A change lacks values of its row."""

    condition = "replica-identity"

    def __init__(self, path: str, columns: str) -> None:
        super().__init__(
            f"an update of {path} left {columns} unchanged, and the log does not have its "
            "value, as the replica identity of the table is not FULL: run ALTER TABLE "
            f"{path.partition('.')[2] or path} REPLICA IDENTITY FULL on the source, and start "
            "with --restore fresh"
        )
