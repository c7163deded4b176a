"""How long a job may stay in a state, and which states may follow.

Declared by the states and shown in the docs; the states themselves enforce it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.lifecycle.observation import LifecycleLimits
from tidegate.model.records import JobStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """The longest time that a state lasts without a new fact; `then` may follow it."""

    ms: Callable[[LifecycleLimits], int]
    then: frozenset[JobStatus]
    what: str  # for the docs


def escalation_ms(limits: LifecycleLimits) -> int:
    """Return the total time limit of all steps of a stop."""
    return limits.stop_ms + limits.interrupt_ms + limits.terminate_ms + limits.kill_ms
