"""Shared parts of the restore tests: a lost store, damage, savepoints, the next generation."""

from pathlib import Path

from coordinator_parts import Installation
from test_reconciler import LeadingServer

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.model.records import CheckpointRef, JobStatus, PipelineState


def without_store(here: Installation, place: Path) -> Installation:
    """The same checkpoints, and a store that knows nothing."""
    lost = Installation(place)
    lost.storage = here.storage
    lost.commands.storage = here.storage
    lost.clock.ms = here.clock.ms + 1_000
    return lost


def damage(here: Installation, ref: CheckpointRef) -> None:
    manifest = Path(here.storage.files.describe(ref.path)) / "_manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:20])


def save(
    here: Installation, ref: CheckpointRef, id: str = "1700000000000", job_id: int = 7
) -> Savepoint:
    """A savepoint of a job with one pipeline."""
    savepoints = Savepoints(here.storage.files)
    point = savepoints.copy(ref.path, job_id, id, 1)
    lineage = here.storage.manifest(ref.path).lineage
    path = savepoints.seal(
        Savepoint(
            id=id,
            path="",
            job_id=job_id,
            lineage=lineage,
            name="a job",
            made_ms=here.clock.now_ms(),
            pipelines={1: point},
            operators="",
            software="",
        )
    )
    return savepoints.read(path)


def scheduled(here: Installation, job_id: int = 7) -> PipelineState:
    """Let a leader schedule the next generation; return its pipeline state."""
    leader = LeadingServer(here)
    leader.worker()
    leader.turns(3)
    assert here.state(job_id).status is JobStatus.SCHEDULED, here.state(job_id)
    leader.elector.resign()
    return here.pipeline(job_id)


def checkpoints(here: Installation, count: int, job_id: int = 7) -> list[CheckpointRef]:
    return [here.checkpoint(job_id) for _ in range(count)]
