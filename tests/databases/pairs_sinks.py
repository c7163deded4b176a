"""More ends: change files that are added up to rows, and tables without keys, copied once.

Used by test_pairs.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
from pairs_sides import COLUMNS, KEYS, Rows, Side

ROWS = 1_000
RATE = 60  # rows of each reader in a second, so that the copy lasts as long as the kills
_NAME = re.compile(r"T_\d+_[0-9a-f]+_(\d+)_(\d+)(?:_(\d+))?\.")


def _order(file: Path) -> tuple[int, int, int]:
    """Checkpoint, task, file of the task."""
    found = _NAME.match(file.name)
    assert found is not None, f"{file.name} is no name of ours"
    return int(found[2]), int(found[1]), int(found[3] or 0)


def _changes(directory: Path, table: str) -> Iterator[dict[str, Any]]:
    for file in sorted((directory / table).glob("T_*.parquet"), key=_order):
        yield from pyarrow.parquet.read_table(file, partitioning=None).to_pylist()


def replayed(directory: Path) -> Rows:
    """What the changes add up to, each held against the rows so far: nothing is inserted twice, and
    what is changed or deleted is as it is said to be.
    """
    rows: Rows = {}
    for table, columns in COLUMNS.items():
        for change in _changes(directory, table):
            row = tuple(change[name] for name in columns.split(", "))
            key = (table, *row[: len(KEYS[table])])
            match change["change"]:
                case "+I":
                    assert key not in rows, f"{key} is inserted but exists"
                    rows[key] = row
                case "-U":
                    assert rows[key] == row, (
                        f"{key} is said to have been {row}, and was {rows[key]}"
                    )
                case "+U":
                    assert key in rows, f"{key} is updated but does not exist"
                    rows[key] = row
                case _:
                    assert rows.pop(key) == row, f"{key} is deleted as another row than it is"
    return rows


def adds_up(directory: Path, wanted: Rows) -> bool:
    """Whether the changes so far are these rows.

    Files come one by one while this looks: what does not fit yet is no answer.
    """
    try:
        return replayed(directory) == wanted
    except (AssertionError, LookupError):
        return False


@dataclass(frozen=True, slots=True)
class Copy:
    """A table without a key, which does not change, and its copy: a row that is delivered twice appears
    twice.
    """

    source: Side
    target: Side

    def fill(self) -> None:
        with closing(self.source.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("create table visits (page varchar(40), seconds int)")
            cursor.executemany("insert into visits values (%s, %s)", self._wanted())
            connection.commit()

    def _wanted(self) -> list[tuple[str, int]]:
        return [(f"page {number % 7}", number // 2) for number in range(ROWS)]

    @staticmethod
    def text(copies: Sequence["Copy"]) -> str:
        """The blocks of a job, one pipeline for each."""
        sources = [
            f'Jdbc {{ plugin_output = "t{number}", {copy.source.login}, table_path = "visits",'
            ' partition_column = "seconds", split.size = 20 }'
            for number, copy in enumerate(copies)
        ]
        sinks = [
            f'Jdbc {{ plugin_input = "t{number}", {copy.target.login}, generate_sink_sql = true,'
            ' table = "visits" }'
            for number, copy in enumerate(copies)
        ]
        return f"source {{ {', '.join(sources)} }}\nsink {{ {', '.join(sinks)} }}"

    def check(self) -> None:
        """Check that each row exists once."""
        with closing(self.target.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("select page, seconds from visits")
            assert sorted(tuple(row) for row in cursor.fetchall()) == sorted(self._wanted())
