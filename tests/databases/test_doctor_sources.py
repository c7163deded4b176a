"""`tidegate doctor FILE` connects to the sources of a job and reports what would stop it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from database_kit import Place

from tidegate.cli.doctor import doctor
from tidegate.testing.servers.mariadb import MariaDbServer

JOB = """env {{ job.mode = "STREAMING" }}
source {{ MySQL-CDC {{ plugin_output = "t", url = "{url}", username = "{user}", password = {password},
  table-names = ["{table}"] }} }}
sink {{ Console {{ plugin_input = "t" }} }}
"""


@pytest.fixture
def findings(maria: Place, mariadb: MariaDbServer, tmp_path: Path) -> Any:
    mariadb.execute(f"create table {maria.database}.a (id int primary key)")
    file = tmp_path / "job.conf"

    def found(table: str = "a") -> list[dict[str, str]]:
        path = f"{maria.database}.{table}"
        file.write_text(
            JOB.format(
                url=maria.url, user=maria.user, password=json.dumps(maria.password), table=path
            )
        )
        answer = CliRunner().invoke(doctor, ["--json", str(file)])
        return [f for f in json.loads(answer.stdout)["findings"] if f["name"].startswith(str(file))]

    return found


def test_a_source_that_can_be_read_is_reported_with_its_tables(findings: Any) -> None:
    (source,) = findings()
    assert (source["level"], source["found"]) == ("ok", "1 table")


def test_a_missing_table_is_reported_with_its_name(findings: Any, maria: Place) -> None:
    (source,) = findings("nope")
    assert source["level"] == "missing"
    assert f"{maria.database}.nope" in source["repair"]


def test_a_server_without_full_metadata_is_a_warning(findings: Any, mariadb: MariaDbServer) -> None:
    mariadb.execute("set global binlog_row_metadata = NO_LOG")
    try:
        read, warning = findings()
    finally:
        mariadb.execute("set global binlog_row_metadata = FULL")
    assert read["level"] == "ok"
    assert (warning["level"], "binlog_row_metadata = FULL" in warning["repair"]) == (
        "warning",
        True,
    )


def test_a_job_file_with_errors_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "job.conf"
    file.write_text("env { job.mode = BATCH }")
    answer = CliRunner().invoke(doctor, ["--json", str(file)])
    assert answer.exit_code == 1
    last = json.loads(answer.stdout)["findings"][-1]
    assert (last["level"], last["repair"]) == ("missing", f"See: tidegate validate {file}")
