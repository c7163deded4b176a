"""Types of job files, and encoding of stored documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.document import NewerDocument, from_document, to_document
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.plan import Action, BlockKind, PipelinePlan, Plan
from tidegate.model.records import (
    CheckpointRef,
    PendingBatch,
    PipelineState,
    PipelineStatus,
    SourceRange,
)
from tidegate.model.types import SIMPLE, RowKind, TypeName, parse_type

simple = st.sampled_from(SIMPLE)
decimals = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})")
)
types = st.recursive(
    simple | decimals,
    lambda inner: (
        inner.map(lambda t: f"array<{t}>")
        | st.tuples(simple, inner).map(lambda p: f"map<{p[0]},{p[1]}>")
    ),
    max_leaves=5,
)


@given(types, st.booleans())
def test_type_is_parsed_in_any_case_and_spacing(text: str, upper: bool) -> None:
    spaced = text.replace(",", " , ").replace("<", "< ")
    assert str(parse_type(spaced.upper() if upper else spaced)) == text


def test_nested_block_is_a_row() -> None:
    row = parse_type({"a": "int", "b": {"c": "array<string>"}})
    assert str(row) == "row<a int,b row<c array<string>>>"
    assert parse_type(str(row)) == row


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("{a = int, b = string}", {"a": "int", "b": "string"}),
        ('{"a": "int", "b": "map<string, int>"}', {"a": "int", "b": "map<string,int>"}),
        ("{a = int\n b {c = long}\n}", {"a": "int", "b": {"c": "bigint"}}),
    ],
)
def test_row_block_in_text_may_be_nested_in_other_types(text: str, same: object) -> None:
    assert parse_type(text) == parse_type(same)
    assert parse_type(f"map<string, {text}>").children[1] == parse_type(same)


def test_type_aliases_of_seatunnel_are_accepted() -> None:
    assert [str(parse_type(t)) for t in ("LONG", "short", "byte", "array<long>")] == [
        "bigint",
        "smallint",
        "tinyint",
        "array<bigint>",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bigin", "bigint"),
        ("decimal(99,1)", "38"),
        ("decimal(x)", "decimal(10, 2)"),
        ("map<int>", "map<K, V>"),
        ("varchar(10)", "unknown"),
        (7, "not 7"),
    ],
)
def test_error_for_a_wrong_type_suggests_a_valid_one(text: object, expected: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_type(text)
    assert expected in str(caught.value)


def test_row_kinds_have_a_short_and_a_long_name() -> None:
    assert [RowKind.parse(k) for k in ("+I", "update_before", "+U", "DELETE")] == list(RowKind)
    assert [k.code for k in RowKind] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="not a row kind"):
        RowKind.parse("upsert")


def test_encoded_documents_decode_to_the_same_value() -> None:
    ref = CheckpointRef(checkpoint=3, path="1/1/3", generation=2, begun_ms=1, completed_ms=2)
    pending = PendingBatch(
        checkpoint=4,
        ranges={"a": SourceRange({"at": 1}, {"at": [2, None]})},
        generation=2,
        begun_ms=5,
    )
    state = PipelineState(
        job_id=1,
        pipeline=1,
        lineage="x",
        generation=2,
        status=PipelineStatus.RUNNING,
        pending=pending,
        retained=(ref,),
        initial={"a": None},
        ready_to_close=("a",),
    )
    assert from_document(PipelineState, to_document(state)) == state
    action = Action(
        operator="s",
        label="s",
        kind=BlockKind.SOURCE,
        plugin="FakeSource",
        options={"a": [1, {"b": None}]},
        inputs=("x",),
    )
    plan = Plan(
        job_name="n",
        env=JobEnv(mode=JobMode.STREAMING, spark={"spark.a": "b"}),
        pipelines=(PipelinePlan(id=1, actions=(action,)),),
    )
    assert from_document(Plan, to_document(plan)) == plan


def test_newer_document_is_rejected_by_name() -> None:
    state = to_document(PipelineState(job_id=1, pipeline=1, lineage="x", generation=2))
    with pytest.raises(NewerDocument, match="version 99"):
        from_document(PipelineState, {**state, "version": 99}, "the state")
    assert from_document(PipelineState, {**state, "a later field": 1}).job_id == 1
    assert TypeName("bigint") is TypeName.BIGINT
