"""Changes that reach a sink which takes every row for one to add: said before the job runs, with
the way out.
"""

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


def test_files_write_deleted_rows_like_inserted_ones_and_it_is_said_how_to_do_better(
    job: Any,
) -> None:
    assert warnings(job) == [
        "changes of MySQL-CDC arrive here, and LocalFile writes deleted rows and rows as they were"
        " before an update like inserted ones; RowKindExtractor before it makes the kind a column,"
        ' FilterRowKind { exclude_kinds = ["UPDATE_BEFORE", "DELETE"] } leaves these rows out'
    ]


def test_the_warning_stands_at_the_sink(job: Any) -> None:
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
def test_a_transform_that_tells_the_kinds_or_takes_the_rows_out_is_the_way_out(
    job: Any, transform: str
) -> None:
    assert warnings(job, transform=transform) == []


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (
            'FilterRowKind { exclude_kinds = ["UPDATE_BEFORE"] }',
            'LocalFile writes deleted rows like inserted ones; .*exclude_kinds = \\["DELETE"\\]',
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
def test_what_other_transforms_let_pass_is_still_lost(job: Any, transform: str, said: str) -> None:
    (message,) = warnings(job, transform=transform)
    assert re.search(said, message)


def test_sinks_that_understand_changes_and_sources_without_them_need_no_word(job: Any) -> None:
    assert warnings(job, sink="Console { }") == []
    assert warnings(job, sink=TABLE) == []
    assert warnings(job, source=job.fake()) == []


def test_a_sink_that_refuses_rows_says_that_the_job_would_fail(job: Any) -> None:
    (message,) = warnings(job, sink=QUERY)
    assert "Jdbc cannot write deleted rows: the first of them fails the job" in message
    (message,) = warnings(job, sink='Spark { format = parquet, path = "/tmp/out" }')
    assert "Spark cannot write deleted rows and rows as they were before an update" in message


def test_every_way_to_a_sink_is_looked_at_and_each_sink_for_itself(job: Any) -> None:
    transforms = (
        "RowKindExtractor { plugin_input = changes, plugin_output = told }\nFieldRename {"
        " plugin_input = changes, plugin_output = upper, convert_case = UPPER }"
    )
    sinks = FILE % "plugin_input = told," + FILE % "plugin_input = upper,"
    planned = job.of(
        source=CDC % "plugin_output = changes,", transform=transforms, sink=sinks, env=STREAMING
    )
    assert [p.path for p in planned.problems if p.severity is Severity.WARNING] == ["sink[1]"]


def test_rows_of_a_fake_source_count_where_they_have_kinds(job: Any) -> None:
    rows = 'rows = [{ kind = DELETE, fields = [1, "a"] }]'
    (message,) = warnings(job, source=job.fake(more=rows))
    assert message.startswith("changes of FakeSource arrive here")


def test_options_that_are_wrong_have_their_own_problems_first(job: Any) -> None:
    planned = job.of(
        source=CDC % "",
        sink=FILE % "",
        transform='FilterRowKind { include_kinds = ["NOPE"] }',
        env=STREAMING,
    )
    assert planned.errors != []
    assert [p for p in planned.problems if p.severity is Severity.WARNING] == []
