"""Makes savepoints: each pipeline copies a checkpoint, and the last one seals the savepoint.

Made by the driver, called by its batch loops. The steps, and what a successor does after a kill:

    choose    pipeline state: this checkpoint, for that savepoint     copies the same checkpoint
    copy      savepoint/<job>/<id>/<pipeline>/, its manifest last     copies again, same bytes
    copied    pipeline state: its part is complete                    continues with the seal
    seal      _savepoint.json, by the loop that finds all parts       writes the same file again
    done      request: DONE. With `stop`, all pipelines end now       ends at once

The request is a document in the store, which drivers read directly: no leader or worker forwards
it. A failure is recorded in the request, and the job continues.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace

from tidegate import __version__
from tidegate.checkpoints.manifest import Damaged
from tidegate.checkpoints.savepoints import SavedPoint, Savepoint, Savepoints
from tidegate.clock import Clock
from tidegate.failpoint import failpoint
from tidegate.model.document import NewerDocument, from_document, to_document
from tidegate.model.errors import TransientError
from tidegate.model.records import (
    PIPELINES,
    SAVEPOINTS,
    CheckpointRef,
    JobRecord,
    PipelineSavepoint,
    PipelineState,
    PipelineStatus,
    SavepointRequest,
    SavepointStatus,
)
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.saved_plan import operators_digest, plan_document
from tidegate.plugin.contract import Offset
from tidegate.store.base import Check, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict, StoreUnavailable

LOG = logging.getLogger("tidegate.driver")
POLL_S = 0.5
RETAINED_REFRESH_S = 60.0  # a deleted savepoint keeps its sources' log for at most this long


class NoSavepoints:
    """Stands for a coordinator where nobody can request a savepoint."""

    requested: SavepointRequest | None = None
    ends_job = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def part_missing(self, _state: PipelineState) -> bool:
        return False

    def must_wait(self, _state: PipelineState) -> bool:
        return False

    def wait(self, stop: threading.Event, seconds: float) -> None:
        self.clock.wait(stop, seconds)

    def serve(self, _ledger: Ledger) -> None:
        pass

    def retained_points(
        self, _pipeline: int, _retained: tuple[CheckpointRef, ...]
    ) -> Mapping[int, Mapping[str, Offset]] | None:
        return {}

    def has_any(self, _pipeline: int) -> bool:
        return False


class SavepointCoordinator:
    """The savepoint requests of a driver's job.

    `step` is called by one thread, the other methods by the batch loops of its pipelines.
    """

    def __init__(self, store: Store, job: JobRecord, savepoints: Savepoints, clock: Clock) -> None:
        self.store = store
        self.job = job
        self.savepoints = savepoints
        self.clock = clock
        self._request: SavepointRequest | None = None
        self._version = 0
        self._retained: dict[int, tuple[int, float, Mapping[int, Mapping[str, Offset]]]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="savepoints", daemon=True)

    def start(self) -> None:
        """Start to poll for requests in a thread."""
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def step(self) -> None:
        entry = self.store.get(SAVEPOINTS, str(self.job.job_id))
        with self._lock:
            found = (
                from_document(SavepointRequest, entry.value, f"savepoint of job {self.job.job_id}")
                if entry
                else None
            )
            mine = found is not None and found.initialization_ms == self.job.initialization_ms
            self._request = found if mine else None
            self._version = entry.version if entry else 0

    @property
    def requested(self) -> SavepointRequest | None:
        """The savepoint that was requested and is not complete."""
        request = self._request
        return request if request is not None and request.status is SavepointStatus.WANTED else None

    @property
    def ends_job(self) -> bool:
        """Whether the job must stop because its stop-with-savepoint is complete."""
        request = self._request
        return request is not None and request.stop and request.status is SavepointStatus.DONE

    def part_missing(self, state: PipelineState) -> bool:
        """Return whether this pipeline must still copy its part of the requested savepoint."""
        requested, part = self.requested, state.savepoint
        return requested is not None and (
            part is None or part.id != requested.id or not part.copied
        )

    def must_wait(self, state: PipelineState) -> bool:
        """Return whether this pipeline must not begin a batch until the others have their parts."""
        requested = self.requested
        return requested is not None and requested.stop and not self.part_missing(state)

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait until the time is over, a stop is requested, or the request changes."""
        before = self._request
        end_s = self.clock.monotonic_s() + seconds
        while (left_s := end_s - self.clock.monotonic_s()) > 0 and self._request == before:
            if self.clock.wait(stop, min(left_s, POLL_S / 2)):
                return

    def serve(self, ledger: Ledger) -> None:
        """Copy this pipeline's part if one is requested; seal the savepoint if it was the last.

        Called between batches, and when a pipeline has finished. While the store is unreachable it
        does nothing; the next call repeats it.
        """
        requested = self.requested
        if requested is None:
            return
        try:
            self._serve(requested, ledger)
        except (StoreUnavailable, OutcomeUnknown):
            return

    def _serve(self, requested: SavepointRequest, ledger: Ledger) -> None:
        finished = ledger.state.status is PipelineStatus.FINISHED
        try:
            if (
                finished
                or not self.part_missing(ledger.state)
                or self._copy_part(requested, ledger)
            ):
                self._assemble(requested, ledger)
        except (StoreUnavailable, OutcomeUnknown):
            raise
        except (OSError, Damaged, NewerDocument, TransientError) as error:
            self._complete_request(
                ledger,
                replace(
                    requested,
                    status=SavepointStatus.FAILED,
                    reason=f"pipeline {ledger.pipeline}: {error}",
                ),
            )

    def _copy_part(self, requested: SavepointRequest, ledger: Ledger) -> bool:
        """Choose a checkpoint, copy it and record that; False if there is no checkpoint yet."""
        state, part = ledger.state, ledger.state.savepoint
        if (
            part is None
            or part.id != requested.id
            or part.checkpoint not in {ref.checkpoint for ref in state.retained}
        ):
            if state.latest is None:
                return False
            part = PipelineSavepoint(
                id=requested.id, checkpoint=state.latest.checkpoint, path=state.latest.path
            )
            ledger.save_savepoint_part(part)
        point = self.savepoints.copy(part.path, self.job.job_id, requested.id, ledger.pipeline)
        ledger.save_savepoint_part(
            replace(part, copied=True, manifest=point.manifest, bytes=point.bytes)
        )
        return True

    def _assemble(self, requested: SavepointRequest, ledger: Ledger) -> None:
        """Seal the savepoint if every pipeline has its part.

        A finished pipeline takes part with its completed point.
        """
        points: dict[int, SavedPoint] = {}
        for entry in self.store.list(PIPELINES, f"{self.job.job_id}/"):
            state = from_document(PipelineState, entry.value, f"pipeline {entry.key}")
            point = self._point(requested, state)
            if point is None and not (
                state.status is PipelineStatus.FINISHED and state.latest is None
            ):
                return
            if point is not None:
                points[state.pipeline] = point
        path = self.savepoints.seal(
            Savepoint(
                id=requested.id,
                path="",
                job_id=self.job.job_id,
                lineage=self.job.lineage,
                name=self.job.name,
                made_ms=requested.asked_ms,
                pipelines=points,
                software=__version__,
                operators=operators_digest(self.job.plan),
                plan=plan_document(self.job.plan),
            )
        )
        self._complete_request(ledger, replace(requested, status=SavepointStatus.DONE, path=path))

    def _point(self, requested: SavepointRequest, state: PipelineState) -> SavedPoint | None:
        part = state.savepoint
        if part is not None and part.id == requested.id and part.copied:
            return SavedPoint(
                checkpoint=part.checkpoint, path="", manifest=part.manifest, bytes=part.bytes
            )
        if state.status is PipelineStatus.FINISHED and state.latest is not None:
            return self.savepoints.copy(
                state.latest.path, self.job.job_id, requested.id, state.pipeline
            )
        return None

    def _complete_request(self, ledger: Ledger, outcome: SavepointRequest) -> None:
        """Record the outcome of the request, fenced by the generation of the pipeline.

        An outcome that was recorded before stays.
        """
        key = str(self.job.job_id)
        outcome = replace(outcome, ended_ms=self.clock.now_ms())
        while True:
            entry = self.store.get(SAVEPOINTS, key)
            current = from_document(SavepointRequest, entry.value) if entry else None
            if (
                entry is None
                or current is None
                or (current.id, current.status) != (outcome.id, SavepointStatus.WANTED)
            ):
                return self.step()
            outcome = replace(outcome, stop=current.stop)  # which may have been added meanwhile
            ledger.load()
            failpoint("savepoint.answer.before")
            try:
                self.store.transact(
                    [Check(SAVEPOINTS, key, entry.version), ledger.check()],
                    [Put(SAVEPOINTS, key, to_document(outcome))],
                )
            except (Conflict, OutcomeUnknown):
                continue
            failpoint("savepoint.answer.after")
            LOG.info(
                "savepoint_ended",
                extra={
                    "job_id": self.job.job_id,
                    "savepoint": outcome.id,
                    "to": outcome.status.value,
                    "why": outcome.reason,
                },
            )
            return self.step()

    def retained_points(
        self, pipeline: int, retained: tuple[CheckpointRef, ...]
    ) -> Mapping[int, Mapping[str, Offset]] | None:
        """Return the checkpoints before the retained ones that savepoints need, with their offsets.

        Read again when the request changes, otherwise every RETAINED_REFRESH_S. None if they cannot
        be read now.
        """
        version, now_s = self._version, self.clock.monotonic_s()
        known = self._retained.get(pipeline)
        if (
            known is None
            or known[0] != version
            or (known[2] and now_s - known[1] > RETAINED_REFRESH_S)
        ):
            try:
                known = self._retained[pipeline] = (version, now_s, self._read_retained(pipeline))
            except (OSError, TransientError):
                return None
        oldest = retained[0].checkpoint if retained else 0
        return {
            checkpoint: offsets for checkpoint, offsets in known[2].items() if checkpoint < oldest
        }

    def has_any(self, pipeline: int) -> bool:
        """Return whether a savepoint of this lineage has a part of this pipeline.

        Also True if that cannot be read now.
        """
        points = self.retained_points(pipeline, ())
        return points is None or bool(self._retained[pipeline][2])

    def _read_retained(self, pipeline: int) -> dict[int, Mapping[str, Offset]]:
        points: dict[int, Mapping[str, Offset]] = {}
        first = self.job.lineage.partition("-")[0]
        for job_id in sorted({self.job.job_id, *([int(first)] if first.isdecimal() else [])}):
            for savepoint in self.savepoints.list(job_id):
                point = savepoint.pipelines.get(pipeline)
                if savepoint.lineage != self.job.lineage or point is None:
                    continue
                try:
                    states = self.savepoints.storage.read(point.path).states
                except (Damaged, NewerDocument):
                    continue  # no restore from it is possible
                points[point.checkpoint] = {
                    name: state["offset"] for name, state in states.items() if "offset" in state
                }
        return points

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except TransientError:  # the store is unreachable: try again
                pass
            except Exception:
                LOG.exception("savepoint_request_unreadable", extra={"job_id": self.job.job_id})
            if self.clock.wait(self._ended, POLL_S):
                return
