"""From a file to a JobSpec: formats, structure, blocks, and bytes that are not text."""

import pytest

from tidegate.config.load import load_job, load_text, read_job, read_text
from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.model.problem import BadJob, ProblemKind, Severity

JOB = """env {
  job.mode = "BATCH"
}
source {
  FakeSource {
    plugin_output = "fake"
    row.num = 5
    schema { fields { id = bigint } }
  }
}
transform {
  Sql { plugin_input = fake, plugin_output = out, query = "select 1", name = my_op }
}
sink {
  Console { plugin_input = ["out", "fake"], parallelism = 2 }
}
"""


def problems(text):
    return [
        (problem.kind, problem.at.line, problem.path)
        for problem in read_text(text, "job.conf").problems
    ]


def test_blocks_have_names_wiring_locations_and_all_their_options():
    spec = load_text(JOB, "job.conf")
    source, transform, sink = spec.blocks()
    assert (
        source.kind,
        source.index,
        source.plugin,
        source.output,
        source.inputs,
        source.at.line,
    ) == (
        BlockKind.SOURCE,
        0,
        "FakeSource",
        "fake",
        (),
        5,
    )
    assert source.options == {
        "plugin_output": "fake",
        "row.num": 5,
        "schema": {"fields": {"id": "bigint"}},
        "plugin_name": "FakeSource",
    }
    assert source.locate(("row.num",)).line == 7
    assert source.locate(("schema", "fields", "nope")).line == 8
    assert (transform.inputs, transform.output, transform.name) == (("fake",), "out", "my_op")
    assert (sink.inputs, sink.parallelism) == (("out", "fake"), 2)
    assert spec.notices == ()


def test_older_names_of_inputs_and_outputs_are_supported():
    spec = load_text(
        'source { A { result_table_name = a } }\nsink { B { source_table_name = "a, b", parallelism'
        " = 0 } }",
        "job.conf",
    )
    assert spec.sources[0].output == "a"
    assert spec.sinks[0].inputs == ("a", "b")
    assert spec.sinks[0].parallelism == 1


def test_name_option_that_is_not_text_belongs_to_the_connector():
    assert (
        load_text("source { A { name { x = 1 } } }\nsink { B {} }", "job.conf").sources[0].name
        is None
    )


@pytest.mark.parametrize("text", ["", "  \n# nothing\n"])
def test_an_empty_file_lacks_source_and_sink(text):
    assert problems(text) == [(ProblemKind.WIRING, 0, "source"), (ProblemKind.WIRING, 0, "sink")]


def test_a_missing_sink_is_a_problem_and_the_rest_is_still_read():
    reading = read_text("source { A {} }\nsink {}", "job.conf")
    assert [(p.kind, p.at.line, p.path) for p in reading.errors] == [
        (ProblemKind.WIRING, 2, "sink")
    ]
    assert reading.spec.sources[0].plugin == "A"


def test_wrong_structure_is_reported_at_its_line():
    text = "env = 5\nsource {\n A = 5\n B {}\n}\nsink = text"
    assert [(line, path) for _, line, path in problems(text)] == [
        (1, "env"),
        (3, "source[0]"),
        (6, "sink"),
    ]


def test_plugin_in_a_list_requires_its_name():
    [(kind, line, path)] = problems("source = [\n { x = 1 }\n]\nsink { B {} }")
    assert (kind, line, path) == (ProblemKind.OPTION, 2, "source[0]")


def test_unknown_top_level_keys_cause_a_warning_with_a_suggestion():
    reading = read_text("sorce { A {} }\nenv.job.mode = BATCH\n" + JOB, "job.conf")
    assert [(p.severity, p.path, p.suggestion) for p in reading.problems] == [
        (Severity.WARNING, "sorce", "source"),
        (Severity.WARNING, "env.job.mode", ""),
    ]
    assert "env { job.mode" in reading.problems[1].message
    assert len(read_text("sorce { A {} }\n" + JOB, "job.conf", strict=True).errors) == 1


def test_a_part_that_a_substitution_uses_is_not_unknown():
    assert (
        read_text(
            "base { x = 1 }\nflat.key = 2\nsource { A = ${base} }\nsink { B { y = ${base.x}, z ="
            " ${flat.key} } }",
            "job.conf",
        ).problems
        == ()
    )


def test_the_form_follows_from_the_suffix(tmp_path):
    (tmp_path / "a.json").write_text(
        '{"source": [{"plugin_name": "J"}], "sink": [{"plugin_name": "K"}]}'
    )
    (tmp_path / "b.sql").write_text(
        "CREATE TABLE s WITH ('connector'='S','type'='source');CREATE TABLE k WITH"
        " ('connector'='K','type'='sink');INSERT INTO k SELECT s"
    )
    (tmp_path / "c.config").write_text("source { H {} }\nsink { K {} }")
    (tmp_path / "d").write_bytes(b"\xef\xbb\xbfsource { D {} }\r\nsink { K {} }\r\n")
    assert [
        load_job(str(tmp_path / name)).sources[0].plugin
        for name in ("a.json", "b.sql", "c.config", "d")
    ] == ["J", "S", "H", "D"]


def test_includes_are_read_beside_the_file(tmp_path):
    (tmp_path / "job.conf").write_text('include "base"\nsink { K {} }')
    (tmp_path / "base.conf").write_text("\n\nsource { A { x = 1 } }")
    spec = load_job(str(tmp_path / "job.conf"))
    assert spec.sources[0].locate(("x",)).file == str(tmp_path / "base.conf")
    assert spec.sources[0].locate(("x",)).line == 3


def test_included_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "job.conf").write_text('include "base.conf"\nsource { A {} }\nsink { K {} }')
    (tmp_path / "base.conf").write_bytes(b"a = \xff")
    with pytest.raises(BadJob, match=r"base\.conf.*UTF-8"):
        load_job(str(tmp_path / "job.conf"))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x00\x01\x02", "NUL"),
        (b"a = 1\nb = \xff", "line 2"),
        ("a = 1".encode("utf-16"), "UTF-16"),
        ("a = é".encode("latin-1"), "UTF-8"),
    ],
)
def test_bytes_that_are_not_text_are_one_clear_problem(tmp_path, raw, words):
    path = tmp_path / "job.conf"
    path.write_bytes(raw)
    [problem] = read_job(str(path)).problems
    assert problem.kind is ProblemKind.SYNTAX
    assert words in problem.message


def test_a_file_that_is_not_there_is_said_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"the job file .*gone\.conf does not exist"):
        load_job(str(tmp_path / "gone.conf"))
    with pytest.raises(UserError, match="directory"):
        load_job(str(tmp_path))


def test_all_problems_of_all_kinds_come_together_sorted_by_line():
    text = "env { parallelism = x }\nsource { A { p = ${NOPE} } }\nsink { B { parallelism = y } }"
    with pytest.raises(BadJob) as caught:
        load_text(text, "job.conf")
    assert [problem.at.line for problem in caught.value.problems] == [1, 2, 3]


def test_a_text_with_syntax_errors_gives_no_spec_and_only_those():
    reading = read_text("source { A { p = * } }", "job.conf")
    assert reading.spec is None
    assert {problem.kind for problem in reading.problems} == {ProblemKind.SYNTAX}


def test_loading_imports_neither_spark_nor_arrow():
    import subprocess
    import sys

    code = (
        "import sys, tidegate.config.load; print([m for m in ('pyspark', 'pyarrow', 'pandas',"
        " 'sqlglot') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
