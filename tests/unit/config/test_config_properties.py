"""Properties of the parsers, over many texts."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tidegate.config.document import PROBLEMS_MAX
from tidegate.config.hocon.parse import parse_hocon
from tidegate.config.json_form import parse_json, parse_strictly
from tidegate.config.load import Format, read_text
from tidegate.config.quick_json import read_plain
from tidegate.model.problem import ProblemKind

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | TEXT
KEY = TEXT.filter(lambda key: key not in ("source", "transform", "sink"))
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4),
    max_leaves=15,
)
OBJECT = st.dictionaries(KEY, VALUE, max_size=5)
SIGNS = [
    *'{}[]=:,+$"\\/#\n\n  \t?`*.->;()',
    "${a}",
    "${?a}",
    "${a:1}",
    '"""',
    "//",
    "+=",
    "\\u12",
    "\ufeff",
    "/*",
    "*/",
]
WORDS = [
    "source",
    "sink",
    "env",
    "a",
    "b",
    "b.c",
    'include "x"',
    "true",
    "null",
    "1",
    "1.5",
    "A {",
    "}\n",
    "'connector'='x'",
]
PHRASES = ["CREATE TABLE t", "WITH (", "INSERT INTO a SELECT * FROM b;"]
PIECES = st.sampled_from([*SIGNS, *WORDS, *PHRASES])
SOUP = st.lists(PIECES, max_size=50).map("".join)


def paths(value, path=()):
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in inside:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def same(read, written):
    """Equal, and with the same types, except that a whole float is an integer."""
    if isinstance(written, dict):
        return (
            isinstance(read, dict)
            and list(read) == list(written)
            and all(same(read[k], written[k]) for k in written)
        )
    if isinstance(written, list):
        return (
            isinstance(read, list) and len(read) == len(written) and all(map(same, read, written))
        )
    return (
        read == written
        and isinstance(read, bool) == isinstance(written, bool)
        and isinstance(read, str) == isinstance(written, str)
    )


@given(OBJECT, st.sampled_from([None, 0, 2]))
def test_any_json_document_is_the_same_data_as_json_and_as_hocon(data, indent):
    text = json.dumps(data, indent=indent)
    for parse in (parse_json, parse_hocon):
        document = parse(text, "job")
        assert document.problems == []
        assert same(document.data, data)
        assert set(document.positions) == set(paths(data))


def spread(text, gaps):
    """The same JSON with other white space where white space may be."""
    pieces, quoted, escaped = [], False, False
    for number, char in enumerate(text):
        if not quoted and char in "{}[],:":
            pieces += [gaps[number % len(gaps)], char, gaps[(number + 1) % len(gaps)]]
        else:
            pieces.append(char)
        quoted = not quoted if char == '"' and not escaped else quoted
        escaped = char == "\\" and not escaped
    return "".join(pieces)


GAPS = st.lists(
    st.sampled_from(["", "", " ", "\n", "\n\n  ", "\t", "\r\n"]), min_size=1, max_size=7
)
NEAR_WORDS = [
    '"a"',
    '"b":',
    "1",
    "-0",
    "1.0",
    "1e400",
    "9223372036854775808",
    "NaN",
    "true",
    '"\\u00e9"',
    '"${a}"',
]
NEAR_JSON = st.lists(st.sampled_from([*'{}[],:"\n ', *NEAR_WORDS]), max_size=14)


@given(
    st.dictionaries(TEXT, VALUE | st.just({"source": {"a": {}}}), max_size=5), GAPS, st.booleans()
)
@example({"source": {"a": {"b": 1}}, "": [[], {}, [[1.0]], 1e300, -0.0]}, ["\n"], False)
@settings(deadline=None)
def test_quick_parser_agrees_with_the_grammar(data, gaps, ascii_only):
    text = spread(json.dumps(data, ensure_ascii=ascii_only), gaps)
    quick, strict = read_plain(text, "job"), parse_strictly(text, "job")
    assert quick is not None or "\\u" in text or "\r" in text
    assert quick is None or (quick == strict and repr(quick.data) == repr(strict.data))


@given(NEAR_JSON.map("".join).map("{{{}}}".format) | NEAR_JSON.map("".join))
@example('{"a": 1, "a": 2}')
@example('{"a": 1.0, "b": [9223372036854775808]}')
@example('{"a":' + "[" * 61 + "]" * 61 + "}")
@settings(deadline=None, max_examples=300)
def test_grammar_accepts_everything_that_the_quick_parser_accepts(text):
    quick = read_plain(text, "job")
    if quick is not None:
        assert quick == parse_strictly(text, "job")


@given(OBJECT)
def test_raw_characters_in_strings_survive(data):
    text = json.dumps(data, ensure_ascii=False)
    assert same(parse_hocon(text, "job").data, data)


@given(OBJECT)
def test_every_key_is_found_on_its_line(data):
    text = json.dumps(data, indent=0)
    lines = text.split("\n")
    for path, at in parse_json(text, "job").positions.items():
        if isinstance(path[-1], str):
            assert lines[at.line - 1].startswith(json.dumps(path[-1]) + ":")


def printed(value):
    """The value in HOCON's own manner: no commas, no colons, bare words where they can be."""
    if isinstance(value, dict):
        return (
            "{\n"
            + "\n".join(f"{json.dumps(key)} = {printed(inner)}" for key, inner in value.items())
            + "\n}"
        )
    if isinstance(value, list):
        return "[\n" + "\n".join(map(printed, value)) + "\n]"
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isalpha()
        and not value.startswith(("true", "false", "null"))
    ):
        return value
    if isinstance(value, str) and '"' not in value:
        return f'"""{value}"""'
    return json.dumps(value)


@given(OBJECT)
def test_printing_and_parsing_go_round(data):
    document = parse_hocon(printed(data), "job")
    assert document.problems == []
    assert same(document.data, data)


@given(st.text() | SOUP, st.sampled_from(Format))
@example("a{b=}${", Format.HOCON)
@example("[" * 5000, Format.HOCON)
@example("a{" * 5000, Format.JSON)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_text_raises_and_mistakes_have_a_line_that_exists(text, form):
    reading = read_text(text, "job", form, read=lambda _path: text)
    assert len([p for p in reading.problems if p.kind is ProblemKind.SYNTAX]) <= PROBLEMS_MAX
    assert reading.spec is not None or reading.errors
    assert all(0 <= problem.at.line <= text.count("\n") + 1 for problem in reading.problems)


@given(SOUP)
@settings(deadline=None)
def test_every_path_that_could_be_read_has_a_location(text):
    document = parse_hocon(text, "job")
    assert set(document.positions) == set(paths(document.data))


NAME = st.sampled_from(["a", "b", "c", "a->b", "b->c"])
REFERENCE = st.builds("${{{}{}}}".format, st.sampled_from(["", "?"]), NAME)
PART = st.sampled_from(["1", "x", "[1]", "{ z = 1 }"]) | REFERENCE


def fields(value):
    return st.lists(
        st.builds("{}{}{}".format, NAME, st.sampled_from([" = ", " = ", " += "]), value),
        min_size=1,
        max_size=4,
    ).map("\n".join)


TANGLE = fields(
    st.recursive(
        st.lists(PART, min_size=1, max_size=2).map(" ".join),
        lambda inner: (
            fields(inner).map("{{\n{}\n}}".format)
            | st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        ),
        max_leaves=6,
    )
)


@given(TANGLE)
@example("a->b = ${c}\na->b { b = ${?a} }\nc = ${b}\nb { c = ${?a} }")
@settings(deadline=None, max_examples=300)
def test_nested_substitutions_end_in_data_or_problems(text):
    document = parse_hocon(text, "job")
    assert set(document.positions) == set(paths(document.data))
    assert parse_hocon(text, "job").data == document.data


@pytest.mark.timeout(120)
def test_long_file_of_difficult_lines_is_parsed_in_time():
    # Each line has what could make a parser look far ahead or back; a quadratic one would hang on
    # this.
    line = 'a { b = [1, ${?x} y, "z"], c += 1 } \n k = x*y z\n l = ${l} [1\n] } \n'
    document = parse_hocon(line * 5_000, "job")
    assert len(document.data["a"]["c"]) == 5_000
