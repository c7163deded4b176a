"""Which worker may take which waiting job, and if none can, why.

Pure; called by the leader once per reconcile cycle with its whole queue. Jobs are placed in order,
but a job that cannot run never blocks one that can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.lifecycle.observation import Placement, Unplaceable


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedJob:
    """A job that waits for a worker."""

    job_id: int
    tags: Mapping[str, str] = field(default_factory=dict)  # the worker must have all of them
    # Why it may not start at all yet, for users: the old incarnation is being cleaned up.
    blocked: str = ""
    # Workers used only if there is no other: its last driver did not start there.
    avoid: frozenset[str] = frozenset()
    reject_when_full: bool = False  # fails rather than waits for a slot


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOffer:
    """A live worker, and how many jobs it runs."""

    id: str
    slots: int
    taken: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """The number of free slots."""
        return max(0, self.slots - self.taken)


def place_jobs(
    waiting: Sequence[QueuedJob], offers: Sequence[WorkerOffer]
) -> dict[int, Placement | Unplaceable]:
    """Choose a worker for each job, as far as the slots suffice.

    The same queue and offers give the same result.
    """
    left = {offer.id: offer for offer in offers}
    answers: dict[int, Placement | Unplaceable] = {}
    for job in waiting:
        answer = _choose(job, left)
        answers[job.job_id] = answer
        if isinstance(answer, Placement):
            left[answer.worker] = replace(left[answer.worker], taken=left[answer.worker].taken + 1)
    return answers


def _choose(job: QueuedJob, offers: Mapping[str, WorkerOffer]) -> Placement | Unplaceable:
    if job.blocked:
        return Unplaceable(job.blocked)
    fitting = [offer for offer in offers.values() if not missing_tags(job.tags, offer.tags)]
    free = [offer for offer in fitting if offer.free]
    if not free:
        return Unplaceable(_why(job, list(offers.values()), fitting), job.reject_when_full)
    best = min(
        free,
        key=lambda offer: (offer.id in job.avoid, offer.taken / offer.slots, -offer.free, offer.id),
    )
    return Placement(best.id)


def missing_tags(wanted: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted tags that a worker does not have."""
    return {key: value for key, value in wanted.items() if tags.get(key) != value}


def _why(job: QueuedJob, offers: Sequence[WorkerOffer], fitting: Sequence[WorkerOffer]) -> str:
    if not offers:
        return "no worker is running"
    if not fitting:
        fewest = min(
            (missing_tags(job.tags, offer.tags) for offer in offers),
            key=lambda tags: (len(tags), sorted(tags.items())),
        )
        lacking = ", ".join(f"{key}={value}" for key, value in sorted(fewest.items()))
        return f"no worker has the tags that the job requires; the closest one lacks {lacking}"
    slots = sum(offer.slots for offer in fitting)
    which = " of the workers with its tags" if job.tags else ""
    return (
        f"all {slots} slots{which} are taken"
        if slots
        else f"the workers{' with its tags' if job.tags else ''} have no slots"
    )
