"""The registry of resources that jobs hold in other systems, such as replication slots.

Recorded before they are created, dropped when no job can need them.

    submit            what the options name is recorded with the job, in one transaction; a name
                      that another job holds is rejected
    driver            what is known only later is recorded through `ResourceRegistry`
                      (driver/resources.py) before it is created
    live, resumable   kept: without its slot a job could not continue. A restore takes over the
                      records of the earlier run, or of the job whose lineage it continues
    not needed        dropped by the cleanup of the job, or by any later cycle of any leader: marked
                      first, so that no submit takes the name meanwhile. A failure is recorded with
                      its reason and retried; it blocks nothing else

Callers: commands and claim (with_resources), cleanup and housekeeping (drop_unneeded). Drops use
the connector's own function, without Spark.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from tidegate.coordinator.restore.planning import SubmitChanges
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import UserError
from tidegate.model.external_resources import RESOURCES, ResourceRecord
from tidegate.model.plan import Action
from tidegate.model.records import (
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    CleanupRecord,
    JobRecord,
    JobState,
)
from tidegate.plugin import registry
from tidegate.plugin.contract import OperatorContext, Resource
from tidegate.plugin.secret import unpacked
from tidegate.redact import mask_text, redact, secret_texts
from tidegate.store.base import Check, Delete, Entry, Get, Put, Store, undamaged
from tidegate.store.errors import Conflict

LOG = logging.getLogger("tidegate.coordinator")
EACH_TURN_MAX = 20  # one turn drops no more: each is a call to another system
RETRY_MS = 10_000
RETRIES_DOUBLED_MAX = 9
ERROR_CHARS_MAX = 500


class ResourceTaken(UserError):
    condition = "resource-taken"

    def __init__(self, record: ResourceRecord, how: str) -> None:
        super().__init__(f"{record.kind} {record.name!r} at {record.location} {how}")
        self.kind = record.kind
        self.name = record.name
        self.location = record.location
        self.job_id = record.job_id


def key_of(resource: Resource | ResourceRecord) -> str:
    """Return the key of a resource; equal resources have equal keys."""
    digest = sha256(f"{resource.location}|{resource.name}".encode()).hexdigest()
    return f"{resource.kind}/{digest[:32]}"


def declared(job: JobRecord) -> Iterator[ResourceRecord]:
    """Yield the resources that the options of a job name."""
    for plan in job.plan.pipelines:
        for action in plan.actions:
            for resource in _declared(job, plan.id, action):
                yield record_of(resource, job, action, job.initialization_ms)


def _declared(job: JobRecord, pipeline: int, action: Action) -> Iterable[Resource]:
    """Return the resources that one connector names.

    One that is not installed here names none: its driver reports that.
    """
    try:
        connector = registry.find(action.kind, action.plugin)
    except registry.UnknownConnector:
        return ()
    return (
        connector.resources(unpacked(action.options), context_of(job, pipeline, action))
        if connector.resources
        else ()
    )


def context_of(job: JobRecord, pipeline: int, action: Action) -> OperatorContext:
    return OperatorContext(
        job_id=job.job_id,
        job_name=job.name,
        pipeline=pipeline,
        operator=action.operator,
        mode=job.plan.env.mode,
        parallelism=action.parallelism,
    )


def record_of(resource: Resource, job: JobRecord, action: Action, now_ms: int) -> ResourceRecord:
    """Build the record of a resource of an operator."""
    return ResourceRecord(
        kind=resource.kind,
        name=resource.name,
        location=resource.location,
        lasting=resource.lasting,
        job_id=job.job_id,
        initialization_ms=job.initialization_ms,
        block=action.kind,
        plugin=action.plugin,
        options=action.options,
        recorded_ms=now_ms,
    )


def with_resources(extra: SubmitChanges, store: Store, job: JobRecord) -> SubmitChanges:
    """Add the resources of a job to the changes of its submit."""
    more = reserve(store, job)
    return SubmitChanges((*extra.checks, *more.checks), (*extra.writes, *more.writes))


def reserve(store: Store, job: JobRecord) -> SubmitChanges:
    """Return the resources of a submit: its own, and those of the run that it continues.

    ResourceTaken before anything is written.
    """
    wanted: dict[str, ResourceRecord] = {}
    for record in declared(job):
        other = wanted.setdefault(key_of(record), record)
        if other is not record:
            raise ResourceTaken(record, "is used twice in this job: give every source its own")
    before = {job.job_id} | (
        {job.source_job} if job.restored and not job.fork and job.source_job else set()
    )
    checks, writes = [], []
    there = {
        entry.key: (entry, read(entry))
        for entry in (
            undamaged(store.list(RESOURCES)) if job.restored else _existing(store, list(wanted))
        )
    }
    for key, record in wanted.items():
        entry, old = there.get(key, (None, None))
        if old is not None:
            refuse_taken(store, record, old, before)
        checks.append(Check(RESOURCES, key, entry.version if entry else 0))
        writes.append(Put(RESOURCES, key, to_document(record)))
    for key, (entry, old) in there.items():
        if job.restored and old.job_id in before and key not in wanted and not old.dropping:
            checks.append(Check(RESOURCES, key, entry.version))
            writes.append(
                Put(
                    RESOURCES,
                    key,
                    to_document(
                        replace(old, job_id=job.job_id, initialization_ms=job.initialization_ms)
                    ),
                )
            )
    return SubmitChanges(tuple(checks), tuple(writes))


def refuse_taken(
    store: Store, wanted: ResourceRecord, old: ResourceRecord, before: set[int]
) -> None:
    """Raise ResourceTaken if the existing record must stay unchanged."""
    if old.dropping:
        raise ResourceTaken(
            old,
            f"belonged to job {old.job_id} and is being dropped: submit again in some seconds, or"
            " use another name",
        )
    if old.job_id in before:
        return
    live = store.get(RUNNING_JOBS, str(old.job_id))
    if live is not None and live.value.get("initialization_ms") == old.initialization_ms:
        raise ResourceTaken(
            old,
            f"is used by job {old.job_id} ({live.value.get('name')}): use another name, or stop"
            " that job",
        )
    if not old.lasting or not wanted.lasting:
        return
    if needed(store, old):
        text = (
            f"is kept for job {old.job_id}, which has ended and can be resumed: use another name,"
            " restore from that job, or let its history expire"
        )
        raise ResourceTaken(old, text)
    raise ResourceTaken(
        old,
        f"belonged to job {old.job_id} and will be dropped soon{_why(old)}: submit again then, or"
        " use another name",
    )


def _why(record: ResourceRecord) -> str:
    return f" (the last attempt failed: {record.error})" if record.error else ""


def read(entry: Entry) -> ResourceRecord:
    return from_document(ResourceRecord, entry.value, f"resource {entry.key}")


def needed(store: Store, record: ResourceRecord) -> bool:
    """Whether its owner is alive, or can be resumed."""
    return bool(_unneeded_proof(store, record) is None)


def _unneeded_proof(store: Store, record: ResourceRecord) -> list[Check] | None:
    """Return the conditions under which no job needs it; None if one does."""
    key = str(record.job_id)
    job, state, cleanup = (
        store.get(RUNNING_JOBS, key),
        store.get(JOB_STATES, key),
        store.get(PENDING_CLEANUPS, key),
    )
    proof = [
        Check(map, key, entry.version if entry else 0)
        for map, entry in ((RUNNING_JOBS, job), (JOB_STATES, state), (PENDING_CLEANUPS, cleanup))
    ]
    if job is not None and job.value.get("initialization_ms") == record.initialization_ms:
        return None
    if job is not None or state is None or not record.lasting:
        return proof
    if (
        from_document(JobState, state.value, f"state of job {key}").initialization_ms
        != record.initialization_ms
    ):
        return proof
    left = from_document(CleanupRecord, cleanup.value, f"cleanup of job {key}") if cleanup else None
    resumable = left.resumable if left else bool(store.list(PIPELINES, f"{key}/"))
    return None if resumable else proof


def drop_unneeded(
    store: Store,
    now_ms: int,
    checks: Sequence[Check] = (),
    *,
    among: Sequence[str] | None = None,
    limit: int = EACH_TURN_MAX,
) -> int:
    """Drop due resources that no job needs; return how many.

    `checks` are a leader's, who may restrict the search to the keys `among`.
    """
    gone = 0
    for entry in undamaged(store.list(RESOURCES) if among is None else _existing(store, among)):
        record = read(entry)
        if record.due_ms <= now_ms and gone < limit:
            proof = _unneeded_proof(store, record)
            if proof is not None:
                gone += _drop(store, entry, record, now_ms, [*checks, *proof])
    return gone


def _existing(store: Store, keys: Sequence[str]) -> list[Entry]:
    """Return the existing records of these keys."""
    return (
        [entry for found in store.query([Get(RESOURCES, key) for key in keys]) for entry in found]
        if keys
        else []
    )


def _drop(
    store: Store, entry: Entry, record: ResourceRecord, now_ms: int, checks: Sequence[Check]
) -> bool:
    """Mark, drop, delete the record. After a crash in between it is repeated."""
    marked = replace(record, dropping=True)
    facts: Mapping[str, Any] = {
        "job_id": record.job_id,
        "resource": f"{record.kind} {record.name} at {record.location}",
    }
    failpoint("resource.drop.before")
    try:
        version = store.transact(
            [*checks, Check(RESOURCES, entry.key, entry.version)],
            [Put(RESOURCES, entry.key, to_document(marked))],
        )
    except Conflict:  # it has a new owner, or another process drops it
        return False
    failpoint("resource.drop.middle")
    error = _drop_externally(record)
    if error:
        wait_ms = RETRY_MS * 2 ** min(record.attempts, RETRIES_DOUBLED_MAX)
        later = replace(
            record,
            dropping=False,
            attempts=record.attempts + 1,
            error=error,
            due_ms=now_ms + wait_ms,
        )
        store.transact(
            [Check(RESOURCES, entry.key, version)], [Put(RESOURCES, entry.key, to_document(later))]
        )
        LOG.warning(
            "resource_drop_failed", extra={**facts, "why": error, "attempts": later.attempts}
        )
        return False
    store.transact([Check(RESOURCES, entry.key, version)], [Delete(RESOURCES, entry.key)])
    failpoint("resource.drop.after")
    LOG.info("resource_dropped", extra=facts)
    return True


def _drop_externally(record: ResourceRecord) -> str:
    """Drop the resource in the other system; return the error without secrets, or ""."""
    if not record.lasting:
        return ""
    try:
        drop = registry.find(record.block, record.plugin).dropper()
        if drop is not None:
            drop(
                Resource(kind=record.kind, name=record.name, location=record.location),
                unpacked(record.options),
            )
    except Exception as error:  # whatever it is: the next attempt may find the world better
        message = redact(
            f"{type(error).__name__}: {error}", secret_texts(record.options)
        )  # errors of databases may repeat the address
        return mask_text(message)[:ERROR_CHARS_MAX]
    return ""
