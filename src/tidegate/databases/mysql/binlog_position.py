"""Positions of the binary log. Called by everything that reads it."""

import re
from dataclasses import dataclass
from typing import Any

FIRST = 4
"""The first event of every file begins here."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A byte of a file. Files are ordered by their number, whatever their name."""

    file: str
    pos: int

    def json(self) -> dict[str, Any]:
        """As an offset keeps it."""
        return {"file": self.file, "pos": self.pos}

    @staticmethod
    def of(document: dict[str, Any]) -> "LogPosition":
        return LogPosition(str(document["file"]), int(document["pos"]))

    @property
    def key(self) -> tuple[int, int]:
        """What positions are ordered by."""
        return file_number(self.file), self.pos

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def file_number(file: str) -> int:
    """The number at the end of a log file's name: `binlog.000012` is 12."""
    found = re.search(r"(\d+)$", file)
    if found is None:
        raise ValueError(f"{file!r} is no name of a binary log file: it has no number at its end")
    return int(found[1])
