"""Mistakes in HOCON text: many at once, each with its line and a sentence that helps."""

import pytest

from tidegate.config.document import PROBLEMS_MAX
from tidegate.config.hocon.parse import parse_hocon
from tidegate.model.problem import ProblemKind


def problems(text):
    found = parse_hocon(text, "job.conf").problems
    assert all(problem.kind is ProblemKind.SYNTAX for problem in found)
    return [(problem.at.line, problem.message) for problem in found]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = *", 2, "*"),
        ("a = x`y", 1, "quotes"),
        ('a = "abc\nb = 1', 1, "not closed"),
        ('a = 1\nb = """abc\nc', 2, "never closed"),
        ('a = "x\\q"', 1, "\\q"),
        ('a = "\\u12"', 1, "four"),
        ('a = "\\ud83d"', 1, "half"),
        ("a = $x", 1, "`$`"),
        ("a = ${x\nb = 1", 1, "not closed"),
        ("a = ${}", 1, "no name"),
        ("a = 1+2", 1, "+"),
        ("a\nb = 1", 1, "`a`"),
        ("a =\nb = 1", 1, "`a` has no value"),
        ("a = , b = 1", 1, "`a` has no value"),
        ("x {\n a = }", 2, "`a` has no value"),
        ("= 1", 1, "expected a key"),
        ("a = 1 b = 2", 1, "comma"),
        ("url = http://x:80", 1, "double quotes"),
        ("a { b = 1 } c = 2", 1, "`c`"),
        ("a = 1\n}\nb = 2", 2, "closes nothing"),
        ("a = [1, , 2]", 1, "comma"),
        ("a = [1, 2\nb = 3", 1, "still open"),
        ("a = [1, 2 }", 1, "`]`"),
        ("a = [{ b = 1 ]", 1, "`}`"),
        ("{ a = 1 }\nb = 2", 2, "after the `}`"),
        ("[1, 2]", 1, "list"),
        ("a->->b = 1", 1, "empty name"),
        ("${x} = 1", 1, "key"),
        ("a${x} = 1", 1, "key"),
        ("include 5x\n", 1, "include"),
        ('include file("a"', 1, "include"),
        ("a = " + "[" * 100, 1, "nested"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, line, words):
    found = problems(text)
    assert any(at == line and words in message for at, message in found), found


def test_an_unclosed_brace_names_every_block_that_is_open_and_its_line():
    text = "env { a = 1\nsource {\n  A { x = 1 }\n}\nsink {\n  B { y = 2 }\n"
    assert problems(text) == [
        (1, "the file ends, but `{` of `env` (line 1) and `{` of `sink` (line 5) are still open")
    ]


def test_mistakes_far_from_each_other_are_all_found():
    text = (
        'env {\n  a = *\n  b\n}\nsource { A { c = [1, , 2], d = "x\n } }\nsink { B { e = $f } }\n}'
    )
    assert sorted({line for line, _ in problems(text)}) == [2, 3, 5, 7, 8]


def test_the_rest_is_still_read_after_a_mistake():
    data = parse_hocon("a = 1\nb c d\ne = 2\nf { g = * , h = 3 }\ni = 4", "job.conf").data
    assert (data["a"], data["e"], data["f"]["h"], data["i"]) == (1, 2, 3, 4)


def test_number_of_problems_is_limited():
    assert len(problems("\n".join("*" for _ in range(1000)))) == PROBLEMS_MAX


def test_a_long_key_is_cut_in_the_message():
    [(_, message)] = problems("x" * 10_000)
    assert len(message) < 200
