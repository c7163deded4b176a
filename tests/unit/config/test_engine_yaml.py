"""YAML of the engine's file: values of YAML 1.2 with lines, and every mistake.

No objects are constructed, and messages do not quote the file.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.document import Document
from tidegate.config.engine.yaml_reader import CHARS_MAX, parse_yaml
from tidegate.model.problem import Location


def parse(text: str) -> Document:
    return parse_yaml(text, "e.yaml")


def reported(text: str) -> list[str]:
    return [str(problem) for problem in parse(text).problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("012", 12),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("FALSE", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("[1, a]", [1, "a"]),
        # Those that YAML 1.1 would turn into something else.
        ("OFF", "OFF"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_values_are_those_of_yaml_one_point_two(text: str, value: object) -> None:
    document = parse(f"a: {text}\n")
    assert document.problems == []
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


def test_every_key_has_its_line() -> None:
    document = parse("a:\n  b: 1\n\n  c:\n    d: x\n")
    assert {path: at.line for path, at in document.positions.items()} == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 4,
        ("a", "c", "d"): 5,
    }
    assert document.at(("a", "c", "unknown")) == Location("e.yaml", 4)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "~"])
def test_empty_file_has_no_data_and_no_problem(text: str) -> None:
    document = parse(text)
    assert (document.data, document.problems) == ({}, [])


def test_all_keys_that_are_given_twice_are_named_and_the_first_ones_hold() -> None:
    text = "a: 1\nb: 2\na: 3\nc:\n  d: 4\n  d: 5\n"
    assert reported(text) == [
        "e.yaml:3: error: a is set twice, first on line 1",
        "e.yaml:6: error: d is set twice, first on line 5",
    ]
    assert parse(text).data == {"a": 1, "b": 2, "c": {"d": 4}}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: 1", 2, "YAML is indented with spaces"),
        ("a: 1\nb: [1, 2", 2, "expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb: c: d", 2, "mapping values are not allowed here"),
        ("- 1", 1, "a block of keys and values"),
        ("just words", 1, "a block of keys and values"),
        ("a: 1\n---\nb: 2", 2, "expected a single document"),
        ("a: 1\nb: \x01", 2, "a character that YAML does not allow"),
        ("? [a, b]\n: c", 1, "a key must be a single word"),
        ("a: 1\n<<: {b: 2}", 2, "merging blocks"),
        ("a: !!int x", 1, "does not fit its tag !!int"),
        ("a: !!bool x", 1, "does not fit its tag !!bool"),
        ("a: !!python/object/apply:os.system [ls]", 1, "a value with a tag"),
        ("a: !!set {x}", 1, "a value with a tag"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, words: str) -> None:
    problems = parse(text).problems
    assert [problem.at.line for problem in problems] == [line]
    assert words in problems[0].message


@pytest.mark.parametrize(
    "value",
    [
        "*hunter2",
        "&hunter2 &hunter2 x",
        "!hunter2",
        "!hunter2 x",
        "!h!hunter2 x",
        "@hunter2",
        "%hunter2",
        "'hunter2",
        '"\\qhunter2"',
        "{hunter2",
    ],
)
def test_unquoted_password_is_not_in_the_message(value: str) -> None:
    complaints = reported(f"password: {value}\n")
    assert complaints
    assert not any("hunter2" in complaint for complaint in complaints)


def test_aliases_are_followed_up_to_a_limit() -> None:
    assert parse("a: &x {b: 1}\nc: *x\n").data == {"a": {"b": 1}, "c": {"b": 1}}
    levels = [f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "with its aliases" in reported("\n".join(["k0: &k0 [1]", *levels]))[0]
    assert "with its aliases" in reported("a: &x {b: *x}\n")[0]


@pytest.mark.parametrize("text", ["[" * 5_000, "a: " + "{b: " * 100 + "1" + "}" * 100])
def test_unbounded_nesting_is_refused(text: str) -> None:
    assert "nested too deep" in reported(text)[0]


def test_file_of_a_million_characters_is_not_parsed() -> None:
    assert reported("#" * (CHARS_MAX + 1)) == [
        f"e.yaml: error: the file has more than {CHARS_MAX:,} characters: it is not an engine's"
        " file"
    ]


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@#,? \n\t\x00\u00e9", max_size=60))
def test_any_text_gives_data_or_a_problem_and_never_an_error(text: str) -> None:
    document = parse(text)
    assert document.problems or isinstance(document.data, dict)
