"""Large job files are planned in a child process: the same result, within limits."""

import json
import threading

import pytest

from tidegate.api import planner_process
from tidegate.api.planner_process import JobTooLarge, PlannerBusy, plan_isolated
from tidegate.api.seatunnel import job_source as job_text
from tidegate.api.seatunnel.job_source import (
    ISOLATED_CHARS_MIN,
    plan_in_process,
    plan_with_problems,
)
from tidegate.config.load import Format
from tidegate.model.problem import Strictness

JOB = {
    "env": {"job.mode": "BATCH", "job.name": "large"},
    "source": [
        {
            "plugin_name": "FakeSource",
            "plugin_output": "t",
            "schema": {"fields": {"id": "bigint"}},
        }
    ],
    "sink": [{"plugin_name": "Console", "plugin_input": "t", "pasword": "typo"}],
}


def large(job: dict[str, object]) -> str:
    return json.dumps(job) + " " * ISOLATED_CHARS_MIN


def test_a_large_text_gets_the_plan_and_the_problems_of_a_small_one() -> None:
    assert plan_isolated(large(JOB), "json", "lenient") == plan_in_process(
        json.dumps(JOB), Format.JSON, Strictness.LENIENT
    )
    wrong = {**JOB, "sink": [{"plugin_name": "Consol", "plugin_input": "t"}]}
    plan, problems = plan_isolated(large(wrong), "json", "normal")
    assert plan is None
    assert problems == plan_in_process(json.dumps(wrong), Format.JSON)[1]


def test_only_a_large_text_is_planned_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        job_text, "plan_isolated", lambda _, form, how: (seen.append((form, how)), [])
    )
    plan_with_problems(json.dumps(JOB), Format.JSON)
    assert seen == []
    plan_with_problems(large(JOB), Format.JSON)
    assert seen == [("json", "normal")]


@pytest.mark.parametrize(("limit", "value"), [("CPU_S_MAX", 0), ("MEMORY_BYTES_MAX", 1 << 20)])
def test_a_text_that_exceeds_a_limit_is_rejected(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    # The limits are arguments of the child process: patching them here takes effect.
    monkeypatch.setattr(planner_process, limit, value)
    with pytest.raises(JobTooLarge, match="too large or too complex"):
        plan_isolated(large(JOB), "json", "lenient")


def test_a_text_that_waits_too_long_is_rejected_as_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner_process, "WAIT_S_MAX", 0.01)
    monkeypatch.setattr(planner_process, "_one_child", threading.Semaphore(0))
    with pytest.raises(PlannerBusy, match="try again"):
        plan_isolated(large(JOB), "json", "lenient")
