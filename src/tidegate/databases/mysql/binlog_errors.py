"""Errors of reading the binary log."""

from tidegate.model.errors import Domain, TerminalError, TransientError, UserError


class LogDamaged(TerminalError):
    """Bytes of the log that cannot be parsed."""

    condition = "log-damaged"
    domain = Domain.EXTERNAL

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the binary log of the source cannot be parsed: {what}. Check the server with "
            "mariadb-binlog --verify-binlog-checksum"
        )


class LogUnreachable(TransientError):
    """The connection to the server is lost or times out."""

    condition = "source-unreachable"
    domain = Domain.EXTERNAL


class LogBehind(TransientError):
    """A server after a failover lacks transactions that were already read.

    It may still receive them.
    """

    condition = "source-behind"
    domain = Domain.EXTERNAL


class LogRefused(TerminalError):
    """The server does not send the log from the requested position.

    It does not have it, or the user lacks the privilege.
    """

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
    """A table map in the log does not fit the recorded columns."""

    condition = "table-changed"


class PartialImages(UserError):
    """The server writes only some columns of changed rows into its log."""

    condition = "partial-row-images"
