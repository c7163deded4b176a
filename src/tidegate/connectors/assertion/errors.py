"""The error of a broken rule, in a module that imports neither Arrow nor Spark."""

from tidegate.model.errors import Domain, TerminalError


class RuleFailed(TerminalError):
    """A rule of Assert is broken; the message names the rule, the field and the value."""

    condition = "rule-failed"
    domain = Domain.USER
