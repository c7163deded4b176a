"""How long a job may be in a state, and what becomes of it then.

Declared by the states, shown in the docs; the states themselves keep to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.lifecycle.observation import LifecycleLimits
from tidegate.model.records import JobStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """The longest time that the state lasts without a new fact; `then` names every place where that
    can lead.
    """

    ms: Callable[[LifecycleLimits], int]
    then: frozenset[JobStatus]
    what: str  # for the docs


def ladder_ms(limits: LifecycleLimits) -> int:
    """All steps of a stop, one after the other."""
    return limits.ask_ms + limits.interrupt_ms + limits.terminate_ms + limits.kill_ms
