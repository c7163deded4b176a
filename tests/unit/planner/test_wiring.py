"""Edges between blocks by the names of their datasets, and the problems of wrong names."""

import pytest

from tidegate.model.plan import Plan
from tidegate.model.problem import Problem, ProblemKind, Severity


def edges(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {
        action.label: action.inputs
        for pipeline in plan.pipelines
        for action in pipeline.actions
        if action.inputs
    }


def one(problems: list[Problem]) -> Problem:
    [problem] = problems
    assert problem.kind is ProblemKind.WIRING
    return problem


def test_a_chain_needs_no_names(job) -> None:
    plan = job.good(
        source=job.fake(), transform='Sql { query = "select id from x" }', sink="Console {}"
    )
    assert edges(plan) == {
        "Transform[0]-Sql": ("Source[0]-FakeSource",),
        "Sink[0]-Console": ("Transform[0]-Sql",),
    }


def test_a_chain_may_name_only_some_of_its_datasets(job) -> None:
    plan = job.good(
        source=job.fake("a"),
        transform='Sql { query = "select id from a", plugin_output = b }',
        sink="Console { plugin_input = b }",
    )
    assert edges(plan) == {
        "Transform[0]-Sql": ("Source[0]-FakeSource",),
        "Sink[0]-Console": ("Transform[0]-Sql",),
    }


@pytest.mark.parametrize(
    ("output", "inputs"),
    [("plugin_output", "plugin_input"), ("result_table_name", "source_table_name")],
)
def test_old_and_new_keys_connect_blocks(job, output: str, inputs: str) -> None:
    source = f"FakeSource {{ {output} = a, schema {{ fields {{ id = int }} }} }}"
    plan = job.good(source=source, sink=f"Console {{ {inputs} = a }}\nConsole {{ {inputs} = [a] }}")
    assert edges(plan) == {
        "Sink[0]-Console": ("Source[0]-FakeSource",),
        "Sink[1]-Console": ("Source[0]-FakeSource",),
    }


def test_wrong_name_in_a_chain_is_an_error_with_a_suggestion(job) -> None:
    problem = one(job.bad(source=job.fake("t"), sink='Console { plugin_input = "tt" }'))
    assert (problem.path, problem.suggestion, problem.at.line) == ("sink[0].plugin_input", "t", 12)
    assert "'tt'" in problem.message


def test_wrong_name_in_a_chain_is_a_warning_if_the_previous_block_has_no_name(job) -> None:
    planned = job.of(source=job.fake(), sink="Console { plugin_input = nobody }")
    assert edges(planned.plan) == {"Sink[0]-Console": ("Source[0]-FakeSource",)}
    assert one(planned.problems).severity is Severity.WARNING


def test_two_wrong_names_are_two_errors_even_if_the_previous_block_has_no_name(job) -> None:
    assert len(job.bad(source=job.fake(), sink="Console { plugin_input = [nobody, no_one] }")) == 2


def test_a_sink_that_bypasses_the_transform_of_a_chain_is_an_error(job) -> None:
    problem = one(
        job.bad(
            source=job.fake("a"),
            transform='Sql { query = "select 1 from a" }',
            sink="Console { plugin_input = a }",
        )
    )
    assert problem.path == "transform[0]"
    assert "no transform and no sink reads the output of transform Sql" in problem.message


def test_a_larger_graph_needs_all_names(job) -> None:
    problems = job.bad(
        source=job.fake() + job.fake("b"),
        transform='Sql { query = "select 1 from b" }',
        sink="Console {}",
    )
    assert [(problem.path, problem.message.partition(":")[0]) for problem in problems] == [
        ("source[0]", "plugin_output is missing"),
        ("transform[0]", "plugin_output is missing"),
        ("transform[0]", "plugin_input is missing"),
        ("sink[0]", "plugin_input is missing"),
    ]
    assert problems[-1].expected == "one of b"


SAME = 'Sql {{ plugin_input = {0}, plugin_output = {1}, query = "select id from x" }}\n'


def warning(job, **parts: str) -> Problem:
    return one([p for p in job.of(**parts).problems if p.severity is Severity.WARNING])


def test_second_source_of_the_same_name_is_read_with_a_warning(job) -> None:
    parts = {"source": job.fake("a") + job.fake("a"), "sink": "Console { plugin_input = a }"}
    plan = job.good(**parts)
    assert edges(plan) == {"Sink[0]-Console": ("Source[1]-FakeSource",)}
    assert [a.label for p in plan.pipelines for a in p.actions] == [
        "Source[1]-FakeSource",
        "Sink[0]-Console",
    ]
    problem = warning(job, **parts)
    assert (problem.path, problem.at.line) == ("source[1].plugin_output", 6)
    assert "replaces that of source FakeSource (line 3)" in problem.message
    assert "which no block reads: it does not run" in problem.message


def test_transform_that_outputs_its_input_name_replaces_it_for_later_readers(job) -> None:
    parts = {
        "source": job.fake("a"),
        "transform": SAME.format("a", "a") + SAME.format("a", "a") + SAME.format("a", "b"),
        "sink": "Console { plugin_input = a }\nConsole { plugin_input = b }",
    }
    assert edges(job.good(**parts)) == {
        "Transform[0]-Sql": ("Source[0]-FakeSource",),
        "Transform[1]-Sql": ("Transform[0]-Sql",),
        "Transform[2]-Sql": ("Transform[1]-Sql",),
        "Sink[0]-Console": ("Transform[1]-Sql",),
        "Sink[1]-Console": ("Transform[2]-Sql",),
    }
    warnings = [p for p in job.of(**parts).problems if p.severity is Severity.WARNING]
    assert [p.path for p in warnings] == [
        "transform[0].plugin_output",
        "transform[1].plugin_output",
    ]
    assert not any("no block reads" in p.message for p in warnings)


def test_transform_whose_dataset_is_replaced_unread_does_not_run(job) -> None:
    parts = {
        "source": job.fake("a") + job.fake("b"),
        "transform": SAME.format("b", "c") + SAME.format("a", "c"),
        "sink": "Console { plugin_input = c }",
    }
    plan = job.good(**parts)
    assert [a.label for p in plan.pipelines for a in p.actions] == [
        "Source[0]-FakeSource",
        "Transform[1]-Sql",
        "Sink[0]-Console",
    ]
    assert "no block reads: it does not run" in warning(job, **parts).message


def test_equal_transforms_are_distinguished_by_position(job) -> None:
    parts = {
        "source": job.fake("a"),
        "transform": SAME.format("a", "a") * 2,
        "sink": "Console { plugin_input = a }",
    }
    assert edges(job.good(**parts))["Sink[0]-Console"] == ("Transform[1]-Sql",)


def test_transform_before_several_producers_of_its_input_is_an_error(job) -> None:
    transform = SAME.format("c", "d") + SAME.format("a", "c") + SAME.format("a", "c")
    problem = one(
        job.bad(
            source=job.fake("a"),
            transform=transform,
            sink="Console { plugin_input = d }\nConsole { plugin_input = c }",
        )
    )
    assert (problem.path, problem.severity) == ("transform[0].plugin_input", Severity.ERROR)
    assert "all after this block: give them distinct names" in problem.message


def test_unknown_input_is_reported_with_a_suggestion_and_its_line(job) -> None:
    source = job.fake("orders") + job.fake("customers")
    problem = one(
        job.bad(
            source=source,
            sink="Console { plugin_input = orders }\nConsole { plugin_input = [custmers] }",
        )
    )
    assert (problem.path, problem.suggestion, problem.expected) == (
        "sink[1].plugin_input[0]",
        "customers",
        "one of orders, customers",
    )


def test_unread_dataset_is_an_error(job) -> None:
    problem = one(
        job.bad(source=job.fake("a") + job.fake("b"), sink="Console { plugin_input = a }")
    )
    assert (problem.path, problem.message) == (
        "source[1].plugin_output",
        "no transform and no sink reads the dataset 'b'",
    )


def test_duplicate_input_is_an_error(job) -> None:
    problem = one(job.bad(source=job.fake("a"), sink="Console { plugin_input = [a, a] }"))
    assert (problem.path, problem.message) == (
        "sink[0].plugin_input[1]",
        "the dataset 'a' is named twice",
    )


def test_transforms_of_a_cycle_are_named_in_flow_order(job) -> None:
    transform = """
        Sql { query = "select 1 from c", plugin_input = c, plugin_output = b }
        Sql { query = "select 1 from b", plugin_input = b, plugin_output = c }
    """
    problem = one(
        job.bad(source=job.fake("a"), transform=transform, sink="Console { plugin_input = a }")
    )
    assert problem.message == "the transforms form a cycle: Sql (c) -> Sql (b) -> Sql (c)"
    assert problem.at.line > 1


def test_transform_that_reads_itself_is_a_cycle(job) -> None:
    transform = 'Sql { query = "select 1 from b", plugin_input = [a, b], plugin_output = b }'
    problem = one(
        job.bad(source=job.fake("a"), transform=transform, sink="Console { plugin_input = b }")
    )
    assert problem.message.endswith("cycle: Sql (b) -> Sql (b)")


def test_input_of_a_source_is_ignored_with_a_notice(job) -> None:
    planned = job.of(source=job.fake("a", "plugin_input = x"), sink="Console {}")
    assert planned.plan is not None
    assert [(problem.severity, problem.path) for problem in planned.problems] == [
        (Severity.NOTICE, "source[0].plugin_input")
    ]


def test_wiring_is_checked_even_if_options_and_plugins_are_wrong(job) -> None:
    problems = job.bad(
        source=job.fake("a", "row.num = many"),
        transform="Sqll { plugin_output = b }",
        sink="Console { plugin_input = c }",
    )
    assert [problem.kind.value for problem in problems] == ["option", "unknown-plugin", "wiring"]


def test_job_without_sinks_has_no_problems_with_names(job) -> None:
    planned = job.planned("source { " + job.fake("a") + " }")
    assert (planned.plan, planned.problems) == (None, [])


def test_inputs_with_different_columns_cannot_be_combined(job) -> None:
    source = (
        job.fake("a")
        + "FakeSource { plugin_output = b, schema { fields { id = bigint, name = int } } }"
    )
    problem = one(job.bad(source=source, sink="Console { plugin_input = [a, b] }"))
    assert problem.path == "sink[0]"
    assert problem.message.endswith(
        "Source[0]-FakeSource and Source[1]-FakeSource cannot be combined, because their columns"
        " differ: name string in one, name int in the other"
    )


def test_a_column_that_only_one_input_has_is_named(job) -> None:
    source = job.fake("a") + "FakeSource { plugin_output = b, schema { fields { id = bigint } } }"
    assert (
        "name is only in one of them"
        in one(job.bad(source=source, sink="Console { plugin_input = [a, b] }")).message
    )


def test_inputs_with_the_same_columns_are_combined(job) -> None:
    plan = job.good(source=job.fake("a") + job.fake("b"), sink="Console { plugin_input = [b, a] }")
    assert edges(plan) == {"Sink[0]-Console": ("Source[1]-FakeSource", "Source[0]-FakeSource")}


def test_unknown_name_is_exactly_one_problem(job) -> None:
    parts = {
        "source": job.fake("a"),
        "transform": 'Sql { query = "select id from a", plugin_input = a, plugin_output = b }',
    }
    assert (
        one(job.bad(**parts, sink="Console { plugin_input = zzz }")).message
        == "there is no dataset 'zzz'"
    )
    assert (
        len(job.bad(**parts, sink="Console { plugin_input = zzz }\nConsole { plugin_input = yyy }"))
        == 2
    )


def test_misspelt_name_does_not_hide_another_unread_dataset(job) -> None:
    problems = job.bad(
        source=job.fake("orders") + job.fake("customers"), sink="Console { plugin_input = order }"
    )
    assert [problem.message for problem in problems] == [
        "no transform and no sink reads the dataset 'customers'",
        "there is no dataset 'order'",
    ]
