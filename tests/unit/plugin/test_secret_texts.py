"""Secrets in all options of a job are found, and no log line contains them."""

import io
import json
import logging
import sys

import pytest

from tidegate import redact as redact_module
from tidegate.config.load import load_text
from tidegate.logs import JsonLines
from tidegate.planner.plan import plan
from tidegate.plugin.secret import plan_texts
from tidegate.redact import (
    RedactingStream,
    redact,
    redact_stderr,
    register_secrets,
    secret_texts,
    spellings,
)

JOB = """
env { job.mode = "BATCH", spark.app.secret = "of-env" }
source { Jdbc {
  url = "jdbc:postgresql://ann:of-user-part@h/d?password=of%20parameter&sslmode=require"
  user = "ann", password = "of-option"
  properties { sslpassword = "of-map", currentSchema = "sales" }
  table_path = "public.t", query = "select 1", plugin_output = "t" } }
sink { Console { plugin_input = "t" } }
"""


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact_module, "_secrets", ())


def test_secrets_of_options_maps_addresses_and_env_are_found() -> None:
    planned = plan(load_text(JOB, "job")).plan
    assert planned is not None
    assert plan_texts(planned) == {
        "of-env",
        "of-option",
        "of-map",
        "of-user-part",
        "of%20parameter",
        "of parameter",
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"password": "p1", "port": 5432, "user": "ann", "table": "passengers"}, {"p1"}),
        ({"deep": [{"more": {"api_key": "k1", "primary_key": "id"}}]}, {"k1"}),
        ({"url": "postgresql://ann:p%40ss@h:1/d"}, {"p%40ss", "p@ss"}),
        ({"url": "jdbc:sqlserver://h;user=a;password=p2;encrypt=true"}, {"p2"}),
        ({"url": "http://h/x?a=b", "password": ""}, set()),
    ],
)
def test_text_beside_a_secret_is_not_secret(options: dict[str, object], found: set[str]) -> None:
    assert secret_texts(options) == found


def line_of(text: str, **more: object) -> dict[str, object]:
    record = logging.LogRecord("tidegate", logging.INFO, __file__, 1, text, (), None)
    record.__dict__.update(more)
    line: dict[str, object] = json.loads(JsonLines().format(record))
    return line


def test_secret_is_masked_in_every_spelling() -> None:
    register_secrets(['say "Öl&more"'])
    for written in spellings(['say "Öl&more"']):
        assert "more" not in redact(f"before {written} after")
    line = line_of(
        'it was say "Öl&more"', why={"deep": ['say "Öl&more"', 7]}, by=ValueError('say "Öl&more"')
    )
    assert "more" not in json.dumps(line, ensure_ascii=False)
    assert line["why"] == {"deep": ["******", 7]}


def test_common_words_are_not_masked() -> None:
    register_secrets(["abc", "true", "False"])
    assert redact("abc is true, not False") == "abc is true, not False"
    assert redact("hunter2 here", also=["hunter2"]) == "****** here"
    assert redact("hunter2 here") == "hunter2 here"


def test_newest_secrets_are_kept_if_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact_module, "SECRETS_MAX", 3)
    for number in range(5):
        register_secrets([f"secret{number}"])
    assert [redact(f"secret{number}") for number in range(5)] == [
        "secret0",
        "secret1",
        "******",
        "******",
        "******",
    ]


def test_traces_on_standard_error_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", seen)
    redact_stderr()
    redact_stderr()
    assert isinstance(sys.stderr, RedactingStream)
    register_secrets(["hunter2"])
    print("the password hunter2 is wrong", file=sys.stderr, flush=True)
    assert seen.getvalue() == "the password ****** is wrong\n"
