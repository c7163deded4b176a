"""A lost source position never causes a silent new snapshot or a silent gap."""

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

    def latest(self, start: int, limit: Limit) -> int:  # noqa: ARG002  # protocol
        return 500

    def splits(self, start: int, end: int, count: int) -> list[Any]:  # noqa: ARG002  # protocol
        return []

    def read(self, split: Any) -> Any:
        raise AssertionError(split)

    def log_retention(self, offset: int) -> LogRetention:
        return LogRetention(True) if offset >= 100 else LogRetention(False, "the oldest is 100")


class Skipping(Log):
    def latest_position(self) -> int:
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


def test_an_available_position_is_kept() -> None:
    assert retained_offsets({"orders": log()}, {"orders": 100}, "fail", pending=False) == {
        "orders": 100
    }


def test_a_lost_position_fails_with_its_name_and_the_choices() -> None:
    with pytest.raises(
        PositionLost,
        match=(
            r"orders does not hold the position 42 any more: the oldest is 100\. Continue with"
            r" --on-not-held initial .* latest"
        ),
    ) as caught:
        retained_offsets({"orders": log()}, {"orders": 42}, "fail", pending=False)
    assert caught.value.condition == "position-not-held"


def test_the_error_of_a_lost_position_uses_the_sources_description() -> None:
    class Worded(Log):
        def log_retention(self, offset: int) -> LogRetention:
            return LogRetention(
                False, "the file was purged", position=f"binlog:{offset}", oldest="binlog:100"
            )

    with pytest.raises(
        PositionLost,
        match=(
            r"the position binlog:42 any more: the file was purged; the oldest position that there"
            r" is: binlog:100\. Continue with"
        ),
    ):
        retained_offsets({"orders": log(Worded)}, {"orders": 42}, "fail", pending=False)


@pytest.mark.parametrize(("answer", "offset"), [("initial", 100), ("latest", 500)])
def test_the_policy_applies_to_a_lost_position(answer: str, offset: int) -> None:
    assert retained_offsets({"orders": log(Skipping)}, {"orders": 42}, answer, pending=False) == {
        "orders": offset
    }


def test_a_source_that_cannot_skip_raises_an_error() -> None:
    with pytest.raises(Unsupported, match="orders cannot skip"):
        retained_offsets({"orders": log()}, {"orders": 42}, "latest", pending=False)


def test_a_pending_batch_at_a_lost_position_always_fails() -> None:
    with pytest.raises(PositionLost, match="a batch was in progress there"):
        retained_offsets({"orders": log(Skipping)}, {"orders": 42}, "initial", pending=True)
