"""`tidegate validate`, from a job file to its printed problems."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import job_file, main
from tidegate.cli.exits import BAD_INPUT, FINISHED
from tidegate.model.problem import Location, Problem, ProblemKind, Strictness

SOURCE = (
    'FakeSource { plugin_output = "t", row.num = ${rows:5}, schema { fields { id = bigint } } }'
)
GOOD = f'env {{ job.mode = "BATCH" }}\nsource {{ {SOURCE} }}\nsink {{ Console {{ }} }}\n'
BAD = (
    "env { }\nsource {\n  FakeSorce { }\n}\nsink {\n  Console { plugin_input = tt }\n  LocalFile {"
    " plugin_input = x }\n}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_valid_file_has_no_problems(folder: Path) -> None:
    (folder / "good.conf").write_text(GOOD)
    result = run("validate", "good.conf")
    assert (result.exit_code, result.output) == (FINISHED, "good.conf: valid: no problems\n")


def test_problems_are_shown_in_order_with_their_lines(folder: Path) -> None:
    (folder / "bad.conf").write_text(BAD)
    result = run("validate", "bad.conf")
    assert result.exit_code == BAD_INPUT
    places = [
        line.partition(": ")[0]
        for line in result.output.splitlines()
        if line.startswith("bad.conf:")
    ]
    assert places == [
        "bad.conf:3",
        "bad.conf:3",
        "bad.conf:6",
        "bad.conf:7",
        "bad.conf:7",
        "bad.conf",
    ]
    assert (
        "bad.conf:3: error: source[0]: there is no source 'FakeSorce' (expected one of "
        in result.output
    )
    assert "; did you mean 'FakeSource'?\n       3 | FakeSorce { }\n" in result.output
    assert result.output.endswith("bad.conf: invalid: 5 errors\n")


def test_several_files_are_validated(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.conf").write_text(GOOD)
    (folder / "c.conf").write_text(BAD)
    assert run("validate", "a.conf", "b.conf").output == "2 files, all valid: no problems\n"
    result = run("validate", "a.conf", "b.conf", "c.conf")
    assert result.exit_code == BAD_INPUT
    assert result.output.endswith("3 files, 1 invalid: 5 errors\n")


def test_json_has_every_field_of_a_problem(folder: Path) -> None:
    (folder / "good.conf").write_text(GOOD)
    (folder / "bad.conf").write_text(GOOD.replace("Console { }", "Console { plugin_input = tt }"))
    result = run("validate", "--json", "good.conf", "bad.conf")
    assert result.exit_code == BAD_INPUT
    good, bad = json.loads(result.output)
    assert good == {"file": "good.conf", "ok": True, "problems": []}
    assert bad == {
        "file": "bad.conf",
        "ok": False,
        "problems": [
            {
                "kind": "wiring",
                "severity": "error",
                "file": "bad.conf",
                "line": 3,
                "path": "sink[0].plugin_input",
                "message": "there is no dataset 'tt'",
                "expected": "one of t",
                "suggestion": "t",
            }
        ],
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [("source {", "syntax"), (BAD, "unknown-plugin"), (GOOD.replace("5", "many"), "option")],
)
def test_every_kind_of_problem_is_distinguished(folder: Path, text: str, kind: str) -> None:
    (folder / "bad.conf").write_text(text)
    [judged] = json.loads(run("validate", "--json", "bad.conf").output)
    assert judged["problems"][0]["kind"] == kind


def test_a_misspelt_option_of_a_connector_is_an_error_unless_lenient(folder: Path) -> None:
    (folder / "job.conf").write_text(GOOD.replace("row.num", "row.nom"))
    lenient = run("validate", "job.conf", "--lenient")
    assert lenient.exit_code == FINISHED
    assert lenient.output.endswith("job.conf: valid: 1 warning\n")
    for refused in (run("validate", "job.conf"), run("validate", "job.conf", "--strict")):
        assert refused.exit_code == BAD_INPUT
        assert (
            "job.conf:2: error: source[0].row.nom: unknown option row.nom; did you mean 'row.num'?"
            in refused.output
        )


def test_the_option_i_may_be_repeated(folder: Path) -> None:
    (folder / "job.conf").write_text(GOOD.replace('"BATCH"', "${mode}"))
    assert run("validate", "job.conf").exit_code == BAD_INPUT
    assert run("validate", "job.conf", "-i", "mode=BATCH", "-i", "rows=7").exit_code == FINISHED
    assert (
        '"many" is not a whole number'
        in run("validate", "job.conf", "-i", "mode=BATCH,rows=many").output
    )


def test_an_unset_variable_is_a_single_problem(folder: Path) -> None:
    (folder / "job.conf").write_text(
        f"source {{ {SOURCE} }}\nsink {{ LocalFile {{ path = x, file_format_type = ${{form}} }} }}"
    )
    [judged] = json.loads(run("validate", "--json", "job.conf").output)
    assert [
        (problem["path"], "form is not set" in problem["message"]) for problem in judged["problems"]
    ] == [("sink[0].file_format_type", True)]


def test_an_invalid_variable_is_a_usage_error() -> None:
    result = run("validate", "job.conf", "-i", "mode")
    assert result.exit_code == BAD_INPUT
    assert "expected name=value" in result.output


def test_a_missing_file_does_not_hide_the_others(folder: Path) -> None:
    (folder / "good.conf").write_text(GOOD)
    missing, good = json.loads(run("validate", "--json", "nowhere.conf", "good.conf").output)
    assert (missing["ok"], good["ok"]) == (False, True)
    assert [problem["message"] for problem in missing["problems"]] == [
        "the job file nowhere.conf does not exist"
    ]


def test_a_line_that_may_contain_a_secret_is_not_shown(folder: Path) -> None:
    (folder / "job.conf").write_text(
        f'source {{ {SOURCE} }}\nsink {{ Console {{ password = "geheim", plugin_input = u }} }}'
    )
    result = run("validate", "job.conf")
    assert "job.conf:2: error" in result.output
    assert "geheim" not in result.output


def test_problems_in_an_included_file_come_after_those_of_the_job_file(folder: Path) -> None:
    (folder / "part.conf").write_text("source { FakeSorce { } }")
    (folder / "job.conf").write_text('include "part.conf"\nsink { Consol { } }')
    [judged] = json.loads(run("validate", "--json", "job.conf").output)
    assert [problem["file"] for problem in judged["problems"]] == ["job.conf", "part.conf"]


def test_load_plan_returns_the_plan_of_a_valid_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "good.conf").write_text(GOOD)
    assert job_file.load_plan("good.conf", ("rows=3",), strict=Strictness.STRICT).job_name == "good"
    assert capsys.readouterr() == ("", "")


def test_load_plan_ends_the_command_for_an_invalid_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.conf").write_text(BAD)
    with pytest.raises(SystemExit) as ended:
        job_file.load_plan("bad.conf", (), strict=False)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (BAD_INPUT, "")
    assert err.endswith("bad.conf: 5 errors; nothing was started\n")


def test_a_problem_of_a_file_that_cannot_be_shown_is_shown_without_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = Problem(
        kind=ProblemKind.OPTION, message="wrong", at=Location("request", 3), path="env.x"
    )
    job_file.print_problems([problem], sys.stdout)
    assert capsys.readouterr().out == "request:3: error: env.x: wrong\n"


def test_validating_imports_neither_spark_nor_arrow(folder: Path) -> None:
    (folder / "good.conf").write_text(
        GOOD.replace("sink", 'transform { Sql { query = "select id from t" } }\nsink')
    )
    code = """
import sys
from tidegate.cli import main
try:
    main(["validate", "good.conf"])
except SystemExit as ended:
    print(ended.code, *sorted({"pyspark", "py4j", "pyarrow", "pandas", "numpy"} & set(sys.modules)))
"""
    source = Path(job_file.__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(source)},
        cwd=folder,
        check=False,
    )
    assert answer.stdout.splitlines() == ["good.conf: valid: no problems", "0"], answer.stderr
