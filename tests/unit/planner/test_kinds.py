"""Warnings, with a remedy, about updates and deletes that reach a sink without row kinds."""

import re
from typing import Any

import pytest

from tidegate.model.problem import Severity

CDC = (
    'MySQL-CDC { %s url = "jdbc:mysql://127.0.0.1:3306/shop", username = u, password = p,'
    ' table-names = ["shop.orders"] }\n'
)
FILE = 'LocalFile { %s path = "/tmp/out", file_format_type = parquet }\n'
STREAMING = "job.mode = STREAMING"
QUERY = (
    'Jdbc { url = "jdbc:postgresql://127.0.0.1/shop", driver = org.postgresql.Driver, username = u,'
    ' query = "insert into t values (?, ?)" }\n'
)
TABLE = (
    'Jdbc { url = "jdbc:postgresql://127.0.0.1/shop", driver = org.postgresql.Driver, username = u,'
    " generate_sink_sql = true, database = shop }\n"
)


def warnings(
    job: Any, source: str = CDC % "", sink: str = FILE % "", transform: str = ""
) -> list[str]:
    planned = job.of(source=source, sink=sink, transform=transform, env=STREAMING)
    assert planned.errors == []
    assert planned.plan is not None
    return [problem.message for problem in planned.problems if problem.severity is Severity.WARNING]


def test_deleted_rows_written_like_inserted_ones_are_a_warning_with_a_remedy(
    job: Any,
) -> None:
    assert warnings(job) == [
        "changes of MySQL-CDC reach this sink, and LocalFile writes deleted rows and rows as they"
        " were before an update like inserted ones; add RowKindExtractor before it to make the kind"
        ' a column, or FilterRowKind { exclude_kinds = ["UPDATE_BEFORE", "DELETE"] } to leave these'
        " rows out"
    ]


def test_the_warning_is_reported_at_the_sink(job: Any) -> None:
    (problem,) = [
        p
        for p in job.of(source=CDC % "", sink=FILE % "", env=STREAMING).problems
        if p.severity is Severity.WARNING
    ]
    assert (problem.path, problem.at.line) == ("sink[0]", 10)


@pytest.mark.parametrize(
    "transform",
    [
        "RowKindExtractor { }",
        'FilterRowKind { exclude_kinds = ["UPDATE_BEFORE", "DELETE"] }',
        'FilterRowKind { include_kinds = ["INSERT"] }',
        'Metadata { metadata_fields { RowKind = "kind" } }',
    ],
)
def test_a_transform_that_extracts_the_kind_or_removes_the_rows_prevents_the_warning(
    job: Any, transform: str
) -> None:
    assert warnings(job, transform=transform) == []


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (
            'FilterRowKind { exclude_kinds = ["UPDATE_BEFORE"] }',
            r'LocalFile writes deleted rows like inserted ones; .*exclude_kinds = \["DELETE"\]',
        ),
        (
            'FilterRowKind { exclude_kinds = ["-D"] }',
            "LocalFile writes rows as they were before an update like inserted ones",
        ),
        (
            "FieldRename { convert_case = UPPER }",
            "LocalFile writes deleted rows and rows as they were",
        ),
        (
            'Metadata { metadata_fields { Table = "t" } }',
            "LocalFile writes deleted rows and rows as they were",
        ),
    ],
)
def test_other_transforms_do_not_prevent_the_warning(job: Any, transform: str, said: str) -> None:
    (message,) = warnings(job, transform=transform)
    assert re.search(said, message)


def test_no_warning_for_sinks_with_row_kinds_and_sources_of_inserts(job: Any) -> None:
    assert warnings(job, sink="Console { }") == []
    assert warnings(job, sink=TABLE) == []
    assert warnings(job, source=job.fake()) == []


def test_a_sink_that_refuses_rows_warns_that_the_job_will_fail(job: Any) -> None:
    (message,) = warnings(job, sink=QUERY)
    assert "Jdbc cannot write deleted rows: the first of them fails the job" in message
    (message,) = warnings(job, sink='Spark { format = parquet, path = "/tmp/out" }')
    assert "Spark cannot write deleted rows and rows as they were before an update" in message


def test_every_path_to_each_sink_is_checked_separately(job: Any) -> None:
    transforms = (
        "RowKindExtractor { plugin_input = changes, plugin_output = kinds }\nFieldRename {"
        " plugin_input = changes, plugin_output = upper, convert_case = UPPER }"
    )
    sinks = FILE % "plugin_input = kinds," + FILE % "plugin_input = upper,"
    planned = job.of(
        source=CDC % "plugin_output = changes,", transform=transforms, sink=sinks, env=STREAMING
    )
    assert [p.path for p in planned.problems if p.severity is Severity.WARNING] == ["sink[1]"]


def test_rows_of_a_fake_source_with_kinds_are_changes(job: Any) -> None:
    rows = 'rows = [{ kind = DELETE, fields = [1, "a"] }]'
    (message,) = warnings(job, source=job.fake(more=rows))
    assert message.startswith("changes of FakeSource reach this sink")


def test_invalid_options_hide_the_warning(job: Any) -> None:
    planned = job.of(
        source=CDC % "",
        sink=FILE % "",
        transform='FilterRowKind { include_kinds = ["NOPE"] }',
        env=STREAMING,
    )
    assert planned.errors != []
    assert [p for p in planned.problems if p.severity is Severity.WARNING] == []
