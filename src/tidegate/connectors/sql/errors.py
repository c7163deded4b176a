"""The error of a query that cannot be parsed or translated.

options.py converts it to a Problem, transform.py to a UserError.
"""


class SqlError(Exception):
    """An invalid or unsupported query. `line` counts within the query, from 1."""

    def __init__(self, message: str, *, line: int = 1, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.suggestion = suggestion
