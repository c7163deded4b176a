"""Finds damaged documents of the store and deletes them.

Called by `tidegate state`; a user decides.

A job with one damaged document is not resumed from the others, which may be of another moment. It
is forgotten as a whole, as if the store had been lost for this job alone, and then resumed from its
checkpoints and from the records of its sinks (`--restore latest`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.coordinator.cluster_cache import KINDS, OF_JOBS, OF_PIPELINES
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.restore.origin import check_lineage
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document
from tidegate.model.errors import LineageMismatch, TidegateError, UserError
from tidegate.model.external_resources import RESOURCES
from tidegate.model.records import DRIVERS, JOB_OUTCOMES, RUNNING_JOBS, DriverRecord
from tidegate.runner.process import is_alive
from tidegate.store.base import Check, Delete, Entry, Store, undamaged

WRITES_MAX = 90  # of one transaction; each has a check beside it
LAST_OF_ALL = (
    RUNNING_JOBS,
    JOB_OUTCOMES,
)  # as long as one of them is there, the job is not forgotten yet


@dataclass(frozen=True, slots=True)
class DamagedDocument:
    """A document that cannot be used, with the reason."""

    map: str
    key: str
    why: str


def damaged_documents(store: Store) -> Iterator[DamagedDocument]:
    """Yield damaged documents by map and key, then the jobs whose records disagree."""
    for map in sorted(store.size_by_map()):
        for entry in store.list(map):
            why = damage_of(map, entry)
            if why:
                yield DamagedDocument(map, entry.key, why)
    for entry in [*store.list(RUNNING_JOBS), *store.list(JOB_OUTCOMES)]:
        why = _disagreement(store, entry.key)
        if why:
            yield DamagedDocument(RUNNING_JOBS, entry.key, why)


def damage_of(map: str, entry: Entry) -> str:
    """Describe what is wrong with a document; empty if it is sound."""
    try:
        value = entry.value
        if map in KINDS:
            from_document(KINDS[map], value, f"{map}/{entry.key}")
    except TidegateError as error:
        return str(error)
    return ""


def forget_job(store: Store, job_id: int) -> int:
    """Delete all documents of a job that has a damaged one; return how many.

    Also deletes its claims on external resources, which themselves stay. UserError if not allowed.
    """
    entries = _entries_of(store, job_id)
    if not entries:
        raise UserError(f"the store has nothing of job {job_id}")
    if not any(damage_of(map, entry) for map, entry in entries) and not _disagreement(
        store, str(job_id)
    ):
        raise UserError(
            f"nothing of job {job_id} is damaged, and it is not forgotten: `tidegate state expire`"
            " forgets jobs that have ended"
        )
    for map, entry in entries:
        if map == DRIVERS and not damage_of(map, entry):
            record = from_document(DriverRecord, entry.value)
            if record.end is None and is_alive(record.process):
                raise UserError(
                    f"job {job_id} has a driver that runs (process {record.process.pid}): end it"
                    " first"
                )
    entries.sort(key=lambda pair: pair[0] in LAST_OF_ALL)
    failpoint("job.forget.before")
    for start in range(0, len(entries), WRITES_MAX):
        part = entries[start : start + WRITES_MAX]
        store.transact(
            [Check(map, e.key, e.version) for map, e in part],
            [Delete(map, e.key) for map, e in part],
        )
        failpoint("job.forget.middle")
    failpoint("job.forget.after")
    return len(entries)


def forget_document(store: Store, map: str, key: str) -> None:
    """Delete one damaged document that belongs to no job."""
    if map in (*OF_JOBS, *OF_PIPELINES):
        job = key.partition("/")[0]
        raise UserError(
            f"{map}/{key} belongs to job {job}: forget the whole job (`tidegate state forget"
            f" {job}`)"
        )
    entry = store.get(map, key)
    if entry is None:
        raise UserError(f"the store has no document {map}/{key}")
    if not damage_of(map, entry):
        raise UserError(f"{map}/{key} is sound, and is not taken away")
    failpoint("document.forget.before")
    store.transact([Check(map, key, entry.version)], [Delete(map, key)])
    failpoint("document.forget.after")


def _entries_of(store: Store, job_id: int) -> list[tuple[str, Entry]]:
    key = str(job_id)
    found = [(map, entry) for map in OF_JOBS if (entry := store.get(map, key)) is not None]
    found += [(map, entry) for map in OF_PIPELINES for entry in store.list(map, f"{key}/")]
    return found + [
        (RESOURCES, entry)
        for entry in undamaged(store.list(RESOURCES))
        if entry.value.get("job_id") == job_id
    ]


def _disagreement(store: Store, key: str) -> str:
    """Describe what the records of a job disagree about, if all of them can be read."""
    try:
        check_lineage(read_job(store, int(key)))
    except LineageMismatch as error:
        return str(error)
    except (TidegateError, ValueError):  # already reported with the unreadable document
        return ""
    return ""
