"""A document has one text, and the text gives the document back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.store import DocumentDamaged, StoreRefused
from tidegate.store.encoding import DEPTH_MAX, decode, encode
from tidegate.store.sqlite.backend import _prefix_end

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
DOCUMENTS = st.dictionaries(
    TEXT,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8
    ),
)


@given(DOCUMENTS)
@settings(max_examples=50)
def test_every_document_comes_back(document: dict[str, Any]) -> None:
    assert decode("m", "k", encode("m", "k", document)) == document


@given(DOCUMENTS)
@settings(max_examples=50)
def test_the_order_of_names_is_kept(document: dict[str, Any]) -> None:
    assert list(decode("m", "k", encode("m", "k", document))) == list(document)


def test_the_text_is_plain_json_without_spaces() -> None:
    text = encode("m", "k", {"b": [1, 2.5, None], "a": {"ü": True}})
    assert text == '{"b":[1,2.5,null],"a":{"ü":true},"~crc~":"6c6a25da"}'
    assert json.loads(text.encode()) == {"b": [1, 2.5, None], "a": {"ü": True}, "~crc~": "6c6a25da"}


def test_tuples_become_arrays() -> None:
    assert decode("m", "k", encode("m", "k", {"t": (1, (2,))})) == {"t": [1, [2]]}


@pytest.mark.parametrize(
    "document", [{}, {"lineage": "7-19a0", "generation": 3, "in": {"x": [1, "ü"]}}]
)
def test_no_single_changed_character_of_a_text_goes_unnoticed(document: dict[str, Any]) -> None:
    text = encode("jobs", "7", document)
    for place, character in enumerate(text):
        for other in {chr(ord(character) ^ 1), chr(ord(character) ^ 2), "0", "1", '"', " "} - {
            character
        }:
            with pytest.raises(DocumentDamaged, match="the stored document jobs/7 is damaged"):
                decode("jobs", "7", text[:place] + other + text[place + 1 :])
        with pytest.raises(DocumentDamaged):
            decode("jobs", "7", text[:place])
        with pytest.raises(DocumentDamaged):
            decode("jobs", "7", text[:place] + text[place + 1 :])


@pytest.mark.parametrize(("map", "key"), [("jobs", "8"), ("states", "7"), ("jobs", "7/1")])
def test_a_text_of_another_key_or_map_is_damage(map: str, key: str) -> None:
    with pytest.raises(DocumentDamaged, match="belongs to another key"):
        decode(map, key, encode("jobs", "7", {"generation": 3}))


def test_documents_without_a_checksum_are_those_of_the_first_release() -> None:
    assert decode("jobs", "7", '{"version":1,"generation":3}') == {"version": 1, "generation": 3}


def test_the_field_of_the_checksum_is_the_stores_own() -> None:
    with pytest.raises(StoreRefused, match="the store's own"):
        encode("jobs", "7", {"~crc~": "x"})
    assert decode("jobs", "7", encode("jobs", "7", {"in": {"~crc~": "x"}})) == {
        "in": {"~crc~": "x"}
    }


def test_the_depth_is_limited_also_where_a_document_contains_itself() -> None:
    value: dict[str, Any] = {}
    for _ in range(DEPTH_MAX - 1):
        value = {"in": value}
    encode("m", "k", value)
    with pytest.raises(StoreRefused, match="nested more than"):
        encode("m", "k", {"in": value})
    value["itself"] = value
    with pytest.raises(StoreRefused, match="nested more than"):
        encode("m", "k", value)


@given(TEXT, TEXT, TEXT)
def test_a_key_lies_between_its_prefix_and_what_is_behind_it_and_no_other_does(
    prefix: str, rest: str, other: str
) -> None:
    behind = _prefix_end(prefix)
    key = prefix + rest
    assert prefix <= key
    assert behind is None or key < behind
    if behind is not None and prefix <= other < behind:
        assert other.startswith(prefix)
