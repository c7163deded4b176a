"""The SQL of the backends, in files of named queries; Python builds no SQL.

A file is a sequence of `-- name: <name>`, comment lines, and the query. A query of several
statements is separated by semicolons at line ends.
"""

from functools import cache
from importlib import resources


class Queries:
    """The queries of one file, by name."""

    def __init__(self, file: str, texts: dict[str, str]) -> None:
        self.file = file
        self._texts = texts

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def statements(self, name: str) -> list[str]:
        """Return the statements of a query that has several."""
        return [
            statement
            for part in self._texts[name].split(";\n")
            if (statement := part.strip().rstrip(";"))
        ]


@cache
def load_queries(file: str) -> Queries:
    """Load a file of this package once."""
    texts: dict[str, str] = {}
    for block in (
        resources.files(__name__).joinpath(file).read_text(encoding="utf-8").split("-- name:")[1:]
    ):
        name, _, body = block.partition("\n")
        assert name.strip() not in texts, f"{file} has two queries {name.strip()}"
        texts[name.strip()] = (
            "\n".join(line for line in body.splitlines() if not line.startswith("--"))
            .strip()
            .rstrip(";")
        )
    return Queries(file, texts)
