"""Observes a cluster continuously from outside and records what must never happen: ended jobs that
come back, numbers that go back. Used by cluster_kit.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.model.document import from_document
from tidegate.model.errors import TransientError
from tidegate.model.records import (
    JOB_STATES,
    LEASES,
    PIPELINES,
    RUNNING_JOBS,
    JobState,
    JobStatus,
    Lease,
    PipelineState,
)
from tidegate.store.open import open_store

PAUSE_S = 0.2
ASK_EVERY = 3  # turns
STALE_S = 6.0  # a server may show what it knew five seconds ago
Asked = Sequence[tuple[str, Callable[[], Mapping[int, Any]]]]


class ClusterObserver:
    """A thread with a store of its own. `servers` returns those to query for the running jobs."""

    def __init__(self, url: str, servers: Callable[[], Asked]) -> None:
        self.violations: list[str] = []
        self.polls = 0
        self._url = url
        self._servers = servers
        self._ended: dict[
            int, tuple[int, JobStatus, float]
        ] = {}  # by job: incarnation, how, since when
        self._highest: dict[tuple[object, ...], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        store = open_store(self._url)
        while not self._stop.wait(PAUSE_S):
            listed = self._listed() if self.polls % ASK_EVERY == 0 else {}
            try:
                states = {
                    int(e.key): from_document(JobState, e.value) for e in store.list(JOB_STATES)
                }
                jobs = {
                    int(e.key): int(e.value["initialization_ms"]) for e in store.list(RUNNING_JOBS)
                }
                pipelines = [from_document(PipelineState, e.value) for e in store.list(PIPELINES)]
                lease = store.get(LEASES, "coordinator")
            except TransientError:
                continue
            self.polls += 1
            self._judge_states(states, jobs)
            self._judge_lists(states, listed)
            for p in pipelines:
                if p.latest is not None:
                    self._grows(("checkpoints", p.job_id, p.pipeline), p.latest.checkpoint)
                self._grows(("next checkpoint", p.job_id, p.pipeline), p.next_checkpoint)
                self._grows(("generation of a pipeline", p.job_id, p.pipeline), p.generation)
            if lease is not None:
                self._grows(("term",), from_document(Lease, lease.value).term)
        store.close()

    def _listed(self) -> dict[str, Mapping[int, Any]]:
        listed = {}
        for name, running in self._servers():
            try:
                listed[name] = running()
            # the server does not answer, mostly because a test stopped it: nothing to check then
            except Exception:
                continue
        return listed

    def _judge_states(self, states: Mapping[int, JobState], jobs: Mapping[int, int]) -> None:
        for job, state in states.items():
            self._grows(("generation", job), state.generation)
            ended = self._ended.get(job)
            if (
                ended is not None
                and ended[0] == state.initialization_ms
                and ended[1] is not state.status
            ):
                self._note(f"job {job} was {ended[1]} and became {state.status}")
            if not state.status.terminal:
                self._ended.pop(job, None)
            elif ended is None or ended[0] != state.initialization_ms:
                self._ended[job] = (state.initialization_ms, state.status, time.monotonic())
            if state.status.terminal and jobs.get(job) == state.initialization_ms:
                self._note(f"job {job} is {state.status} and still among the running jobs")

    def _judge_lists(
        self, states: Mapping[int, JobState], listed: Mapping[str, Mapping[int, Any]]
    ) -> None:
        """The lists are read before the store: jobs that the store shows as ended long ago must
        not be in them.
        """
        for name, running in listed.items():
            for job in running:
                ended = self._ended.get(job)
                same = job not in states or (
                    ended is not None and states[job].initialization_ms == ended[0]
                )
                if ended is not None and same and time.monotonic() - ended[2] > STALE_S:
                    self._note(f"job {job} is {ended[1]} and server {name} lists it as running")

    def _grows(self, what: tuple[object, ...], number: int) -> None:
        before = self._highest.get(what, 0)
        if number < before:
            self._note(f"{' '.join(map(str, what))} went back from {before} to {number}")
        self._highest[what] = max(before, number)

    def _note(self, violation: str) -> None:
        if violation not in self.violations:
            self.violations.append(violation)
