"""Leads one job from this process: starts its driver, restarts it, ends the job.

Called by `tidegate run`. The driver's facts come from the store alone; its exit code only says that
it is time to read them. The desired state comes from the store too (JobIntent, SavepointRequest:
any server writes them), and from the signals of this process.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidegate.clock import Clock
from tidegate.coordinator.claim import Claim, Claimant
from tidegate.coordinator.driver_stop import DriverStop
from tidegate.coordinator.job_history import with_status
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.coordinator.savepoint_requests import SavepointReply, abandon_savepoint, request_of
from tidegate.coordinator.stall_detector import StallDetector
from tidegate.coordinator.terminal_transaction import OwnedGeneration, end_job, status_of
from tidegate.lifecycle.observation import JobHealth, LifecycleLimits
from tidegate.lifecycle.retry import Exhausted, next_retry
from tidegate.lifecycle.stopping import unkillable
from tidegate.model.document import to_document
from tidegate.model.engine import CheckpointSettings, DriverSpec
from tidegate.model.errors import TerminalError
from tidegate.model.records import (
    JOB_STATES,
    CheckpointHealth,
    DesiredState,
    DriverCommand,
    Failure,
    JobOutcome,
    JobState,
    JobStatus,
    ProcessRef,
    SavepointRequest,
    SavepointStatus,
)
from tidegate.runner.exits import DriverExit
from tidegate.runner.launch import DriverProcess
from tidegate.runner.process import ProvenDead
from tidegate.store.base import Check, OutcomeUnknown, Put
from tidegate.store.errors import Conflict, StoreUnavailable

LOG = logging.getLogger("tidegate.coordinator")
WATCH_S = 0.1
PAUSED_WATCH_S = 0.5
NEVER = threading.Event()
DEFAULTS = CheckpointSettings()
LIMITS = LifecycleLimits()
ORDERS = {DesiredState.CANCEL: DriverCommand.STOP, DesiredState.FORCE_STOP: DriverCommand.KILL}
CAN_BE_STOPPED = (
    JobStatus.SCHEDULED,
    JobStatus.RUNNING,
    JobStatus.RECOVERING,
    JobStatus.DOING_SAVEPOINT,
)


class TakenOver(TerminalError):
    """Another process leads this job now."""

    condition = "taken-over"


@dataclass(frozen=True, slots=True)
class DriverLaunch:
    """How drivers are started: everything but the generation."""

    start: Callable[[DriverSpec], DriverProcess]
    spec: DriverSpec


class Supervisor:
    """One job, led until it ends."""

    def __init__(
        self,
        claimant: Claimant,
        claim: Claim,
        me: ProcessRef,
        launch: DriverLaunch,
        clock: Clock,
        checkpoint: CheckpointSettings = DEFAULTS,
        stop: DriverStop | None = None,
    ) -> None:
        self.claimant = claimant
        self.claim = claim
        self.me = me
        self.launch = launch
        self.clock = clock
        self.stop = stop or DriverStop(LIMITS, clock)
        self.store = claimant.store
        self.stall = StallDetector(self.store, checkpoint, clock)
        self._stalled = JobHealth()
        # The requested savepoint, and since when it is known here.
        self._saving: tuple[str, float] = ("", 0.0)
        self.driver: DriverProcess | None = None

    def start(self, on_start: Callable[[DriverProcess], None]) -> None:
        """Start the first driver, unless a stop was requested before."""
        self._on_start = on_start
        if not self.stopping():
            self._launch()

    def stopping(self) -> bool:
        """Whether a stop was requested, here or in the store."""
        return self.stop.requested.is_set()

    def watch(self, each: Callable[[JobSnapshot], None]) -> JobOutcome:
        """Wait until the job has ended; `each` receives the job's records a few times a second.

        Retries while the store is out of reach.
        """
        while True:
            self.clock.wait(NEVER, WATCH_S)
            try:
                outcome = self._poll(each)
            except (StoreUnavailable, OutcomeUnknown, Conflict):  # decided again by the new state
                continue
            if outcome is not None:
                return outcome

    def _poll(self, each: Callable[[JobSnapshot], None]) -> JobOutcome | None:
        if self.driver is None:
            return self._end(JobStatus.CANCELED)
        code = self.driver.poll()
        snapshot = self._snapshot()
        each(snapshot)
        if code is None and self.stop.overdue:
            return self._end(
                JobStatus.CANCELED,
                unkillable(
                    self.driver.ref, self.stop.limits, self.clock.now_ms(), self.claim.generation
                ),
            )
        if (
            code is None
            and (health := self.stall.check(snapshot)).level is CheckpointHealth.STALLED
            and not self.stopping()
        ):
            LOG.warning(
                "job_stalled",
                extra={
                    "job_id": snapshot.job_id,
                    "generation": self.claim.generation,
                    "why": health.reason,
                },
            )
            self._stalled = health
            self.driver.kill()  # handled like any other death of a driver
        return self._handle_driver_exit(code, snapshot) if code is not None else None

    def _snapshot(self) -> JobSnapshot:
        """Read the job's records, after updating its status and applying its intent."""
        snapshot = read_job(self.store, self.claim.job.job_id)
        if snapshot.state is None or snapshot.state.value.leader != self.me:
            return snapshot
        with contextlib.suppress(
            StoreUnavailable,
            OutcomeUnknown,
            # Written again in the next iteration: a store that a hung driver has locked must not
            # hide the hang.
        ):
            self._apply(snapshot)
            self._running(snapshot, snapshot.state.value)
            self._watch_savepoint(snapshot)
        return snapshot

    def _apply(self, snapshot: JobSnapshot) -> None:
        """Stop as the store requests it; CANCELING is recorded for every kind of stop.

        A claim writes a new intent, so that an old one cannot be read here.
        """
        assert snapshot.record is not None
        assert snapshot.state is not None
        intent, state = snapshot.record.value.intent, snapshot.state.value
        if intent.desired in ORDERS:
            who = f" by {intent.by}" if intent.by else ""
            how = "force stop" if intent.desired is DesiredState.FORCE_STOP else "stop"
            if self.stop.request(ORDERS[intent.desired], f"{how} requested{who}"):
                LOG.info(
                    "stop_requested",
                    extra={
                        "job_id": snapshot.job_id,
                        "generation": state.generation,
                        "why": self.stop.reason,
                    },
                )
        if self.stopping() and state.status in CAN_BE_STOPPED:
            self._set_status(snapshot, JobStatus.CANCELING, self.stop.reason)

    def _handle_driver_exit(self, code: int, snapshot: JobSnapshot) -> JobOutcome | None:
        """Return the job's outcome, or None if another driver was started."""
        assert self.driver is not None
        if snapshot.state is None or snapshot.state.value.leader != self.me:
            return self._ended_elsewhere(snapshot)
        status = status_of(snapshot)
        request = request_of(snapshot)
        if (
            status is not JobStatus.FINISHED
            and request is not None
            and request.value.stop
            and request.value.status is SavepointStatus.DONE
        ):
            return self._end(JobStatus.SAVEPOINT_DONE)
        if status is not None:
            return self._end(status)
        if self.stopping():
            return self._end(JobStatus.CANCELED)
        failure = self._failure(code)
        retry = next_retry(
            restarts=snapshot.state.value.restarts,
            times=self.claim.job.plan.env.retry_times,
            progressed=self._progressed(snapshot),
        )
        if isinstance(retry, Exhausted):
            return self._end(JobStatus.FAILED, failure)
        LOG.warning(
            "driver_died",
            extra={
                "job_id": snapshot.job_id,
                "generation": self.claim.generation,
                "why": failure.message,
            },
        )
        self.claim = self.claimant.restart(self.claim.job, self.me, failure, self.clock.now_ms())
        self._pause(self.claim.job.plan.env.retry_interval_s)
        if self.stopping():
            return self._end(JobStatus.CANCELED)
        self._launch()
        return None

    def _pause(self, seconds: float) -> None:
        """Wait before a restart; any stop ends the wait."""
        until_s = self.clock.monotonic_s() + seconds
        while not self.stopping() and (left_s := until_s - self.clock.monotonic_s()) > 0:
            self.clock.wait(self.stop.requested, min(left_s, PAUSED_WATCH_S))
            with contextlib.suppress(StoreUnavailable, OutcomeUnknown):
                self._snapshot()

    def _ended_elsewhere(self, snapshot: JobSnapshot) -> JobOutcome:
        """Return the outcome if servers have ended this run.

        TakenOver if another process leads the job.
        """
        ended = snapshot.outcome
        if (
            snapshot.record is None
            and ended is not None
            and ended.initialization_ms == self.claim.job.initialization_ms
        ):
            return ended
        raise TakenOver(f"job {self.claim.job.job_id} is led by another process now")

    def _failure(self, code: int) -> Failure:
        """Return why the driver is dead; for a stalled driver that was killed, why it stalled."""
        stalled, self._stalled = self._stalled, JobHealth()
        if stalled.level is CheckpointHealth.STALLED:
            condition, message = (
                "stalled",
                f"no checkpoint within the time allowed: {stalled.reason}",
            )
        else:
            condition = "fenced" if code == DriverExit.FENCED else "driver-died"
            message = f"the driver died ({describe_exit(code)}){self._stderr_tail()}"
        return Failure(
            at_ms=self.clock.now_ms(),
            generation=self.claim.generation,
            condition=condition,
            message=message,
        )

    def _progressed(self, snapshot: JobSnapshot) -> bool:
        return (
            snapshot.state is not None
            and sum(p.value.checkpoints for p in snapshot.pipelines)
            > snapshot.state.value.checkpoints
        )

    def _stderr_tail(self) -> str:
        words = self.driver.stderr_tail() if self.driver else ""
        return f": {words}" if words else ""

    def _launch(self) -> None:
        self.stall.begin()
        self.driver = self.launch.start(replace(self.launch.spec, generation=self.claim.generation))
        self._on_start(self.driver)
        self.stop.attach(self.driver)

    def _running(self, snapshot: JobSnapshot, state: JobState) -> None:
        """Record RUNNING once the driver is registered."""
        if (
            snapshot.driven
            and not self.stopping()
            and state.status in (JobStatus.SCHEDULED, JobStatus.RECOVERING)
        ):
            self._set_status(snapshot, JobStatus.RUNNING, state.reason)

    def _set_status(self, snapshot: JobSnapshot, status: JobStatus, reason: str) -> None:
        """Record another status; a concurrent change is read in the next iteration."""
        assert snapshot.state is not None
        key, before = str(snapshot.job_id), snapshot.state.value
        state = with_status(before, status, self.clock.now_ms(), event_reason=reason, reason=reason)
        try:
            self.store.transact(
                [Check(JOB_STATES, key, snapshot.state.version)],
                [Put(JOB_STATES, key, to_document(state))],
            )
        except Conflict:
            return
        self._log(before.status, status)

    def _watch_savepoint(self, snapshot: JobSnapshot) -> None:
        """Record DOING_SAVEPOINT while the driver ends with one, RUNNING if it failed.

        An overdue savepoint is abandoned.
        """
        assert snapshot.state is not None
        request, before = request_of(snapshot), snapshot.state.value
        status = _status_with_savepoint(before.status, request.value if request else None)
        answer = (
            abandon_savepoint(snapshot, self._overdue(request.value), self.clock.now_ms())
            if request
            else SavepointReply()
        )
        if status is before.status and not answer.writes:
            return
        reason = request.value.reason if request else ""
        state = replace(
            (
                before
                if status is before.status
                else with_status(before, status, self.clock.now_ms(), event_reason=reason)
            ),
            reason=reason,
        )
        key = str(snapshot.job_id)
        try:
            self.store.transact(
                [Check(JOB_STATES, key, snapshot.state.version), *answer.checks],
                [Put(JOB_STATES, key, to_document(state)), *answer.writes],
            )
        except Conflict:
            return
        if status is not before.status:
            self._log(before.status, status)

    def _overdue(self, request: SavepointRequest) -> str:
        """Return why a savepoint is abandoned; empty while there is time."""
        now_s = self.clock.monotonic_s()
        if self._saving[0] != request.id:
            self._saving = (request.id, now_s)
        return (
            f"it was not complete within {LIMITS.savepoint_ms // 1000} s"
            if now_s - self._saving[1] >= LIMITS.savepoint_ms / 1000
            else ""
        )

    def _end(self, status: JobStatus, failure: Failure | None = None) -> JobOutcome:
        """End the job: the driver's session is proven dead, its scratch files are removed."""
        if self.driver is None or isinstance(self.driver.kill(), ProvenDead):
            self.claimant.clear_work(self.claim.job.job_id, self.claim.generation)
        owned = OwnedGeneration(self.claim.job.job_id, self.claim.generation)
        reason = self.stop.reason if status is JobStatus.CANCELED else ""
        outcome = end_job(
            self.store, self.claimant.storage, owned, status, self.clock.now_ms(), failure, reason
        )
        self._log(JobStatus.RUNNING, status)
        return outcome

    def _log(self, before: JobStatus, after: JobStatus) -> None:
        LOG.info(
            "job_status_changed",
            extra={
                "job_id": self.claim.job.job_id,
                "generation": self.claim.generation,
                "from": before.value,
                "to": after.value,
            },
        )


def _status_with_savepoint(status: JobStatus, request: SavepointRequest | None) -> JobStatus:
    """Return the status of a running job, given its savepoint request."""
    ends = request is not None and request.stop and request.status is not SavepointStatus.FAILED
    if status is JobStatus.RUNNING and ends:
        return JobStatus.DOING_SAVEPOINT
    return JobStatus.RUNNING if status is JobStatus.DOING_SAVEPOINT and not ends else status


def describe_exit(code: int) -> str:
    """Describe an exit code or signal."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
