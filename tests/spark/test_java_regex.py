"""Regular expressions are accepted and match as in Java, compared with Java itself."""

import itertools
import random
import re

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tidegate.plugin.javaregex import (
    JavaRegexError,
    NotForNames,
    compile_for_names,
    match_spans,
    parsed,
    pattern_error,
)

PATTERNS = [
    r"[\w-\.]+@([\w-]+\.)+[\w-]{2,4}", r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$", "a++b", "a*+a",
    "(?>a|ab)c", r"\p{Alpha}+", r"\P{Alpha}+", r"\Qa.b\E+", r"\Qa.b", r"[\Q]-\E]+", "[a-z&&[^b]]+",
    "[a-z&&[^bc]&&[^d]]+", "[a-c[x-z]]+", "[^a-c[x-z]]+", "(?i)AB", "a(?i)B", "(?i:A)b", "(?i)ä",
    "(?iu)Ä", "(?<n>a)b\\k<n>", r"\h+", r"\R", r"a\Rb", r"\p{L}+", r"\pL+", r"\p{Lu}\p{Ll}*",
    r"\p{IsAlphabetic}+", r"\p{IsL}", r"\p{gc=Lu}", r"\x41\u0042\0103", r"\x{1F600}",
    r"\uD83D\uDE00", r"\cA", r"\t\n\r\f\a\e", r"(a)(b)\2\1", r"(a)\10", r"\1a", "a|b|", "|", "",
    "(?:)", "()", "(?=a)b|a", "(?!a).", "(?<=a)b", "(?<!a)b", "(?<=a{1,3})b", "(?<=a|bc)d",
    "(?<=a+)b", "[]a]+", "[^]a]", "[a]]", "a]", "a}", "[a-]", "[-a]", "[a-[b]]", "[a--b]", "[--a]",
    "a{2}", "a{2,}", "a{,2}", "a{2,1}", "a{", "{", "{2}", "a{2}{3}", "a{2}?", "a{2}+", "a**",
    "a+*", "*a", "+", "?", "(", ")", "a)", "[", "[]", "[^]", "[a", "\\", "a\\", r"\y", r"\j",
    r"\Y", r"\E", r"[\b]", r"[\1]", r"[\w-a]", r"[a-\w]", r"[\d-z]", "[b-a]", r"[\x41-\x43]",
    "(?x) a b # c", "(?x)a #c\nb", "(?x)[a b]", "(?-i)a", "(?i-s:a)", "(?z)a", "(?", "(?<",
    "(?<1>a)", "(?<a_b>a)", "(?<a>a)(?<a>b)", r"\k<a>", r"\p{Nope}", r"\p{", r"\p", r"\p{IsLatin}",
    r"\p{InGreek}", r"\p{javaLowerCase}", r"\p{script=Han}", r"\p{foo=Han}", r"\p{Punct}+",
    "(?m)^a$", "(?m)^$", "^", "$", "a$", r"a\Z", r"a\z", r"\Aa", "(?s).+", ".+", "(?d).+",
    r"\bab\b", r"\Bb", r"\v", r"\V", r"\H", r"\N{LATIN SMALL LETTER A}", r"\N{NOPE}", r"\x4",
    r"\u12", r"\0", r"\08", r"\G", r"\X", "[&&a]", "[a&&]", "[a&b]", "[a&&b&&c]", "[a-d&&bc]",
    "(?@a)", "(?$a)", "(?U)\\w+", "(a*)*b", "(?i)[^a]", "(?i)[a-c]+", "[^\\W]+", "[^\\d\\s]+",
    "a{0}b", "(?:a|b)++c", r"\p{Lower}\p{Upper}\p{Digit}", r"[\p{L}&&[^\p{Lu}]]+", r"[^\p{Alpha}]",
    "^*", "(?=a)*a", "$*", r"\*\+\?\.\(\)\[\]\{\}", "é+", "\U0001f600+",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "AB", "aab", "abc", "aaab", "a.b", "a.bb", "a-b.c@x-y.org", "x@y", "ä",
    "Ä", "aa", "aba", "aB", "Ab", " ", "\t", "\xa0", "a\r\nb", "a\nb", "a\n", "\r\n", "\n", "AZ",
    "ABC", "a0", "abba", "xyz", "xbz", "]", "]-", "-", "a]", "a}", "b]", "c", "bcd", "aad", "{",
    "é", "éé", "Éa", "ß", "1", "\u0663", "\U0001f600", "\x01", "a\u2028", "a\x85b", "_", "a b",
    "*+?.()[]{}", "&", "a&", "\0", "C", "ABc", "b ab", "\u03b1",
]  # fmt: skip


@pytest.fixture(scope="module")
def java(spark: SparkSession):
    return spark._jvm.java.util.regex.Pattern


def accepted(java, pattern: str) -> bool:
    try:
        java.compile(pattern)
    except IllegalArgumentException:
        return False
    return True


def found(java, pattern: str) -> list[list[tuple[int, int]]]:
    """Where the expression matches each of the texts, counted in characters and not in halves of
    them.
    """
    compiled = java.compile(pattern)
    spans = []
    for text in TEXTS:
        matcher = compiled.matcher(text)
        units = list(itertools.accumulate((2 if ord(c) > 0xFFFF else 1 for c in text), initial=0))
        own = []
        while matcher.find():
            if matcher.start() in units:  # not between the halves of a character
                own.append((units.index(matcher.start()), units.index(matcher.end())))
        spans.append([*own, (-1, int(matcher.reset().matches()))])
    return spans


def translated(pattern: str) -> list[list[tuple[int, int]]]:
    ours = compile_for_names(pattern)
    return [
        [*match_spans(pattern, text), (-1, int(ours.fullmatch(text) is not None))] for text in TEXTS
    ]


def check(java, pattern: str) -> None:
    wrong = pattern_error(pattern)
    assert (not wrong) == accepted(java, pattern), f"{pattern!r}: {wrong or 'accepted'}"
    if wrong:
        return
    try:
        ours = translated(pattern)
    except NotForNames:
        return
    assert ours == found(java, pattern), (pattern, parsed(pattern).python)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_expression_is_accepted_and_matches_exactly_as_in_java(java, pattern: str) -> None:
    check(java, pattern)


def test_random_expressions_are_accepted_and_match_as_in_java(java) -> None:
    pieces = [
        "a",
        "b",
        "B",
        "-",
        ".",
        "[",
        "]",
        "^",
        "&&",
        "\\w",
        "\\d",
        "\\.",
        "(",
        "(?:",
        ")",
        "|",
        "*",
        "+",
        "?",
        "{2}",
        "\\Q",
        "\\E",
        "(?i)",
        "$",
        "\\p{L}",
        "[^b]",
    ]
    chance = random.Random(20261118)  # always the same expressions
    for _ in range(400):
        check(java, "".join(chance.choices(pieces, k=chance.randint(1, 7))))


def test_groups_are_counted_and_shifted_as_java_counts_them(java) -> None:
    for pattern in (
        r"(a)(b)\2\1",
        r"(a)\10",
        r"(?<n>a)\k<n>\1",
        r"\1a",
        "(?x)(a) # (b)",
        r"\Q(a)\E(b)\1",
    ):
        ours = parsed(pattern)
        assert ours.groups == java.compile(pattern).matcher("").groupCount()
        for text in ("abba", "aa0", "aaa", "a", "(a)bb"):
            plain, moved = (
                java.compile(pattern).matcher(text),
                java.compile("()" + ours.shifted(1)).matcher(text),
            )
            assert plain.matches() == moved.matches(), (pattern, text)


def test_open_comment_or_quotation_at_the_end_is_closed(java) -> None:
    for pattern in ("(?x)a # b", r"\Qa", "a"):
        assert java.compile(rf"\A{parsed(pattern).embedded()}\z").matcher("a").matches()


def test_errors_are_reported_with_their_position() -> None:
    with pytest.raises(JavaRegexError, match=r"a group is not closed, at character 5"):
        parsed("ab(c")
    assert re.search(r"there is no property 'Nope', at character 3", pattern_error(r"\p{Nope}"))
