"""Plans of job files: pipelines, operators, parallelism and delivery; and problems of blocks."""

import dataclasses
from typing import Any

import pytest

from tidegate.model.document import from_document, to_document
from tidegate.model.job import BlockKind, JobMode
from tidegate.model.plan import Action, Delivery, Plan
from tidegate.model.problem import ProblemKind, Severity, Strictness
from tidegate.plugin import registry
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Option, OptionKind, OptionSet


def action(plan: Plan, label: str) -> Action:
    [found] = [a for pipeline in plan.pipelines for a in pipeline.actions if a.label == label]
    return found


@pytest.fixture
def with_connector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Adds a connector to the installed ones."""

    def add(
        kind: BlockKind, capabilities: Capabilities, *options: Option, check: Any = None
    ) -> None:
        made = Connector(
            name="Made",
            kind=kind,
            summary="",
            options=OptionSet(options),
            capabilities=capabilities,
            implementation="",
            check=check,
        )
        snapshot = registry.connectors()
        monkeypatch.setattr(registry, "connectors", lambda: (*snapshot, made))

    return add


def test_pipelines_are_connected_components_numbered_by_their_first_source(job) -> None:
    plan = job.good(
        source=job.fake("a") + job.fake("b") + job.fake("c"),
        transform='Sql { query = "select id from c", plugin_input = c, plugin_output = d }',
        sink=(
            "Console { plugin_input = b }\nConsole { plugin_input = [d] }\nConsole { plugin_input ="
            " a }\nConsole { plugin_input = c }"
        ),
    )
    assert [(p.id, [a.label for a in p.actions]) for p in plan.pipelines] == [
        (1, ["Source[0]-FakeSource", "Sink[2]-Console"]),
        (2, ["Source[1]-FakeSource", "Sink[0]-Console"]),
        (3, ["Source[2]-FakeSource", "Transform[0]-Sql", "Sink[1]-Console", "Sink[3]-Console"]),
    ]


def test_a_union_makes_one_pipeline_of_two_sources(job) -> None:
    plan = job.good(source=job.fake("a") + job.fake("b"), sink="Console { plugin_input = [a, b] }")
    assert [[a.label for a in p.actions] for p in plan.pipelines] == [
        ["Source[0]-FakeSource", "Source[1]-FakeSource", "Sink[0]-Console"]
    ]


def test_transform_follows_its_input_independent_of_file_order(job) -> None:
    late = 'Sql { query = "select id from b", plugin_input = b, plugin_output = c }'
    early = 'Sql { query = "select id from a", plugin_input = a, plugin_output = b }'
    plan = job.good(
        source=job.fake("a"), transform=f"{late}\n{early}", sink="Console { plugin_input = c }"
    )
    assert [a.label for a in plan.pipelines[0].actions] == [
        "Source[0]-FakeSource",
        "Transform[1]-Sql",
        "Transform[0]-Sql",
        "Sink[0]-Console",
    ]


def test_plugin_names_ignore_case_and_are_shown_as_declared(job) -> None:
    plan = job.good(source="fAKEsource { schema { fields { id = int } } }", sink="CONSOLE {}")
    assert [(a.label, a.plugin) for a in plan.pipelines[0].actions] == [
        ("Source[0]-FakeSource", "FakeSource"),
        ("Sink[0]-Console", "Console"),
    ]


def test_a_given_name_is_the_operator_id_and_what_readers_refer_to(job) -> None:
    plan = job.good(source=job.fake("a", 'name = "orders"'), sink="Console {}")
    assert action(plan, "Source[0]-FakeSource").operator == "orders"
    assert action(plan, "Sink[0]-Console").inputs == ("orders",)


def test_duplicate_name_is_an_error_at_the_second_block(job) -> None:
    problems = job.bad(source=job.fake("a", "name = x"), sink="Console { name = x }")
    assert [(problem.kind, problem.path, problem.at.line) for problem in problems] == [
        (ProblemKind.WIRING, "sink[0].name", 12)
    ]
    assert "Source[0]-FakeSource" in problems[0].message


def test_name_equal_to_the_label_of_another_block_is_an_error(job) -> None:
    problems = job.bad(source=job.fake("a", 'name = "Sink[0]-Console"'), sink="Console {}")
    assert [problem.path for problem in problems] == ["source[0].name"]


def test_name_too_long_for_a_directory_is_an_error(job) -> None:
    assert job.good(source=job.fake("", f'name = "{"x" * 200}"'), sink="Console {}")
    [problem] = job.bad(source=job.fake("", f'name = "{"ß" * 40}"'), sink="Console {}")
    assert (problem.path, problem.message.partition(":")[0]) == (
        "source[0].name",
        "the name is too long",
    )


def test_connector_option_called_name_is_no_operator_id(job, with_connector) -> None:
    with_connector(
        BlockKind.SINK, Capabilities(), Option("name", OptionKind.TEXT, "the connector's own")
    )
    plan = job.good(source=job.fake(), sink="Made { name = x }")
    assert action(plan, "Sink[0]-Made").operator == "Sink[0]-Made"
    assert action(plan, "Sink[0]-Made").options["name"] == "x"


def test_parallelism_defaults_to_the_largest_of_the_inputs_then_to_the_env(
    job,
) -> None:
    plan = job.good(
        env="parallelism = 2",
        source=job.fake("a") + job.fake("b", "parallelism = 3"),
        transform=(
            'Sql { query = "select id, name from a", plugin_input = a, plugin_output = c,'
            " parallelism = 1 }"
        ),
        sink="Console { plugin_input = [a, b] }\nConsole { plugin_input = c }",
    )
    labels = [
        "Source[0]-FakeSource",
        "Source[1]-FakeSource",
        "Transform[0]-Sql",
        "Sink[0]-Console",
        "Sink[1]-Console",
    ]
    assert [action(plan, label).parallelism for label in labels] == [2, 3, 1, 3, 1]


def test_delivery_of_sinks_depends_on_options(job, tmp_path) -> None:
    path = f'path = "{tmp_path}", file_format_type = json'
    sinks = (
        f"LocalFile {{ plugin_input = a, {path} }}\nLocalFile {{ plugin_input = a, {path},"
        " is_enable_transaction = false }"
    )
    plan = job.good(source=job.fake("a"), sink=sinks)
    assert action(plan, "Sink[0]-LocalFile").delivery is Delivery.EXACTLY_ONCE
    assert action(plan, "Sink[1]-LocalFile").delivery is Delivery.AT_LEAST_ONCE
    assert action(plan, "Source[0]-FakeSource").delivery is None


def test_option_values_are_complete_and_placeholders_of_sinks_are_left_alone(job) -> None:
    plan = job.good(
        source=job.fake(), sink='LocalFile { path = "/tmp/${table_name}", file_format_type = json }'
    )
    options = action(plan, "Sink[0]-LocalFile").options
    assert (options["path"], options["filename_time_format"]) == (
        "/tmp/${table_name}",
        "yyyy.MM.dd",
    )


def test_a_plan_survives_being_stored(job) -> None:
    plan = job.good(
        env="job.name = x, parallelism = 2", source=job.fake("a", "name = n"), sink="Console {}"
    )
    assert from_document(Plan, to_document(plan)) == plan


def test_job_name_defaults_to_the_file_name(job) -> None:
    assert (
        job.good(env="job.name = orders", source=job.fake(), sink="Console {}").job_name == "orders"
    )
    assert job.good(source=job.fake(), sink="Console {}").job_name == "job"


def test_unknown_plugin_is_reported_with_the_closest_name_of_its_kind(job) -> None:
    [problem] = job.bad(source="FakeSorce { }", sink="Console {}")
    assert (problem.kind, problem.path, problem.suggestion, problem.at.line) == (
        ProblemKind.UNKNOWN_PLUGIN,
        "source[0]",
        "FakeSource",
        3,
    )
    assert "FakeSource" in problem.expected


def test_plugin_of_another_kind_is_reported_as_such(job) -> None:
    [problem] = job.bad(source="Assert { }", sink="Console {}")
    assert problem.message == "Assert is a sink, not a source"


def test_unsupported_seatunnel_connector_is_not_reported_as_misspelt(job) -> None:
    problems = job.bad(source="hbase {}", sink="OssFile {}")
    assert [(problem.kind, problem.suggestion) for problem in problems] == [
        (ProblemKind.UNKNOWN_PLUGIN, "")
    ] * 2
    assert (
        problems[0].message
        == "the source Hbase is not available; use Spark { format = ... } for formats that Spark"
        " itself can read"
    )
    assert problems[1].message.endswith("can write")


def test_plugin_left_out_on_purpose_is_reported_with_the_reason(job) -> None:
    [problem] = job.bad(source=job.fake(), transform="dynamiccompile {}", sink="Console {}")
    assert problem.kind is ProblemKind.UNKNOWN_PLUGIN
    assert problem.message.startswith("dynamiccompile is not available: ")
    assert "use Sql" in problem.message


def test_problems_of_all_blocks_come_at_once_in_file_order(job) -> None:
    problems = job.bad(
        source="FakeSource {\n row.num = many\n schema { fields { id = bigin } } }",
        sink="LocalFile { path = x\n file_format_type = csvv }",
    )
    assert [problem.path for problem in problems] == [
        "source[0].row.num",
        "source[0].schema.fields.id",
        "sink[0].file_format_type",
    ]
    assert [problem.at.line for problem in problems] == sorted(
        problem.at.line for problem in problems
    )


@pytest.mark.parametrize(
    ("strict", "severity"),
    [
        (Strictness.LENIENT, Severity.WARNING),
        (Strictness.NORMAL, Severity.ERROR),
        (Strictness.STRICT, Severity.ERROR),
    ],
)
def test_an_unknown_option_is_an_error_unless_lenient(job, strict, severity) -> None:
    planned = job.of(source=job.fake("", "row.nom = 3"), sink="Console {}", strict=strict)
    (problem,) = planned.problems
    assert (problem.kind, problem.severity) == (ProblemKind.UNKNOWN_OPTION, severity)
    assert problem.suggestion == "row.num"
    assert (planned.plan is None) == (severity is Severity.ERROR)


@pytest.mark.parametrize(
    ("source", "sink", "path"),
    [
        (
            "FakeSource { tables_configs = [{ row.nums = 3, schema { fields { a = int } } }] }",
            "Console {}",
            "source[0].tables_configs[0].row.nums",
        ),
        (
            "FakeSource { schema { fields { a = int } } }",
            "Assert { rules { row_rules = [{ rule_typ = MAX_ROW, rule_value = 1 }] } }",
            "rule_typ",
        ),
    ],
)
def test_an_unknown_option_inside_of_a_nested_block_is_an_error_too(
    job, source, sink, path
) -> None:
    problems = job.of(source=source, sink=sink).problems
    unknown = [p for p in problems if p.kind is ProblemKind.UNKNOWN_OPTION]
    assert [p.severity for p in unknown] == [Severity.ERROR]
    assert unknown[0].path.endswith(path)


def test_option_known_only_to_seatunnel_is_a_warning_unless_strict(job) -> None:
    parts = {"source": job.fake("", "multi_table_sink_replica = 2"), "sink": "Console {}"}
    (problem,) = job.of(**parts).problems
    assert (problem.severity, problem.message) == (
        Severity.WARNING,
        "multi_table_sink_replica has no effect here",
    )
    assert job.of(**parts, strict=Strictness.STRICT).plan is None


def test_notices_of_the_parser_are_reported_once(job) -> None:
    planned = job.of(
        env="flink.execution.checkpointing.mode = x", source=job.fake(), sink="Console {}"
    )
    assert planned.plan is not None
    assert [p.severity for p in planned.problems] == [Severity.NOTICE]


def test_unbounded_source_in_a_batch_job_is_an_error(job, with_connector) -> None:
    with_connector(BlockKind.SOURCE, Capabilities(batch=False))
    [problem] = job.bad(source="Made {}", sink="Console {}")
    assert (problem.path, problem.severity) == ("source[0]", Severity.ERROR)
    assert "STREAMING" in problem.message
    assert (
        job.good(env="job.mode = STREAMING", source="Made {}", sink="Console {}").env.mode
        is JobMode.STREAMING
    )


def test_bounded_source_in_a_streaming_job_is_a_notice(job, with_connector) -> None:
    with_connector(BlockKind.SOURCE, Capabilities(streaming=False))
    planned = job.of(env="job.mode = STREAMING", source="Made {}", sink="Console {}")
    assert planned.plan is not None
    assert [p.severity for p in planned.problems] == [Severity.NOTICE]


def test_batch_sink_in_a_streaming_job_is_an_error(job, with_connector) -> None:
    with_connector(BlockKind.SINK, Capabilities(streaming=False))
    [problem] = job.bad(env="job.mode = STREAMING", source=job.fake(), sink="Made {}")
    assert problem.path == "sink[0]"


def test_planning_twice_gives_equal_plans(job) -> None:
    parts = {"source": job.fake("a") + job.fake("b"), "sink": "Console { plugin_input = [a, b] }"}
    assert dataclasses.asdict(job.of(**parts)) == dataclasses.asdict(job.of(**parts))


def test_exception_in_a_check_is_a_problem_and_hides_no_other(job, with_connector) -> None:
    def check(block, values):
        yield block.problem(("x",), "found before")
        raise KeyError(values["x"])

    with_connector(BlockKind.SOURCE, Capabilities(), Option("x", OptionKind.INT, ""), check=check)
    messages = [problem.message for problem in job.bad(source="Made { x = 3 }", sink="Consol {}")]
    assert messages[:2] == ["found before", "Made cannot check these options: KeyError: 3"]
    assert len(messages) == 3
