"""Plain engineering English: retired words stay retired, docstrings say something, lines fit.

CONTRIBUTING.md has the rules. A public name that has to keep a retired word (a stored key, a JSON
field, an option) is allowed where it is quoted or dotted, and nowhere else.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

COLUMNS_MAX = 100
DOCSTRING_WORDS_MIN = 5
SAME_CLASS_NAMES_MAX = 12
PHRASES = (
    "bury",
    "buried",
    "burie" + "s",
    "desk",
    "doomed",
    "goes" + " on",
    "going" + " on with",
    "held" + " up",
    "in the" + " rain",
    "is" + " told",
    "last_" + "words",
    "left without" + " a word",
    "looks" + " at",
    "patiently",
    "picture",
    "reckoning",
    "runway",
    "shall",
    "sign of" + " life",
    "stranger",
    "surroundings",
    "the" + " reference",
    "undead",
    "weather",
    "wish",
)
RETIRED = re.compile(
    r"(?<![\w\"'.{-])(?:" + "|".join(map(re.escape, PHRASES)) + r")(?:s|es|ed)?(?![\w\"'-])",
    re.IGNORECASE,
)
RETIRED_NAMES = re.compile(
    r"\b(?:Picture|Desk|Surroundings|Wish\w*|\w+Wish|Reins|Grip|Door|STRANGER|Runway\w*|Weather"
    r"|bury_\w+|\w+_runway|\w+_wish|patiently|undead|reckon\w*)\b"
)
PUBLIC_NAMES = re.compile(
    r"JOB_RUNWAY|RUNWAY =|driver-undead|`runway`|wish: str \| None = old_name|\"Runway\w*\": "
)


def retired_words(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        plain = PUBLIC_NAMES.sub("", line)
        if RETIRED.search(plain) or RETIRED_NAMES.search(plain):
            yield f"line {number}: {line.strip()[:100]}"


def empty_docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = (ast.get_docstring(node) or "").split()
            if words and len(words) < DOCSTRING_WORDS_MIN:
                yield f"line {node.lineno}: {' '.join(words)}"


def wide_lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS_MAX:
            yield f"line {number}: {len(line)} columns"


def is_product(path: str) -> bool:
    return path.startswith("src/") and path.endswith((".py", ".pyx", ".html", ".js", ".sql"))


def test_no_retired_word_is_in_the_product(tree) -> None:
    assert [
        f"{path}: {line}"
        for path, text in tree.files("src")
        if is_product(path)
        for line in retired_words(text)
    ] == []


@pytest.mark.parametrize(
    "line",
    ["# the job goes" + " on", "class Pict" + "ure:", "def bury_" + "it():", "It shall" + " stop."],
)
def test_a_retired_word_is_found(line: str) -> None:
    assert list(retired_words(line)) == [f"line 1: {line}"]


@pytest.mark.parametrize(
    "line", ['field(metadata={"key": "wi' + 'sh"})', '"checkpoint.run' + 'way-interval"']
)
def test_a_public_name_may_keep_its_word(line: str) -> None:
    assert list(retired_words(line)) == []


def test_every_docstring_says_more_than_the_name(tree) -> None:
    assert [
        f"{path}: {line}"
        for path, text in tree.python()
        if path.startswith("src/")
        for line in empty_docstrings(text)
    ] == []


def test_a_docstring_of_a_few_words_is_found() -> None:
    assert list(empty_docstrings('def f():\n    """All of it."""\n')) == ["line 1: All of it."]


def test_lines_fit_into_a_hundred_columns(tree) -> None:
    assert [
        f"{path}: {line}"
        for path, text in tree.files("src")
        if path.endswith((".py", ".pyx"))
        for line in wide_lines(text)
    ] == []


def test_a_wide_line_is_found() -> None:
    assert list(wide_lines("x" * 100 + "\n" + "y" * 101)) == ["line 2: 101 columns"]


def test_class_names_mean_one_thing(tree) -> None:
    names = Counter(
        node.name
        for path, text in tree.python()
        if path.startswith("src/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    )
    twice = sorted(name for name, count in names.items() if count > 1)
    assert len(twice) <= SAME_CLASS_NAMES_MAX, twice
