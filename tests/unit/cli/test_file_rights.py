"""Files with secrets that other users can access: reported by server start and by doctor."""

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.cli.doctor import DoctorEnvironment, Level, check_rights
from tidegate.cli.rights import exposed_files, holds_secrets
from tidegate.cli.server import load_settings
from tidegate.config.engine.settings import read_engine
from tidegate.home import Home
from tidegate.model.engine import EngineSettings, HttpSettings

SECRET_FILE = (
    "tidegate:\n  http:\n    enable-basic-auth: true\n    basic-auth-password: hunter2-long\n"
)


def paths(home: Home, settings: EngineSettings, file: str = "", **environ: str) -> set[str]:
    return {str(each.path) for each in exposed_files(home, settings, file, environ)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


@pytest.mark.parametrize(
    ("mode", "named"),
    [
        (0o600, False),
        (0o400, False),
        (0o640, False),
        (0o644, True),
        (0o604, True),
        (0o660, True),
        (0o666, True),
    ],
)
def test_a_private_key_readable_by_others_is_reported(
    home: Home, tmp_path: Path, mode: int, named: bool
) -> None:
    key = tmp_path / "server.key"
    key.write_text("x")
    key.chmod(mode)
    settings = replace(EngineSettings(), http=HttpSettings(private_key=str(key)))
    assert paths(home, settings) == ({str(key)} if named else set())


def test_a_home_accessible_to_others_is_reported(home: Home) -> None:
    assert paths(home, EngineSettings()) == set()
    home.root.chmod(0o755)
    (home.root / "store").chmod(0o755)
    assert paths(home, EngineSettings()) == {str(home.root), str(home.root / "store")}


def test_an_engine_file_is_reported_only_if_it_has_secrets(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    for text, secret in (
        ("tidegate:\n  http:\n    port: 9000\n", False),
        (SECRET_FILE, True),
        ("tidegate:\n  spark:\n    hadoop.fs.azure.sas.c.a: sig-hunter2\n", True),
    ):
        file.write_text(text)
        file.chmod(0o644)
        settings, _, _ = read_engine(text, str(file), {})
        assert holds_secrets(settings) is secret
        assert paths(home, settings, str(file)) == ({str(file)} if secret else set())
        file.chmod(0o600)
        assert paths(home, settings, str(file)) == set()


def test_server_start_and_doctor_show_the_repair(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home.root / "tidegate.yaml"
    file.write_text(SECRET_FILE)
    file.chmod(0o644)
    token = tmp_path / "token"
    token.write_text("tg_x")
    token.chmod(0o644)
    monkeypatch.setenv("TIDEGATE_TOKEN_FILE", str(token))
    notices = load_settings(str(home.root), None).notices
    assert [notice for notice in notices if f"chmod 600 {file}" in notice]
    assert [notice for notice in notices if f"chmod 600 {token}" in notice]
    found = list(check_rights(DoctorEnvironment(home=home.root, environ={})))
    assert [(each.level, f"chmod 600 {file}" in each.repair) for each in found] == [
        (Level.WARNING, True)
    ]
    file.chmod(0o600)
    assert [each.level for each in check_rights(DoctorEnvironment(home=home.root, environ={}))] == [
        Level.OK
    ]
