"""What HOCON text means, value by value.

The expectations were compared once with SeaTunnel's own parser.
"""

import pytest

from tidegate.config.hocon.parse import parse_hocon
from tidegate.model.problem import Location


def read(text, **more):
    document = parse_hocon(text, "job.conf", **more)
    assert document.problems == []
    return document.data


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("00012", 12),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1000),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", "9223372036854775808"),
        ("true", True),
        ("false", False),
        ("null", None),
        ("trueish", "trueish"),
        (".5", ".5"),
        ("1e", "1e"),
        ("-", "-"),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("127.0.0.1", "127.0.0.1"),
        ("a/b", "a/b"),
        ("a // comment", "a"),
        ("a # comment", "a"),
        ('"a # b // c"', "a # b // c"),
        (
            r'"tab\t quote\" slash\/ back\\ e\u00e9 pair\ud83d\ude00"',
            'tab\t quote" slash/ back\\ eé pair😀',
        ),
        ('""', ""),
        ('"""a "quoted" b"""', 'a "quoted" b'),
        ('"""ends with a quote""""', 'ends with a quote"'),
        (r'"""no \n escape"""', r"no \n escape"),
        ('""""""', ""),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_value_is_read_as_seatunnel_reads_it(written, value):
    data = read(f"k = {written}")
    assert data == {"k": value}
    assert type(data["k"]) is type(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("10 s", "10 s"),
        ("1.50 x", "1.50 x"),
        ("a   b\tc", "a   b\tc"),
        ('"1" 2 "3"', "1 2 3"),
        ("true yes", "true yes"),
        ('"a"b', "ab"),
        ("[1] [2, 3]", [1, 2, 3]),
        ("{a = 1} {b = 2, a = 3}", {"a": 3, "b": 2}),
    ],
)
def test_values_on_one_line_are_concatenated_and_numbers_keep_their_text(written, value):
    assert read(f"k = {written}") == {"k": value}


@pytest.mark.parametrize(
    "text",
    [
        "a = 1, b = 2",
        "a = 1\nb = 2",
        "a : 1\n\n,\nb : 2,",
        "{ a = 1, b = 2 }",
        "{\na=1\nb=2\n}\n",
        "\ufeffa = 1\r\nb = 2\r\n",
    ],
)
def test_braces_around_the_file_commas_and_line_ends_are_free(text):
    assert read(text) == {"a": 1, "b": 2}


def test_a_block_needs_no_separator_and_may_begin_on_the_next_line():
    assert read("a { b = 1 }\nc\n{ d = 2 }\ne =\n  { f = 3 }") == {
        "a": {"b": 1},
        "c": {"d": 2},
        "e": {"f": 3},
    }


def test_lists_are_separated_by_commas_or_lines_and_may_end_with_a_comma():
    assert read("k = [1, 2,\n 3\n 4,]") == {"k": [1, 2, 3, 4]}


def test_strings_with_three_quotes_span_lines():
    assert read('k = """a\n  b\n"""\nl = 1') == {"k": "a\n  b\n", "l": 1}


def test_a_dot_in_a_key_does_not_nest_and_an_arrow_does():
    data = read('row.num = 5\n"x.y" = 1\na->b->c = 2\n"p->q" = 3')
    assert data == {"row.num": 5, "x.y": 1, "a": {"b": {"c": 2}}, "p->q": 3}


def test_dotted_key_is_independent_of_the_scalar_of_its_first_name():
    assert read("start_mode = specific\nstart_mode.offsets { t-0 = 50 }") == {
        "start_mode": "specific",
        "start_mode.offsets": {"t-0": 50},
    }


def test_keys_keep_the_order_of_the_file():
    assert list(read("z = 1\na = 2\nm { y = 1, b = 2 }\nz = 3")) == ["z", "a", "m"]


def test_every_key_and_element_has_its_line():
    text = 'env {\n  a = 1\n}\n\nlist = [\n  x\n  { y = """m\nn""", z = 2 }\n]\nq = 1'
    positions = parse_hocon(text, "dir/job.conf").positions
    lines = {path: at.line for path, at in positions.items()}
    assert lines == {
        ("env",): 1,
        ("env", "a"): 2,
        ("list",): 5,
        ("list", 0): 6,
        ("list", 1): 7,
        ("list", 1, "y"): 7,
        ("list", 1, "z"): 8,
        ("q",): 10,
    }
    assert positions[("q",)] == Location("dir/job.conf", 10)
