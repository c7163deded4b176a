"""`tidegate explain`: the plan as text and as JSON."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main
from tidegate.cli.exits import BAD_INPUT
from tidegate.cli.explain import batch_policy
from tidegate.model.job import JobEnv, JobMode

TEXT = """
env { job.name = orders, job.mode = STREAMING, checkpoint.interval = 5000 }
source {
  FakeSource { plugin_output = a, name = first, schema { fields { id = bigint } } }
  FakeSource { plugin_output = b, parallelism = 3, schema { fields { id = bigint } } }
}
transform { Sql { plugin_input = a, plugin_output = c, query = "select id from a" } }
sink {
  Console { plugin_input = c }
  LocalFile { plugin_input = b, path = "%s", file_format_type = json }
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "job.conf").write_text(TEXT % (tmp_path / "out"))
    return str(tmp_path / "job.conf")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def test_the_text_shows_graph_delivery_and_state(file: str) -> None:
    result = run(file)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[:2] == [
        "Job orders: STREAMING, 2 pipelines, 5 actions",
        "Batches: one every 5 s, without a pause while a source has a backlog, each a checkpoint",
    ]
    assert "Pipeline 1: through a Spark DataFrame, because Transform[0]-Sql needs one" in lines
    assert (
        "Pipeline 2: fused in Python tasks, without a DataFrame, because every action works over"
        " Arrow" in lines
    )
    assert "  └─> Transform[0]-Sql" in lines
    assert "    operator id  first" in lines
    sink = lines[lines.index("  Sink[1]-LocalFile") :]
    assert sink[2:4] == [
        "    parallelism  3",
        "    state        the batches whose files are published",
    ]
    assert sink[4].startswith("    delivery     exactly-once: ")


def test_json_has_the_plan_without_option_values(file: str) -> None:
    document = json.loads(run(file, "--json").output)
    assert document["problems"] == []
    plan = document["plan"]
    assert (plan["job"], plan["mode"], [p["fused"] for p in plan["pipelines"]]) == (
        "orders",
        "STREAMING",
        [False, True],
    )
    assert plan["pipelines"][1]["actions"][1] == {
        "operator": "Sink[1]-LocalFile",
        "label": "Sink[1]-LocalFile",
        "kind": "sink",
        "plugin": "LocalFile",
        "inputs": ["Source[1]-FakeSource"],
        "parallelism": 3,
        "delivery": "exactly-once",
        "state": "the batches whose files are published",
        "fusable": True,
    }


def test_a_bad_file_has_problems_and_no_plan(tmp_path: Path) -> None:
    (tmp_path / "bad.conf").write_text("source { Nothing { } }\nsink { Console { } }")
    human, machine = run(str(tmp_path / "bad.conf")), run(str(tmp_path / "bad.conf"), "--json")
    assert (human.exit_code, machine.exit_code) == (BAD_INPUT, BAD_INPUT)
    assert "there is no source 'Nothing'" in human.stderr
    assert human.stderr.endswith("1 error; there is no plan\n")
    document = json.loads(machine.output)
    assert (document["plan"], [problem["kind"] for problem in document["problems"]]) == (
        None,
        ["unknown-plugin"],
    )


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (JobEnv(), "one: everything that the sources hold, committed at once"),
        (
            JobEnv(batch_files_max=2),
            "one after the other until the sources are read (at most 2 files)",
        ),
        (
            JobEnv(checkpoint_interval_ms=500),
            "about 0.5 s each, one after the other, each a checkpoint",
        ),
        (
            JobEnv(mode=JobMode.STREAMING),
            "one every 10 s, without a pause while a source has a backlog, each a checkpoint",
        ),
        (
            JobEnv(mode=JobMode.STREAMING, rows_per_second=1e6, batch_rows_max=5000),
            "(at most 5,000 rows, 1e+06 rows a second for each reader)",
        ),
    ],
)
def test_the_batch_policy_is_described(env: JobEnv, words: str) -> None:
    assert batch_policy(env).endswith(words)
