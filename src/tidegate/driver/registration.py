"""The first act of a driver: its name in the store.

Called by main, and by whoever drives a job in its own process (the test kit).
"""

import os
import secrets

from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import DriverSpec
from tidegate.model.errors import Fenced, TerminalError
from tidegate.model.records import DRIVERS, JOB_STATES, DriverRecord, JobState, ProcessRef
from tidegate.runner.process import reference
from tidegate.store.base import Check, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict

INSTALLATION = "installation"
"""The map with the name of this store: drawn once, and in the fences that its drivers leave in
their targets.
"""


def installation_of(store: Store) -> str:
    """The id of this installation; the first driver draws it.

    A copy of a store has the same one.
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


def register(store: Store, order: DriverSpec, now_ms: int, me: ProcessRef | None = None) -> None:
    """Put this process's name on record: a generation that is no longer the current one is refused,
    and so is a second process for the same one.
    """
    key = str(order.job_id)
    me = me or reference(os.getpid())
    mine = DriverRecord(
        job_id=order.job_id,
        generation=order.generation,
        process=me,
        worker=order.worker,
        started_ms=now_ms,
    )
    while True:
        state, driver = store.get(JOB_STATES, key), store.get(DRIVERS, key)
        if state is None:
            raise TerminalError(f"job {order.job_id} is not in the store")
        current = from_document(JobState, state.value, f"state of job {key}")
        before = (
            from_document(DriverRecord, driver.value, f"driver of job {key}") if driver else None
        )
        if current.generation != order.generation or current.status.terminal:
            raise Fenced(f"job {key}", order.generation, current.generation)
        if before is not None and before.generation >= order.generation and before.process != me:
            raise Fenced(
                f"job {key}, which has a driver already,", order.generation, before.generation
            )
        failpoint("driver.register.before")
        try:
            store.transact(
                [
                    Check(JOB_STATES, key, state.version),
                    Check(DRIVERS, key, driver.version if driver else 0),
                ],
                [Put(DRIVERS, key, to_document(mine))],
            )
        except (Conflict, OutcomeUnknown):
            # look again: where it was written after all, it is found to be mine and is written once
            # more
            continue
        failpoint("driver.register.after")
        return
