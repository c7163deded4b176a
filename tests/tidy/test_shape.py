"""How long files and functions may be, and how modules are named and begin."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 95
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "misc", "shared"}
TEST_WORDS_MIN = 3


def long_functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
        ):
            yield f"{node.name} has {node.end_lineno - node.lineno + 1} lines"


def short_test_names(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name.startswith("test_")
            and len(node.name.split("_")) <= TEST_WORDS_MIN
        ):
            yield node.name


def sleeps_without_reason(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in {"time.sleep", "sleep"}
            and " # " not in lines[node.lineno - 1]
        ):
            yield f"line {node.lineno}: {lines[node.lineno - 1].strip()}"


def has_banned_name(path: str) -> bool:
    return bool(BANNED_NAMES & set(re.split(r"[/.]", path)))


def test_no_file_is_longer_than_the_limit(tree) -> None:
    assert [
        f"{path}: {text.count(chr(10))} lines"
        for path, text in tree.python()
        if text.count("\n") > FILE_LINES_MAX
    ] == []


def test_no_function_is_longer_than_the_limit(tree) -> None:
    assert [
        f"{path}: {complaint}" for path, text in tree.python() for complaint in long_functions(text)
    ] == []


def test_a_function_one_line_too_long_is_found() -> None:
    limit = FUNCTION_LINES_MAX
    assert list(long_functions("def f():\n" + "    x = 1\n" * (limit - 1))) == []
    assert list(long_functions("def f():\n" + "    x = 1\n" * limit)) == [
        f"f has {limit + 1} lines"
    ]


def test_every_module_begins_with_a_docstring(tree) -> None:
    # An empty __init__.py only makes a folder a package; one with code in it has something to
    # explain.
    assert [
        path
        for path, text in tree.python()
        if text.strip() and not ast.get_docstring(ast.parse(text))
    ] == []


def test_no_module_is_named_for_nothing(tree) -> None:
    assert [path for path, _ in tree.python() if has_banned_name(path)] == []


def test_a_folder_of_utilities_is_found() -> None:
    assert has_banned_name("src/tidegate/utils/text.py")
    assert not has_banned_name("src/tidegate/config/commons.py")


def test_every_folder_of_the_package_is_a_package(tree) -> None:
    """import-linter and the wheel see only folders with an __init__.py."""
    folders = {path.rpartition("/")[0] for path, _ in tree.python("src/tidegate")}
    packages = {
        path.rpartition("/")[0]
        for path, _ in tree.python("src/tidegate")
        if path.endswith("/__init__.py")
    }
    assert folders - packages == set()


def test_test_files_have_names_of_their_own_and_folders_are_no_packages(tree) -> None:
    names = Counter(path.rpartition("/")[2] for path, _ in tree.python("tests"))
    assert [name for name, count in names.items() if count > 1 and name.startswith("test_")] == []
    assert names["__init__.py"] == 0


def test_names_of_tests_are_sentences(tree) -> None:
    assert [
        f"{path}: {name}" for path, text in tree.python("tests") for name in short_test_names(text)
    ] == []


def test_a_test_named_by_a_word_is_found() -> None:
    assert list(
        short_test_names(
            "def test_parse(): ...\ndef test_parse_twice(): ...\ndef test_a_job_stops(): ..."
        )
    ) == [
        "test_parse",
        "test_parse_twice",
    ]


def test_no_test_sleeps(tree) -> None:
    assert [
        f"{path}: {complaint}"
        for path, text in tree.python("tests")
        for complaint in sleeps_without_reason(text)
    ] == []


def test_a_sleep_without_a_reason_beside_it_is_found() -> None:
    assert list(sleeps_without_reason("time.sleep(1)")) == ["line 1: time.sleep(1)"]
    assert (
        list(sleeps_without_reason("time.sleep(1)  # between two looks at another process")) == []
    )
