"""Regular expressions that run on Arrow mean the same as in Java.

Python's, in ASCII mode, are the same as Java's on this subset.
"""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.columns.regex import first_only, literal, portable, replacement

PATTERNS = [
    "a",
    "a|bc",
    "[a-c]+",
    "[^a-c]",
    "(a)(b)?c",
    "a{2,3}",
    "a{2,3}?",
    "b+?",
    "\\d+",
    "\\w+",
    "[\\w.-]+",
    "\\.",
    "(?:ab)+",
    "a.c",
    "^a+",
    "[ \\t-]",
    "(a|ab)(c|bcd)",
]
SUBJECTS = st.text(alphabet="abcdé1_.- \t東A", max_size=12)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(subject=SUBJECTS)
def test_arrow_replaces_like_java(pattern: str, subject: str) -> None:
    found = portable(pattern)
    assert found is not None
    compiled = re.compile(pattern, re.ASCII)
    new = replacement("<$0>", found.groups)
    assert new is not None
    made: Any = pc.replace_substring_regex(pa.array([subject]), found.pattern, new)
    assert made[0].as_py() == compiled.sub(r"<\g<0>>", subject)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if not p.startswith("^")])
@given(subject=SUBJECTS, count=st.integers(2, 4))
def test_arrow_splits_like_java(pattern: str, subject: str, count: int) -> None:
    found = portable(pattern)
    assert found is not None
    made: Any = pc.split_pattern_regex(pa.array([subject]), found.pattern, max_splits=count - 1)
    expected, last = [], 0
    for match in list(re.finditer(pattern, subject, re.ASCII))[: count - 1]:
        expected.append(subject[last : match.start()])
        last = match.end()
    assert made[0].as_py() == [*expected, subject[last:]]


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "x*",
        "a?",
        "(?i)a",
        "\\bfoo",
        "a$",
        "x++",
        "\\p{L}",
        "(?=a)",
        "(?<n>a)",
        "(a)\\1",
        "[a&&b]",
        "[[a]b]",
        "[]a]",
        "a{1001}",
        "a{,2}",
        "\\Qa\\E",
        "b^a",
        "(",
        "[a",
        "a**",
        "[a-\\d]",
        "[+--]",
        "|a",
    ],
)
def test_pattern_that_may_differ_is_left_to_spark(pattern: str) -> None:
    assert portable(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a b", "a b"),
        ("\\|", "|"),
        ("\\.\\*", ".*"),
        (".", None),
        ("\\d", None),
        ("a|b", None),
        ("", None),
        ("\\", None),
    ],
)
def test_pattern_of_plain_characters_is_a_literal(pattern: str, text: str | None) -> None:
    assert literal(pattern) == text


@pytest.mark.parametrize(
    ("java", "groups", "arrow"),
    [
        ("b", 0, "b"),
        ("$1", 1, "\\1"),
        ("$2", 1, None),
        ("\\$1", 0, "$1"),
        ("a\\\\b", 0, "a\\\\b"),
        ("${n}", 3, None),
        ("$", 1, None),
        ("\\", 0, None),
        ("$1", 10, None),
    ],
)
def test_replacements_are_translated_for_arrow(java: str, groups: int, arrow: str | None) -> None:
    assert replacement(java, groups) == arrow


@pytest.mark.parametrize(
    ("pattern", "new", "subject", "expected"),
    [
        ("b", "x", "abab", "axab"),
        ("(a)(b)", "$2$1", "cabab", "cbaab"),
        ("(.)\\1", "<$1>", "abccdd", "ab<c>dd"),
        ("a|b", "-", "ccba", "cc-a"),
        ("z", "-", "abc", "abc"),
        ("()()()()()()()()()()(b)", "<$11>", "abab", "a<b>ab"),
        ("(b)", "$10", "abab", "ab0ab"),
    ],
)
def test_only_the_first_match_is_replaced(
    pattern: str, new: str, subject: str, expected: str
) -> None:
    anchored, shifted = first_only(pattern, new)
    assert re.sub(anchored, re.sub(r"\$(12|[123])", r"\\g<\1>", shifted), subject) == expected
