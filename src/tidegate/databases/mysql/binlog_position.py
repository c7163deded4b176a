"""Positions of the binary log."""

import re
from dataclasses import dataclass
from typing import Any

FIRST = 4
"""The position of the first event of every file."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A byte of a file. Files are ordered by their number, whatever their name."""

    file: str
    pos: int

    def json(self) -> dict[str, Any]:
        """Return the form that the offset keeps."""
        return {"file": self.file, "pos": self.pos}

    @staticmethod
    def of(document: dict[str, Any]) -> "LogPosition":
        return LogPosition(str(document["file"]), int(document["pos"]))

    @property
    def key(self) -> tuple[int, int]:
        """The sort key of positions."""
        return file_number(self.file), self.pos

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def file_number(file: str) -> int:
    """Return the number at the end of a file name: `binlog.000012` is 12."""
    found = re.search(r"(\d+)$", file)
    if found is None:
        raise ValueError(
            f"{file!r} is not the name of a binary log file: it does not end with a number"
        )
    return int(found[1])
