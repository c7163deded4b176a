"""requirements.lock: all packages, all hashed, no addresses."""

import re
import tomllib


def packages(lock: str) -> dict[str, str]:
    """Name -> the lines of each package."""
    return {
        match[1]: match[0]
        for match in re.finditer(r"^([\w.-]+)==.*\n(?: +.*\n?)*", lock, flags=re.MULTILINE)
    }


def test_every_locked_package_has_hashes(tree) -> None:
    lock = (tree.root / "requirements.lock").read_text()
    assert [name for name, lines in packages(lock).items() if "--hash=sha256:" not in lines] == []
    assert [
        line
        for line in lock.splitlines()
        if not re.match(r"([\w.-]+==|    --hash=sha256:[0-9a-f]{64}( \\)?$)", line)
    ] == []


def test_the_lock_holds_no_address(tree) -> None:
    assert "://" not in (tree.root / "requirements.lock").read_text()


def test_every_package_that_we_ask_for_is_locked(tree) -> None:
    project = tomllib.loads((tree.root / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    asked = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"] + extras}
    assert asked - set(packages((tree.root / "requirements.lock").read_text())) == set()


def test_every_package_that_we_ask_for_has_its_reason_or_is_a_tool_everyone_knows(tree) -> None:
    asked = re.findall(
        r'^  "([\w-]+)[^"]*",(.*)$', (tree.root / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    assert {name for name, comment in asked if "#" not in comment} <= {"mypy", "pytest", "ruff"}


def test_the_packages_of_a_lock_are_read_with_their_lines() -> None:
    assert packages("a==1 \\\n    --hash=sha256:00\nb-c==2\n") == {
        "a": "a==1 \\\n    --hash=sha256:00\n",
        "b-c": "b-c==2\n",
    }
