"""Time as an argument: the loop never asks the operating system by itself, so tests can turn the
hands.
"""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for people and records."""

    def monotonic_s(self) -> float:
        """Seconds that never go backwards."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait so long or until the event; whether the event is set."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000  # this is the clock that everyone is handed

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event, so long at most."""
        return event.wait(max(0.0, seconds))
