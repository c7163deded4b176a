"""docs/glossary.md: one word, one meaning; and the words of the code are in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROW = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
# Names of the design for which another word is easily taken. In prose for people the one of the
# glossary is used.
STRANGERS = {
    r"\bepochs?\b": "checkpoint",
    r"\bmicro-?batch(es)?\b": "batch",
    r"\bjob ?manager\b": "coordinator",
    r"\btask ?manager\b": "worker",
    r"\bsave point\b": "savepoint",
    r"\bcheck point\b": "checkpoint",
    r"\bworkflows?\b": "job",
}


def entries(text: str) -> list[tuple[str, str]]:
    """(word, meaning) of every row but the head."""
    return [(word, meaning) for word, meaning in ROW.findall(text) if word not in ("word", "---")]


def strange_words(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, word in STRANGERS.items():
            if re.search(pattern, line, flags=re.IGNORECASE):
                yield f"line {number}: say {word!r}: {line.strip()[:100]}"


def links(text: str) -> Iterator[str]:
    """The relative places that a document points to."""
    yield from (
        target for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in target
    )


@pytest.fixture
def glossary(tree) -> list[tuple[str, str]]:
    return entries((tree.root / "docs" / "glossary.md").read_text())


def test_every_word_is_in_the_glossary_once_and_in_order(glossary: list[tuple[str, str]]) -> None:
    words = [word for word, _ in glossary]
    assert words == sorted(set(words))


def test_every_meaning_says_something(glossary: list[tuple[str, str]]) -> None:
    assert [word for word, meaning in glossary if len(meaning.split()) < 3] == []


@pytest.mark.parametrize(
    "words",
    [
        [
            "job",
            "incarnation",
            "lineage",
            "generation",
            "pipeline",
            "batch",
            "driver",
            "coordinator",
            "worker",
            "store",
            "checkpoint",
            "savepoint",
            "retention margin",
        ],
        [
            "completed point",
            "ready to close",
            "attempt",
            "fenced",
            "fused",
            "staged",
            "offset",
            "split",
            "operator",
            "manifest",
        ],
    ],
    ids=["of the design", "of the protocol"],
)
def test_the_words_that_everything_is_built_on_are_explained(
    words: list[str], glossary: list[tuple[str, str]]
) -> None:
    assert set(words) - {word for word, _ in glossary} == set()


def test_documents_use_the_words_of_the_glossary(tree) -> None:
    assert [
        f"{path}: {complaint}"
        for path, text in tree.files(suffix=".md")
        for complaint in strange_words(text)
    ] == []


def test_a_word_of_another_system_is_found() -> None:
    assert list(strange_words("A batch is fine.\nA micro-batch is not.")) == [
        "line 2: say 'batch': A micro-batch is not."
    ]


def test_what_a_document_points_to_is_there(tree) -> None:
    pointed = [(path, target) for path, text in tree.files(suffix=".md") for target in links(text)]
    broken = [
        f"{path}: {target}"
        for path, target in pointed
        if not (tree.root / Path(path).parent / target).exists()
    ]
    assert broken == []


def test_links_are_found_and_foreign_ones_left_out() -> None:
    assert list(links("[a](b.md), [c](d/e.md#part), [f](https://example.com), [g](#here)")) == [
        "b.md",
        "d/e.md",
    ]
