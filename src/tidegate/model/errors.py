"""The roots of every error that Tidegate raises. Retry code looks at the root and at nothing else.

An error class is one fact: its arguments are kept as attributes, `condition` is its stable name in the API, and its text is a sentence for
a person: what is wrong, where, what to do.
"""

from enum import StrEnum


class Domain(StrEnum):
    """Whose fault an error is."""

    USER = "user"  # the job file or the command
    EXTERNAL = "external"  # a database, a disk, the network
    INTERNAL = "internal"  # ours


class TidegateError(Exception):
    """Something went wrong."""

    condition = "error"
    domain = Domain.INTERNAL


class TransientError(TidegateError):
    """Worth another try, within a budget."""

    condition = "transient"


class TerminalError(TidegateError):
    """No retry can help."""

    condition = "terminal"


class Fenced(TerminalError):
    """A newer generation runs this job: this one must end and make nothing visible."""

    condition = "fenced"

    def __init__(self, what: str, mine: int, current: int) -> None:
        super().__init__(f"generation {mine} of {what} is fenced: generation {current} has taken over")
        self.what, self.mine, self.current = what, mine, current


class OtherCopy(Fenced):
    """Another driver holds the very same generation: another copy of this installation is running.

    Only a copied home or store can lead to this. The first driver wins; the other one ends for good, since a retry would take the target away from the first.
    """

    condition = "other-copy"

    def __init__(self, what: str, generation: int, holder: str = "") -> None:
        super().__init__(what, generation, generation)
        by = f" ({holder})" if holder else ""
        self.args = (
            f"another copy of this installation runs generation {generation} of the same job, and holds {what}{by}: this one ends and changes nothing there. "
            "Stop one of the two copies; then restart the other with --restore latest",
        )
        self.generation, self.holder = generation, holder


class UserError(TerminalError):
    """A mistake in a job file or a command, said in one sentence."""

    condition = "bad-input"
    domain = Domain.USER


class Unsupported(UserError):
    """Asks for something that Tidegate does not do, and says what to use instead."""

    condition = "unsupported"
