"""What goes wrong with a database, as our own errors. Drivers' exceptions are translated where they
enter (mysql.py, postgres.py, sqlite.py).

An error never holds a password: texts of drivers pass through `Address.masked`.
"""

from tidegate.model.errors import Domain, TransientError, UserError

TEXT_MAX = 1000


class DatabaseUnreachable(TransientError):
    """The server does not answer."""

    condition = "database-unreachable"
    domain = Domain.EXTERNAL

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"the database {where} cannot be reached: {why[:TEXT_MAX]}; is it running, and are host"
            " and port of `url` right?"
        )
        self.where = where
        self.why = why


class TransientDatabaseError(TransientError):
    """A statement failed in a way that may pass: connection lost, deadlock, lock timeout, shutdown,
    or something that we do not know.
    """

    condition = "database-trouble"
    domain = Domain.EXTERNAL

    def __init__(self, where: str, why: str, code: str = "") -> None:
        super().__init__(f"the database {where} says: {why[:TEXT_MAX]}")
        self.where = where
        self.why = why
        self.code = code


class AccessDenied(UserError):
    """Wrong user or password, or a right that is missing."""

    condition = "database-access-denied"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"the database {where} refuses: {why[:TEXT_MAX]}; check username, password and the"
            " rights of that user"
        )
        self.where = where
        self.why = why


class TlsFailed(UserError):
    """An encrypted connection that does not come about: a certificate of somebody else, no
    encryption there, or a file that cannot be read.
    """

    condition = "database-untrusted"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"there is no encrypted connection to the database {where}: {why[:TEXT_MAX]}; name the"
            " authority of its certificate in the URL (sslrootcert=/path/ca.pem, or"
            " serverSslCert), check that the host in the URL is the one in the certificate, or ask"
            " for less (sslmode)"
        )
        self.where = where
        self.why = why


class StatementRefused(UserError):
    """The database understood the statement and will never carry it out: syntax, a missing column,
    a value that does not fit.
    """

    condition = "database-refused"

    def __init__(self, where: str, why: str, code: str = "") -> None:
        super().__init__(f"the database {where} refuses a statement: {why[:TEXT_MAX]}")
        self.where = where
        self.why = why
        self.code = code


class DatabaseMissing(UserError):
    """There is no such database."""

    condition = "database-missing"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"the database {where} is not there: {why[:TEXT_MAX]}; check `url`")
        self.where = where
        self.why = why


class TableMissing(UserError):
    """There is no such table."""

    condition = "table-missing"

    def __init__(self, where: str, table: str, suggestion: str = "") -> None:
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        super().__init__(
            f"there is no table {table!r} in the database {where}, or its user may not see it{hint}"
        )
        self.where = where
        self.table = table
        self.suggestion = suggestion


class UnknownColumnType(UserError):
    """A column whose type cannot travel through a pipeline."""

    condition = "unknown-column-type"

    def __init__(self, column: str, native: str) -> None:
        super().__init__(
            f"the column {column!r} has the type {native}, which has no counterpart: leave it out"
            " or cast it with `query`"
        )
        self.column = column
        self.native = native


class ValueUnreadable(UserError):
    """A value of a column does not fit the type of its column here."""

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
    """A value in the log does not fit the type of its column here."""

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
        """The same with its table and the key of its row."""
        return LoggedValueUnfit(
            self.column, self.kind, self.index, self.why, f" of {table} ({key})"
        )
