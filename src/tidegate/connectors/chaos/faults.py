"""Injects faults, chosen by a hash of (seed, place, attempt).

The same seed repeats the same faults, and a repeated attempt may succeed. Called by source.py and
sink.py.
"""

import hashlib
import os
import time
from dataclasses import dataclass
from enum import StrEnum

from tidegate.model.errors import Domain, TerminalError, TransientError
from tidegate.plugin.option import Values

EXIT_CODE = 87
"""The exit code of a process that crashes on purpose."""


class ChaosFailed(TransientError):
    """An injected error; the next attempt may succeed."""

    condition = "chaos"
    domain = Domain.EXTERNAL


class ChaosEnded(TerminalError):
    """An injected error that no retry can resolve."""

    condition = "chaos"
    domain = Domain.EXTERNAL


class FaultKind(StrEnum):
    """The fault to inject into an operation."""

    NOTHING = "nothing"
    FAIL = "fail"
    CRASH = "crash"
    HANG = "hang"


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultInjector:
    """Chooses and injects faults. The probabilities add up: fail, then crash, then hang."""

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

    def decide(self, place: str, *attempt: object) -> FaultKind:
        """Choose the fault for an attempt of an operation."""
        if place not in self.places:
            return FaultKind.NOTHING
        text = "\0".join(map(str, (self.seed, place, *attempt))).encode()
        chance = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
        for act, share in (
            (FaultKind.FAIL, self.fail),
            (FaultKind.CRASH, self.crash),
            (FaultKind.HANG, self.hang),
        ):
            if chance < share:
                return act
            chance -= share
        return FaultKind.NOTHING

    def inject(self, place: str, *attempt: object) -> None:
        if self.slow_s and place in self.places:
            time.sleep(self.slow_s)
        match self.decide(place, *attempt):
            case FaultKind.FAIL:
                self.raise_error(place)
            case FaultKind.CRASH:
                os._exit(EXIT_CODE)
            case FaultKind.HANG:
                time.sleep(self.hang_s)
            case FaultKind.NOTHING:
                pass

    def raise_error(self, place: str) -> None:
        if self.terminal:
            raise ChaosEnded(f"Chaos failed in {place}: injected terminal error")
        raise ChaosFailed(f"Chaos failed in {place}: injected error")
