"""The tables of docs/reference/database-types.md match the code, in both directions."""

import re
from pathlib import Path

import pytest

from tidegate.databases.catalog import NativeColumn
from tidegate.databases.dialect import dialect_of
from tidegate.databases.url import System
from tidegate.model.types import TypeName, parse_type

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "database-types.md"
HEADS = {System.MYSQL: "MariaDB and MySQL", System.POSTGRES: "PostgreSQL", System.SQLITE: "SQLite"}


def rows(head: str) -> list[list[list[str]]]:
    """The rows of a chapter's table: cells, and the code spans in each."""
    chapter = PAGE.read_text(encoding="utf-8").partition(f"## {head}\n")[2].partition("\n## ")[0]
    lines = [line for line in chapter.splitlines() if line.startswith("|")][2:]
    assert lines
    return [
        [re.findall(r"`([^`]*)`", cell) for cell in line.strip("|").split("|")] for line in lines
    ]


@pytest.mark.parametrize("system", list(System))
def test_documented_pipeline_types_match_the_code(system: System) -> None:
    dialect = dialect_of(system)
    for natives, (ours,), *_ in rows(HEADS[system]):
        assert natives
        for native in natives:
            assert str(dialect.data_type(NativeColumn(name="c", native=native))) == ours, native


def test_documented_native_types_match_the_code() -> None:
    documented = set()
    for (ours,), *natives in rows("New tables"):
        documented.add(parse_type(ours).name)
        assert [dialect_of(system).native_type(parse_type(ours)) for system in System] == [
            native for (native,) in natives
        ], ours
    assert set(TypeName) - documented == {TypeName.ROW}, "rows are documented of in words"
