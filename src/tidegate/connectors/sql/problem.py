"""The one error of this connector before a job runs.

Raised while a query is read or translated; options.py makes a Problem of it, transform.py a
UserError.
"""


class SqlError(Exception):
    """What is wrong with a query. `line` counts within the query, from 1."""

    def __init__(self, message: str, *, line: int = 1, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.suggestion = suggestion
