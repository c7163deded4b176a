"""The search for Java, in directories made for the test and launchers that are scripts."""

from pathlib import Path

import pytest

from tidegate.runner import java
from tidegate.runner.java import JavaMissing, find_java, major_version


@pytest.fixture(autouse=True)
def no_java_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "SEARCH_PATHS", ())


def make_home(root: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (root / "bin").mkdir(parents=True)
    executable = root / "bin" / "java"
    executable.write_text("#!/bin/sh\nexit 3\n")
    executable.chmod(0o755)
    (root / "release").write_text(
        f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n'
    )
    return root


def make_launcher(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    launcher = folder / "java"
    launcher.write_text(f"#!/bin/sh\n{text}\n")
    launcher.chmod(0o755)
    return launcher


def test_java_home_is_preferred_to_path_and_not_run(tmp_path: Path) -> None:
    wanted, other = (
        make_home(tmp_path / "wanted", "21.0.2"),
        make_home(tmp_path / "other", "17.0.1"),
    )
    found = find_java({"JAVA_HOME": str(wanted), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.found_in, found.rejected) == (
        wanted,
        "21.0.2",
        "JAVA_HOME",
        (),
    )


def test_a_java_home_that_is_too_old_is_rejected_and_named(tmp_path: Path) -> None:
    old, fit = make_home(tmp_path / "old", "11.0.22"), make_home(tmp_path / "fit", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(fit / "bin")})
    assert (found.home, found.found_in) == (fit, "PATH")
    assert found.rejected == (f"JAVA_HOME ({old}/bin/java) is Java 11.0.22, too old",)


def test_a_link_on_path_leads_to_the_home_behind_it(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_a_java_without_the_required_module_is_rejected(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jre", "17.0.1", modules="java.base java.sql")
    with pytest.raises(JavaMissing, match=r"without the module jdk\.incubator\.vector"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})


def test_a_launcher_is_run_to_find_the_java_home(tmp_path: Path) -> None:
    make_launcher(
        tmp_path / "shims",
        "echo '    java.home = /somewhere/jdk' >&2; echo '    java.version = 21.0.4' >&2",
    )
    found = find_java({"PATH": str(tmp_path / "shims")})
    assert (found.home, found.version) == (Path("/somewhere/jdk"), "21.0.4")


def test_a_java_that_does_not_run_is_named(tmp_path: Path) -> None:
    make_launcher(tmp_path / "bin", "exit 1")
    with pytest.raises(JavaMissing, match="does not report its version"):
        find_java({"PATH": str(tmp_path / "bin")})


def test_a_missing_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"JAVA_HOME .*does not exist or is not executable"):
        find_java({"JAVA_HOME": str(tmp_path / "gone")})


def test_without_java_the_error_says_how_to_install_it() -> None:
    with pytest.raises(JavaMissing, match="openjdk-17-jre-headless") as caught:
        find_java({"PATH": ""})
    assert caught.value.rejected == ()


def test_usual_paths_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "jvm" / "java-17", "17.0.1")
    monkeypatch.setattr(java, "SEARCH_PATHS", (f"{tmp_path}/jvm/*",))
    assert find_java({}).found_in == str(home)


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("9-ea", 9), ("unknown", 0)],
)
def test_the_major_version_is_read_from_old_and_new_schemes(version: str, major: int) -> None:
    assert major_version(version) == major
