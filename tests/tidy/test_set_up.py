"""The set-up script on trees made for the test: when it thinks it is done, what it reuses, what it
says when it stops.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def setup(tmp_path: Path) -> ModuleType:
    """The script as it is in a tree under tmp_path."""
    script = tmp_path / "scripts" / "setup.py"
    script.parent.mkdir()
    script.write_text((REPOSITORY / "scripts" / "setup.py").read_text())
    (tmp_path / "build").mkdir()
    (tmp_path / "requirements.lock").write_text(
        "a==1 \\\n    --hash=sha256:00\nsetuptools==84 \\\n    --hash=sha256:11\nb==2\n"
    )
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    spec = importlib.util.spec_from_file_location("setup_under_test", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_venv_by_hand(venv: Path, shebang: Path) -> None:
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "bin" / "pip").write_text(f"#!{shebang}/bin/python\n")
    (venv / "bin" / "tidegate").write_text("")


def test_it_is_done_until_lock_or_metadata_change(setup: ModuleType) -> None:
    make_venv_by_hand(setup.VENV, shebang=setup.VENV)
    setup.STAMP.write_text(setup.wanted_stamp())
    assert setup.is_done(setup.wanted_stamp())
    for file in (setup.LOCK, setup.ROOT / "pyproject.toml"):
        before = file.read_text()
        file.write_text(before + "# changed\n")
        assert not setup.is_done(setup.wanted_stamp()), file
        file.write_text(before)
    assert setup.is_done(setup.wanted_stamp())


def test_a_tree_that_was_moved_is_not_done(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = setup.wanted_stamp()
    monkeypatch.setattr(setup, "VENV", setup.ROOT / "elsewhere" / ".venv")
    assert setup.wanted_stamp() != before


def test_a_venv_made_elsewhere_is_not_reused(setup: ModuleType, tmp_path: Path) -> None:
    make_venv_by_hand(setup.VENV, shebang=tmp_path / "another" / ".venv")
    assert not setup.is_usable_venv()


def test_a_venv_whose_python_is_gone_is_not_reused(setup: ModuleType) -> None:
    make_venv_by_hand(setup.VENV, shebang=setup.VENV)
    (setup.VENV / "bin" / "python").unlink()
    (setup.VENV / "bin" / "python").symlink_to("/no/such/python")
    assert not setup.is_usable_venv()


def test_a_venv_made_here_is_reused(setup: ModuleType) -> None:
    make_venv_by_hand(setup.VENV, shebang=setup.VENV)
    assert setup.is_usable_venv()


def test_one_package_is_taken_from_the_lock_with_its_hashes(setup: ModuleType) -> None:
    assert setup.locked("setuptools") == "setuptools==84 \\\n    --hash=sha256:11\n"


def test_a_failed_command_becomes_one_sentence_with_the_log_named(setup: ModuleType) -> None:
    command = [
        sys.executable,
        "-c",
        "print('ERROR: no such package'); print('more words'); raise SystemExit(1)",
    ]
    with pytest.raises(
        setup.SetUpError,
        match=r"could not install it: ERROR: no such package \(all of it: build/setup\.log\)",
    ):
        setup.run("install it", command)
    assert "more words" in setup.LOG.read_text()


def test_without_packages_to_install_apt_is_only_asked_for_by_root(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not setup.can_install()


def test_the_first_package_that_apt_has_is_installed(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n[ "$1" = update ] || [ "$4" = second ]\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(apt.parent), prepend=os.pathsep)
    setup.install_with_apt("needed", ("first", "second", "third"))
    assert [line.split()[-1] for line in (tmp_path / "asked").read_text().splitlines()] == [
        "update",
        "first",
        "second",
    ]


def test_a_set_up_that_cannot_write_says_so_in_one_line(setup: ModuleType) -> None:
    (setup.ROOT / "build").rmdir()
    (setup.ROOT / "build").write_text("")
    answer = subprocess.run(
        [sys.executable, setup.__file__], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr.count("\n"), answer.stderr[:7]) == (1, 1, "setup: ")


def apt_that(tmp_path: Path, script: str) -> Path:
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(f"#!/bin/sh\n{script}\n")
    apt.chmod(0o755)
    return apt


def test_a_server_that_is_missing_is_installed_and_its_service_is_not_started(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, server = tmp_path / "policy-rc.d", tmp_path / "bin" / "some-server"
    apt = apt_that(
        tmp_path, f"[ $1 = update ] && exit 0\n{policy} start || touch {server}\nchmod +x {server}"
    )
    monkeypatch.setenv("PATH", str(apt.parent), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(setup, "SERVICE_POLICY", policy)
    monkeypatch.setattr(
        setup,
        "SERVERS",
        (
            ("Some", "no/such/file", "some-server", ("some",)),
            ("Sh", "bin/sh", "no-such-command", ("other",)),
        ),
    )
    setup.need_servers()
    assert server.exists()
    assert not policy.exists()
    assert "install -y --no-install-recommends some" in setup.LOG.read_text()
    assert "other" not in setup.LOG.read_text()


def test_a_policy_that_the_machine_has_is_left_as_it_is(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("the owner's")
    monkeypatch.setattr(setup, "SERVICE_POLICY", policy)
    with setup.services_kept_off():
        assert policy.read_text() == "the owner's"
    assert policy.read_text() == "the owner's"


def test_servers_that_cannot_be_installed_are_named_with_the_command(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        setup,
        "SERVERS",
        (
            ("One", "no/file", "no-command", ("one", "uno")),
            ("Two", "no/file", "no-command", ("two",)),
        ),
    )
    with pytest.raises(
        setup.SetUpError, match=r"there is no One and Two; install .*apt-get install one two"
    ):
        setup.need_servers()
