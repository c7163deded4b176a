"""A source that does not hold the position of a restore any more: never a silent new snapshot,
never a silent gap.
"""

from typing import Any

import pytest

from tidegate.model.errors import Unsupported
from tidegate.model.job import JobMode
from tidegate.pipeline.source_retention import PositionLost, retained_offsets
from tidegate.plugin.contract import Limit, LogRetention, OperatorContext, Source


class Log(Source):
    """A log that begins at 100."""

    def tables(self) -> tuple[Any, ...]:
        return ()

    def initial(self) -> int:
        return 100

    def latest(self, start: int, limit: Limit) -> int:  # noqa: ARG002  # the contract's
        return 500

    def splits(self, start: int, end: int, count: int) -> list[Any]:  # noqa: ARG002  # the contract's
        return []

    def read(self, split: Any) -> Any:
        raise AssertionError(split)

    def runway(self, offset: int) -> LogRetention:
        return LogRetention(True) if offset >= 100 else LogRetention(False, "the oldest is 100")


class Skipping(Log):
    def newest(self) -> int:
        return 500


def log(kind: type[Log] = Log) -> Log:
    return kind(
        {},
        OperatorContext(
            job_id=7,
            job_name="j",
            pipeline=1,
            operator="orders",
            mode=JobMode.STREAMING,
            parallelism=1,
        ),
    )


def test_a_position_that_is_held_stays_as_it_is() -> None:
    assert retained_offsets({"orders": log()}, {"orders": 100}, "fail", pending=False) == {
        "orders": 100
    }


def test_a_lost_position_fails_by_name_with_what_there_is_and_what_can_be_said() -> None:
    with pytest.raises(
        PositionLost,
        match=(
            r"orders does not hold the position 42 any more: the oldest is 100\. Go on with"
            r" --on-not-held initial .* latest"
        ),
    ) as caught:
        retained_offsets({"orders": log()}, {"orders": 42}, "fail", pending=False)
    assert caught.value.condition == "position-not-held"


def test_a_lost_position_is_told_in_the_words_of_its_source() -> None:
    class Worded(Log):
        def runway(self, offset: int) -> LogRetention:
            return LogRetention(
                False, "the file was purged", position=f"binlog:{offset}", oldest="binlog:100"
            )

    with pytest.raises(
        PositionLost,
        match=(
            r"the position binlog:42 any more: the file was purged; the oldest position that there"
            r" is: binlog:100\. Go on with"
        ),
    ):
        retained_offsets({"orders": log(Worded)}, {"orders": 42}, "fail", pending=False)


@pytest.mark.parametrize(("answer", "offset"), [("initial", 100), ("latest", 500)])
def test_a_lost_position_is_answered_as_it_was_said(answer: str, offset: int) -> None:
    assert retained_offsets({"orders": log(Skipping)}, {"orders": 42}, answer, pending=False) == {
        "orders": offset
    }


def test_a_source_that_cannot_skip_says_so() -> None:
    with pytest.raises(Unsupported, match="orders cannot skip"):
        retained_offsets({"orders": log()}, {"orders": 42}, "latest", pending=False)


def test_a_batch_under_way_at_a_lost_position_cannot_be_repeated_whatever_was_said() -> None:
    with pytest.raises(PositionLost, match="a batch was in progress there"):
        retained_offsets({"orders": log(Skipping)}, {"orders": 42}, "initial", pending=True)
