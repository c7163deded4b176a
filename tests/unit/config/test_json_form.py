"""JSON job files."""

import pytest

from tidegate.config.json_form import parse_json
from tidegate.config.load import Format, load_text
from tidegate.model.problem import BadJob


def problems(text):
    return [(problem.at.line, problem.message) for problem in parse_json(text, "job.json").problems]


def test_flat_keys_stay_flat_and_a_job_is_the_same_as_in_hocon():
    text = """{
  "env": { "job.mode": "batch" },
  "source": [ { "plugin_name": "FakeSource", "plugin_output": "a", "row.num": 100,
                "schema": { "fields": { "a->b": "int" } } } ],
  "sink": [ { "plugin_name": "Console", "plugin_input": "a" } ]
}"""
    spec = load_text(text, "job.json", Format.JSON)
    [source] = spec.sources
    assert (source.plugin, source.output, source.options["row.num"]) == ("FakeSource", "a", 100)
    assert source.options["schema"] == {"fields": {"a->b": "int"}}
    assert source.locate(("row.num",)).line == 3
    assert spec.sinks[0].inputs == ("a",)


def test_an_object_named_source_is_not_turned_into_a_list():
    assert parse_json('{"x": {"source": {"a": {}}}}', "job.json").data == {
        "x": {"source": {"a": {}}}
    }
    with pytest.raises(BadJob, match="source is not a list"):
        load_text('{"source": {"a": {}}, "sink": [{"plugin_name": "b"}]}', "job.json", Format.JSON)


def test_variables_in_json_text_are_replaced():
    spec = load_text(
        '{"source":[{"plugin_name":"A","x":"${v:1}"}],"sink":[{"plugin_name":"B"}]}',
        "j",
        Format.JSON,
    )
    assert spec.sources[0].options["x"] == "1"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"a": 1,}', 1, "no comma before"),
        ('{"a": [1,\n]}', 1, "no comma before"),
        ('{"a": 1\n "b": 2}', 2, "a comma"),
        ('{"a": [1 2]}', 1, "comma"),
        ('{"a" = 1}', 1, "`:`"),
        ('{"a" {"b": 1}}', 1, "`:`"),
        ("{a: 1}", 1, "double quotes"),
        ('{"a": b}', 1, "double quotes"),
        ('{"a": ${b}}', 1, "double quotes"),
        ('{"a": 1 // x\n}', 1, "comments"),
        ('{"a": """x"""}', 1, '"""'),
        ('{"a": 1, "a": 2}', 1, "twice"),
        ('"a": 1', 1, "begins with"),
        ('{"a": 1', 1, "still open"),
        ('{"a": 1}}', 1, "after the"),
        ('{"a": 1}\n{"b": 1}', 2, "after the"),
        ('{"a":}', 1, "no value"),
    ],
)
def test_what_json_does_not_allow_is_named_with_its_line(text, line, words):
    found = problems(text)
    assert any(at == line and words in message for at, message in found), found


def test_several_mistakes_are_found_at_once():
    assert sorted(
        {line for line, _ in problems('{\n"a": b,\n"c" = 1,\n"d": [1,],\n"d": 2\n}')}
    ) == [2, 3, 4, 5]
