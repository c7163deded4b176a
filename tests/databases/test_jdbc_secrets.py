"""Passwords of databases appear in no file that a job leaves, and in no error.

They are set as an option, in the URL or in the properties.
"""

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from database_kit import Place, source

from tidegate.databases.errors import AccessDenied
from tidegate.model.records import JobStatus
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.servers.mariadb import MariaDbServer

WHO = "reader"
SECRET = "hush-Häring-%41"


@pytest.fixture
def secret_url(mariadb: MariaDbServer, maria: Place) -> str:
    """A URL with the password in it, for a user of its own."""
    maria.execute("create table t (id int primary key)", "insert into t values (1), (2), (3)")
    mariadb.execute(
        f"create or replace user {WHO}@'127.0.0.1' identified by '{SECRET}'",
        f"grant select on {maria.database}.* to {WHO}@'127.0.0.1'",
    )
    return maria.url.replace("//", f"//{WHO}:{quote(SECRET, safe='')}@")


def _files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_no_file_of_a_job_contains_a_password(secret_url: str, lite: Place, tmp_path: Path) -> None:
    file, home = tmp_path / "job.conf", tmp_path / "home"
    file.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "secret", checkpoint.interval = 10, batch.max-rows = 1 }}
source {{ Jdbc {{ url = {json.dumps(secret_url)}, table_path = "t", use_select_count = true, split.size = 1 }} }}
sink {{ Jdbc {{ {lite.block(table="t")}, properties {{ trustStorePassword = "{SECRET}" }} }} }}"""
    )
    spelled = [
        text.encode() for text in (SECRET, quote(SECRET, safe=""), json.dumps(SECRET).strip('"'))
    ]
    with CrashRuns() as runs:
        assert (
            runs.run(
                RunRequest(home=str(home), file=str(file), failpoints="ledger.complete.after@2")
            ).code
            == KILLED
        )
        left = _files(home)
        assert [path for path, data in left.items() if any(text in data for text in spelled)] == []
        packed = base64.b64encode(json.dumps(secret_url).encode())[:40]
        checkpoints = [path for path in left if "/checkpoints/" in path]
        assert checkpoints
        assert [path for path in checkpoints if packed in left[path]] == [], "not even packed"
        assert (
            runs.run(RunRequest(home=str(home), file=str(file))).status == JobStatus.FINISHED.value
        )
    assert lite.execute("select id from t order by id") == [(1,), (2,), (3,)]
    assert [
        path for path, data in _files(home).items() if any(text in data for text in spelled)
    ] == []


def test_errors_contain_no_password_of_the_url(secret_url: str, maria: Place) -> None:
    wrong = secret_url.replace(quote(SECRET, safe=""), "wrong-geheim")
    reading = source(Place(wrong, "", "", maria.database), table_path="t")
    with pytest.raises(AccessDenied) as refused:
        reading.tables()
    assert "wrong-geheim" not in f"{refused.value}{reading.address!r}{reading.address}"
