"""Errors that mention restore options, worded by the surface that shows them. Pure.

The CLI writes `--restore fresh`, the API `restore=fresh`. Such an error therefore keeps its message
in parts; `str()` has the words of the CLI.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.model.errors import UserError


@dataclass(frozen=True, slots=True)
class OptionMention:
    """A restore option in a message: its flag on the command line, and a value to set it to."""

    flag: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.flag} {self.value}" if self.value else self.flag


MessagePart = str | OptionMention


class OptionError(UserError):
    """An error whose message mentions restore options."""

    def __init__(self, *parts: MessagePart) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts

    def worded(self, write: Callable[[OptionMention], str]) -> str:
        """Return the message with options as `write` writes them."""
        return "".join(part if isinstance(part, str) else write(part) for part in self.parts)
