"""Time as an argument: decision code receives a `Clock`, so that tests can set the time."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for records and messages."""

    def monotonic_s(self) -> float:
        """Seconds that never go backwards."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time is over; return whether it is set."""


class SystemClock:
    """The clock of this host."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))
