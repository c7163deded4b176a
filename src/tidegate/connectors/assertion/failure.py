"""What a rule that does not hold looks like to a person."""

from tidegate.model.errors import Domain, TerminalError


class RuleFailed(TerminalError):
    """A rule of Assert does not hold; the text names the rule, the field and the value."""

    condition = "rule-failed"
    domain = Domain.USER
