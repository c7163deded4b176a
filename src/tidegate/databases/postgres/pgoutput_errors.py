"""What can be wrong with the log of PostgreSQL, each as one sentence for a person."""

from tidegate.model.errors import Domain, TerminalError, UserError


class SlotDamaged(TerminalError):
    """Bytes of a slot that make no sense."""

    condition = "log-damaged"
    domain = Domain.EXTERNAL

    def __init__(self, what: str) -> None:
        super().__init__(f"the log of the source cannot be understood: {what}")


class NotFull(UserError):
    """A change without the whole row before it, where that is needed."""

    condition = "replica-identity"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"an update or a delete of {path} came without the whole row before it: the replica"
            " identity of the table, or of one of its partitions, was not FULL when it was made."
            f" Run ALTER TABLE {path.partition('.')[2] or path} REPLICA IDENTITY FULL on the source"
            " (and on each partition), and start with --restore fresh; or set"
            " require-replica-identity-full = false"
        )


class IdentityMissing(UserError):
    """A change that lacks values of its row."""

    condition = "replica-identity"

    def __init__(self, path: str, columns: str) -> None:
        super().__init__(
            f"an update of {path} left {columns} unchanged, and the log does not tell its value, as"
            " the table's replica identity is not FULL: run ALTER TABLE"
            f" {path.partition('.')[2] or path} REPLICA IDENTITY FULL on the source, and start with"
            " --restore fresh"
        )
