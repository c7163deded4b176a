"""`tidegate connectors`: the catalogue, from declarations only."""

import json

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main
from tidegate.cli.connectors import bounds, shown_default
from tidegate.cli.exits import BAD_INPUT
from tidegate.plugin.option import Option, OptionKind, OptionSet, When
from tidegate.plugin.registry import connectors
from tidegate.plugin.rules import rules


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["connectors", *arguments])


def test_all_connectors_are_listed_with_their_delivery() -> None:
    result = run("list")
    assert result.exit_code == 0
    listed = [
        tuple(line.split()[:2])
        for line in result.output.splitlines()
        if line.split()[:1] in (["source"], ["transform"], ["sink"])
    ]
    assert listed == [(one.kind.value, one.name) for one in connectors()]
    assert [
        line.split()[-1]
        for line in result.output.splitlines()
        if line.startswith("sink       LocalFile")
    ] == ["exactly-once"]


def test_the_json_list_has_capabilities() -> None:
    listed = json.loads(run("list", "--json").output)
    assert [(one["kind"], one["name"]) for one in listed] == [
        (one.kind.value, one.name) for one in connectors()
    ]
    [sink] = [one for one in listed if (one["kind"], one["name"]) == ("sink", "LocalFile")]
    assert (sink["capabilities"]["delivery"], sink["capabilities"]["go_back"]) == (
        "exactly-once",
        "rewind",
    )


def test_a_name_in_any_case_shows_source_and_sink_with_every_option() -> None:
    output = run("show", "localfile").output
    assert "source LocalFile" in output
    assert "sink LocalFile" in output
    for one in connectors():
        assert (
            one.name != "LocalFile"
            or [option.key for option in one.options.options if option.key not in output] == []
        )


def test_json_of_one_kind_has_every_field_of_an_option() -> None:
    [shown] = json.loads(run("show", "LocalFile", "--kind", "sink", "--json").output)
    assert shown["kind"] == "sink"
    options = {option["key"]: option for option in shown["options"]}
    assert options["path"]["required"] is True
    assert (
        options["file_format_type"]["type"],
        options["file_format_type"]["default"],
        options["file_format_type"]["fallbacks"],
    ) == (
        "enum",
        "csv",
        ["file_format"],
    )
    assert "parquet" in options["file_format_type"]["choices"]
    assert options["batch_size"]["minimum"] == 1


def test_rules_between_options_are_shown() -> None:
    assert "needs exactly one of schema, tables_configs" in run("show", "FakeSource").output


@pytest.mark.parametrize(
    ("name", "hint"),
    [("localfle", "did you mean 'LocalFile'?"), ("qqq", "`tidegate connectors list` shows all")],
)
def test_an_unknown_name_gets_a_suggestion(name: str, hint: str) -> None:
    result = run("show", name)
    assert result.exit_code == BAD_INPUT
    assert hint in result.stderr


def test_every_rule_becomes_a_sentence() -> None:
    options = OptionSet(
        (),
        exclusive=(("a", "b"),),
        at_most_one=(("c", "d"),),
        bundled=(("e", "f"),),
        conditions=(When("g", (1, 2), ("h",)),),
    )
    assert rules(options) == [
        "exactly one of a, b",
        "at most one of c, d",
        "all of e, f, or none",
        "h where g is 1 or 2",
    ]


def test_limits_and_defaults_are_written_as_in_a_job_file() -> None:
    assert bounds(Option("x", OptionKind.INT, "", minimum=1, maximum=9)) == "int >= 1 <= 9"
    assert bounds(Option("x", OptionKind.ENUM, "", choices=("A", "B"))) == "one of A, B"
    assert shown_default(Option("x", OptionKind.TEXT, "", default="\t")) == '"\\t"'
    assert shown_default(Option("x", OptionKind.TEXT, "", required=True)) == "required"
    assert shown_default(Option("x", OptionKind.TEXT, "")) == ""
