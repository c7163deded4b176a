"""The clocks of simulated hosts: each runs at its own speed, and its hands are moved now and then.
Handed to everything that asks for the time.
"""

import threading

from tidegate.testing.simulation.scheduler import Scheduler

EPOCH_MS = 1_700_000_000_000


class HostClock:
    """The time on one host. `rate` is how fast it runs; `wall_ms` how far its hands are off."""

    def __init__(self, scheduler: Scheduler, rate: float, offset_s: float) -> None:
        self.turns = scheduler
        self.rate = rate
        self.offset_s = offset_s
        self.wall_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970, as this host believes."""
        return EPOCH_MS + int(self.turns.now_s * self.rate * 1000) + self.wall_ms

    def monotonic_s(self) -> float:
        """Seconds that never go backwards."""
        return self.offset_s + self.turns.now_s * self.rate

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Pause for so long; an event that comes meanwhile is seen at the end."""
        if event.is_set():
            return True
        self.turns.pause(seconds / self.rate)
        return event.is_set()
