"""`tidegate config show`: effective values, their sources, and no secret."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main
from tidegate.cli.exits import BAD_INPUT, FINISHED
from tidegate.config.engine.options import KEYS
from tidegate.plugin.option import OptionKind
from tidegate.redact import mask_text, mask_value

FULL = """tidegate:
  state.url: postgresql://tide:${DB_PASSWORD}@db:5432/tide
  http:
    port: 9000
    basic-auth-password: hunter2
  event-report-http: {url: "https://u:hunter2@h/x?token=hunter2&a=b", headers: {X-Whatever: hunter2}}
  checkpoint.storage.plugin-config: {namespace: /data/cp, fs.s3a.access.key: hunter2, fs.s3a.endpoint: "http://s3"}
  worker.tags: {zone: north}
  spark: {master: "local[2]", hadoop.fs.s3a.secret.key: hunter2, driver.extraJavaOptions: "-Dpassword=hunter2 -Dx=y"}
  queue-type: blockingqueue
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TIDEGATE_CONFIG", raising=False)
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    return tmp_path


def show(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["config", "show", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rows(result: Result) -> dict[str, list[str]]:
    """key -> value and source, of the plain output."""
    return {
        parts[0]: parts[1:]
        for line in result.stdout.splitlines()
        if not line.startswith("#") and (parts := line.split(maxsplit=2))
    }


def test_without_a_file_every_key_has_its_default(home: Path) -> None:
    result = show()
    assert (result.exit_code, result.stderr) == (FINISHED, "")
    assert f"# home: {home}\n# file: none" in result.stdout
    found = rows(result)
    assert {key.name for key in KEYS if key.option.kind is not OptionKind.MAP} - set(found) == {
        "http.enable-https"
    }
    assert {source for _, source in found.values()} == {"default"}
    assert found["state.url"][0] == f"sqlite:///{home}/store/tidegate.db"
    assert found["checkpoint.storage.plugin-config.namespace"][0] == f"{home}/checkpoints"
    assert (
        found["http.port"][0],
        found["slot-service.dynamic-slot"][0],
        found["job-schedule-strategy"][0],
    ) == ("8080", "true", "WAIT")


def test_every_value_has_its_source(home: Path) -> None:
    file = home / "tidegate.yaml"
    file.write_text(FULL)
    found = rows(show())
    assert found["http.port"] == ["9000", f"{file}:4"]
    assert found["http.host"] == ["127.0.0.1", "default"]
    assert found["state.url"] == [
        "postgresql://tide:******@db:5432/tide",
        f"${{DB_PASSWORD}} in {file}:2",
    ]
    assert found["worker.tags.zone"] == ["north", f"{file}:8"]
    assert found["spark.master"] == ["local[2]", f"{file}:9"]
    assert found["queue-type"] == ["(ignored)", "rows do not pass through queues"]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_no_secret_is_shown_in_any_form(home: Path, arguments: tuple[str, ...]) -> None:
    (home / "tidegate.yaml").write_text(FULL)
    result = show(*arguments)
    assert result.exit_code == FINISHED
    assert "hunter2" not in result.output
    for seen in (
        "https://******@h/******",
        "http://s3",
        "-Dpassword=****** -Dx=******",
        "X-Whatever",
    ):
        assert seen in result.output


def test_json_has_typed_values_and_their_sources(home: Path) -> None:
    file = home / "tidegate.yaml"
    file.write_text(FULL)
    told = json.loads(show("--json").stdout)
    assert (told["home"], told["file"], told["ignored"]) == (
        str(home),
        str(file),
        {"queue-type": "rows do not pass through queues"},
    )
    assert told["settings"]["http.port"] == {
        "value": 9000,
        "source": "file",
        "file": str(file),
        "line": 4,
    }
    assert told["settings"]["http.enable-http"] == {"value": True, "source": "default"}
    assert told["settings"]["state.url"]["source"] == "environment"
    assert told["settings"]["state.url"]["variables"] == ["DB_PASSWORD"]
    assert [problem["severity"] for problem in told["problems"]] == ["notice"]


def test_problems_are_shown_as_those_of_job_files(home: Path) -> None:
    file = home / "bad.yaml"
    file.write_text("tidegate:\n  http:\n    prt: 1\n    port: x\n")
    result = show("--config", str(file))
    assert result.exit_code == BAD_INPUT
    assert (
        f"{file}:3: warning: tidegate.http.prt: unknown option http.prt; did you mean"
        " 'http.port'?\n       3 | prt: 1\n" in result.stderr
    )
    assert f'{file}:4: error: tidegate.http.port: "x" is not a whole number' in result.stderr
    assert rows(result)["http.port"] == ["8080", "default"]


def test_an_unknown_key_is_an_error_only_with_strict(home: Path) -> None:
    (home / "tidegate.yaml").write_text("tidegate: {http.prt: 1}")
    assert (show().exit_code, show("--strict").exit_code) == (FINISHED, BAD_INPUT)


def test_a_missing_file_is_reported(home: Path) -> None:
    result = show("--config", str(home / "no.yaml"))
    assert result.exit_code == BAD_INPUT
    assert f"the engine's file {home / 'no.yaml'} does not exist" in result.stderr


def test_the_home_of_the_command_line_is_used(home: Path) -> None:
    (home / "other").mkdir()
    (home / "other" / "seatunnel.yaml").write_text("seatunnel: {engine: {http: {port: 7}}}")
    assert rows(show("--home", str(home / "other")))["http.port"] == [
        "7",
        f"{home}/other/seatunnel.yaml:1",
    ]


@pytest.mark.usefixtures("home")
def test_showing_needs_neither_spark_nor_arrow() -> None:
    heavy = "print(*{'pyspark', 'pyarrow', 'pandas'} & set(sys.modules), file=sys.stderr)"
    code = (
        "import sys\nfrom tidegate.cli import main\ntry:\n    main(['config', 'show'])\nfinally:\n"
        f"    {heavy}"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr.split()) == (0, [])
    assert "http.port" in answer.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sqlite:////a/b@c.db", "sqlite:////a/b@c.db"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p@ss/w@h/d", "postgresql://u:******@h/d"),
        ("postgresql://:p@h/d", "postgresql://:******@h/d"),
        ("postgresql://h/d?sslmode=on&password=x", "postgresql://h/d?sslmode=on&password=******"),
        ("host=h password=x user=u", "host=h password=****** user=u"),
        ("etcd://u:x@a:2379,b:2379/p", "etcd://u:******@a:2379,b:2379/p"),
    ],
)
def test_a_url_is_shown_without_its_password(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "Authorization",
        "kerberos.keytab",
        "sasl.jaas.config",
        "my_password",
        "api-token",
    ],
)
def test_a_key_named_like_a_secret_is_masked(name: str) -> None:
    assert (mask_value(name, "x"), mask_value(name, ""), mask_value("fs.s3a.endpoint", "x")) == (
        "******",
        "",
        "x",
    )
