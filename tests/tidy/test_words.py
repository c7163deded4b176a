"""What may not be written anywhere, and what needs its reason beside it."""

import re
from collections.abc import Iterator

# Put together here, so that this file does not hold them itself.
REGISTRY = re.compile(
    "|".join(
        [
            r"pypi\." + "org",
            "python" + "hosted",
            r"repo1?\.maven",
            "maven" + r"\.org",
            "--index" + "-url",
            "PIP_" + "INDEX",
        ]
    )
)
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b(?!: \w.{10})")
SILENCED = re.compile(
    r"#\s*(?:no"
    + r"qa|type: ig"
    + r"nore|pragma: no"
    + r" cover)(?:: ?[A-Z]+\d+(?:, ?[A-Z]+\d+)*|\[[\w, -]+\])?(.*)"
)
BOOKKEEPING = re.compile(
    r"\b(?:iss" + r"ue|tick" + r"et|sess" + r"ion) (?:#\s?)?\d+\b", re.IGNORECASE
)


def lines_with(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.search(line):
            yield f"line {number}: {line.strip()[:120]}"


def silenced_without_reason(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        found = SILENCED.search(line)
        if found and len(found[1].strip(" #()-")) < len("a reason"):
            yield f"line {number}: {line.strip()[:120]}"


def test_no_file_says_where_packages_come_from(tree) -> None:
    assert [
        f"{path}: {line}" for path, text in tree.files() for line in lines_with(REGISTRY, text)
    ] == []


def test_what_is_unfinished_says_why(tree) -> None:
    assert [
        f"{path}: {line}" for path, text in tree.python() for line in lines_with(UNFINISHED, text)
    ] == []


def test_an_unfinished_place_without_a_reason_is_found() -> None:
    word = "TO" + "DO"
    assert list(
        lines_with(
            UNFINISHED, f"# {word}\n# {word}: later\n# {word}: remove when Spark closes it itself"
        )
    ) == [
        f"line 1: # {word}",
        f"line 2: # {word}: later",
    ]


def test_every_silenced_complaint_has_its_reason_beside_it(tree) -> None:
    assert [
        f"{path}: {line}" for path, text in tree.python() for line in silenced_without_reason(text)
    ] == []


def test_a_silenced_complaint_without_a_reason_is_found() -> None:
    bare, reasoned = (
        "x  # no" + "qa: E501",
        "x  # type: ig" + "nore[arg-type]  # the stubs know only str",
    )
    assert list(silenced_without_reason(f"{bare}\n{reasoned}")) == [f"line 1: {bare}"]


def test_no_file_tells_how_the_project_is_kept(tree) -> None:
    assert [
        f"{path}: {line}" for path, text in tree.files() for line in lines_with(BOOKKEEPING, text)
    ] == []


def test_the_number_of_a_task_in_a_comment_is_found() -> None:
    assert list(lines_with(BOOKKEEPING, "# see iss" + "ue #12")) == ["line 1: # see iss" + "ue #12"]
    assert list(lines_with(BOOKKEEPING, "# issues a new number, 12")) == []
