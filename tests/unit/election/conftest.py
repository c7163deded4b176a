"""A memory store and a manual clock."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tidegate.store import Store, open_store


@dataclass
class ManualClock:
    """Stands still until it is turned."""

    at_s: float = 1000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s

    def turn(self, seconds: float) -> None:
        self.at_s += seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()
