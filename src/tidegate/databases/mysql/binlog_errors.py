"""What can be wrong with a binary log, each as one sentence for a person."""

from tidegate.model.errors import Domain, TerminalError, TransientError, UserError


class LogDamaged(TerminalError):
    """Bytes of the log that make no sense."""

    condition = "log-damaged"
    domain = Domain.EXTERNAL

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the binary log of the source cannot be understood: {what}. Check the server with"
            " mariadb-binlog --verify-binlog-checksum"
        )


class LogUnreachable(TransientError):
    """The server went away, or does not answer."""

    condition = "source-unreachable"
    domain = Domain.EXTERNAL


class LogBehind(TransientError):
    """A server that took over lacks transactions that were read from the one before it; it may
    still get them.
    """

    condition = "source-behind"
    domain = Domain.EXTERNAL


class LogRefused(TerminalError):
    """The server does not hold the position that was asked for, or does not give it to this user."""

    condition = "log-refused"
    domain = Domain.EXTERNAL


class LogReplaced(TerminalError):
    """The log at a position is not the one that the position was taken in."""

    condition = "log-replaced"
    domain = Domain.EXTERNAL

    def __init__(self, what: str) -> None:
        super().__init__(f"the binary log of the source has another history: {what}")
        self.what = what


class LayoutChanged(UserError):
    """A table in the log does not look as it is known."""

    condition = "table-changed"


class PartialImages(UserError):
    """The server writes only some columns of changed rows into its log."""

    condition = "partial-row-images"
