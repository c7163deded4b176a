"""Records the external resources that a driver's operators create. Caller: main.

The store gets a row for each resource before it is created. Only the generation that runs the job
may write one. A resource that belongs to another job is rejected, as at submit.
"""

from collections.abc import Callable

from tidegate.clock import Clock
from tidegate.coordinator.external_resources import key_of, read, record_of, refuse_taken
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import Fenced
from tidegate.model.external_resources import RESOURCES
from tidegate.model.plan import Action
from tidegate.model.records import JOB_STATES, JobRecord, JobState
from tidegate.plugin.contract import Resource
from tidegate.retry import Pause, retry
from tidegate.store.base import OUTAGE_ERRORS, Check, Delete, Put, Store
from tidegate.store.errors import Conflict


class DriverResources:
    """The resource registry of one operator.

    `wait(failures)` pauses, and returns whether to try again.
    """

    def __init__(
        self,
        store: Store,
        job: JobRecord,
        generation: int,
        action: Action,
        clock: Clock,
        wait: Pause,
    ) -> None:
        self.store = store
        self.job = job
        self.generation = generation
        self.action = action
        self.clock = clock
        self.wait = wait

    def record(self, resource: Resource) -> None:
        self._retry(lambda: self._record(resource))

    def forget(self, resource: Resource) -> None:
        self._retry(lambda: self._forget(resource))

    def _record(self, resource: Resource) -> None:
        key, record = (
            key_of(resource),
            record_of(resource, self.job, self.action, self.clock.now_ms()),
        )
        entry = self.store.get(RESOURCES, key)
        old = read(entry) if entry else None
        if old is not None:
            refuse_taken(self.store, record, old, {self.job.job_id})
            if old == record or (old.job_id, old.initialization_ms, old.options) == (
                record.job_id,
                record.initialization_ms,
                record.options,
            ):
                return
        failpoint("resource.record.before")
        self.store.transact(
            [self._ownership_check(), Check(RESOURCES, key, entry.version if entry else 0)],
            [Put(RESOURCES, key, to_document(record))],
        )
        failpoint("resource.record.after")

    def _forget(self, resource: Resource) -> None:
        entry = self.store.get(RESOURCES, key_of(resource))
        if entry is not None and read(entry).job_id == self.job.job_id:
            self.store.transact(
                [self._ownership_check(), Check(RESOURCES, entry.key, entry.version)],
                [Delete(RESOURCES, entry.key)],
            )

    def _ownership_check(self) -> Check:
        """Return a check that this generation still runs the job; raise Fenced if it does not."""
        key = str(self.job.job_id)
        entry = self.store.get(JOB_STATES, key)
        state = from_document(JobState, entry.value, f"state of job {key}") if entry else None
        if entry is None or state is None or state.generation != self.generation:
            raise Fenced(f"job {key}", self.generation, state.generation if state else 0)
        return Check(JOB_STATES, key, entry.version)

    def _retry(self, act: Callable[[], None]) -> None:
        """Repeat `act` after a concurrent write of the job's state, and while the store is down."""
        retry(act, (Conflict, *OUTAGE_ERRORS), self.wait)
