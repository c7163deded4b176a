"""Registers a driver in the store, before it does anything else.

Called by main, and by the test kit, which runs jobs in its own process.
"""

import os
import secrets

from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import DriverSpec
from tidegate.model.errors import Fenced, TerminalError
from tidegate.model.records import DRIVERS, JOB_STATES, DriverRecord, JobState, ProcessRef
from tidegate.runner.process import process_ref
from tidegate.store.base import Check, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict

INSTALLATION = "installation"
"""The map with the id of this store. It is drawn once, and is part of the fences that drivers leave
in their targets.
"""


def installation_of(store: Store) -> str:
    """Return the id of this installation, which the first driver draws.

    A copy of a store has the same id.
    """
    while True:
        entry = store.get(INSTALLATION, "id")
        if entry is not None:
            return str(entry.value["id"])
        failpoint("driver.installation.before")
        try:
            store.transact(
                [Check(INSTALLATION, "id", 0)],
                [Put(INSTALLATION, "id", {"version": 1, "id": secrets.token_hex(8)})],
            )
        except (Conflict, OutcomeUnknown):
            continue
        failpoint("driver.installation.after")


def register(store: Store, spec: DriverSpec, now_ms: int, me: ProcessRef | None = None) -> None:
    """Record this process as the driver of its generation.

    Raises Fenced if the generation is not the current one, or has another process already.
    """
    key = str(spec.job_id)
    me = me or process_ref(os.getpid())
    record = DriverRecord(
        job_id=spec.job_id,
        generation=spec.generation,
        process=me,
        worker=spec.worker,
        started_ms=now_ms,
    )
    while True:
        state, driver = store.get(JOB_STATES, key), store.get(DRIVERS, key)
        if state is None:
            raise TerminalError(f"job {spec.job_id} is not in the store")
        current = from_document(JobState, state.value, f"state of job {key}")
        before = (
            from_document(DriverRecord, driver.value, f"driver of job {key}") if driver else None
        )
        if current.generation != spec.generation or current.status.terminal:
            raise Fenced(f"job {key}", spec.generation, current.generation)
        if before is not None and before.generation >= spec.generation and before.process != me:
            raise Fenced(
                f"job {key}, which has a driver already,", spec.generation, before.generation
            )
        failpoint("driver.register.before")
        try:
            store.transact(
                [
                    Check(JOB_STATES, key, state.version),
                    Check(DRIVERS, key, driver.version if driver else 0),
                ],
                [Put(DRIVERS, key, to_document(record))],
            )
        except (Conflict, OutcomeUnknown):
            # Read again. If the record was written after all, it is ours and is written once more.
            continue
        failpoint("driver.register.after")
        return
