"""What is stored keeps its keys and types, and what earlier releases stored is read without loss."""

import json
from typing import Any

import pytest
from stored import HERE as GOLDEN
from stored import STORED, stored_fields

from tidegate.model.document import from_document, to_document

RELEASES = sorted(path.parent.name for path in GOLDEN.glob("*/documents.json"))


def test_stored_keys_and_types_are_pinned() -> None:
    """A new field needs its line there; a line that goes or changes is data lost on upgrade."""
    assert stored_fields().splitlines() == (GOLDEN / "stored_fields.txt").read_text().splitlines()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", STORED)
def test_every_field_of_a_golden_document_is_read(release: str, name: str) -> None:
    written = json.loads((GOLDEN / release / "documents.json").read_text(encoding="utf-8"))
    if name not in written:
        pytest.skip(f"{release} stored none")
    read = to_document(from_document(STORED[name], written[name]))
    assert lost(written[name], read) == []


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """The paths of values that are not the same after reading."""
    if isinstance(before, dict) and isinstance(after, dict):
        below = [(key, value, after.get(key, "absent")) for key, value in before.items()]
        return [found for key, value, now in below for found in lost(value, now, f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            found for b, a in zip(before, after, strict=True) for found in lost(b, a, f"{path}[]")
        ]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]
