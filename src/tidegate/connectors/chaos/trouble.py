"""What goes wrong, and when: a hash of (seed, place, attempt) decides, so that the same story can
be told again and a repeated attempt may end well.

Called by source.py and sink.py. Makes nothing but trouble.
"""

import hashlib
import os
import time
from dataclasses import dataclass
from enum import StrEnum

from tidegate.model.errors import Domain, TerminalError, TransientError
from tidegate.plugin.option import Values

EXIT_CODE = 87
"""What a process that crashed on purpose leaves."""


class ChaosFailed(TransientError):
    """Failed on purpose; the next attempt may end well."""

    condition = "chaos"
    domain = Domain.EXTERNAL


class ChaosEnded(TerminalError):
    """Failed on purpose, for good."""

    condition = "chaos"
    domain = Domain.EXTERNAL


class Act(StrEnum):
    """What happens at a place."""

    NOTHING = "nothing"
    FAIL = "fail"
    CRASH = "crash"
    HANG = "hang"


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultInjector:
    """Decides and acts. Probabilities are laid side by side: fail, then crash, then hang."""

    seed: int
    places: tuple[str, ...]
    fail: float
    crash: float
    hang: float
    hang_s: float
    slow_s: float
    terminal: bool

    @staticmethod
    def of(values: Values) -> "FaultInjector":
        return FaultInjector(
            seed=values["seed"],
            places=tuple(map(str, values["places"])),
            fail=values["fail_probability"],
            crash=values["crash_probability"],
            hang=values["hang_probability"],
            hang_s=values["hang_ms"] / 1000,
            slow_s=values["slow_ms"] / 1000,
            terminal=values["fail_terminally"],
        )

    def decide(self, place: str, *attempt: object) -> Act:
        """What will happen at a place in an attempt."""
        if place not in self.places:
            return Act.NOTHING
        text = "\0".join(map(str, (self.seed, place, *attempt))).encode()
        chance = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
        for act, share in ((Act.FAIL, self.fail), (Act.CRASH, self.crash), (Act.HANG, self.hang)):
            if chance < share:
                return act
            chance -= share
        return Act.NOTHING

    def meet(self, place: str, *attempt: object) -> None:
        if self.slow_s and place in self.places:
            time.sleep(self.slow_s)
        match self.decide(place, *attempt):
            case Act.FAIL:
                self.raise_error(place)
            case Act.CRASH:
                os._exit(EXIT_CODE)
            case Act.HANG:
                time.sleep(self.hang_s)
            case Act.NOTHING:
                pass

    def raise_error(self, place: str) -> None:
        """An error of the kind that the options ask for."""
        if self.terminal:
            raise ChaosEnded(f"Chaos failed in {place}, on purpose and for good")
        raise ChaosFailed(f"Chaos failed in {place}, on purpose")
