"""Shaded job files."""

import base64

from tidegate.config.encryption import encode
from tidegate.config.hocon.parse import parse_hocon
from tidegate.config.load import read_text
from tidegate.model.problem import Severity


def shaded(text):
    return base64.b64encode(text.encode()).decode()


def read(env, options):
    return read_text(
        f"env {{ {env} }}\nsource {{ A {{ {options} }} }}\nsink {{ B {{ {options} }} }}", "job.conf"
    )


def test_sensitive_options_of_sources_and_sinks_are_decoded_and_others_are_not():
    secret = shaded("pä$$")
    reading = read(
        'shade.identifier = "base64"',
        f'password = "{secret}", access_key = "{secret}", url = "{secret}", sub {{ token ='
        f' "{secret}" }}',
    )
    assert reading.errors == []
    for block in (*reading.spec.sources, *reading.spec.sinks):
        assert block.options["password"] == "pä$$"
        assert block.options["access_key"] == "pä$$"
        assert block.options["url"] == secret
        assert block.options["sub"] == {"token": secret}


def test_more_options_can_be_named_nested_and_in_lists():
    secret = shaded("x")
    env = 'shade { identifier = base64, options = ["sub.key", "tables.pin", "a.b"] }'
    options = (
        read(
            env, f'sub {{ key = "{secret}" }}, tables = [{{ pin = "{secret}" }}], a.b = "{secret}"'
        )
        .spec.sources[0]
        .options
    )
    assert (options["sub"], options["tables"], options["a.b"]) == (
        {"key": "x"},
        [{"pin": "x"}],
        "x",
    )


def test_without_a_shade_values_are_unchanged():
    assert read("", 'password = "cGFzcw=="').spec.sources[0].options["password"] == "cGFzcw=="
    assert (
        read('shade.identifier = "default"', 'password = "cGFzcw=="')
        .spec.sources[0]
        .options["password"]
        == "cGFzcw=="
    )


def test_a_value_that_is_not_base64_is_a_problem_that_does_not_show_it():
    reading = read('shade.identifier = "base64"', 'password = "hunter2!"')
    assert [p.path for p in reading.errors] == ["source[0].password", "sink[0].password"]
    assert "hunter2" not in str(reading.errors[0])


def test_unknown_shade_warns_and_uses_values_unchanged():
    reading = read('shade.identifier = "bas64"', 'password = "cGFzcw=="')
    [problem] = reading.problems
    assert (problem.severity, problem.suggestion, problem.at.line) == (
        Severity.WARNING,
        "base64",
        1,
    )
    assert reading.spec.sources[0].options["password"] == "cGFzcw=="


def test_encoding_reverses_decoding():
    document = encode(
        parse_hocon(
            "env { shade.identifier = base64 }\nsource { A { password = pass, port = 1 } }",
            "job.conf",
        )
    )
    assert document.data["source"] == [{"password": shaded("pass"), "port": 1, "plugin_name": "A"}]
