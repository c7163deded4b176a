"""Log lines: every field that code passes is written, and none of them shows a secret."""

import io
import json
import logging

import pytest

from tidegate import redact
from tidegate.logs import JsonLines
from tidegate.redact import register_secrets


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    monkeypatch.setattr(redact, "_secrets", ())
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonLines())
    logger = logging.Logger("tidegate.test", logging.INFO)
    logger.addHandler(handler)
    return logger


def test_every_field_passed_in_extra_is_written(log: logging.Logger, output: io.StringIO) -> None:
    log.info("made_up_event", extra={"job_id": 7, "made_up_field": ["x", 1], "sinks": ("a",)})
    line = json.loads(output.getvalue())
    assert set(line) == {"at", "level", "event", "job_id", "made_up_field", "sinks"}
    assert line["event"] == "made_up_event"
    assert line["made_up_field"] == ["x", 1]
    assert line["sinks"] == ["a"]


def test_secrets_in_any_field_are_masked(log: logging.Logger, output: io.StringIO) -> None:
    register_secrets(["hunter2"])
    log.info("made_up_event", extra={"made_up_field": {"deep": ["it is hunter2"]}, "other": 7})
    assert "hunter2" not in output.getvalue()
    assert json.loads(output.getvalue())["made_up_field"] == {"deep": ["it is ******"]}


def test_traces_are_masked(log: logging.Logger, output: io.StringIO) -> None:
    register_secrets(["hunter2"])
    try:
        raise ValueError("the password hunter2 is wrong")
    except ValueError:
        log.exception("made_up_failure")
    assert "hunter2" not in output.getvalue()
    assert "ValueError: the password ******" in json.loads(output.getvalue())["trace"]
