"""Which worker may take which waiting job, and if none can, why. Pure; called by the leader once a
turn with all of its queue.

The queue is looked at in order, but nobody waits for the one before: a job that cannot run never
blocks one that can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.lifecycle.observation import Placement, Unplaceable


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedJob:
    """A job in the queue."""

    job_id: int
    tags: Mapping[str, str] = field(default_factory=dict)  # the worker must have all of them
    held: str = (
        ""  # why it may not start at all yet, for a person: the old incarnation is being cleaned up
    )
    avoid: frozenset[str] = (
        frozenset()
    )  # workers that are taken only if there is no other: where its last driver did not start
    rejects: bool = False  # it shall fail rather than wait for a slot


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A living worker, and how many jobs it has."""

    id: str
    slots: int
    taken: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """How many more it can take."""
        return max(0, self.slots - self.taken)


def place(
    waiting: Sequence[QueuedJob], offers: Sequence[Offer]
) -> dict[int, Placement | Unplaceable]:
    """A worker for each job, as far as the slots go.

    The same queue and offers give the same answer.
    """
    left = {offer.id: offer for offer in offers}
    answers: dict[int, Placement | Unplaceable] = {}
    for job in waiting:
        answer = _choose(job, left)
        answers[job.job_id] = answer
        if isinstance(answer, Placement):
            left[answer.worker] = replace(left[answer.worker], taken=left[answer.worker].taken + 1)
    return answers


def _choose(job: QueuedJob, offers: Mapping[str, Offer]) -> Placement | Unplaceable:
    if job.held:
        return Unplaceable(job.held)
    fitting = [offer for offer in offers.values() if not missing(job.tags, offer.tags)]
    free = [offer for offer in fitting if offer.free]
    if not free:
        return Unplaceable(_why(job, list(offers.values()), fitting), job.rejects)
    best = min(
        free,
        key=lambda offer: (offer.id in job.avoid, offer.taken / offer.slots, -offer.free, offer.id),
    )
    return Placement(best.id)


def missing(wanted: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that a worker does not have."""
    return {key: value for key, value in wanted.items() if tags.get(key) != value}


def _why(job: QueuedJob, offers: Sequence[Offer], fitting: Sequence[Offer]) -> str:
    if not offers:
        return "no worker is there"
    if not fitting:
        fewest = min(
            (missing(job.tags, offer.tags) for offer in offers),
            key=lambda tags: (len(tags), sorted(tags.items())),
        )
        lacking = ", ".join(f"{key}={value}" for key, value in sorted(fewest.items()))
        return f"no worker has the tags that the job asks for; the nearest one lacks {lacking}"
    slots = sum(offer.slots for offer in fitting)
    which = " of the workers with its tags" if job.tags else ""
    return (
        f"all {slots} slots{which} are taken"
        if slots
        else f"the workers{' with its tags' if job.tags else ''} have no slots"
    )
