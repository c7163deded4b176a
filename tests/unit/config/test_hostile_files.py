"""Small job files that would expand without limit, and very large ones, are refused.

Memory stays bounded.
"""

import tracemalloc

import pytest

from tidegate.config.document import PROBLEMS_MAX
from tidegate.config.hocon.lexer import TOKENS_MAX
from tidegate.config.hocon.resolve import VALUES_MAX
from tidegate.config.load import Format, read_text

MEMORY_BYTES_MAX = 120_000_000
DOUBLINGS = range(1, 30)
HEAD = "env { job.mode = BATCH }\n"
EXPANDING = {
    "a list": "a0 = [1, 2]\n" + "".join(f"a{i} = ${{a{i - 1}}} ${{a{i - 1}}}\n" for i in DOUBLINGS),
    "a text": "a0 = ab\n" + "".join(f"a{i} = ${{a{i - 1}}}${{a{i - 1}}}\n" for i in DOUBLINGS),
    "an object": (
        "a0 = { x = 1 }\n"
        + "".join(f"a{i} = {{ l = ${{a{i - 1}}}, r = ${{a{i - 1}}} }}\n" for i in DOUBLINGS)
    ),
    "nested lists": (
        "a0 = [1]\n" + "".join(f"a{i} = [${{a{i - 1}}}, ${{a{i - 1}}}]\n" for i in DOUBLINGS)
    ),
    "a list appended to itself": "a = [1]\n" + "a += ${a}\n" * 30,
    "a list joined with itself": "a = [1, 2]\n" + "a = ${a} ${a}\n" * 30,
    "an object merged again and again": (
        "b = { "
        + ", ".join(f"k{i} = 1" for i in range(3000))
        + " }\n"
        + "".join(f"c{i} = ${{b}} {{ x = 1 }}\n" for i in range(3000))
    ),
    "a long text used often": (
        f'a = "{"x" * 30_000}"\n' + "".join(f"b{i} = ${{a}}\n" for i in range(2000))
    ),
}
LARGE = {
    "keys": "".join(f"key{i} = 1\n" for i in range(200_000)),
    "words on a line": "a " * 600_000,
    "brackets": "[{" * 400_000,
    "open braces": "a = {" * 200_000,
    "dollars": "$" * 600_000,
    "open substitutions": "a = ${\n" * 200_000,
    "open strings": 'a = "\n' * 200_000,
    "includes": 'include "x"\n' * 200_000,
    "a path of keys": "->".join("a" * 100_000) + " = 1\n",
}


def complaints(text: str, form: Format = Format.HOCON) -> list[str]:
    reading = read_text(text, "job", form)
    assert reading.spec is None, "a file beyond the limits gives no job"
    return [problem.message for problem in reading.problems]


@pytest.mark.parametrize("name", EXPANDING)
def test_file_that_expands_without_limit_is_refused_before_it_exhausts_the_memory(
    name: str,
) -> None:
    tracemalloc.start()
    try:
        found = complaints(HEAD + EXPANDING[name])
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert "more than" in found[0]


@pytest.mark.parametrize("name", LARGE)
def test_a_file_with_too_many_parts_is_refused_with_few_complaints(name: str) -> None:
    found = complaints(HEAD + LARGE[name])
    assert 0 < len(found) <= PROBLEMS_MAX


def test_a_large_json_file_is_refused_by_its_number_of_keys() -> None:
    text = "{" + ",\n".join(f'"key{i}": 1' for i in range(200_000)) + "}"
    assert complaints(text, Format.JSON) == [
        f"this file has more than {TOKENS_MAX} tokens: it is too large for a job file"
    ]


def test_thousands_of_values_can_be_appended() -> None:
    """The cost of `+=` and of repeated keys is linear in the size of the file."""
    many = 20_000
    text = "a = [0]\n" + "a += 1\n" * many + "".join(f"b {{ k{i} = 1 }}\n" for i in range(many))
    reading = read_text(HEAD + text + SMALL, "job")
    assert [problem.message for problem in reading.problems if problem.severity == "error"] == []


def test_appended_values_do_not_change_what_was_copied_before() -> None:
    """A reference to a growing list sees the final list; a concatenated copy does not."""
    text = "a = [1]\na += 2\nb = ${a} [9]\na += 3\na += 4\n"
    reading = read_text(HEAD + text + SMALL.replace("[1]", "${b}"), "job")
    assert reading.spec is not None
    options = reading.spec.sources[0].options
    assert options["partition"] == [1, 2, 3, 4, 9]


def test_a_file_just_below_the_limit_of_values_is_read() -> None:
    text = "a = [" + ", ".join(["1"] * (VALUES_MAX // 2)) + "]\n"
    assert read_text(HEAD + text + SMALL, "job").errors == []


SMALL = """
source { FakeSource { plugin_output = t, partition = [1], schema { fields { id = bigint } } } }
sink { Console { plugin_input = t } }
"""
