"""Classify everything below the namespace, and decide what may be collected.

Pure: input is a listing, the facts of the store and a policy; output is verdicts. Callers: the
collector, which acts on them, and usage, which adds them up. A *unit* is kept or collected as a
whole: the directory of a checkpoint, a draft, a savepoint, a quarantine, or a file or directory
that Tidegate has not made. Units are processed one by one, so that a namespace of any size needs
little memory.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from tidegate.checkpoints import paths

QUARANTINE = "_quarantine"
OWNER = "_installation.json"
MINUTE_MS = 60_000
TEMPORARY_FILE = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # written by `Files.write`, not renamed yet


class UnitKind(StrEnum):
    LIVE = "live"  # of a job that has not ended, or whose cleanup is not complete
    RETAINED = "retained"  # a restore point of an ended job that the store knows
    CLAIMED = "claimed"  # a restore reads it
    SAVEPOINT = "savepoint"  # kept until a user deletes it
    ORPHAN = "orphan"  # no record names it: it can be collected
    QUARANTINED = "quarantined"  # collected, and not yet deleted
    RECORD = "record"  # bookkeeping of the namespace itself
    UNKNOWN = "unknown"  # not made by Tidegate: reported, and never touched


class UnitShape(StrEnum):
    """The type of a unit, by its path alone."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    QUARANTINE = "quarantine"
    RECORD = "record"
    LEFTOVER = "leftover"
    FOREIGN = "foreign"


# everything below their paths belongs to them
CLOSED = (UnitShape.CHECKPOINT, UnitShape.SAVEPOINT, UnitShape.QUARANTINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """Files that are kept or collected as a whole.

    `whole`: the file that is written last exists.
    """

    path: str
    shape: UnitShape
    job_id: int | None = None
    files: int = 0
    bytes: int = 0
    newest_ms: int = 0
    whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """The store's facts about a job: whether it is running, and the paths that it names."""

    running: bool
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The store's facts.

    `expired` is when it dropped a job without deleting its state; `held` are paths that a user
    restored from quarantine, and until when they are kept.
    """

    jobs: Mapping[int, JobFacts] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    expired: Mapping[int, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How long orphans are kept.

    `ttl_ms` None keeps them forever. Units younger than `grace_ms` are never touched; half-written
    ones are due after it. `sooner_ms` is the age from which orphans are due before their TTL,
    because the namespace is over its quota.
    """

    now_ms: int
    grace_ms: int = 60 * MINUTE_MS
    ttl_ms: int | None = None
    sooner_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitVerdict:
    """What a unit is, why, and whether it may be collected now."""

    unit: Unit
    kind: UnitKind
    reason: str
    age_ms: int
    due: bool = False


class ListedFile(Protocol):
    """Size and time of a listed file."""

    @property
    def bytes(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


def unit_of(path: str) -> Unit:
    """Return the unit that a file belongs to, without counts."""
    parts = path.split("/")
    inside = len(parts) > 3
    if parts[0] == QUARANTINE and len(parts) > 1:
        return Unit(path="/".join(parts[:2]), shape=UnitShape.QUARANTINE)
    if parts[0] == paths.SAVEPOINTS and inside and parts[1].isdigit():
        return Unit(path="/".join(parts[:3]), shape=UnitShape.SAVEPOINT, job_id=int(parts[1]))
    if (
        inside
        and parts[0].isdigit()
        and parts[1].isdigit()
        and paths.checkpoint_of(parts[2]) is not None
    ):
        return Unit(path="/".join(parts[:3]), shape=UnitShape.CHECKPOINT, job_id=int(parts[0]))
    if path == OWNER:
        return Unit(path=path, shape=UnitShape.RECORD)
    if TEMPORARY_FILE.fullmatch(parts[-1]) and (
        len(parts) == 1 or parts[0].isdigit() or parts[0] == paths.SAVEPOINTS
    ):
        return Unit(
            path=path,
            shape=UnitShape.LEFTOVER,
            job_id=next((int(p) for p in parts[:2] if p.isdigit()), None),
        )
    depth = 3 if parts[0].isdigit() or parts[0] == paths.SAVEPOINTS else 1
    return Unit(path="/".join(parts[:depth]), shape=UnitShape.FOREIGN)


def units(files: Iterable[tuple[str, ListedFile]]) -> Iterator[Unit]:
    """Iterate over the units of a listing that is grouped by directory."""
    current, inside = Unit(path="", shape=UnitShape.FOREIGN), ""
    count = size = newest_ms = 0
    whole = False
    for path, entry in files:
        # the files of one unit are not parsed one by one
        if not (inside and path.startswith(inside)):
            unit = unit_of(path)
            if (current.path, current.shape) != (unit.path, unit.shape):
                if count:
                    yield replace(
                        current, files=count, bytes=size, newest_ms=newest_ms, whole=whole
                    )
                current, inside = unit, f"{unit.path}/" if unit.shape in CLOSED else ""
                count = size = newest_ms = 0
                whole = False
        count, size, newest_ms = count + 1, size + entry.bytes, max(newest_ms, entry.modified_ms)
        whole = whole or _completes(current, path)
    if count:
        yield replace(current, files=count, bytes=size, newest_ms=newest_ms, whole=whole)


def _completes(unit: Unit, path: str) -> bool:
    """Whether this file is the one that is written last."""
    match unit.shape:
        case UnitShape.CHECKPOINT:
            return (
                path == f"{unit.path}/{paths.MANIFEST}"
                and paths.draft_generation(unit.path.rpartition("/")[2]) is None
            )
        case UnitShape.SAVEPOINT:
            return path == f"{unit.path}/{paths.SAVEPOINT_HEAD}"
        case _:
            return False


def classify(unit: Unit, facts: Facts, policy: Policy) -> UnitVerdict:
    """Decide about a unit.

    Nothing that a job, a restore or a user may still need is an orphan.
    """
    kind, reason = _kind(unit, facts)
    forgotten_ms = facts.expired.get(unit.job_id, 0) if unit.job_id is not None else 0
    age_ms = max(0, policy.now_ms - max(unit.newest_ms, forgotten_ms))
    held = kind is UnitKind.ORPHAN and _held(unit, facts, policy)
    due = kind is UnitKind.ORPHAN and not held and _old_enough(unit, age_ms, policy)
    if held:
        reason = f"{reason}; restored from quarantine, and kept for now"
    return UnitVerdict(unit=unit, kind=kind, reason=reason, age_ms=age_ms, due=due)


def _kind(unit: Unit, facts: Facts) -> tuple[UnitKind, str]:
    match unit.shape:
        case UnitShape.QUARANTINE:
            return (
                UnitKind.QUARANTINED,
                (
                    "collected; it is deleted after the quarantine's delay, and can be restored"
                    " until then"
                ),
            )
        case UnitShape.RECORD:
            return UnitKind.RECORD, "names the store that this namespace belongs to"
        case UnitShape.FOREIGN:
            return UnitKind.UNKNOWN, "not a file of Tidegate"
    if any(_overlap(unit.path, claim) for claim in facts.claimed):
        return UnitKind.CLAIMED, "a restore reads it"
    if unit.shape is UnitShape.SAVEPOINT and unit.whole:
        return UnitKind.SAVEPOINT, "kept until a user deletes it"
    return _of_a_job(unit, facts)


def _of_a_job(unit: Unit, facts: Facts) -> tuple[UnitKind, str]:
    """Decide about a checkpoint, a draft, an incomplete savepoint or a temporary file."""
    job = facts.jobs.get(unit.job_id) if unit.job_id is not None else None
    if job is not None and job.running:
        return UnitKind.LIVE, f"job {unit.job_id} has not ended"
    if job is not None and unit.path in job.named:
        return UnitKind.RETAINED, f"job {unit.job_id} has ended and can be resumed from it"
    if not unit.whole:
        return UnitKind.ORPHAN, "half-written: its writer is gone"
    if job is not None:
        return UnitKind.ORPHAN, f"no record of job {unit.job_id} names it"
    return UnitKind.ORPHAN, f"the store knows no job {unit.job_id}"


def _overlap(path: str, claim: str) -> bool:
    return path == claim or path.startswith(f"{claim}/") or claim.startswith(f"{path}/")


def _held(unit: Unit, facts: Facts, policy: Policy) -> bool:
    return any(
        until_ms > policy.now_ms and _overlap(unit.path, place)
        for place, until_ms in facts.held.items()
    )


def _old_enough(unit: Unit, age_ms: int, policy: Policy) -> bool:
    if age_ms < policy.grace_ms:
        return False
    if not unit.whole:
        return policy.ttl_ms is not None or policy.sooner_ms is not None
    limits = [limit for limit in (policy.ttl_ms, policy.sooner_ms) if limit is not None]
    return bool(limits) and age_ms >= min(limits)
