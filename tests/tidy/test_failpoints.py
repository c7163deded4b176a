"""Failpoints are literals with names of one form, each in one place, in pairs, and no durable write
is without.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

NAME = re.compile(r"([a-z0-9_-]+\.[a-z0-9_-]+)\.(before|middle|after)")
DURABLE_CALLS = {"os.fsync", "os.fdatasync", "os.replace", "os.rename", "os.link"}
# Modules that make things durable and are not bracketed, with the reason.
BRACKETED_BY_OTHERS = {
    "src/tidegate/checkpoints/files/local.py": (
        "single acts, which the storage, the savepoints and the collector bracket"
    ),
    "src/tidegate/cli/doctor.py": "measures how long a write takes, and keeps nothing",
    "src/tidegate/connectors/localfile/durable_io.py": (
        "single acts, which the committer, the writer and the save modes bracket"
    ),
    "src/tidegate/store/sqlite/file.py": (
        "passes the places that all backends share, which store/failpoints.py names"
    ),
}


def calls(text: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def is_failpoint(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] == "failpoint"


def name_of(call: ast.Call) -> str:
    """The literal name; the source of the argument where it is none."""
    match call:
        case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]):
            return name
        case _:
            return f"not a literal: {ast.unparse(call)}"


def failpoints(text: str) -> list[str]:
    return [name_of(call) for call in calls(text) if is_failpoint(call)]


def unpaired(names: list[str]) -> list[str]:
    """Steps whose before has no after, or the other way."""
    sides: dict[str, set[str]] = {}
    for name in names:
        if match := NAME.fullmatch(name):
            sides.setdefault(match[1], set()).add(match[2])
    return sorted(step for step, seen in sides.items() if not {"before", "after"} <= seen)


def makes_durable(text: str) -> bool:
    return any(ast.unparse(call.func) in DURABLE_CALLS for call in calls(text))


@pytest.fixture
def in_product(tree) -> dict[str, list[str]]:
    return {
        path: failpoints(text)
        for path, text in tree.python("src/tidegate")
        if path != "src/tidegate/failpoint.py"
    }


def test_every_failpoint_has_a_literal_name_of_the_one_form(in_product) -> None:
    assert [
        f"{path}: {name}"
        for path, names in in_product.items()
        for name in names
        if not NAME.fullmatch(name)
    ] == []


def test_every_failpoint_is_in_one_place_only(in_product) -> None:
    counts = Counter(name for names in in_product.values() for name in names)
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_step_has_a_before_and_an_after(in_product) -> None:
    assert unpaired([name for names in in_product.values() for name in names]) == []


def test_every_module_that_makes_something_durable_has_failpoints(tree) -> None:
    durable = {
        path
        for path, text in tree.python("src/tidegate")
        if makes_durable(text) and not failpoints(text)
    }
    assert durable - set(BRACKETED_BY_OTHERS) == set()


def test_no_exception_is_left_of_a_module_that_changed(tree) -> None:
    durable = {
        path
        for path, text in tree.python("src/tidegate")
        if makes_durable(text) and not failpoints(text)
    }
    assert set(BRACKETED_BY_OTHERS) - durable == set()


def test_the_rules_find_what_breaks_them() -> None:
    text = 'failpoint("store.commit.before")\nfailpoint(name)\nos.fsync(3)\n'
    assert failpoints(text) == ["store.commit.before", "not a literal: failpoint(name)"]
    assert unpaired(failpoints(text)) == ["store.commit"]
    assert makes_durable(text)
    assert not NAME.fullmatch("store.commit.during")
