"""Merging, substitutions, includes, and the dialect's plugin lists."""

import pytest

from tidegate.config.hocon.parse import parse_hocon
from tidegate.model.problem import Severity


def read(text, **more):
    document = parse_hocon(text, "job.conf", **more)
    assert document.problems == []
    return document.data


def problems(text, **more):
    return [str(problem) for problem in parse_hocon(text, "job.conf", **more).problems]


# --- plugin lists


def test_the_children_of_source_transform_and_sink_are_a_list_in_file_order():
    data = read(
        "source {\n Fake { a = 1 }\n Other { b = 2 }\n Fake { a = 3 }\n}\nsink { Console {}"
        " }\ntransform {}"
    )
    assert data["source"] == [
        {"a": 1, "plugin_name": "Fake"},
        {"b": 2, "plugin_name": "Other"},
        {"a": 3, "plugin_name": "Fake"},
    ]
    assert data["sink"] == [{"plugin_name": "Console"}]
    assert data["transform"] == []


def test_a_plugin_name_inside_of_the_block_wins():
    assert read("source { x { plugin_name = Fake } }") == {"source": [{"plugin_name": "Fake"}]}


def test_the_arrow_in_a_plugins_key_nests_below_its_first_name():
    assert read("source { a->b { z = 1 } }") == {"source": [{"b": {"z": 1}, "plugin_name": "a"}]}


def test_a_list_of_plugins_can_be_written_out():
    assert read("source = [ { plugin_name = Fake, row.num = 5 } ]") == {
        "source": [{"plugin_name": "Fake", "row.num": 5}]
    }


def test_a_nested_key_of_such_a_name_is_a_list_only_if_it_holds_blocks():
    data = read("source { A { source { B { x = 1 } }, sink { x = int, y = string } } }")
    assert data["source"][0]["source"] == [{"x": 1, "plugin_name": "B"}]
    assert data["source"][0]["sink"] == {"x": "int", "y": "string"}


def test_a_second_source_block_replaces_the_first_with_a_warning():
    document = parse_hocon("source { A {} }\n\nsource { B {} }", "job.conf")
    assert document.data == {"source": [{"plugin_name": "B"}]}
    [problem] = document.problems
    assert problem.severity is Severity.WARNING
    assert (problem.at.line, "line 1" in problem.message) == (3, True)


def test_locations_of_a_plugin_point_to_its_own_lines():
    positions = parse_hocon("source {\n  Fake {\n    a = 1\n  }\n}", "job.conf").positions
    assert {path: at.line for path, at in positions.items()} == {
        ("source",): 1,
        ("source", 0): 2,
        ("source", 0, "a"): 3,
        ("source", 0, "plugin_name"): 2,
    }


# --- merging


def test_later_objects_merge_and_later_scalars_win():
    assert read("a { x = 1, y = 2 }\na { y = 3, z = 4 }\nb = 1\nb = 2") == {
        "a": {"x": 1, "y": 3, "z": 4},
        "b": 2,
    }


def test_a_scalar_between_two_objects_cuts_the_merge():
    assert read("a { b { c = 1 } }\na { b = 5 }\na { b { d = 2 } }") == {"a": {"b": {"d": 2}}}


def test_plus_equals_appends_to_a_list_and_begins_one():
    assert read("a = [1]\na += 2\na += [3]\nb += x\nsource { S { c = [1], c += 2 } }") == {
        "a": [1, 2, [3]],
        "b": ["x"],
        "source": [{"c": [1, 2], "plugin_name": "S"}],
    }


def test_plus_equals_on_text_is_a_problem():
    assert "requires a list" in problems("a = x\na += 2")[0]


# --- substitutions


def test_a_substitution_takes_values_from_before_and_after_it_with_their_type():
    assert read("a = ${b}\nb = 5\nc = ${d->e}\nd { e = [1] }") == {
        "a": 5,
        "b": 5,
        "c": [1],
        "d": {"e": [1]},
    }


def test_a_dotted_name_in_a_substitution_finds_nested_and_flat_keys():
    assert read("a { b.c = 1, d { e = 2 } }\nx = ${a.b.c}\ny = ${a.d.e}\nz = ${a.d}")["x"] == 1
    assert read("a { b.c = 1, d { e = 2 } }\nx = ${a.b.c}\ny = ${a.d.e}\nz = ${a.d}")["y"] == 2


def test_a_key_can_refer_to_what_it_was_before():
    data = read("a = 1\na = ${a} 2\nb { x = 1 }\nb = ${b} { y = 2 }\nl = [1]\nl = ${l} [2]")
    assert data == {"a": "1 2", "b": {"x": 1, "y": 2}, "l": [1, 2]}


def test_an_object_from_a_substitution_is_merged_with_what_follows():
    assert read(
        "base { q = 1, w = 2 }\ne = ${base}\ne { w = 3 }\nsink { S = ${base} { x = 1 } }"
    ) == {
        "base": {"q": 1, "w": 2},
        "e": {"q": 1, "w": 3},
        "sink": [{"plugin_name": "S", "q": 1, "w": 2, "x": 1}],
    }


def test_an_optional_substitution_that_is_missing_leaves_nothing():
    assert read("l += ${?nope}") == {"l": []}
    assert read("a = ${?nope}\nb = [1, ${?nope}, 2]\nc = ${?nope} foo\nd = 1\nd = ${?nope}") == {
        "b": [1, 2],
        "c": " foo",
        "d": 1,
    }


def test_unknown_names_stay_as_text():
    assert read('a = ${x}\nb = "p "${x}" q"\nc = "${x}"') == {
        "a": "${x}",
        "b": "p ${x} q",
        "c": "${x}",
    }


def test_names_that_are_not_in_the_file_are_looked_up_with_a_default_last():
    outside = {"x": "5", "l": ["a", "b"], "path": "/bin"}.get
    data = read(
        "a = ${x}\nb = ${l}\nc = ${nope:7}\nd = ${?x}\npath = ${path}\ny = 1\ne = ${y}",
        lookup=outside,
    )
    assert data == {"a": "5", "b": ["a", "b"], "c": "7", "d": "5", "path": "/bin", "y": 1, "e": 1}


@pytest.mark.parametrize(
    "text", ["a = ${b}\nb = ${a}", "a { b = ${a} }", "a = [${a}]", "a = ${b}\nb = ${c}\nc = ${a}"]
)
def test_cyclic_substitution_is_a_problem(text):
    assert any("refers to itself" in problem for problem in problems(text))


def test_text_and_lists_do_not_join():
    assert "cannot be concatenated" in problems("a = [1] ${b}\nb = x")[0]
    assert "${b} is not set" in problems("a = [1] ${b}")[0]


def test_the_values_of_a_substituted_object_keep_the_lines_where_they_were_written():
    positions = parse_hocon("base {\n q = 1\n}\n\ne = ${base}", "job.conf").positions
    assert (positions[("e",)].line, positions[("e", "q")].line) == (5, 2)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"a{i} = ${{a{i + 1}}} ${{a{i + 1}}}" for i in range(60)) + "\na60 = x",
        "\n".join(f"a{i} = [${{a{i + 1}}}, ${{a{i + 1}}}]" for i in range(60)) + "\na60 = x",
        "\n".join(f"a{i} = ${{a{i + 1}}}" for i in range(5000)),
    ],
)
def test_exponential_substitutions_are_refused(text):
    assert any("substitutions" in problem for problem in problems(text))


# --- includes


def files(**texts):
    return {name.replace("__", "/").replace("_", "."): text for name, text in texts.items()}.get


def test_include_is_merged_at_its_position():
    read_file = files(base_conf="a = 1\nb = 1\nsource { A {} }")
    assert read('a = 0\ninclude "base.conf"\nb = 2', read=read_file) == {
        "a": 1,
        "b": 2,
        "source": [{"plugin_name": "A"}],
    }


def test_include_is_found_relative_to_its_file_and_without_a_suffix():
    document = parse_hocon(
        'include "sub/one"',
        "dir/job.conf",
        read=files(dir__sub__one_conf='x = 1\ninclude "two.conf"', dir__sub__two_conf="y = 2"),
    )
    assert document.data == {"x": 1, "y": 2}
    assert str(document.positions[("y",)]) == "dir/sub/two.conf:1"


def test_an_include_inside_of_a_block_is_relative_to_it():
    assert read(
        'v = 1\na { include "b.conf" }', read=files(b_conf="w = 2\nx = ${w}\ny = ${v}")
    ) == {
        "v": 1,
        "a": {"w": 2, "x": 2, "y": 1},
    }


def test_an_include_inside_of_source_adds_its_plugins():
    read_file = files(more_conf="B { x = 1 }")
    assert read('source { A {}\n include file("more.conf") }', read=read_file) == {
        "source": [{"plugin_name": "A"}, {"x": 1, "plugin_name": "B"}]
    }


def test_missing_include_is_ignored_unless_it_is_required():
    assert read('include "gone.conf"\na = 1') == {"a": 1}
    assert problems('\ninclude required("gone.conf")') == [
        "job.conf:2: error: the included file gone.conf does not exist"
    ]
    assert "gone.conf" in problems('include required(file("gone.conf"))')[0]


def test_cyclic_includes_are_a_problem():
    circle = files(a_conf='include "b.conf"', b_conf='include "a.conf"')
    assert "includes itself" in problems('include "a.conf"', read=circle)[0]
    assert "includes itself" in problems('include "job.conf"', read=files(job_conf="x = 1"))[0]


def test_the_same_file_can_be_included_twice():
    read_file = files(a_conf="x = 1", b_conf='include "a.conf"')
    assert read('p { include "a.conf" }\ninclude "b.conf"', read=read_file) == {
        "p": {"x": 1},
        "x": 1,
    }


def test_addresses_cannot_be_included():
    assert "only files" in problems('include url("http://example.org/x")')[0]


def test_mistakes_in_an_included_file_name_that_file():
    assert problems('include "b.conf"', read=files(b_conf="a = 1\nb = *"))[0].startswith(
        "b.conf:2: error:"
    )
