"""A driver's part in savepoints: what is wanted, each pipeline's copy, the head when all copies are
there. Made by the driver, called by its loops.

    choose    pipeline's state in the store: this checkpoint, for that savepoint                  killed after it, the successor copies the same one
    copy      savepoint/<job>/<id>/<pipeline>/, its manifest last                                 copies again, to the same bytes
    copied    pipeline's state: its part is there                                                 goes on with the head
    seal      _savepoint.json, by whoever finds all parts there                                   writes it again, the same
    done      the request: DONE. With `stop`, every pipeline ends now, and not before             ends at once

The request is a wish in the store. Nobody has to pass it on: no leader, no worker. What cannot be
done is said in the request, and the job goes on.
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
LOOK_S = 0.5
HELD_S_MAX = (
    60.0  # so long a savepoint that somebody has deleted may still keep the log of its sources
)


class SavepointCoordinator:
    """One for each driver.

    `step` is called by one thread, the rest by the loops of its pipelines.
    """

    def __init__(self, store: Store, job: JobRecord, savepoints: Savepoints, clock: Clock) -> None:
        self.store = store
        self.job = job
        self.savepoints = savepoints
        self.clock = clock
        self._request: SavepointRequest | None = None
        self._version = 0
        self._held: dict[int, tuple[int, float, Mapping[int, Mapping[str, Offset]]]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="savepoints", daemon=True)

    def start(self) -> None:
        """Look for requests from now on, in a thread."""
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

    # -- asked by the loops
    # ------------------------------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> SavepointRequest | None:
        """The savepoint that is to be made now."""
        request = self._request
        return request if request is not None and request.status is SavepointStatus.WANTED else None

    @property
    def over(self) -> bool:
        """Whether the job was to be stopped with a savepoint that is done."""
        request = self._request
        return request is not None and request.stop and request.status is SavepointStatus.DONE

    def open_part(self, state: PipelineState) -> bool:
        """Whether this pipeline still has to give its part."""
        wanted, part = self.wanted, state.savepoint
        return wanted is not None and (part is None or part.id != wanted.id or not part.copied)

    def waits(self, state: PipelineState) -> bool:
        """Whether this pipeline has given its part and must begin nothing more until the others
        have.
        """
        wanted = self.wanted
        return wanted is not None and wanted.stop and not self.open_part(state)

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait so long, or until a stop, or until something else is wanted."""
        before = self._request
        end_s = self.clock.monotonic_s() + seconds
        while (left_s := end_s - self.clock.monotonic_s()) > 0 and self._request == before:
            if self.clock.wait(stop, min(left_s, LOOK_S / 2)):
                return

    def serve(self, ledger: Ledger) -> None:
        """Give this pipeline's part, where it is wanted and there is a checkpoint; then the head,
        where this was the last part. Called between batches, and when a pipeline has finished.
        While the store is out of reach nothing is said: the next turn comes back to it.
        """
        wanted = self.wanted
        if wanted is None:
            return
        try:
            self._serve(wanted, ledger)
        except (StoreUnavailable, OutcomeUnknown):
            return

    def _serve(self, wanted: SavepointRequest, ledger: Ledger) -> None:
        finished = ledger.state.status is PipelineStatus.FINISHED
        try:
            if finished or not self.open_part(ledger.state) or self._copied(wanted, ledger):
                self._assemble(wanted, ledger)
        except (StoreUnavailable, OutcomeUnknown):
            raise
        except (OSError, Damaged, NewerDocument, TransientError) as error:
            self._answer(
                ledger,
                replace(
                    wanted,
                    status=SavepointStatus.FAILED,
                    reason=f"pipeline {ledger.pipeline}: {error}",
                ),
            )

    def _copied(self, wanted: SavepointRequest, ledger: Ledger) -> bool:
        """Choose, copy, say so; False where there is no checkpoint yet."""
        state, part = ledger.state, ledger.state.savepoint
        if (
            part is None
            or part.id != wanted.id
            or part.checkpoint not in {ref.checkpoint for ref in state.retained}
        ):
            if state.latest is None:
                return False
            part = PipelineSavepoint(
                id=wanted.id, checkpoint=state.latest.checkpoint, path=state.latest.path
            )
            ledger.save(part)
        point = self.savepoints.copy(part.path, self.job.job_id, wanted.id, ledger.pipeline)
        ledger.save(replace(part, copied=True, manifest=point.manifest, bytes=point.bytes))
        return True

    def _assemble(self, wanted: SavepointRequest, ledger: Ledger) -> None:
        """Write the head where every pipeline has given its part.

        One that has finished takes part with its completed point.
        """
        points: dict[int, SavedPoint] = {}
        for entry in self.store.list(PIPELINES, f"{self.job.job_id}/"):
            state = from_document(PipelineState, entry.value, f"pipeline {entry.key}")
            point = self._point(wanted, state)
            if point is None and not (
                state.status is PipelineStatus.FINISHED and state.latest is None
            ):
                return
            if point is not None:
                points[state.pipeline] = point
        path = self.savepoints.seal(
            Savepoint(
                id=wanted.id,
                path="",
                job_id=self.job.job_id,
                lineage=self.job.lineage,
                name=self.job.name,
                made_ms=wanted.asked_ms,
                pipelines=points,
                software=__version__,
                operators=operators_digest(self.job.plan),
                plan=plan_document(self.job.plan),
            )
        )
        self._answer(ledger, replace(wanted, status=SavepointStatus.DONE, path=path))

    def _point(self, wanted: SavepointRequest, state: PipelineState) -> SavedPoint | None:
        part = state.savepoint
        if part is not None and part.id == wanted.id and part.copied:
            return SavedPoint(
                checkpoint=part.checkpoint, path="", manifest=part.manifest, bytes=part.bytes
            )
        if state.status is PipelineStatus.FINISHED and state.latest is not None:
            return self.savepoints.copy(
                state.latest.path, self.job.job_id, wanted.id, state.pipeline
            )
        return None

    def _answer(self, ledger: Ledger, answer: SavepointRequest) -> None:
        """Say what became of the request, fenced by the generation of the pipeline.

        Where somebody has answered already, that holds.
        """
        key = str(self.job.job_id)
        answer = replace(answer, ended_ms=self.clock.now_ms())
        while True:
            entry = self.store.get(SAVEPOINTS, key)
            now = from_document(SavepointRequest, entry.value) if entry else None
            if (
                entry is None
                or now is None
                or (now.id, now.status) != (answer.id, SavepointStatus.WANTED)
            ):
                return self.step()
            answer = replace(answer, stop=now.stop)  # which may have been added meanwhile
            ledger.load()
            failpoint("savepoint.answer.before")
            try:
                self.store.transact(
                    [Check(SAVEPOINTS, key, entry.version), ledger.check()],
                    [Put(SAVEPOINTS, key, to_document(answer))],
                )
            except (Conflict, OutcomeUnknown):
                continue
            failpoint("savepoint.answer.after")
            LOG.info(
                "savepoint",
                extra={
                    "job_id": self.job.job_id,
                    "savepoint": answer.id,
                    "to": answer.status.value,
                    "why": answer.reason,
                },
            )
            return self.step()

    # -- what must be kept for savepoints
    # ------------------------------------------------------------------------------------------------------------

    def held(
        self, pipeline: int, retained: tuple[CheckpointRef, ...]
    ) -> Mapping[int, Mapping[str, Offset]] | None:
        """The checkpoints before the retained ones that savepoints of a pipeline need, with the
        offsets of the sources in them. Read anew when the request changes, else rarely; None where
        that is not known now.
        """
        version, now_s = self._version, self.clock.monotonic_s()
        known = self._held.get(pipeline)
        if known is None or known[0] != version or (known[2] and now_s - known[1] > HELD_S_MAX):
            try:
                known = self._held[pipeline] = (version, now_s, self._read_held(pipeline))
            except (OSError, TransientError):
                return None
        oldest = retained[0].checkpoint if retained else 0
        return {
            checkpoint: offsets for checkpoint, offsets in known[2].items() if checkpoint < oldest
        }

    def has_any(self, pipeline: int) -> bool:
        """Whether a savepoint of this lineage has a part of this pipeline; also where that is not
        known now.
        """
        held = self.held(pipeline, ())
        return held is None or bool(self._held[pipeline][2])

    def _read_held(self, pipeline: int) -> dict[int, Mapping[str, Offset]]:
        held: dict[int, Mapping[str, Offset]] = {}
        first = self.job.lineage.partition("-")[0]
        for job_id in sorted({self.job.job_id, *([int(first)] if first.isdecimal() else [])}):
            for savepoint in self.savepoints.list(job_id):
                point = savepoint.pipelines.get(pipeline)
                if savepoint.lineage != self.job.lineage or point is None:
                    continue
                try:
                    states = self.savepoints.storage.read(point.path).states
                except (Damaged, NewerDocument):
                    continue  # nobody can restore from it
                held[point.checkpoint] = {
                    name: state["offset"] for name, state in states.items() if "offset" in state
                }
        return held

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except TransientError:  # the store is out of reach: patience
                pass
            except Exception:
                LOG.exception(
                    "the savepoint request cannot be read", extra={"job_id": self.job.job_id}
                )
            if self.clock.wait(self._ended, LOOK_S):
                return
