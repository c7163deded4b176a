"""Variables: sources of values, placeholders that stay, and problems."""

import pytest

from tidegate.config.load import read_text
from tidegate.config.variables import read_variables
from tidegate.model.errors import UserError
from tidegate.model.problem import ProblemKind

JOB = "source {{ S {{ {} }} }}\nsink {{ K {{ {} }} }}"


def read(option, *, variables=(), environment=None, sink=""):
    return read_text(
        JOB.format(option, sink),
        "job.conf",
        variables=read_variables(variables),
        environment=environment or {},
    )


def value(option, key="k", **more):
    reading = read(f"{key} = {option}", **more)
    assert reading.errors == []
    return reading.spec.sources[0].options[key]


@pytest.mark.parametrize("written", ["${x}", '"${x}"'])
def test_the_command_line_wins_over_the_environment_and_both_over_a_default(written):
    assert value(written, variables=["x=1"], environment={"x": "2"}) == "1"
    assert value(written, environment={"x": "2 3"}) == "2 3"
    assert value(written.replace("}", ":7}"), environment={"x": "2"}) == "2"
    assert value(written.replace("}", ":7}")) == "7"


def test_default_is_used_if_nothing_is_set_and_may_be_empty():
    assert value('"a ${x: b c } d"') == "a b c d"
    assert value('"${x:}"') == ""
    assert value('"${x:dflt}"', variables=["x="]) == "dflt"
    assert value('"${x}"', variables=["x="]) == ""


def test_variables_are_replaced_everywhere_in_a_text_and_in_lists_and_blocks():
    assert value('"${a}-${b}-${a}"', variables=["a=1,b=2"]) == "1-2-1"
    assert value('["${a}", { q = "${a}" }]', variables=["a=1"]) == ["1", {"q": "1"}]


def test_value_in_brackets_is_a_list_if_the_variable_is_alone_and_unquoted():
    given = ["t=['abc', d~f,hi]"]
    assert value("${t}", variables=given) == ["abc", "d~f", "hi"]
    assert value('"${t}"', variables=given) == "['abc', d~f,hi]"


def test_a_key_of_the_file_comes_before_variables():
    assert (
        read_text("k = 5\n" + JOB.format("x = ${k}", ""), "job.conf", variables={"k": "1"})
        .spec.sources[0]
        .options["x"]
        == 5
    )


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["a=1", "b=2"], {"a": "1", "b": "2"}),
        (["a=1,b=2"], {"a": "1", "b": "2"}),
        (["a=x=y"], {"a": "x=y"}),
        (["a=[1,2],b=3"], {"a": "[1,2]", "b": "3"}),
        (['a="1,2",b=3'], {"a": '"1,2"', "b": "3"}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a="], {"a": ""}),
    ],
)
def test_arguments_are_split_at_commas_outside_of_quotes_and_brackets(arguments, result):
    assert read_variables(arguments) == result


@pytest.mark.parametrize("argument", ["a", "=1", "a=1,b"])
def test_an_argument_without_name_or_value_is_refused(argument):
    with pytest.raises(UserError, match="name=value"):
        read_variables([argument])


def test_placeholders_of_the_sink_cannot_be_set():
    with pytest.raises(UserError, match="table_name"):
        read_variables(["table_name=x"])


def test_placeholders_of_the_sink_ignore_the_environment():
    sink = (
        'table = "${database_name}.${table_name:t}", file = "${now}_${uuid}_${transactionId}", dir'
        ' = "${k0}=${v0}", keys = ["${primary_key}"]'
    )
    names = (
        "database_name",
        "table_name",
        "now",
        "uuid",
        "transactionId",
        "k0",
        "v0",
        "primary_key",
    )
    reading = read("", sink=sink, environment=dict.fromkeys(names, "wrong"))
    assert reading.errors == []
    options = reading.spec.sinks[0].options
    assert options["table"] == "${database_name}.${table_name:t}"
    assert options["file"] == "${now}_${uuid}_${transactionId}"
    assert options["dir"] == "${k0}=${v0}"
    assert options["keys"] == ["${primary_key}"]


def test_row_templates_are_not_variables():
    sink = (
        'topic = "${c_string}", index = "st-${age}", custom_request_body { m = [{ c = "${anything}"'
        " }] }"
    )
    assert read("", sink=sink).errors == []


def test_a_variable_that_is_not_set_is_a_problem_with_its_name_line_and_path():
    reading = read_text(
        'source {\n S {\n  path = ${NOWHERE}\n  q { r = ["a ${OTHER}"] }\n }\n}\nsink { K {} }',
        "job.conf",
    )
    assert [(p.kind, p.at.line, p.path) for p in reading.errors] == [
        (ProblemKind.OPTION, 3, "source[0].path"),
        (ProblemKind.OPTION, 4, "source[0].q.r[0]"),
    ]
    assert "NOWHERE" in reading.errors[0].message
    assert "OTHER" in reading.errors[1].message


def test_missing_variable_is_reported_once_and_not_as_a_wrong_number_too():
    reading = read_text(
        "env { parallelism = ${p} }\n" + JOB.format('parallelism = "${p}"', ""), "job.conf"
    )
    assert [p.path for p in reading.errors] == ["env.parallelism", "source[0].parallelism"]


def test_text_that_only_resembles_a_variable_is_unchanged():
    assert value('"a ${ b c } ${1} $x"') == "a ${ b c } ${1} $x"
