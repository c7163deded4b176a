"""Errors of databases.

Drivers' exceptions are translated where they enter (mysql/, postgres/, sqlite/). An error never
holds a password: messages of drivers pass through `Address.mask`.
"""

from tidegate.model.errors import Domain, TransientError, UserError

TEXT_MAX = 1000


class DatabaseUnreachable(TransientError):
    """The server cannot be reached."""

    condition = "database-unreachable"
    domain = Domain.EXTERNAL

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"the database {where} cannot be reached: {why[:TEXT_MAX]}; check"
            " that it runs, and the host and port in `url`"
        )
        self.where = where
        self.why = why


class TransientDatabaseError(TransientError):
    """A statement failed and may succeed when it is retried.

    Connection lost, deadlock, lock timeout, shutdown, or an unknown error.
    """

    condition = "database-trouble"
    domain = Domain.EXTERNAL

    def __init__(self, where: str, why: str, code: str = "") -> None:
        super().__init__(f"the database {where} reports: {why[:TEXT_MAX]}")
        self.where = where
        self.why = why
        self.code = code


class AccessDenied(UserError):
    """Wrong user or password, or a missing permission."""

    condition = "database-access-denied"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"the database {where} denies access: {why[:TEXT_MAX]}; check username, password and"
            " the permissions of that user"
        )
        self.where = where
        self.why = why


class TlsFailed(UserError):
    """TLS failed: an untrusted certificate, a server without TLS, or an unreadable file."""

    condition = "database-untrusted"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"cannot open an encrypted connection to the database {where}: {why[:TEXT_MAX]}; set"
            " the certificate authority in the URL (sslrootcert=/path/ca.pem, or serverSslCert),"
            " check that the host in the URL matches the certificate, or use a weaker sslmode"
        )
        self.where = where
        self.why = why


class StatementRefused(UserError):
    """The database rejects the statement, also when it is retried.

    A syntax error, a missing column, a value that does not fit.
    """

    condition = "database-refused"

    def __init__(self, where: str, why: str, code: str = "") -> None:
        super().__init__(f"the database {where} rejects a statement: {why[:TEXT_MAX]}")
        self.where = where
        self.why = why
        self.code = code


class DatabaseMissing(UserError):
    """The database does not exist."""

    condition = "database-missing"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"the database {where} does not exist: {why[:TEXT_MAX]}; check `url`")
        self.where = where
        self.why = why


class TableMissing(UserError):
    """The table does not exist or is not visible to the user."""

    condition = "table-missing"

    def __init__(self, where: str, table: str, suggestion: str = "") -> None:
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        super().__init__(
            f"there is no table {table!r} in the database {where}, or the user has no permission to"
            f" see it{hint}"
        )
        self.where = where
        self.table = table
        self.suggestion = suggestion


class UnknownColumnType(UserError):
    """A column of a type that pipelines do not support."""

    condition = "unknown-column-type"

    def __init__(self, column: str, native: str) -> None:
        super().__init__(
            f"the column {column!r} has the type {native}, which is not supported: leave it out"
            " or cast it with `query`"
        )
        self.column = column
        self.native = native


class ValueUnreadable(UserError):
    """A value does not fit the type that its column has in the pipeline."""

    condition = "value-unreadable"

    def __init__(self, column: str, kind: str, why: str) -> None:
        super().__init__(
            f"a value of column {column!r} does not fit {kind}: {why[:TEXT_MAX]}; correct the"
            " value, cast the column with `query` (Jdbc), or leave its table out"
        )
        self.column = column
        self.kind = kind
        self.why = why


class LoggedValueUnfit(UserError):
    """A value in the log does not fit the type that its column has in the pipeline."""

    condition = "value-unreadable"

    def __init__(self, column: str, kind: str, index: int, why: str, where: str = "") -> None:
        super().__init__(
            f"a change{where} has a value of column {column!r} that does not fit {kind}:"
            f" {why[:TEXT_MAX]}; everything before it is delivered. Correct the value in the table"
            " and start with --restore fresh, or leave the table out of the job"
        )
        self.column = column
        self.kind = kind
        self.index = index
        self.why = why

    def with_row(self, table: str, key: str) -> "LoggedValueUnfit":
        """Return a copy that names the table and the key of the row."""
        return LoggedValueUnfit(
            self.column, self.kind, self.index, self.why, f" of {table} ({key})"
        )
