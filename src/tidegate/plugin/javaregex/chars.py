"""The characters of a Java regular expression, with quoted parts marked, and the read position."""

from dataclasses import dataclass, field

DEPTH_MAX = 150


class JavaRegexError(ValueError):
    """Java does not accept the expression; the message contains the error and its position."""


@dataclass(slots=True)
class Characters:
    """Reads the expression from left to right.

    `chars` are the characters without quotation marks, `positions` their indexes in the source.
    """

    source: str
    chars: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    quoted: list[bool] = field(default_factory=list)
    at: int = 0
    depth: int = 0
    groups: int = 0
    flags: frozenset[str] = frozenset()
    names: dict[str, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    references: list[tuple[int, int, int]] = field(default_factory=list)
    only_java: str = ""
    tail: str = ""

    def __post_init__(self) -> None:
        quoting, at = False, 0
        while at < len(self.source):
            two = self.source[at : at + 2]
            if two == ("\\E" if quoting else "\\Q"):
                quoting, at = not quoting, at + 2
                continue
            step = 2 if two[0] == "\\" and not quoting and len(two) == 2 else 1
            for offset in range(step):
                self.chars.append(self.source[at + offset])
                self.positions.append(at + offset)
                self.quoted.append(quoting)
            at += step
        self.tail = "\\E" if quoting else ""

    def error(self, message: str) -> JavaRegexError:
        """Make an error with its position, counted from 1."""
        position = self.positions[self.at] if self.at < len(self.positions) else len(self.source)
        return JavaRegexError(f"{message}, at character {position + 1}")

    def mark_java_only(self, reason: str) -> None:
        self.only_java = self.only_java or reason

    def sign(self) -> str | None:
        """The current character if it may belong to the grammar; "" if quoted; None at the end."""
        if "x" in self.flags:
            self._skip_comments()
        if self.at >= len(self.chars):
            return None
        return "" if self.quoted[self.at] else self.chars[self.at]

    def _skip_comments(self) -> None:
        while self.at < len(self.chars) and not self.quoted[self.at]:
            if self.chars[self.at] == "#":
                while (
                    self.at < len(self.chars) and self.chars[self.at] not in "\n\r\x85\u2028\u2029"
                ):
                    self.at += 1
                if self.at >= len(self.chars):
                    self.tail += "\n"
            elif self.chars[self.at] in " \t\n\x0b\f\r":
                self.at += 1
            else:
                return

    def skip(self, what: str) -> bool:
        """Skip this text if it is next and not quoted."""
        end = self.at + len(what)
        if "".join(self.chars[self.at : end]) == what and not any(self.quoted[self.at : end]):
            self.at = end
            return True
        return False

    def read_until(self, end: str, message: str) -> str:
        begin = self.at
        while self.at < len(self.chars) and self.chars[self.at] != end:
            self.at += 1
        if self.at >= len(self.chars):
            raise self.error(message)
        self.at += 1
        return "".join(self.chars[begin : self.at - 1])
